package forwarder

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"zonehop/selector"
)

// trackingVectors are the matrices of tracking modes, as data.
type trackingVectors struct {
	Comment string `json:"comment"`
	Keys    []struct {
		Affinity, Mode, Packet string
		Hash, Key              int
	} `json:"keys"`
	Tracked []struct {
		Affinity, Mode, Packet, Flags, Tracked string
	} `json:"tracked"`
	Unhealthy []struct {
		Option, Affinity, Mode, Packet, Unhealthy string
	} `json:"unhealthy"`
}

func readTrackingVectors(t *testing.T) trackingVectors {
	t.Helper()
	b, err := os.ReadFile("testdata/tracking.json")
	if err != nil {
		t.Fatal(err)
	}
	var v trackingVectors
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	if len(v.Keys) < 40 || len(v.Tracked) < 60 || len(v.Unhealthy) < 100 {
		t.Fatalf("%d, %d and %d vectors: too few", len(v.Keys), len(v.Tracked), len(v.Unhealthy))
	}
	return v
}

var (
	affinityNames = names(selector.AffinityNone, selector.AffinityClientIP, selector.AffinityClientIPProto,
		selector.AffinityClientIPPortProto, selector.AffinityClientIPNoDestination)
	modeNames   = names(selector.PerConnection, selector.PerSession)
	optionNames = names(selector.PersistDefault, selector.PersistNever, selector.PersistAlways)
)

func names[T fmt.Stringer](values ...T) map[string]T {
	m := make(map[string]T)
	for _, v := range values {
		m[v.String()] = v
	}
	return m
}

func lookUp[T any](t *testing.T, m map[string]T, name string) T {
	t.Helper()
	v, ok := m[name]
	if !ok {
		t.Fatalf("unknown name %q in the vectors", name)
	}
	return v
}

// member says which part of a packet differs from the usual one.
type member int

const (
	same member = iota
	otherPort
	otherProto
	otherDst
	otherSrc
)

// trackedFrame builds a packet through a route, where every member can differ.
func trackedFrame(kind, flags string, differs member, n int) []byte {
	src, dst, port := client4, netip.MustParseAddr("192.168.1.1"), uint16(1000)
	switch differs {
	case otherPort:
		port += uint16(n)
	case otherProto:
		kind = map[string]string{"tcp": "udp", "udp": "tcp", "sctp": "udp", "gre": "esp"}[kind]
		flags = map[string]string{"udp": "", "tcp": "A"}[kind]
	case otherDst:
		dst = netip.AddrFrom4([4]byte{192, 168, 2, byte(n)})
	case otherSrc:
		src = netip.AddrFrom4([4]byte{10, 1, 0, byte(100 + n)})
	}
	switch kind {
	case "tcp":
		return tcpFrame(src, dst, port, 80, flags)
	case "udp":
		return udpFrame(src, dst, port, 80)
	case "sctp":
		return frame(ip4(src, dst, layers.IPProtocolSCTP), &layers.SCTP{SrcPort: layers.SCTPPort(port), DstPort: 80}, gopacket.Payload("chunk"))
	case "esp":
		return frame(ip4(src, dst, layers.IPProtocolESP), gopacket.Payload("opaque bytes"))
	default:
		return frame(ip4(src, dst, layers.IPProtocolGRE), gopacket.Payload("opaque bytes"))
	}
}

// counts says which members take part in a tuple of n members.
func (m member) counts(tuple int) bool {
	switch m {
	case otherPort:
		return tuple >= 5
	case otherProto:
		return tuple >= 3
	case otherDst:
		return tuple >= 2
	case otherSrc:
		return true
	}
	return false
}

func trackingRig(t *testing.T, affinity, mode, option string) *rig {
	t.Helper()
	r := newRig(t, rigOptions{backends: 10})
	for i := range r.options.Routes {
		r.options.Routes[i].Symmetric = false
	}
	r.reconfigure(func(o *selector.ServiceOptions) {
		o.Weighted = true
		o.Affinity = lookUp(t, affinityNames, affinity)
		o.TrackingMode = lookUp(t, modeNames, mode)
		o.Persistence = lookUp(t, optionNames, option)
	})
	return r
}

// TestTrackingKeys: what differs in a member of the key is another entry, and
// what differs in a member of the hash may be another backend; nothing else is.
func TestTrackingKeys(t *testing.T) {
	for _, v := range readTrackingVectors(t).Keys {
		t.Run(v.Affinity+"/"+v.Mode+"/"+v.Packet, func(t *testing.T) {
			flags := map[string]string{"tcp": "A"}[v.Packet]
			for m := otherPort; m <= otherSrc; m++ {
				if m == otherPort && v.Packet == "gre" {
					continue
				}
				r := trackingRig(t, v.Affinity, v.Mode, "DEFAULT_FOR_PROTOCOL")
				first := backendOf(t, r.run(0, trackedFrame(v.Packet, flags, same, 0)))
				moved := false
				for n := range 40 {
					got := backendOf(t, r.run(0, trackedFrame(v.Packet, flags, m, n+1)))
					moved = moved || got != first
				}
				entries := int(r.table.Stats().Used)
				if want := m.counts(v.Key); want != (entries > 1) {
					t.Errorf("member %d differs: %d entries, key of %d members", m, entries, v.Key)
				}
				// An entry that is found keeps its backend whatever the hash says,
				// so the hash shows only where the key sets flows apart.
				if m.counts(v.Key) && m != otherProto && moved != m.counts(v.Hash) {
					t.Errorf("member %d differs: other backends chosen: %v, hash of %d members", m, moved, v.Hash)
				}
			}
		})
	}
}

// moves reports whether a packet of a tracked flow leaves its backend, after
// change has been made to that backend.
func moves(t *testing.T, r *rig, kind, flags string, change func(backend int)) bool {
	t.Helper()
	opening := map[string]string{"tcp": "A"}[kind]
	r.run(0, trackedFrame(kind, opening, same, 0))
	was := backendOf(t, r.run(0, trackedFrame(kind, opening, same, 0)))
	change(was)
	now := backendOf(t, r.run(0, trackedFrame(kind, flags, same, 0)))
	r.checkAccounts()
	return now != was
}

// TestTrackedPackets: a packet of a known flow stays, unless it is a SYN where
// entries stand for connections. Weight 0 makes any new selection go elsewhere.
func TestTrackedPackets(t *testing.T) {
	for _, v := range readTrackingVectors(t).Tracked {
		t.Run(v.Affinity+"/"+v.Mode+"/"+v.Packet+v.Flags, func(t *testing.T) {
			r := trackingRig(t, v.Affinity, v.Mode, "DEFAULT_FOR_PROTOCOL")
			moved := moves(t, r, v.Packet, v.Flags, func(b int) {
				r.reconfigure(func(o *selector.ServiceOptions) {
					o.Backends = append([]selector.BackendOptions(nil), o.Backends...)
					o.Backends[b].Weight = 0
				})
			})
			if want := v.Tracked == "select"; moved != want {
				t.Errorf("moved: %v, want %v", moved, want)
			}
		})
	}
}

// TestUnhealthyBackend: the persistence matrix.
func TestUnhealthyBackend(t *testing.T) {
	for _, v := range readTrackingVectors(t).Unhealthy {
		t.Run(v.Option+"/"+v.Affinity+"/"+v.Mode+"/"+v.Packet, func(t *testing.T) {
			r := trackingRig(t, v.Affinity, v.Mode, v.Option)
			flags := map[string]string{"tcp": "A"}[v.Packet]
			moved := moves(t, r, v.Packet, flags, func(b int) {
				r.builder.SetHealth("web", fmt.Sprintf("b%d", b), selector.V4, selector.Unhealthy)
				r.builder.Publish(r.clock)
			})
			if want := v.Unhealthy == "select"; moved != want {
				t.Errorf("moved: %v, want %v", moved, want)
			}
		})
	}
}

package selector

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
	"unsafe"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// zoneNames are the zones of grid: a, b, c …
func zoneName(i int) string { return fmt.Sprintf("zone-%c", 'a'+i) }

// grid is one service of n backends spread over the zones, with one rule and clients 10.<zone>/16.
func grid(n, zones int) Options {
	o := Options{HashKey: "test", Ports: []string{"eth0", "eth1"}}
	for z := range zones {
		o.Zones = append(o.Zones, ZoneOptions{zoneName(z), prefixes(fmt.Sprintf("10.%d.0.0/16", z+1))})
	}
	s := ServiceOptions{Name: "web", DrainTimeout: time.Minute, Policy: Policy{Spillover: SpillCrossZone}}
	for i := range n {
		s.Backends = append(s.Backends, BackendOptions{
			Name: fmt.Sprintf("b%04d", i), Zone: zoneName(i % zones), Weight: 1,
			Address: netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}),
		})
	}
	o.Services = []ServiceOptions{s}
	o.Rules = []RuleOptions{{
		Name: "vip", Address: addr("192.0.2.1"), Protocol: protoTCP, Ports: []PortRange{{80, 80}},
		Service: "web", AllowGlobalAccess: true, VIPPing: true,
	}}
	return o
}

// healthy makes every backend healthy and deliverable, and publishes.
func healthy(b *Builder, nowNanos int64) *Snapshot {
	o := &b.options
	for i := range o.Services {
		for _, e := range o.Services[i].Backends {
			for f, a := range []netip.Addr{e.Address, e.Address6} {
				if a.IsValid() {
					b.SetHealth(o.Services[i].Name, e.Name, Family(f), Healthy)
					b.SetDelivery(a, Delivery{State: Deliverable, Len: 12})
				}
			}
		}
	}
	return b.Publish(nowNanos)
}

func mustNew(t testing.TB, o Options) *Builder {
	t.Helper()
	b, err := New(o, 0)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tupleFrom is a TCP tuple from a client to 192.0.2.1:80.
func tupleFrom(client string, port uint16) Tuple {
	return Tuple{
		Src: words(addr(client)), Dst: words(addr("192.0.2.1")), SrcPort: port, DstPort: 80,
		Proto: protoTCP, HasPorts: true,
	}
}

func TestSelectStaysInZone(t *testing.T) {
	b := mustNew(t, grid(12, 3))
	s := healthy(b, 1)
	r := s.VIP(words(addr("192.0.2.1"))).Rule(protoTCP, 80, true)
	seen := map[string]bool{}
	for port := range uint16(500) {
		tuple := tupleFrom("10.2.0.9", port)
		c := s.Select(r, &tuple)
		if c.Result != Selected || c.ClientZone != 2 {
			t.Fatalf("Select = %+v, want a backend for zone 2", c)
		}
		e := s.Backend(c.Backend)
		if e.Zone != 2 {
			t.Fatalf("client of zone 2 got %s of zone %d", e.Name, e.Zone)
		}
		seen[e.Name] = true
	}
	if len(seen) != 4 {
		t.Errorf("backends used = %v, want the 4 of the zone", seen)
	}
	for port := range uint16(500) {
		tuple := tupleFrom("198.51.100.7", port)
		seen[s.Backend(s.Select(r, &tuple).Backend).Name] = true
	}
	if len(seen) != 12 {
		t.Errorf("a client without a zone reached %d backends in all, want 12", len(seen))
	}
}

// TestBackendLines guards what the order of Backend's fields buys.
func TestBackendLines(t *testing.T) {
	var b Backend
	if size := unsafe.Sizeof(b); size != 256 {
		t.Errorf("a backend takes %d bytes, want 256", size)
	}
	if at := unsafe.Offsetof(b.Delivery); at != 64 {
		t.Errorf("the IPv4 delivery is at %d, want at the second cache line", at)
	}
}

package selector

import (
	"math"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// TestTrackingKeyShapes is the table of tracking keys and hashes.
func TestTrackingKeyShapes(t *testing.T) {
	for _, c := range []struct {
		affinity    SessionAffinity
		ports       bool
		hash        uint8
		connections uint8 // key under PER_CONNECTION
		session     uint8 // key under PER_SESSION
	}{
		{AffinityNone, true, Shape5, Shape5, Shape5},
		{AffinityNone, false, Shape3, Shape3, Shape3},
		{AffinityClientIPPortProto, true, Shape5, Shape5, Shape5},
		{AffinityClientIPPortProto, false, Shape3, Shape3, Shape3},
		{AffinityClientIPProto, true, Shape3, Shape5, Shape3},
		{AffinityClientIPProto, false, Shape3, Shape3, Shape3},
		{AffinityClientIP, true, Shape2, Shape5, Shape2},
		{AffinityClientIP, false, Shape2, Shape3, Shape2},
		{AffinityClientIPNoDestination, true, Shape1, Shape5, Shape1},
		{AffinityClientIPNoDestination, false, Shape1, Shape3, Shape1},
	} {
		for mode, want := range map[TrackingMode]uint8{PerConnection: c.connections, PerSession: c.session} {
			o := grid(2, 1)
			o.Services[0].Affinity, o.Services[0].TrackingMode = c.affinity, mode
			r := &healthy(mustNew(t, o), 1).Rules[0]
			tuple := tupleFrom("10.1.0.1", 4000)
			tuple.HasPorts = c.ports
			src, dst, srcPort, dstPort, proto, kind := r.TrackingKey(&tuple)
			what := c.affinity.String() + " " + mode.String()
			if kind != want || r.hash[portIndex(&tuple)] != c.hash {
				t.Errorf("%s, ports %v: key %d, hash %d, want %d, %d", what, c.ports, kind, r.hash[portIndex(&tuple)], want, c.hash)
			}
			if whole := kind == Shape5; c.ports && r.TracksConnections() != whole {
				t.Errorf("%s: TracksConnections() = %v, want %v", what, !whole, whole)
			}
			if src != tuple.Src || (dst == tuple.Dst) != (kind != Shape1) || (srcPort == 4000 && dstPort == 80) != (kind == Shape5) ||
				(proto == protoTCP) != (kind == Shape5 || kind == Shape3) {
				t.Errorf("%s: key of shape %d has members %x %x %d %d %d", what, kind, src, dst, srcPort, dstPort, proto)
			}
		}
	}
}

// drawTuple draws any tuple; few distinct values make equal endpoints likely.
func drawTuple(t *rapid.T) Tuple {
	word := rapid.Custom(func(t *rapid.T) [2]uint64 {
		if rapid.Bool().Draw(t, "IPv4") {
			return [2]uint64{0, 0xffff<<32 | uint64(rapid.Uint32().Draw(t, "address"))}
		}
		return [2]uint64{rapid.Uint64Range(0, 2).Draw(t, "high"), rapid.Uint64().Draw(t, "low")}
	})
	return Tuple{
		Src: word.Draw(t, "source"), Dst: word.Draw(t, "destination"),
		SrcPort: rapid.Uint16().Draw(t, "source port"), DstPort: rapid.Uint16().Draw(t, "destination port"),
		Proto: rapid.SampledFrom([]uint8{1, protoTCP, protoUDP, protoSCTP}).Draw(t, "protocol"), HasPorts: rapid.Bool().Draw(t, "has ports"),
	}
}

// TestSymmetric: both directions of a flow have one key and one backend, for every affinity that a
// symmetric route may have.
func TestSymmetric(t *testing.T) {
	for _, affinity := range []SessionAffinity{AffinityNone, AffinityClientIP, AffinityClientIPProto, AffinityClientIPPortProto} {
		o := grid(50, 1)
		o.Services[0].Affinity = affinity
		o.Services[0].Policy.Spillover = AffinityDisabled
		for i := range o.Services[0].Backends {
			o.Services[0].Backends[i].Address6 = addr("2001:db8::1")
		}
		o.Routes = []RouteOptions{
			{Name: "four", DestRange: prefixes("0.0.0.0/0")[0], Service: "web", Symmetric: true},
			{Name: "six", DestRange: prefixes("::/0")[0], Service: "web", Symmetric: true},
		}
		s := healthy(mustNew(t, o), 1)
		rapid.Check(t, func(t *rapid.T) {
			there := drawTuple(t)
			back := there.Reverse()
			for _, name := range []string{"four", "six"} {
				r := s.Rule(name)
				if a, b := s.Select(r, &there), s.Select(r, &back); a.Backend != b.Backend || a.Backend == 0 {
					t.Fatalf("%v: Select = %+v one way, %+v the other", affinity, a, b)
				}
				if r.TracksConnections() {
					t.Fatal("TracksConnections() of a symmetric rule: its endpoints are ordered")
				}
				s1, d1, sp1, dp1, p1, k1 := r.TrackingKey(&there)
				s2, d2, sp2, dp2, p2, k2 := r.TrackingKey(&back)
				if s1 != s2 || d1 != d2 || sp1 != sp2 || dp1 != dp2 || p1 != p2 || k1 != k2 {
					t.Fatalf("%v: the two directions have two keys", affinity)
				}
			}
		})
	}
}

// TestHashSpreads: tuples that differ in one member by consecutive values, as real ones do, spread
// over slots like random ones (chi-squared over 256 cells, 255 degrees of freedom).
func TestHashSpreads(t *testing.T) {
	const n, cells = 1 << 16, 256
	for name, vary := range map[string]func(*Tuple, uint64){
		"source port":    func(t *Tuple, i uint64) { t.SrcPort = uint16(i) },
		"ports":          func(t *Tuple, i uint64) { t.SrcPort, t.DstPort = uint16(i), uint16(i) },
		"client":         func(t *Tuple, i uint64) { t.Src[1] += i },
		"client subnets": func(t *Tuple, i uint64) { t.Src[1] += i << 8 },
		"IPv6 prefixes":  func(t *Tuple, i uint64) { t.Src = [2]uint64{0x20010db8<<32 + i, 1} },
		"destination":    func(t *Tuple, i uint64) { t.Dst[1] += i },
		"both addresses": func(t *Tuple, i uint64) { t.Src[1] += i; t.Dst[1] += i },
	} {
		secret := newSecret("a key", "group")
		var count [cells]int
		for i := range uint64(n) {
			tuple := tupleFrom("10.0.0.0", 1000)
			vary(&tuple, i)
			h := secret.hash(tuple.Src, tuple.Dst, tuple.SrcPort, tuple.DstPort, tuple.Proto, Shape5)
			count[slotOf(h)*cells/slots]++
		}
		chi := 0.0
		for _, c := range count {
			d := float64(c) - n/cells
			chi += d * d / (n / cells)
		}
		// Six standard deviations of the normal approximation, on both sides: too even is no hash.
		if math.Abs(chi-255) > 6*math.Sqrt(2*255) {
			t.Errorf("%s: chi-squared = %.0f, want 255 ± 135", name, chi)
		}
	}
}

// TestKeyMatters: another hash key or group sends nearly every tuple elsewhere.
func TestKeyMatters(t *testing.T) {
	a, b, c := newSecret("one", "g"), newSecret("two", "g"), newSecret("one", "h")
	same := 0
	for port := range uint16(1000) {
		tuple := tupleFrom("10.0.0.1", port)
		h := func(s *secret) uint64 { return slotOf(s.hash(tuple.Src, tuple.Dst, port, 80, 6, Shape5)) * 10 / slots }
		if h(&a) == h(&b) || h(&a) == h(&c) {
			same++
		}
	}
	if same > 300 {
		t.Errorf("%d of 1000 tuples land in the same tenth under another key, want about 190", same)
	}
}

func BenchmarkHash(b *testing.B) {
	secret := newSecret("a key", "group")
	t := tupleFrom("10.0.0.1", 1)
	var sum uint64
	for b.Loop() {
		t.SrcPort++
		sum += secret.hash(t.Src, t.Dst, t.SrcPort, t.DstPort, t.Proto, Shape5)
	}
	if sum == 0 {
		b.Log("zero")
	}
}

// TestFirewallPair: the services on the two sides of a pair of firewalls, with other names and other
// addresses for the same machines, choose the same machine for the two directions of a flow.
func TestFirewallPair(t *testing.T) {
	o := grid(9, 1)
	o.Services[0].Affinity, o.Services[0].SymmetryGroup = AffinityClientIPPortProto, "firewalls"
	inside := o.Services[0]
	inside.Name, inside.Backends = "inside", nil
	for i, b := range o.Services[0].Backends {
		b.Address = netip.AddrFrom4([4]byte{172, 31, 0, byte(100 - i)})
		inside.Backends = append([]BackendOptions{b}, inside.Backends...)
	}
	o.Services = append(o.Services, inside)
	o.Routes = []RouteOptions{
		{Name: "out", DestRange: prefixes("192.168.0.0/16")[0], Service: "web", Symmetric: true},
		{Name: "in", DestRange: prefixes("10.0.0.0/8")[0], Service: "inside", Symmetric: true},
	}
	s := healthy(mustNew(t, o), 1)
	used := map[string]bool{}
	for port := range uint16(200) {
		there := tupleFrom("10.1.0.1", port)
		there.Dst = words(addr("192.168.7.7"))
		back := there.Reverse()
		a := s.Backend(s.Select(s.Route(there.Src, there.Dst, protoTCP, 0), &there).Backend)
		b := s.Backend(s.Select(s.Route(back.Src, back.Dst, protoTCP, 0), &back).Backend)
		if a.Name != b.Name || a.Service == b.Service {
			t.Fatalf("port %d: %s of service %d one way, %s of service %d the other", port, a.Name, a.Service, b.Name, b.Service)
		}
		used[a.Name] = true
	}
	if len(used) != 9 {
		t.Errorf("200 flows used %d firewalls, want 9", len(used))
	}
}

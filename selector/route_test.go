package selector

import (
	"net/netip"
	"testing"
)

func TestRoute(t *testing.T) {
	o := grid(2, 1)
	route := func(name, dest, src string, proto uint8, interfaces ...string) {
		r := RouteOptions{Name: name, DestRange: netip.MustParsePrefix(dest), Protocol: proto, Interfaces: interfaces, Service: "web"}
		if src != "" {
			r.SrcRange = netip.MustParsePrefix(src)
		}
		o.Routes = append(o.Routes, r)
	}
	route("default", "0.0.0.0/0", "", 0)
	route("ten", "10.0.0.0/8", "", 0)
	route("ten from a", "10.0.0.0/8", "172.16.0.0/12", 0)
	route("ten from a.a", "10.0.0.0/8", "172.16.1.0/24", 0)
	route("ten udp", "10.0.0.0/8", "172.16.1.0/24", protoUDP)
	route("ten.one on eth1", "10.1.0.0/16", "", 0, "eth1")
	route("six", "2001:db8::/32", "2001:db9::/32", 0)
	b := mustNew(t, o)
	b.SetPorts([]Port{{Name: "eth0", Index: 3, Addrs: prefixes("10.5.0.7/24", "2001:db8::7/64")}, {Name: "other", Index: 9}})
	s := b.Publish(1)
	if s.Ports[0].Index != 3 || s.Ports[1].Index != 0 || len(s.Ports) != 2 {
		t.Errorf("ports = %+v, want eth0 known and eth1 absent", s.Ports)
	}
	for _, c := range []struct {
		src, dst string
		proto    uint8
		port     int
		want     string
	}{
		{"192.0.2.1", "8.8.8.8", 6, 0, "default"},
		{"192.0.2.1", "10.2.3.4", 6, 0, "ten"},
		{"172.20.0.1", "10.2.3.4", 6, 0, "ten from a"},
		{"172.16.1.1", "10.2.3.4", 6, 0, "ten from a.a"},
		{"172.16.1.1", "10.2.3.4", protoUDP, 0, "ten udp"},
		{"172.16.1.1", "10.1.3.4", 6, 1, "ten.one on eth1"},
		{"172.16.1.1", "10.1.3.4", 6, 0, "ten from a.a"}, // the longer one is for another interface
		{"2001:db9::1", "2001:db8::1", 6, 0, "six"},
		{"2001:dba::1", "2001:db8::1", 6, 0, ""},
		{"2001:db9::1", "2001:dbb::1", 6, 0, ""},
		{"192.0.2.1", "10.5.0.7", 6, 0, ""},   // the host's own address
		{"192.0.2.1", "10.5.0.255", 6, 0, ""}, // its subnet's broadcast
		{"192.0.2.1", "10.5.0.8", 6, 0, "ten"},
		{"2001:db9::1", "2001:db8::7", 6, 0, ""},
		{"192.0.2.1", "224.0.0.5", 6, 0, ""},
		{"192.0.2.1", "255.255.255.255", 6, 0, ""},
		{"192.0.2.1", "169.254.1.1", 6, 0, ""},
		{"192.0.2.1", "127.0.0.1", 6, 0, ""},
		{"2001:db9::1", "fe80::1", 6, 0, ""},
		{"2001:db9::1", "ff02::1", 6, 0, ""},
	} {
		got := ""
		if r := s.Route(words(addr(c.src)), words(addr(c.dst)), c.proto, c.port); r != nil {
			got = r.Name
		}
		if got != c.want {
			t.Errorf("Route(%s, %s, %d, %d) = %q, want %q", c.src, c.dst, c.proto, c.port, got, c.want)
		}
	}
	if len(s.DestRanges) != 7 || s.DestRanges[1] != prefixes("10.0.0.0/8")[0] {
		t.Errorf("DestRanges = %v, want the 7 ranges", s.DestRanges)
	}
}

func TestPortsMove(t *testing.T) {
	o := grid(1, 1)
	b := mustNew(t, o)
	b.SetPorts([]Port{{Name: "eth1", Index: 5, Up: true}})
	b.SetDelivery(addr("172.16.0.0"), Delivery{State: Deliverable, Len: 12, Port: 1})
	if d := b.Publish(1).Backends[1].Delivery[V4]; d.Port != 1 || d.State != Deliverable {
		t.Fatalf("delivery = %+v, want through port 1", d)
	}
	o.Ports = []string{"eth1"}
	s := apply(t, b, o, 2)
	if d := s.Backends[1].Delivery[V4]; d.Port != 0 || d.State != Deliverable || s.Ports[0].Index != 5 {
		t.Errorf("delivery = %+v, ports %+v, want port 0 with index 5", d, s.Ports)
	}
	o.Ports = []string{"eth7"}
	if d := apply(t, b, o, 3).Backends[1].Delivery[V4]; d.Port != -1 || d.State != Pending {
		t.Errorf("delivery = %+v, want pending without a port", d)
	}
}

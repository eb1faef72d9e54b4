package selector

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// rulesOn gives one address rules of every sort.
func rulesOn(address string) Options {
	o := grid(2, 1)
	base := o.Rules[0]
	base.Address = addr(address)
	rule := func(name string, proto uint8, ports ...PortRange) {
		r := base
		r.Name, r.Protocol, r.Ports, r.AllPorts = name, proto, ports, len(ports) == 0
		o.Rules = append(o.Rules, r)
	}
	rule("web", protoTCP, PortRange{80, 80}, PortRange{443, 443})
	rule("range", protoTCP, PortRange{8000, 8100})
	rule("udp", protoUDP)
	rule("l3", 0)
	return o
}

func TestRuleOfAddress(t *testing.T) {
	s := healthy(mustNew(t, rulesOn("192.0.2.9")), 1)
	v := s.VIP(words(addr("192.0.2.9")))
	if v == nil || !v.L3Default {
		t.Fatalf("VIP = %+v, want one with an L3_DEFAULT rule", v)
	}
	for _, c := range []struct {
		proto uint8
		port  uint16
		ports bool
		want  string
	}{
		{protoTCP, 80, true, "web"}, {protoTCP, 443, true, "web"}, {protoTCP, 81, true, "l3"},
		{protoTCP, 7999, true, "l3"}, {protoTCP, 8000, true, "range"}, {protoTCP, 8100, true, "range"},
		{protoTCP, 8101, true, "l3"}, {protoTCP, 0, false, "l3"}, {protoUDP, 80, true, "udp"},
		{protoUDP, 0, false, "udp"}, {1, 0, false, "l3"}, {protoSCTP, 80, true, "l3"},
	} {
		if r := v.Rule(c.proto, c.port, c.ports); r == nil || r.Name != c.want {
			t.Errorf("Rule(%d, %d, %v) = %v, want %s", c.proto, c.port, c.ports, r, c.want)
		}
	}

	v = s.VIP(words(addr("192.0.2.1"))) // TCP port 80 alone
	for _, c := range []struct {
		proto uint8
		port  uint16
		ports bool
		found bool
	}{{protoTCP, 80, true, true}, {protoTCP, 81, true, false}, {protoTCP, 80, false, false}, {protoUDP, 80, true, false}, {1, 0, false, false}} {
		if r := v.Rule(c.proto, c.port, c.ports); (r != nil) != c.found {
			t.Errorf("Rule(%d, %d, %v) = %v, want found %v", c.proto, c.port, c.ports, r, c.found)
		}
	}
}

func TestManyPortRanges(t *testing.T) {
	o := grid(1, 1)
	o.Rules[0].Ports = nil
	for i := range uint16(200) {
		o.Rules[0].Ports = append(o.Rules[0].Ports, PortRange{(i*37 + 5) % 200 * 100, (i*37+5)%200*100 + 9})
	}
	v := healthy(mustNew(t, o), 1).VIPs[0]
	for port := range uint16(20100) {
		if got, want := v.Rule(protoTCP, port, true) != nil, port%100 < 10 && port < 20000; got != want {
			t.Fatalf("Rule(port %d) found %v, want %v", port, got, want)
		}
	}
}

func TestVIPIndex(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	want := map[[2]uint64]*VIP{}
	var vips []*VIP
	for i := range 3000 {
		a := [2]uint64{r.Uint64() & 0xff, r.Uint64() & 0xfff}
		if i%2 == 0 {
			a = words(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
		}
		if want[a] == nil {
			want[a] = &VIP{Addr: a}
			vips = append(vips, want[a])
		}
	}
	x := newVIPIndex(vips)
	for a, v := range want {
		if x.find(&a) != v {
			t.Fatalf("find(%x) is not the VIP entered", a)
		}
	}
	for range 10000 {
		a := [2]uint64{r.Uint64() & 0xff, r.Uint64() & 0x1fff}
		if x.find(&a) != want[a] {
			t.Fatalf("find(%x) = %v, want %v", a, x.find(&a), want[a])
		}
	}
	empty := newVIPIndex(nil)
	if empty.find(&[2]uint64{}) != nil || empty.find(&[2]uint64{1, 2}) != nil {
		t.Error("an empty index found something")
	}
}

func TestAnswers(t *testing.T) {
	o := grid(2, 1)
	base := o.Rules[0]
	base.Ports = []PortRange{{1, 1}}
	for i, announce := range []Announce{AnnounceStandby, AnnounceNever} {
		r := base
		r.Name, r.Announce, r.Address = announce.String(), announce, addr(fmt.Sprintf("192.0.2.%d", 10+i))
		o.Rules = append(o.Rules, r)
	}
	base.Name, base.Address, base.Interfaces = "one port", addr("192.0.2.20"), []string{"eth1"}
	o.Rules = append(o.Rules, base)
	o.Routes = []RouteOptions{{Name: "route", DestRange: prefixes("10.99.0.0/16")[0], Service: "web", NextHopAddress: addr("192.0.2.30"), Interfaces: []string{"eth0"}}}
	b := mustNew(t, o)
	check := func(when, address string, port0, port1 bool) {
		t.Helper()
		s := b.Publish(1)
		for port, want := range []bool{port0, port1, false} {
			if got := s.Answers(words(addr(address)), port); got != want {
				t.Errorf("%s: Answers(%s, %d) = %v, want %v", when, address, port, got, want)
			}
		}
	}
	check("before the first verdict", "192.0.2.1", false, false)
	b.SetHealth("web", "b0000", V4, Unhealthy)
	check("with one verdict of two", "192.0.2.1", false, false)
	if b.SetReady("nothing") || !b.SetReady("one port") {
		t.Error("SetReady does not know its rules")
	}
	check("ready", "192.0.2.20", false, true)
	check("another rule's readiness", "192.0.2.1", false, false)
	b.SetHealth("web", "b0001", V4, Healthy)
	check("all verdicts", "192.0.2.1", true, true)
	check("next hop", "192.0.2.30", true, false)
	check("never", "192.0.2.11", false, false)
	check("standby", "192.0.2.10", false, false)
	if n := b.SetAnnounce("", true); n != 1 {
		t.Errorf("SetAnnounce = %d, want 1", n)
	}
	check("standby, on", "192.0.2.10", true, true)
	b.SetAnnounce("STANDBY", false)
	check("standby, off again", "192.0.2.10", false, false)
	check("no rule", "192.0.2.77", false, false)
	if err := b.Apply(grid(3, 1), 2); err != nil { // a new, unjudged backend
		t.Fatal(err)
	}
	check("stays announced over a reload", "192.0.2.1", true, true)
}

func TestPing(t *testing.T) {
	o := withDrop(grid(1, 1))
	b := mustNew(t, o)
	ping := func() bool { return b.Publish(1).VIPs[0].PingOK }
	if ping() {
		t.Error("echo answered with nothing eligible")
	}
	healthy(b, 1)
	if !ping() {
		t.Error("echo not answered with a healthy backend")
	}
	o.Rules[0].VIPPing = false
	if apply(t, b, o, 2); ping() {
		t.Error("echo answered with vipPing off")
	}
}

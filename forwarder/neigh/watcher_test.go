package neigh

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// pair is a host with interface zhnb0 and a backend with zhnb1, wired, with
// 10.9.0.1 and 10.9.0.2/24, fd09::1 and fd09::2/64.
func pair(t testing.TB) (host, backend *node) {
	host, backend = newNode(t), newNode(t)
	connect(host, backend)
	return host, backend
}

func connect(host, backend *node) {
	host.t.Helper()
	wire(host, "zhnb0", backend, "zhnb1", 3)
	host.addr("zhnb0", "10.9.0.1/24")
	host.addr("zhnb0", "fd09::1/64")
	backend.addr("zhnb1", "10.9.0.2/24")
	backend.addr("zhnb1", "fd09::2/64")
}

func TestDeliverable(t *testing.T) {
	host, backend := pair(t)
	f := follow(t, host, Options{Interfaces: []string{"zhnb0", "absent"}})
	f.SetTargets(addrsOf("10.9.0.2", "fd09::2", "::ffff:10.9.0.2"))
	for _, addr := range []string{"10.9.0.2", "fd09::2"} {
		got := f.waitTarget(addr, Deliverable)
		want := Target{State: Deliverable, Interface: host.link("zhnb0").Attrs().Index, MAC: backend.mac("zhnb1")}
		if got != want {
			t.Errorf("%s = %+v, want %+v", addr, got, want)
		}
	}
	v, _ := f.last()
	if len(v.Targets) != 2 {
		t.Errorf("%d targets, want 2: an IPv4-mapped address is the IPv4 address", len(v.Targets))
	}
	l := v.Links[0]
	if !l.Present() || !l.Up || !l.AdminUp || !l.Carrier || l.MTU != 1500 || l.RXQueues != 3 || l.MAC != host.mac("zhnb0") {
		t.Errorf("link = %+v, want it up, MTU 1500, 3 queues, MAC %x", l, host.mac("zhnb0"))
	}
	if !slices.Contains(l.Addrs, netip.MustParsePrefix("10.9.0.1/24")) || !slices.Contains(l.Addrs, netip.MustParsePrefix("fd09::1/64")) {
		t.Errorf("link addresses = %v, want 10.9.0.1/24 and fd09::1/64 among them", l.Addrs)
	}
	if v.Links[1].Present() || v.Links[1].Name != "absent" {
		t.Errorf("second link = %+v, want it absent", v.Links[1])
	}
	f.SetTargets(nil)
	f.wait("no targets", func(v View) bool { return len(v.Targets) == 0 })
}

func TestRouteDecides(t *testing.T) {
	host, backend := pair(t)
	wire(host, "zhnbx", backend, "zhnby", 1)
	host.addr("zhnbx", "10.8.0.1/24")
	host.route("10.7.0.0/24", "10.9.0.2")
	host.route("fd07::/64", "fd09::2")
	_, refused, _ := net.ParseCIDR("10.6.0.0/24")
	host.must(host.RouteAdd(&netlink.Route{Dst: refused, Type: 7})) // RTN_UNREACHABLE
	_, hole, _ := net.ParseCIDR("10.5.0.0/24")
	host.must(host.RouteAdd(&netlink.Route{Dst: hole, Type: 6})) // RTN_BLACKHOLE
	host.addr("lo", "10.4.0.1/32")
	f := follow(t, host, Options{Interfaces: []string{"zhnb0"}})
	rows := []struct {
		addr    string
		state   State
		gateway string
		reason  string
	}{
		{"10.7.0.9", NotOnLink, "10.9.0.2", "gateway"},
		{"fd07::9", NotOnLink, "fd09::2", "gateway"},
		{"192.0.2.1", NoRoute, "", "no route"},
		{"2001:db8::1", NoRoute, "", "no route"},
		{"10.6.0.1", NoRoute, "", "unreachable"},
		{"10.5.0.1", NoRoute, "", "blackhole"},
		{"10.8.0.9", NotOnLink, "", "zhnbx"},
		{"10.4.0.1", NotOnLink, "", "this host"},
		{"10.9.0.255", NoRoute, "", "not unicast"},
		{"fe80::1", NoRoute, "", "zone"},
		{"fe80::1%nowhere", NoRoute, "", "does not exist"},
		{"10.9.0.99", NoNeighbour, "", "not answered"},
	}
	var addrs []string
	for _, row := range rows {
		addrs = append(addrs, row.addr)
	}
	f.SetTargets(addrsOf(addrs...))
	for _, row := range rows {
		got := f.waitTarget(row.addr, row.state)
		var gateway netip.Addr
		if row.gateway != "" {
			gateway = netip.MustParseAddr(row.gateway)
		}
		if got.Gateway != gateway || !strings.Contains(got.Reason, row.reason) {
			t.Errorf("%s = %+v, want gateway %v and a reason with %q", row.addr, got, gateway, row.reason)
		}
	}

	// Routing changes under a target. Events announce it; with the periodic
	// look-up alone each change would take a second.
	_, dst, _ := net.ParseCIDR("10.7.0.9/32")
	direct := &netlink.Route{Dst: dst, LinkIndex: host.link("zhnb0").Attrs().Index, Scope: netlink.SCOPE_LINK}
	backend.addr("zhnb1", "10.7.0.9/32")
	start := time.Now()
	for range 20 {
		host.must(host.RouteAdd(direct))
		f.waitTarget("10.7.0.9", Deliverable)
		host.must(host.RouteDel(direct))
		f.waitTarget("10.7.0.9", NotOnLink)
	}
	if took := time.Since(start); took > 20*recheckInterval {
		t.Errorf("40 route changes were seen after %v, want them at once", took)
	}
	start = time.Now()
	for range 2 {
		f.SetInterfaces([]string{"zhnb0", "zhnbx"})
		f.waitTarget("10.8.0.9", NoNeighbour)
		f.SetInterfaces([]string{"zhnb0"})
		f.waitTarget("10.8.0.9", NotOnLink)
	}
	if took := time.Since(start); took > 2*relinkInterval {
		t.Errorf("4 changes of interfaces were taken up after %v, want them at once", took)
	}
}

func TestLinkLocalTarget(t *testing.T) {
	host, backend := pair(t)
	a, err := netlink.ParseAddr("fe80::99/64")
	backend.must(err)
	backend.must(backend.AddrAdd(backend.link("zhnb1"), a))
	f := follow(t, host, Options{Interfaces: []string{"zhnb0"}})
	f.SetTargets(addrsOf("fe80::99%zhnb0"))
	if got := f.waitTarget("fe80::99%zhnb0", Deliverable); got.MAC != backend.mac("zhnb1") {
		t.Errorf("MAC = %x, want %x", got.MAC, backend.mac("zhnb1"))
	}
}

func TestMACChange(t *testing.T) {
	host, backend := pair(t)
	backend.sysctl("ipv4/conf/zhnb1/arp_notify", "1")
	backend.sysctl("ipv6/conf/zhnb1/ndisc_notify", "1")
	f := follow(t, host, Options{Interfaces: []string{"zhnb0"}})
	f.SetTargets(addrsOf("10.9.0.2", "fd09::2"))
	f.waitTarget("10.9.0.2", Deliverable)
	f.waitTarget("fd09::2", Deliverable)
	mac := [6]byte{0x02, 0, 0, 0, 0x99, 0x01}
	start := time.Now()
	backend.must(backend.LinkSetHardwareAddr(backend.link("zhnb1"), net.HardwareAddr(mac[:])))
	for _, addr := range []string{"10.9.0.2", "fd09::2"} {
		f.wait("the new MAC of "+addr, func(v View) bool {
			got := v.Targets[netip.MustParseAddr(addr)]
			return got.State == Deliverable && got.MAC == mac
		})
	}
	if took := time.Since(start); took > 10*time.Second { // the kernel would ask after 15 s at the earliest
		t.Errorf("an announced MAC was seen after %v, want it at once", took)
	}

	own := [6]byte{0x02, 0, 0, 0, 0x99, 0x02}
	host.must(host.LinkSetHardwareAddr(host.link("zhnb0"), net.HardwareAddr(own[:])))
	f.wait("our own new MAC", func(v View) bool { return v.Links[0].MAC == own })
}

func TestLinkDownAndUp(t *testing.T) {
	host, backend := pair(t)
	f := follow(t, host, Options{Interfaces: []string{"zhnb0"}})
	f.SetTargets(addrsOf("10.9.0.2"))
	f.waitTarget("10.9.0.2", Deliverable)

	backend.down("zhnb1") // takes the carrier away; the route stays
	got := f.waitTarget("10.9.0.2", NoNeighbour)
	if want := "zhnb0 is down"; got.Reason != want {
		t.Errorf("reason = %q, want %q", got.Reason, want)
	}
	if v, _ := f.last(); v.Links[0].Up || !v.Links[0].AdminUp || v.Links[0].Carrier {
		t.Errorf("link = %+v, want it up without carrier", v.Links[0])
	}
	backend.up("zhnb1")
	f.waitTarget("10.9.0.2", Deliverable)

	host.down("zhnb0") // takes the route away too
	f.waitTarget("10.9.0.2", NoRoute)
	host.up("zhnb0")
	f.waitTarget("10.9.0.2", Deliverable)
}

func TestInterfaceMadeAgain(t *testing.T) {
	host, backend := pair(t)
	f := follow(t, host, Options{Interfaces: []string{"zhnb0"}})
	f.SetTargets(addrsOf("10.9.0.2", "fd09::2"))
	first := f.waitTarget("10.9.0.2", Deliverable)
	f.waitTarget("fd09::2", Deliverable)

	host.must(host.LinkDel(host.link("zhnb0")))
	f.wait("the interface gone", func(v View) bool { return !v.Links[0].Present() })
	f.waitTarget("10.9.0.2", NoRoute)
	f.waitTarget("fd09::2", NoRoute)
	connect(host, backend)
	second := f.waitTarget("10.9.0.2", Deliverable)
	f.waitTarget("fd09::2", Deliverable)
	index := host.link("zhnb0").Attrs().Index
	if second.Interface != index || second.Interface == first.Interface || second.MAC != backend.mac("zhnb1") {
		t.Errorf("after the interface was made again: %+v, want interface %d (was %d), MAC %x",
			second, index, first.Interface, backend.mac("zhnb1"))
	}

	host.down("zhnb0")
	host.must(host.LinkSetName(host.link("zhnb0"), "renamed"))
	host.up("renamed")
	f.wait("the name gone", func(v View) bool { return !v.Links[0].Present() })
	if got := f.waitTarget("10.9.0.2", NotOnLink); !strings.Contains(got.Reason, "renamed") {
		t.Errorf("reason = %q, want the interface's new name in it", got.Reason)
	}
	f.SetInterfaces([]string{"renamed"})
	f.waitTarget("10.9.0.2", Deliverable)
}

func TestOwnAddresses(t *testing.T) {
	host, _ := pair(t)
	f := follow(t, host, Options{Interfaces: []string{"zhnb0"}})
	has := func(text string) func(View) bool {
		return func(v View) bool { return slices.Contains(v.Own, netip.MustParseAddr(text)) }
	}
	for _, text := range []string{"127.0.0.1", "::1", "10.9.0.1", "fd09::1"} {
		f.wait("own address "+text, has(text))
	}
	f.wait("a link-local address", func(v View) bool { return slices.ContainsFunc(v.Own, netip.Addr.IsLinkLocalUnicast) })
	host.addr("lo", "10.3.0.1/32")
	f.wait("an address added elsewhere", has("10.3.0.1"))
	a, _ := netlink.ParseAddr("10.3.0.1/32")
	host.must(host.AddrDel(host.link("lo"), a))
	f.wait("it gone again", func(v View) bool { return !has("10.3.0.1")(v) })
}

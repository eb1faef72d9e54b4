package neigh

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

// inKernel reports whether the kernel is a member of group on the interface.
func inKernel(n *node, name string, group netip.Addr) bool {
	n.t.Helper()
	var text []byte
	n.must(inNamespace(n.ns, func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/igmp6")
		return err
	}))
	hex := strings.ReplaceAll(group.StringExpanded(), ":", "")
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[1] == name && fields[2] == hex {
			return true
		}
	}
	return false
}

func newTestGroups(t *testing.T, n *node) *Groups {
	t.Helper()
	g, err := NewGroups(n.ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func TestSolicitedNode(t *testing.T) {
	for addr, want := range map[string]string{
		"4037::1:800:200e:8c6c": "ff02::1:ff0e:8c6c", // RFC 4291 2.7.1
		"fd00::":                "ff02::1:ff00:0",
	} {
		if got := SolicitedNode(netip.MustParseAddr(addr)).String(); got != want {
			t.Errorf("SolicitedNode(%s) = %s, want %s", addr, got, want)
		}
	}
}

func TestGroupsJoinAndLeave(t *testing.T) {
	host, backend := pair(t)
	seen := newCapture(t, backend, "zhnb1")
	g := newTestGroups(t, host)
	index := host.link("zhnb0").Attrs().Index
	a, twin, b := netip.MustParseAddr("fd09::aa:1"), netip.MustParseAddr("fd08::aa:1"), netip.MustParseAddr("fd09::bb:1")
	update := func(addrs ...netip.Addr) {
		t.Helper()
		if err := g.Update(map[int][]netip.Addr{index: addrs}); err != nil {
			t.Fatalf("Update(%v) = %v", addrs, err)
		}
	}
	check := func(wantA, wantB bool) {
		t.Helper()
		if got := inKernel(host, "zhnb0", SolicitedNode(a)); got != wantA {
			t.Errorf("member of %v: %v, want %v", SolicitedNode(a), got, wantA)
		}
		if got := inKernel(host, "zhnb0", SolicitedNode(b)); got != wantB {
			t.Errorf("member of %v: %v, want %v", SolicitedNode(b), got, wantB)
		}
	}
	check(false, false)
	update(a, twin, netip.MustParseAddr("10.0.0.1"))
	check(true, false)
	update(twin, b) // the same group as a
	check(true, true)
	update(b)
	check(false, true)
	update()
	check(false, false)
	update(a)
	check(true, false)

	group := SolicitedNode(b).As16()
	for start := time.Now(); !seen.contains(group[:]); time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatalf("no multicast listener report names %v", SolicitedNode(b))
		}
	}
	g.Close()
	check(false, false)
	if err := g.Update(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Update after Close = %v, want %v", err, ErrClosed)
	}
}

func TestGroupsSurviveInterface(t *testing.T) {
	host, backend := pair(t)
	g := newTestGroups(t, host)
	a := netip.MustParseAddr("fd09::aa:1")
	update := func() error {
		l, err := host.LinkByName("zhnb0")
		if err != nil {
			return g.Update(map[int][]netip.Addr{})
		}
		return g.Update(map[int][]netip.Addr{l.Attrs().Index: {a}})
	}
	host.must(update())
	host.down("zhnb0")
	host.up("zhnb0")
	host.must(update())
	if !inKernel(host, "zhnb0", SolicitedNode(a)) {
		t.Error("no longer a member after the interface was down")
	}
	// An MTU below 1280 takes IPv6, and with it all groups, off the interface.
	host.must(host.LinkSetMTU(host.link("zhnb0"), 1000))
	host.must(host.LinkSetMTU(host.link("zhnb0"), 1500))
	host.must(update())
	if !inKernel(host, "zhnb0", SolicitedNode(a)) {
		t.Error("no longer a member after the interface lost IPv6 for a while")
	}
	gone := host.link("zhnb0").Attrs().Index
	host.must(host.LinkDel(host.link("zhnb0")))
	if err := g.Update(map[int][]netip.Addr{gone: {a}}); err == nil {
		t.Error("Update for an interface that is gone = nil, want an error")
	}
	host.must(update())
	connect(host, backend)
	host.must(update())
	if !inKernel(host, "zhnb0", SolicitedNode(a)) {
		t.Error("not a member after the interface was made again")
	}
}

func TestGroupsBeyondOneSocket(t *testing.T) {
	host, _ := pair(t)
	host.sysctl("core/optmem_max", "4096")
	g := newTestGroups(t, host)
	index := host.link("zhnb0").Attrs().Index
	addrs := make([]netip.Addr, 300)
	for i := range addrs {
		addrs[i] = netip.AddrFrom16([16]byte{0: 0xfd, 13: 1, 14: byte(i >> 8), 15: byte(i)})
	}
	host.must(g.Update(map[int][]netip.Addr{index: addrs}))
	if len(g.sockets) < 2 {
		t.Errorf("%d sockets, want several: the limit was not reached", len(g.sockets))
	}
	for _, addr := range addrs {
		if !inKernel(host, "zhnb0", SolicitedNode(addr)) {
			t.Fatalf("not a member of %v", SolicitedNode(addr))
		}
	}
	host.must(g.Update(map[int][]netip.Addr{index: addrs[:1]}))
	if len(g.sockets) != 1 || !inKernel(host, "zhnb0", SolicitedNode(addrs[0])) || inKernel(host, "zhnb0", SolicitedNode(addrs[299])) {
		t.Errorf("after shrinking to one group: %d sockets, want 1 and only that group", len(g.sockets))
	}
}

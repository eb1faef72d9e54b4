package lab

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"golang.org/x/sys/unix"
)

// What a client sends to a VIP or through a next hop reaches a backend that a
// user-space forwarder chose, and the answer comes back directly.
func TestPathThroughForwarder(t *testing.T) {
	l := build(t, Options{})
	webs := []string{"web-b1", "web-c2"}
	startHairpin(t, l, webs, []string{"fw-c"})
	c := l.Client("client-c")
	payload := make([]byte, 1200)
	Pattern(7, payload)
	ctx := ctxFor(t, 4*patience)
	for _, dst := range []struct {
		to   netip.Addr
		want []string
	}{
		{VIPv4, webs}, {VIPv6, webs},
		{netip.MustParseAddr("192.168.33.44"), []string{"fw-c"}},
		{netip.MustParseAddr("2001:db8:192:5::6"), []string{"fw-c"}},
	} {
		got := map[string]int{}
		for port := uint16(20000); port < 20016; port++ {
			reply, err := c.HTTP(ctx, Request{To: at(dst.to, HTTPPort), From: at(c.Addr(dst.to), port), Path: "/bytes?n=100000"})
			want := make([]byte, 100000)
			Pattern(0, want)
			if err != nil || !bytes.Equal(reply.Body, want) || reply.Client != at(c.Addr(dst.to), port) || reply.Local != at(dst.to, HTTPPort) {
				t.Fatalf("http %s: %d bytes by %s, client %s, local %s, %v", dst.to, len(reply.Body), reply.Backend, reply.Client, reply.Local, err)
			}
			got[reply.Backend]++
			name, echo, err := c.UDP(ctx, at(dst.to, EchoPort), at(c.Addr(dst.to), port), payload)
			if err != nil || name != reply.Backend || !bytes.Equal(echo, payload) {
				t.Fatalf("udp %s: %d bytes by %s, %v, want %d bytes by %s", dst.to, len(echo), name, err, len(payload), reply.Backend)
			}
		}
		for name := range got {
			if !slices.Contains(dst.want, name) || got[name] == 16 != (len(dst.want) == 1) {
				t.Errorf("%s was answered by %v, want by all of %v", dst.to, got, dst.want)
			}
		}
		name, echo, err := c.Raw(ctx, RawProtocol, dst.to, netip.Addr{}, payload)
		if err != nil || !slices.Contains(dst.want, name) || !bytes.Equal(echo, payload) {
			t.Errorf("protocol %d to %s: %d bytes by %s, %v", RawProtocol, dst.to, len(echo), name, err)
		}
		if _, err := c.Ping(ctx, dst.to, netip.Addr{}, payload); err != nil {
			t.Error(err)
		}
		s, err := c.OpenStream(ctx, at(dst.to, EchoTLS), netip.AddrPort{}, 3000, 0)
		if err != nil {
			t.Fatal(err)
		}
		err = Wait(ctx, "a megabyte", patience, func() (bool, error) { return s.State().Bytes > 1<<20, s.State().Err })
		if state := s.Close(); err != nil || state.Err != nil {
			t.Errorf("stream to %s: %v, %+v", dst.to, err, state)
		}
	}
}

func isARPFor(a netip.Addr) func(Frame) bool {
	ip := a.As4()
	return func(f Frame) bool {
		return f.Direction == In && len(f.Data) >= 42 && string(f.Data[12:14]) == "\x08\x06" && string(f.Data[38:42]) == string(ip[:])
	}
}

func isSolicitationFor(a netip.Addr) func(Frame) bool {
	ip := a.As16()
	return func(f Frame) bool {
		return len(f.Data) >= 78 && string(f.Data[12:14]) == "\x86\xdd" && f.Data[54] == 135 && string(f.Data[62:78]) == string(ip[:])
	}
}

// Nobody but the appliance may answer for a VIP: the backends hold it on their
// loopbacks and see the question, and stay silent.
func TestBackendsDoNotAnswerForVIP(t *testing.T) {
	l := build(t, Options{})
	c := l.Client("client-b")
	b := l.Backend("web-b1")
	atBackend := must(b.Capture("eth0"))(t)
	// The question itself, to the whole segment, for IPv6 by unicast too: the
	// switch would keep the multicast one from a backend that never joined.
	question := gratuitousARP(c.IPv4(), must(c.MAC("eth0"))(t))
	vip := VIPv4.As4()
	copy(question[38:], vip[:])
	if err := c.SendFrame("eth0", question); err != nil {
		t.Fatal(err)
	}
	if err := c.SendFrame("eth0", solicitation(t, c.Node, must(b.MAC("eth0"))(t), VIPv6)); err != nil {
		t.Fatal(err)
	}
	ctx := ctxFor(t, 4*patience)
	if _, err := atBackend.Wait(ctx, isARPFor(VIPv4)); err != nil {
		t.Fatal("the request did not reach the backend: ", err)
	}
	if _, err := atBackend.Wait(ctx, isSolicitationFor(VIPv6)); err != nil {
		t.Fatal("the solicitation did not reach the backend: ", err)
	}
	// The kernel answers within the softirq that delivered the question; the
	// round trips below come after it.
	for _, to := range []netip.Addr{b.IPv4(), b.IPv6()} {
		if _, err := c.Ping(ctx, to, netip.Addr{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	answers := atBackend.Count(func(f Frame) bool {
		reply := f.Direction == Out && len(f.Data) >= 42 && string(f.Data[12:14]) == "\x08\x06" && string(f.Data[28:32]) == string(vip[:])
		ip := VIPv6.As16()
		advert := f.Direction == Out && len(f.Data) >= 78 && string(f.Data[12:14]) == "\x86\xdd" && f.Data[54] == 136 && string(f.Data[62:78]) == string(ip[:])
		return reply || advert
	})
	if answers != 0 {
		t.Errorf("the backend answered %d times for a VIP", answers)
	}
	if _, err := c.Ping(ctxFor(t, 300*time.Millisecond), VIPv4, netip.Addr{}, nil); err == nil {
		t.Error("ping of the VIP was answered without an appliance")
	}
}

// solicitation is a neighbour solicitation by a node for an address, sent to
// a MAC address.
func solicitation(t *testing.T, n *Node, to []byte, target netip.Addr) []byte {
	t.Helper()
	mac := must(n.MAC("eth0"))(t)
	ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: n.IPv6().AsSlice(), DstIP: solicitedNode(target).AsSlice()}
	head := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0)}
	head.SetNetworkLayerForChecksum(ip)
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: mac, DstMAC: to, EthernetType: layers.EthernetTypeIPv6}, ip, head,
		&layers.ICMPv6NeighborSolicitation{TargetAddress: target.AsSlice(), Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: mac}}})
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// The switch keeps a solicitation from a port whose node has not joined the
// group, and lets it through once it has: a missing join shows here as it
// would in a data centre.
func TestSwitchSnoopsMulticast(t *testing.T) {
	l := build(t, Options{})
	c := l.Client("client-b")
	atLB := must(l.Appliance().CapturePort("eth0"))(t)
	group := solicitedNode(VIPv6).As16()
	to := append([]byte{0x33, 0x33}, group[12:]...)
	ask := func() {
		if err := c.SendFrame("eth0", solicitation(t, c.Node, to, VIPv6)); err != nil {
			t.Fatal(err)
		}
		// A broadcast behind it shows that the solicitation had its chance.
		if err := c.SendFrame("eth0", gratuitousARP(c.IPv4(), must(c.MAC("eth0"))(t))); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	broadcast := func(f Frame) bool { return f.Direction == Out && string(f.Data[12:14]) == "\x08\x06" }
	if _, err := atLB.Wait(ctxFor(t, patience), broadcast); err != nil {
		t.Fatal(err)
	}
	if n := atLB.Count(isSolicitationFor(VIPv6)); n != 0 {
		t.Errorf("%d solicitations for a group that nobody joined reached the appliance", n)
	}
	h := &hairpin{t: t, lb: l.Appliance()}
	h.join(VIPv6)
	defer unix.Close(h.group)
	err := Wait(ctxFor(t, patience), "the switch to learn the group", patience, func() (bool, error) {
		atLB.Clear()
		ask()
		_, err := atLB.Wait(ctxFor(t, time.Second), broadcast)
		return atLB.Count(isSolicitationFor(VIPv6)) == 1, err
	})
	if err != nil {
		t.Error(err)
	}
}

// IPv6 addresses resolve through the snooping switch between all pairs from the
// start, and the switch asks for memberships in both families.
func TestQuerierAndMemberships(t *testing.T) {
	l := build(t, Options{})
	queries := must(l.Client("client-x").Capture("eth0"))(t)
	ctx := ctxFor(t, 4*patience)
	for _, c := range l.Clients() {
		for _, b := range l.Backends() {
			if _, err := c.Ping(ctx, b.IPv6(), netip.Addr{}, nil); err != nil {
				t.Error(err)
			}
		}
	}
	mld := func(f Frame) bool { // hop-by-hop header, then MLD query
		return f.Direction == In && string(f.Data[12:14]) == "\x86\xdd" && f.Data[20] == 0 && f.Data[62] == 130
	}
	igmp := func(f Frame) bool {
		return f.Direction == In && string(f.Data[12:14]) == "\x08\x00" && f.Data[23] == 2
	}
	for name, match := range map[string]func(Frame) bool{"MLD": mld, "IGMP": igmp} {
		if _, err := queries.Wait(ctx, match); err != nil {
			t.Errorf("no %s query: %v", name, err)
		}
	}
}

func TestTwoSegments(t *testing.T) {
	topology := TwoSegments()
	l := build(t, Options{Topology: &topology, Queues: 4})
	ctx := ctxFor(t, 4*patience)
	c, b := l.Client("client-b"), l.Backend("web-c1")
	back := netip.MustParseAddr("172.20.2.11")
	if b.IPv4() != back {
		t.Errorf("web-c1 has %s, want %s", b.IPv4(), back)
	}
	if _, err := c.Ping(ctx, netip.MustParseAddr("10.2.0.11"), netip.Addr{}, nil); err != nil {
		t.Error("clients' segment:", err)
	}
	lb := &Client{Node: l.Appliance()}
	for _, to := range []netip.Addr{back, netip.MustParseAddr("fd20:2::11")} {
		if _, err := lb.Ping(ctx, to, netip.MustParseAddr(map[bool]string{true: "172.20.0.2", false: "fd20::2"}[to.Is4()]), nil); err != nil {
			t.Error("backends' segment:", err)
		}
	}
	if _, err := c.Ping(ctxFor(t, 300*time.Millisecond), back, netip.Addr{}, nil); err == nil {
		t.Error("a client reached the backends' segment directly")
	}
	out, _, status, err := l.Run(ctx, "lb", "cat", "/sys/class/net/eth1/address")
	if want := must(l.Appliance().MAC("eth1"))(t).String(); err != nil || status != 0 || strings.TrimSpace(out) != want {
		t.Errorf("cat of eth1's address = %q, %d, %v, want %s", out, status, err, want)
	}
	out, _, _, err = l.Run(ctx, "lb", "ls", "/sys/class/net/eth1/queues")
	if n := strings.Count(out, "rx-"); err != nil || n != 4 {
		t.Errorf("eth1 has %d receive queues (%v), want 4: %s", n, err, fmt.Sprintf("%q", out))
	}
}

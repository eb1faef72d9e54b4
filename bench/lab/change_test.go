package lab

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestLinkChanges(t *testing.T) {
	l := build(t, Options{})
	ctx := ctxFor(t, 4*patience)
	c, lb := l.Client("client-c"), l.Appliance()
	// Pings show both families at work; short ones that they do not.
	reach := func(when string, want bool) {
		t.Helper()
		for _, to := range []netip.Addr{lb.IPv4(), lb.IPv6()} {
			within, wait := 300*time.Millisecond, ctxFor(t, patience)
			if want {
				within = patience
			}
			err := Wait(wait, "an answer", within, func() (bool, error) {
				_, err := c.Ping(ctxFor(t, within/2), to, netip.Addr{}, nil)
				return err == nil, err
			})
			if (err == nil) != want {
				t.Errorf("%s: ping %s: %v, want an answer: %t", when, to, err, want)
			}
		}
	}
	index := func() int {
		i := 0
		err := lb.Exec(func() error {
			dev, err := net.InterfaceByName("eth0")
			if err == nil {
				i = dev.Index
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return i
	}
	for _, step := range []struct {
		name string
		do   func() error
		want bool
	}{
		{"at first", func() error { return nil }, true},
		{"link down", func() error { return lb.SetLink("eth0", false) }, false},
		{"link up", func() error { return lb.SetLink("eth0", true) }, true},
		{"carrier lost", func() error { return lb.SetCarrier("eth0", false) }, false},
		{"carrier back", func() error { return lb.SetCarrier("eth0", true) }, true},
		{"link deleted", func() error { return lb.DeleteLink("eth0") }, false},
	} {
		if err := step.do(); err != nil {
			t.Fatal(step.name, err)
		}
		reach(step.name, step.want)
	}
	if err := lb.DeleteLink("eth0"); err != nil {
		t.Error("deleting twice:", err)
	}
	if err := lb.CreateLink("eth0"); err != nil {
		t.Fatal(err)
	}
	reach("link created", true)
	first := index()
	if err := lb.DeleteLink("eth0"); err != nil {
		t.Fatal(err)
	}
	if err := lb.CreateLink("eth0"); err != nil {
		t.Fatal(err)
	}
	if again := index(); again == first {
		t.Errorf("eth0 has index %d before and after", again)
	}
	// An address added while the link is down is there when it comes up.
	extra := netip.MustParsePrefix("10.0.0.77/8")
	if err := lb.SetLink("eth0", false); err != nil {
		t.Fatal(err)
	}
	if err := lb.AddAddress("eth0", extra); err != nil {
		t.Error(err)
	}
	if err := lb.SetLink("eth0", true); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Ping(ctx, extra.Addr(), netip.Addr{}, nil); err != nil {
		t.Error(err)
	}
	if err := lb.RemoveAddress("eth0", extra); err != nil {
		t.Error(err)
	}
	if _, err := lb.MAC("eth9"); err == nil {
		t.Error("MAC of an interface that is not there succeeded")
	}

	// A datagram of 1472 bytes fits into 1500, not into 1400.
	firstFrame := func() int {
		t.Helper()
		port := must(lb.CapturePort("eth0"))(t)
		defer port.Stop()
		sender := &Client{Node: l.Node("web-b1")}
		if _, _, err := sender.UDP(ctxFor(t, time.Second), at(lb.IPv4(), 9), netip.AddrPort{}, make([]byte, 1472)); err == nil {
			t.Error("the appliance has an echo server")
		}
		f, err := port.Wait(ctx, func(f Frame) bool {
			return f.Direction == Out && string(f.Data[12:14]) == "\x08\x00" && f.Data[23] == unix.IPPROTO_UDP
		})
		if err != nil {
			t.Error(err)
		}
		return len(f.Data)
	}
	if n := firstFrame(); n != 14+1500 {
		t.Errorf("frame of %d bytes at MTU 1500, want 1514", n)
	}
	if err := l.Node("web-b1").SetMTU("eth0", 1400); err != nil {
		t.Fatal(err)
	}
	if n := firstFrame(); n != 14+1396 { // fragments are multiples of 8 bytes
		t.Errorf("frame of %d bytes at MTU 1400, want a first fragment of 1410", n)
	}
	if err := ctx.Err(); err != nil {
		t.Error(err)
	}
}

func TestSetMAC(t *testing.T) {
	l := build(t, Options{})
	c, b := l.Client("client-b"), l.Backend("web-b1")
	ctx := ctxFor(t, 4*patience)
	// The backend asks nobody where he is: that would tell its new address.
	for _, family := range []string{"ipv4", "ipv6"} {
		if err := b.Sysctl("net/"+family+"/neigh/eth0/delay_first_probe_time", "600"); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []netip.Addr{b.IPv4(), b.IPv6()} {
		if _, err := c.Ping(ctx, to, netip.Addr{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	known := func(a netip.Addr) string {
		neighbours, err := c.netlink.NeighList(0, unix.AF_UNSPEC)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range neighbours {
			if n.IP.Equal(a.AsSlice()) {
				return n.HardwareAddr.String()
			}
		}
		return ""
	}
	old := must(b.MAC("eth0"))(t).String()
	quiet := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	if err := b.SetMAC("eth0", quiet, false); err != nil {
		t.Fatal(err)
	}
	for _, a := range []netip.Addr{b.IPv4(), b.IPv6()} {
		if got := known(a); got != old {
			t.Errorf("after a silent change the client has %s at %s, want %s", a, got, old)
		}
	}
	loud := net.HardwareAddr{2, 0, 0, 0, 0, 2}
	if err := b.SetMAC("eth0", loud, true); err != nil {
		t.Fatal(err)
	}
	for _, a := range []netip.Addr{b.IPv4(), b.IPv6()} {
		err := Wait(ctx, "the client to learn", patience, func() (bool, error) { return known(a) == loud.String(), nil })
		if err != nil {
			t.Errorf("%s is at %s: %v", a, known(a), err)
		}
		if _, err := c.Ping(ctx, a, netip.Addr{}, nil); err != nil {
			t.Error(err)
		}
	}
}

func TestVIPOnBackend(t *testing.T) {
	l := build(t, Options{})
	c, b := l.Client("client-b"), l.Backend("web-b1")
	startHairpin(t, l, []string{"web-b1"}, []string{"fw-b"})
	for _, vip := range []netip.Addr{VIPv4, VIPv6} {
		for _, has := range []bool{true, false, true} {
			change := b.RemoveVIP
			if has {
				change = b.AddVIP
			}
			if err := change(vip); err != nil {
				t.Fatal(err)
			}
			limit := 300 * time.Millisecond
			if has {
				limit = patience
			}
			reply, err := c.Get(ctxFor(t, limit), at(vip, HTTPPort), "/")
			if (err == nil && reply.Backend == "web-b1") != has {
				t.Errorf("GET %s with the address there %t = %+v, %v", vip, has, reply, err)
			}
		}
	}
}

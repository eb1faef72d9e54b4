package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"zonehop/bench/lab"
)

// load sends UDP to an address all the time, so that frames are under way
// whatever happens. The function it returns ends it.
func (n *network) load(client string, to netip.AddrPort) (stop func()) {
	n.Helper()
	conn, err := n.Client(client).DialUDP(n.soon(), to, netip.AddrPort{})
	n.must(err)
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		payload := make([]byte, 400)
		for {
			select {
			case <-end:
				return
			case <-time.After(200 * time.Microsecond):
			}
			for range 8 {
				_, _ = conn.Write(payload) // nobody may be there to take it: that is the test
			}
		}
	}()
	stop = func() {
		close(end)
		<-done
		conn.Close()
	}
	return stop
}

// interfaceIs waits until an interface is up without a problem, or is not.
func (d *device) interfaceIs(name string, good bool) {
	d.net.Helper()
	d.wait(fmt.Sprintf("%s to be usable: %v", name, good), func() error {
		s, err := d.Status()
		if err != nil {
			return err
		}
		for _, i := range s.Interfaces {
			if i.Name == name && (i.Up && i.Problem == "") != good {
				return fmt.Errorf("up %v, problem %q", i.Up, i.Problem)
			}
		}
		return nil
	})
}

// TestLinkDownAndUp takes the appliance's only link away under traffic.
func TestLinkDownAndUp(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	d := n.start(testConfig(t, "two-zones.yaml"))
	streams := []*lab.Stream{
		n.stream("client-b", netip.AddrPortFrom(lab.VIPv4, lab.EchoTLS), ""),
		n.stream("client-b", netip.AddrPortFrom(lab.VIPv6, lab.EchoTLS), ""),
		n.stream("client-c", netip.AddrPortFrom(far4.Addr(), lab.EchoTLS), ""),
		n.stream("client-c", netip.AddrPortFrom(far6.Addr(), lab.EchoTLS), ""),
	}
	changes := map[string]func(up bool) error{
		"down": func(up bool) error { return n.Appliance().SetLink("eth0", up) },
	}
	if cables(t) == nil { // a card's carrier does not follow the other end's state
		changes["no carrier"] = func(up bool) error { return n.Appliance().SetCarrier("eth0", up) }
	}
	for name, change := range changes {
		d.sub(name, func(d *device) {
			stop := d.net.load("client-b", netip.AddrPortFrom(lab.VIPv4, lab.EchoPort))
			defer stop()
			d.net.must(change(false))
			d.interfaceIs("eth0", false)
			d.net.must(change(true))
			d.ready()
			for _, s := range streams {
				d.net.flowing(s)
			}
			// The groups of the IPv6 addresses are joined still, or again.
			d.net.forget(d.net.Client("client-b").Node, "eth0")
			_, err := d.net.Client("client-b").Ping(d.net.soon(), lab.VIPv6, netip.Addr{}, nil)
			d.net.must(err)
		})
		d.balanced()
	}
	for _, s := range streams {
		if state := s.Close(); state.Err != nil {
			t.Error(state.Err)
		}
	}
	d.stop()
}

// TestInterfaceRecreated deletes each of two interfaces under traffic. The
// other goes on meanwhile, and the new one, with another index, is taken into
// use without a restart.
func TestInterfaceRecreated(t *testing.T) {
	topology := lab.TwoSegments()
	n := newNetwork(t, lab.Options{Topology: &topology})
	// web is delivered by eth0, inspection by eth1.
	d := n.start(testConfig(t, "two-zones.yaml", "interfaces: [eth0]", "interfaces: [eth0, eth1]",
		"address: 10.1.0.21", "address: 172.20.1.21", "address: 10.2.0.21", "address: 172.20.2.21",
		`ipv6Address: "fd00:1::21"`, `ipv6Address: "fd20:1::21"`, `ipv6Address: "fd00:2::21"`, `ipv6Address: "fd20:2::21"`))
	near := n.stream("client-b", netip.AddrPortFrom(lab.VIPv4, lab.EchoTLS), "")
	far := []*lab.Stream{
		n.stream("client-b", netip.AddrPortFrom(far4.Addr(), lab.EchoTLS), ""),
		n.stream("client-b", netip.AddrPortFrom(far6.Addr(), lab.EchoTLS), ""),
	}
	host := n.Appliance()

	d.sub("eth1", func(d *device) {
		stop := d.net.load("client-b", netip.AddrPortFrom(far4.Addr(), lab.EchoPort))
		defer stop()
		d.net.must(host.DeleteLink("eth1"))
		d.wait("eth1 to be missed", func() error {
			s, err := d.Status()
			if err == nil && !strings.Contains(s.Interfaces[1].Problem, "eth1 does not exist") {
				err = fmt.Errorf("the problem of eth1 is %q", s.Interfaces[1].Problem)
			}
			return err
		})
		d.net.flowing(near)
		if s := d.status(); s.Interfaces[1].Problem == "" || s.Interfaces[0].Problem != "" {
			d.net.Errorf("problems are %q and %q, want one of eth1 alone", s.Interfaces[0].Problem, s.Interfaces[1].Problem)
		}
		d.net.must(host.CreateLink("eth1"))
		d.ready()
		for _, s := range far {
			d.net.flowing(s)
		}
	})
	d.balanced()
	d.sub("eth0", func(d *device) {
		stop := d.net.load("client-b", netip.AddrPortFrom(far4.Addr(), lab.EchoPort))
		defer stop()
		d.net.must(host.DeleteLink("eth0"))
		d.interfaceIs("eth0", false)
		d.net.must(host.CreateLink("eth0"))
		d.ready()
		for _, s := range append(far, near) {
			d.net.flowing(s)
		}
		d.net.forget(d.net.Client("client-b").Node, "eth0")
		for _, to := range []netip.Addr{lab.VIPv4, lab.VIPv6} {
			_, err := d.net.Client("client-b").Ping(d.net.soon(), to, netip.Addr{}, nil)
			d.net.must(err)
		}
	})
	d.balanced()
	for _, s := range append(far, near) {
		if state := s.Close(); state.Err != nil {
			t.Error(state.Err)
		}
	}
	d.stop()
}

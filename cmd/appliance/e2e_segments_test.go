package main

import (
	"net/netip"
	"testing"

	"zonehop/bench/lab"
)

// onTheOtherSegment moves the web backends of two-zones.yaml to eth1's segment
// of lab.TwoSegments; the firewalls stay on eth0's.
var onTheOtherSegment = []string{
	"address: 10.1.0.1", "address: 172.20.1.1", "address: 10.2.0.1", "address: 172.20.2.1", "address: 10.3.0.1", "address: 172.20.3.1",
	`"fd00:1::1`, `"fd20:1::1`, `"fd00:2::1`, `"fd20:2::1`, `"fd00:3::1`, `"fd20:3::1`,
}

// TestTwoInterfaces forwards from either of two interfaces to the other: by the
// same memory where both have a queue of the worker, by copy where not.
func TestTwoInterfaces(t *testing.T) {
	topology := lab.TwoSegments()
	topology.Clients = append(topology.Clients, lab.NodeSpec{
		Name: "client-s",
		Interfaces: []lab.InterfaceSpec{{Name: "eth0", Segment: 1, Addresses: []netip.Prefix{
			netip.MustParsePrefix("172.20.8.101/16"), netip.MustParsePrefix("fd20:8::101/16"),
		}}},
		Routes: []lab.RouteSpec{
			{Destination: lab.InspectedIPv4, Via: netip.MustParseAddr("172.20.0.2")},
			{Destination: lab.InspectedIPv6, Via: netip.MustParseAddr("fd20::2")},
		},
	})
	n := newNetwork(t, lab.Options{Topology: &topology})
	for _, c := range []struct {
		name, interfaces string
		copies           bool
	}{
		{"shared memory", "interfaces: [eth0, eth1]", false},
		{"eth1 has fewer queues", "interfaces: [{name: eth0}, {name: eth1, queues: [0]}]", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			part := *n
			part.T = t
			crossBothWays(&part, c.interfaces, c.copies)
		})
	}
}

func crossBothWays(n *network, interfaces string, copies bool) {
	d := n.start(testConfig(n.T, "two-zones.yaml", append([]string{"interfaces: [eth0]", interfaces}, onTheOtherSegment...)...))
	arrives := n.capture(n.Backend("web-b1").Node, "eth0")
	for _, to := range []netip.Addr{lab.VIPv4, lab.VIPv6} {
		for range 32 {
			backend, _, err := n.Client("client-b").UDP(n.soon(), netip.AddrPortFrom(to, lab.EchoPort), netip.AddrPort{}, []byte("from eth0 to eth1"))
			n.must(err)
			if backend != "web-b1" && backend != "web-b2" {
				n.Fatalf("%s answered %s", backend, to)
			}
		}
		n.see(arrives, "a frame on the backend's segment", going(lab.In, fromTo(n, "eth1", n.Client("client-b").Addr(to), to)))
	}
	if copies {
		// Frames that come in by eth1's other queue have no socket there.
		n.longTransfer("client-b", netip.AddrPortFrom(lab.VIPv4, lab.EchoTLS))
	} else {
		back(n)
	}
	s := d.balanced()
	if got := s.Accounting.Copied > 0; got != copies {
		n.Errorf("%d frames were copied, want any: %v", s.Accounting.Copied, copies)
	}
	for k, i := range s.Interfaces {
		if k == 1 && copies {
			break
		}
		received := uint64(0)
		for _, q := range i.Queues {
			received += q.Received
		}
		if received == 0 {
			n.Errorf("%s received nothing", i.Name)
		}
	}
	d.stop()
}

// back sends from eth1's segment to backends on eth0's.
func back(n *network) {
	n.Helper()
	firewalls := map[string]*lab.Capture{
		"fw-b": n.capture(n.Backend("fw-b").Node, "eth1"), "fw-c": n.capture(n.Backend("fw-c").Node, "eth1"),
	}
	client := n.Client("client-s")
	for _, to := range []netip.Addr{far4.Addr(), far6.Addr()} {
		for range 8 {
			backend, _, err := client.UDP(n.soon(), netip.AddrPortFrom(to, lab.EchoPort), netip.AddrPort{}, []byte("from eth1 to eth0"))
			n.must(err)
			n.see(firewalls[backend], "a frame on the firewall's segment", going(lab.In, fromTo(n, "eth0", client.Addr(to), to)))
		}
	}
	n.longTransfer("client-s", netip.AddrPortFrom(far4.Addr(), lab.EchoTLS))
}

// longTransfer sends a megabyte through an echo, as fast as it comes back.
func (n *network) longTransfer(client string, to netip.AddrPort) {
	n.Helper()
	conn, err := n.Client(client).OpenStream(n.soon(), to, netip.AddrPort{}, 8192, 0)
	n.must(err)
	n.eventually("a megabyte", func() (bool, error) {
		state := conn.State()
		return state.Bytes >= 1<<20 || state.Err != nil, nil
	})
	if state := conn.Close(); state.Err != nil {
		n.Error(state.Err)
	}
}

// fromTo matches frames between two addresses that an interface of the
// appliance sent.
func fromTo(n *network, iface string, src, dst netip.Addr) func(lab.Frame) bool {
	mac := n.mac(n.Appliance(), iface).String()
	return func(f lab.Frame) bool {
		p, ok := readIP(f)
		return ok && p.from == mac && p.src == src && p.dst == dst
	}
}

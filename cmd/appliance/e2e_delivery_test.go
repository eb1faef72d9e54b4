package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"zonehop/bench/lab"
	"zonehop/cmd/appliance/internal/admin"
)

// quickNeighbours makes a node's kernel verify its neighbours within seconds
// instead of a minute.
func (n *network) quickNeighbours(node *lab.Node, iface string) {
	n.Helper()
	for _, family := range []string{"ipv4", "ipv6"} {
		dir := "net/" + family + "/neigh/" + iface + "/"
		n.must(node.Sysctl(dir+"base_reachable_time_ms", "1000"))
		n.must(node.Sysctl(dir+"delay_first_probe_time", "1"))
		n.must(node.Sysctl(dir+"retrans_time_ms", "100"))
	}
}

// backend returns the line of a backend's address in `appliance backends`.
func (d *device) backend(service string, addr netip.Addr) admin.Backend {
	d.net.Helper()
	list, err := d.Backends()
	d.net.must(err)
	for _, b := range list {
		if b.Service == service && b.Address == addr.String() {
			return b
		}
	}
	d.net.Fatalf("no backend of %s has %s", service, addr)
	return admin.Backend{}
}

// TestBackendMoves lets a backend change its hardware address, and go dark,
// under connections that must survive both.
func TestBackendMoves(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	n.quickNeighbours(n.Appliance(), "eth0")
	d := n.start(testConfig(t, "two-zones.yaml"))
	const name = "web-b1"
	machine := n.Backend(name)
	streams := []*lab.Stream{
		n.stream("client-b", netip.AddrPortFrom(lab.VIPv4, lab.EchoTLS), name),
		n.stream("client-b", netip.AddrPortFrom(lab.VIPv6, lab.EchoTLS), name),
	}
	for i, announce := range []bool{true, false} {
		d.sub(fmt.Sprintf("new MAC, announced=%v", announce), func(d *device) {
			mac := net.HardwareAddr{2, 0x7a, 0x68, 0xee, 0, byte(i)}
			d.net.must(machine.SetMAC("eth0", mac, announce))
			arrives := d.net.capture(machine.Node, "eth0")
			for _, s := range streams {
				d.net.flowing(s)
				f := d.net.see(arrives, "a frame to the new address", going(lab.In, func(f lab.Frame) bool {
					p, ok := readIP(f)
					return ok && p.proto == protoTCP && p.src == s.LocalAddr().Addr() && p.to == mac.String()
				}))
				if p, _ := readIP(f); p.from != d.net.mac(d.net.Appliance(), "eth0").String() {
					d.net.Errorf("the frame came from %s, want the appliance", p.from)
				}
			}
		})
	}
	d.sub("dark", func(d *device) { goesDark(d, machine, streams[0]) })
	for _, s := range streams {
		n.flowing(s)
		if state := s.Close(); state.Err != nil {
			t.Error(state.Err)
		}
	}
	d.balanced()
	d.stop()
}

func goesDark(d *device, machine *lab.Backend, s *lab.Stream) {
	client := d.net.Client("client-b")
	wire := d.net.capture(client.Node, "eth0")
	flow := between(protoTCP, s.LocalAddr(), netip.AddrPortFrom(lab.VIPv4, lab.EchoTLS))
	frame := d.net.see(wire, "a frame of the connection", going(lab.Out, flow.there))

	d.net.must(machine.SetLink("eth0", false))
	d.wait("the backend to be undeliverable", func() error {
		for _, a := range []netip.Addr{machine.IPv4(), machine.IPv6()} {
			if b := d.backend("web", a); b.Deliverable || !strings.HasPrefix(b.Reason, "no_neighbour") {
				return fmt.Errorf("%s: deliverable %v, reason %q", a, b.Deliverable, b.Reason)
			}
		}
		return nil
	})
	before := d.status().Accounting.Dropped["no_neighbour"]
	d.net.send(client.Node, "eth0", frame.Data)
	d.counted("frames dropped as no_neighbour", dropped("no_neighbour"), before+1)
	for name := range d.net.shares("client-b", vip4, 10) {
		if name == machine.Name() {
			d.net.Errorf("%s answers although its link is down", name)
		}
	}
	d.net.must(machine.SetLink("eth0", true))
	d.wait("the backend to be deliverable again", func() error {
		if b := d.backend("web", machine.IPv4()); !b.Deliverable || b.Reason != "" {
			return fmt.Errorf("reason %q", b.Reason)
		}
		return nil
	})
}

// TestBackendBehindGateway checks that a backend that is not on the link is
// told and never sent to: its gateway would only send the packet back.
func TestBackendBehindGateway(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	gateway, far, far6 := n.Backend("web-b1"), netip.MustParseAddr("203.0.113.5"), netip.MustParseAddr("2001:db8:203::5")
	for _, a := range []netip.Addr{far, far6} {
		n.must(gateway.AddVIP(a))
		n.must(n.Appliance().Exec(func() error {
			return netlink.RouteAdd(&netlink.Route{
				Dst: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}, Gw: gateway.Addr(a).AsSlice(),
			})
		}))
	}
	d := n.prepare(n.Appliance().Name(), testConfig(t, "two-zones.yaml",
		"      - {name: web-b1,", "      - {name: far, zone: europe-west1-b, address: 203.0.113.5, ipv6Address: \"2001:db8:203::5\"}\n      - {name: web-b1,",
		"  - name: inspection", "  - name: distant\n    healthChecks: [http-8080]\n    backends: [{name: far, zone: europe-west1-b, address: 203.0.113.5, ipv6Address: \"2001:db8:203::5\"}]\n  - name: inspection",
		"\nroutes:", "\n  - {name: distant, IPAddress: 10.0.100.60, ports: [80], backendService: distant}\nroutes:"))
	d.run()
	d.ready("far")
	for _, at := range []struct {
		service string
		addr    netip.Addr
	}{{"web", far}, {"web", far6}, {"distant", far}, {"distant", far6}} {
		b := d.backend(at.service, at.addr)
		if b.Health != "HEALTHY" || b.Deliverable || !strings.HasPrefix(b.Reason, "not_on_link") || !strings.Contains(b.Reason, gateway.Addr(at.addr).String()) {
			t.Errorf("%s of %s: %s, deliverable %v, reason %q; want healthy, not_on_link and its gateway", b.Address, b.Service, b.Health, b.Deliverable, b.Reason)
		}
	}
	arrives := n.capture(gateway.Node, "eth0")
	got := n.shares("client-b", vip4, 100) // of four, one is missed once in 10^12 times
	// Two of three reachable in the client's zone is less than the spill-over
	// ratio of 0.8: what cannot be delivered to is as good as unhealthy.
	if got["web-b1"] == 0 || got["web-b2"] == 0 || got["web-c1"] == 0 || got["web-c2"] == 0 {
		t.Errorf("shares are %v, want some on each reachable primary", got)
	}
	lost := netip.MustParseAddrPort("10.0.100.60:80")
	client := n.Client("client-b")
	n.send(client.Node, "eth0", datagram(t, n.mac(n.Appliance(), "eth0"), n.mac(client.Node, "eth0"),
		netip.AddrPortFrom(client.IPv4(), 999), lost, 64, nil)) // UDP: no rule
	n.sendSYN(client, lost)
	d.counted("frames dropped as not_on_link", dropped("not_on_link"), 1)
	n.shares("client-b", vip4, 20)
	if k := arrives.Count(going(lab.In, func(f lab.Frame) bool {
		p, ok := readIP(f)
		return ok && p.src == client.IPv4() && p.dst == lost.Addr()
	})); k != 0 {
		t.Errorf("%d frames went to the gateway", k)
	}
	s := d.balanced()
	for _, p := range s.Pairs {
		if p.Backend == "far" {
			t.Errorf("%d packets are counted as forwarded to %s", p.Packets, p.Backend)
		}
	}
	for _, r := range s.Rules {
		if r.Name == "distant" && !strings.Contains(r.Problem, "not_on_link") {
			t.Errorf("the problem of rule %s is %q, want not_on_link", r.Name, r.Problem)
		}
	}
	d.stop()
}

// sendSYN starts a connection that nobody answers.
func (n *network) sendSYN(client *lab.Client, to netip.AddrPort) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.ctx, 300*time.Millisecond)
	defer cancel()
	if conn, err := client.DialTCP(ctx, to, netip.AddrPort{}); err == nil {
		conn.Close()
		n.Fatalf("%s answered", to)
	}
}

// TestLoop has a firewall send a packet that its own route would bring back to it.
func TestLoop(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	d := n.start(testConfig(t, "two-zones.yaml"))
	self, other := n.Backend("fw-b"), n.Backend("fw-c")
	back, on := n.capture(self.Node, "eth0"), n.capture(other.Node, "eth0")
	from, to := n.mac(self.Node, "eth0"), n.mac(n.Appliance(), "eth0")
	loops, passes := 0, 0
	for i := range 16 {
		src := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 8, 1, byte(i + 1)}), 5000)
		dst := netip.AddrPortFrom(far4.Addr(), 5000)
		e, err := d.Explain(admin.ExplainRequest{Rule: "inspect", Tuple: admin.Tuple{
			Client: src.Addr().String(), Dst: dst.Addr().String(), Protocol: protoUDP, SrcPort: src.Port(), DstPort: dst.Port(),
		}})
		n.must(err)
		if e.Backend == self.Name() {
			loops++
		} else {
			passes++
		}
		n.send(self.Node, "eth0", datagram(t, to, from, src, dst, 64, []byte{byte(i)}))
	}
	if loops == 0 || passes == 0 {
		t.Fatalf("of 16 clients %d belong to %s; the test needs both", loops, self.Name())
	}
	d.counted("frames dropped as loop", dropped("loop"), uint64(loops))
	arrived := func(f lab.Frame) bool {
		p, ok := readIP(f)
		return ok && p.proto == protoUDP && p.dst == far4.Addr()
	}
	n.eventually("the others to arrive", func() (bool, error) {
		k := on.Count(going(lab.In, arrived))
		return k == passes, fmt.Errorf("%d of %d", k, passes)
	})
	if k := back.Count(going(lab.In, arrived)); k != 0 {
		t.Errorf("%d frames came back to where they were sent from", k)
	}
	for _, f := range framesOf(on, going(lab.In, arrived)) {
		if f[22] != 63 || !bytes.Equal(f[6:12], to) {
			t.Errorf("a frame arrived with TTL %d from %x, want 63 from the appliance", f[22], f[6:12])
		}
	}
	s := d.balanced()
	if got := s.Accounting.Dropped["loop"]; got != uint64(loops) {
		t.Errorf("%d frames are dropped as loop, want %d", got, loops)
	}
	d.stop()
}

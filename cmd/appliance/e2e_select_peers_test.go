package main

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"zonehop/bench/lab"
	"zonehop/cmd/appliance/internal/admin"
)

// The two sides that the routes connect. Nobody has these addresses: packets end
// at the backend that the appliances send them to.
const (
	leftRange4, rightRange4 = "192.168.0.0/16", "172.16.0.0/12"
	leftRange6, rightRange6 = "2001:db8:192::/48", "2001:db8:172::/48"
)

// peerConfig is testdata/two-zones.yaml for one of two appliances: it answers
// for the rules' addresses only when told to, and routes to one side, through
// backends of a service that is named differently on the other.
func peerConfig(t *testing.T, side, to4, to6 string) string {
	return testConfig(t, "two-zones.yaml",
		", backendService: web}\n", ", backendService: web, announce: STANDBY}\n",
		"  - name: inspection\n    healthChecks: [http-8080]\n    sessionAffinity: CLIENT_IP\n",
		"  - name: "+side+"\n    healthChecks: [http-8080]\n    symmetryGroup: firewalls\n",
		"{name: fw-c, zone: europe-west1-c, address: 10.2.0.21, ipv6Address: \"fd00:2::21\"}",
		`{name: fw-c, zone: europe-west1-c, address: 10.2.0.21, ipv6Address: "fd00:2::21"}
      - {name: web-b1, zone: europe-west1-b, address: 10.1.0.11, ipv6Address: "fd00:1::11"}
      - {name: web-c1, zone: europe-west1-c, address: 10.2.0.11, ipv6Address: "fd00:2::11"}`,
		"destRange: 192.168.0.0/16, backendService: inspection", "destRange: "+to4+", backendService: "+side,
		"destRange: \"2001:db8:192::/48\", backendService: inspection", "destRange: \""+to6+"\", backendService: "+side,
	)
}

// pairing is two appliances on one segment.
type pairing struct {
	*network
	first, second *device
}

// TestPeers runs two appliances with the same services: what one decides, the
// other decides too.
func TestPeers(t *testing.T) {
	topology := lab.TwoZones()
	topology.Clients = append(topology.Clients, lab.NodeSpec{Name: "lb2", Interfaces: []lab.InterfaceSpec{{
		Name: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.3/8"), netip.MustParsePrefix("fd00::3/16")},
	}}})
	n := newNetwork(t, lab.Options{Topology: &topology})
	p := &pairing{network: n,
		first:  n.prepare("lb", peerConfig(t, "to-the-right", rightRange4, rightRange6)),
		second: n.prepare("lb2", peerConfig(t, "to-the-left", leftRange4, leftRange6)),
	}
	for _, d := range []*device{p.first, p.second} {
		d.run()
	}
	for _, d := range []*device{p.first, p.second} {
		d.bound()
		d.judged()
	}
	p.sub("the same choice", (*pairing).testSameChoice)
	p.sub("takeover", (*pairing).testTakeover)
	p.sub("both directions", (*pairing).testBothDirections)
	for _, d := range []*device{p.first, p.second} {
		d.balanced()
		d.stop()
	}
}

func (p *pairing) sub(name string, fn func(p *pairing)) {
	p.T.Run(name, func(t *testing.T) {
		n, first, second := *p.network, *p.first, *p.second
		n.T, first.net, second.net = t, &n, &n
		fn(&pairing{&n, &first, &second})
	})
}

// bound waits until the appliance's queues are, announced rules or not, and
// every backend can be delivered to.
func (d *device) bound() {
	d.net.Helper()
	d.wait("the queues to be bound", func() error {
		s, err := d.Status()
		if err != nil {
			return err
		}
		for _, i := range s.Interfaces {
			if len(i.Queues) == 0 {
				return fmt.Errorf("interface %s has no queue: %s", i.Name, i.Problem)
			}
			for _, q := range i.Queues {
				if !q.Bound {
					return fmt.Errorf("queue %d of %s: %s", q.Queue, i.Name, q.Problem)
				}
			}
		}
		list, err := d.Backends()
		for _, b := range list {
			if !b.Deliverable {
				return fmt.Errorf("backend %s %s: %s", b.Name, b.Address, b.Reason)
			}
		}
		return err
	})
}

// testSameChoice compares 200 explanations in each of three states of health.
func (p *pairing) testSameChoice() {
	for _, failing := range [][]string{{"web-b2"}, {"web-b1", "web-b2", "web-c1"}, nil} {
		p.first.failing(failing...)
		p.second.judged(failing...)
		chosen := make(map[string]int)
		for i := range 200 {
			q := admin.ExplainRequest{Rule: "web-tcp", Tuple: admin.Tuple{
				Client: fmt.Sprintf("10.%d.%d.%d", 1+i%9, i, 7*i%256), Protocol: protoTCP, SrcPort: uint16(1024 + 311*i), DstPort: 80,
			}}
			if i%2 == 1 {
				q.Rule, q.Tuple.Client = "web-udp6", fmt.Sprintf("fd00:%d::%x", 1+i%9, 7*i)
				q.Tuple.Protocol, q.Tuple.DstPort = protoUDP, lab.EchoPort
			}
			one, err := p.first.Explain(q)
			p.must(err)
			other, err := p.second.Explain(q)
			p.must(err)
			if one.Backend == "" || one.Backend != other.Backend || one.Reason != other.Reason || *one.Slot != *other.Slot ||
				!slices.Equal(one.ModifiedEligible, other.ModifiedEligible) {
				p.Fatalf("%+v: one appliance chooses %s among %v (%s), the other %s among %v (%s)", q.Tuple,
					one.Backend, one.ModifiedEligible, one.Reason, other.Backend, other.ModifiedEligible, other.Reason)
			}
			chosen[one.Backend]++
		}
		if len(chosen) < 2 {
			p.Fatalf("with %v failing all of 200 tuples get %v", failing, chosen)
		}
		p.Logf("failing %v: both chose %v", failing, chosen)
	}
}

// testTakeover moves the addresses from one appliance to the other: open
// connections go on, and datagrams from the same ports reach the same backends.
func (p *pairing) testTakeover() {
	p.first.succeed("announce", "on")
	servers := []netip.AddrPort{netip.AddrPortFrom(lab.VIPv4, lab.EchoPort), netip.AddrPortFrom(lab.VIPv6, lab.EchoPort)}
	before := p.datagrams(servers)
	streams := connections{}
	for range 4 {
		streams = append(streams, p.stream("client-x", streamAt(vip4), ""), p.stream("client-x", streamAt(vip6), ""))
	}
	streams.live(p.first)

	p.first.succeed("announce", "off")
	p.second.succeed("announce", "on")
	p.eventually("the streams to go through the other appliance", func() (bool, error) {
		flows, err := p.second.Flows(admin.FlowFilter{State: "confirmed"})
		return len(flows) >= len(streams), err
	})
	streams.live(p.second)
	p.second.counted("mid-flow misses", func(a *admin.Accounting) uint64 { return a.MidFlow }, uint64(len(streams)))
	if after := p.datagrams(servers); !maps.Equal(before, after) {
		p.Errorf("datagrams reached\n%v\nthrough one appliance and\n%v\nthrough the other", before, after)
	}
	for _, d := range []*device{p.first, p.second} {
		if s := d.status(); s.Claims != (admin.Claims{}) {
			p.Errorf("%s took the other's announcements for claims: %+v, %+v", d.node, s.Claims, s.Conflicts)
		}
		for _, r := range d.status().Rules {
			if r.Kind == "forwardingRule" && r.Packets == 0 {
				p.Errorf("rule %s forwarded nothing on %s", r.Name, d.node)
			}
		}
	}
	for _, s := range streams {
		s.Close()
	}
	p.second.succeed("announce", "off")
}

// datagrams sends one from each of 40 ports of a client to each server and
// says who answered.
func (p *pairing) datagrams(servers []netip.AddrPort) map[string]string {
	p.Helper()
	out := make(map[string]string)
	for port := range uint16(40) {
		for _, to := range servers {
			backend, _, err := p.Client("client-x").UDP(p.soon(), to, netip.AddrPortFrom(netip.Addr{}, 20000+port), []byte("who"))
			p.must(err)
			out[fmt.Sprintf("%d to %s", 20000+port, to)] = backend
		}
	}
	return out
}

// firewalls are the backends of the pair of routes.
var firewalls = []string{"fw-b", "fw-c", "web-b1", "web-c1"}

// testBothDirections sends packets of the same flows through one appliance
// from the left, and through the other from the right.
func (p *pairing) testBothDirections() {
	captures := make(map[string]*lab.Capture)
	for _, name := range firewalls {
		captures[name] = p.capture(p.Backend(name).Node, "eth0")
	}
	var flows []sidedFlow
	for i := range 60 {
		flows = append(flows,
			sidedFlow{protoUDP, addrPort("192.168.%d.7", i, 3000+i), addrPort("172.16.%d.9", i%7, 53)},
			sidedFlow{protoUDP, addrPort("2001:db8:192::%d", i, 3000+i), addrPort("2001:db8:172::%d", i%7, 53)},
			sidedFlow{lab.RawProtocol, addrPort("192.168.%d.8", i, 0), addrPort("172.16.%d.9", i%7, 0)},
		)
	}
	before := p.owners(captures, flows, false)
	spread := make(map[string]int)
	for _, owner := range before {
		spread[owner]++
	}
	p.Logf("180 flows are spread as %v", spread)
	if len(spread) != len(firewalls) {
		p.Errorf("180 flows reached %v only", spread)
	}

	const failed = "web-c1"
	p.first.failing(failed)
	p.second.judged(failed)
	// The other side first: neither may depend on what it has seen.
	after := p.owners(captures, flows, true)
	for i := range flows {
		switch {
		case after[i] == failed:
			p.Errorf("%v is on %s, which is unhealthy", flows[i], failed)
		case before[i] != failed && after[i] != before[i]:
			p.Errorf("%v moved from %s to %s, which are healthy", flows[i], before[i], after[i])
		}
	}
	var fresh []sidedFlow
	for i := range 60 {
		fresh = append(fresh, sidedFlow{protoUDP, addrPort("192.168.%d.11", i, 5000), addrPort("172.17.%d.9", i, 443)})
	}
	if owners := p.owners(captures, fresh, true); slices.Contains(owners, failed) {
		p.Errorf("new flows reached %s, which is unhealthy", failed)
	}
	// A health check that passes again returns what the two agreed on at first, for flows that have no entry yet.
	p.first.failing()
	p.second.judged()
	for i := range fresh {
		fresh[i].left = netip.AddrPortFrom(fresh[i].left.Addr(), 6000)
	}
	if owners := p.owners(captures, fresh, false); !slices.Contains(owners, failed) {
		p.Errorf("no new flow reaches %s again", failed)
	}
}

// sidedFlow is a flow between the two sides.
type sidedFlow struct {
	proto       uint8
	left, right netip.AddrPort
}

func addrPort(format string, i, port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf(format, i)), uint16(port))
}

// owners sends a packet of each flow from either side, and returns the one
// backend at which both must have arrived, flow by flow.
func (p *pairing) owners(captures map[string]*lab.Capture, flows []sidedFlow, rightFirst bool) []string {
	p.Helper()
	for _, c := range captures {
		c.Clear()
	}
	fromLeft := func() {
		for _, f := range flows {
			p.send(p.Client("client-b").Node, "eth0", f.packet(p, p.first, "client-b", f.left, f.right))
		}
	}
	fromRight := func() {
		for _, f := range flows {
			p.send(p.Client("client-c").Node, "eth0", f.packet(p, p.second, "client-c", f.right, f.left))
		}
	}
	if rightFirst {
		fromRight()
		fromLeft()
	} else {
		fromLeft()
		fromRight()
	}
	// Indexed once: matching each frame against each flow would take seconds.
	type direction struct {
		proto    uint8
		src, dst netip.Addr
	}
	var seen map[direction][]string
	p.eventually("both directions to arrive", func() (bool, error) {
		seen = make(map[direction][]string)
		frames := 0
		for name, c := range captures {
			for _, f := range c.Frames() {
				ip, ok := readIP(f)
				if !ok || f.Direction != lab.In || ip.proto != protoUDP && ip.proto != lab.RawProtocol {
					continue
				}
				at := direction{ip.proto, ip.src, ip.dst}
				seen[at] = append(seen[at], name)
				frames++
			}
		}
		return frames >= 2*len(flows), fmt.Errorf("%d of %d frames", frames, 2*len(flows))
	})
	owners := make([]string, len(flows))
	for i, f := range flows {
		there, back := seen[direction{f.proto, f.left.Addr(), f.right.Addr()}], seen[direction{f.proto, f.right.Addr(), f.left.Addr()}]
		if len(there) != 1 || len(back) != 1 || there[0] != back[0] {
			p.Fatalf("%v: from the left it arrived at %v, from the right at %v; want one backend, once each", f, there, back)
		}
		owners[i] = there[0]
	}
	return owners
}

// packet is a packet of the flow, in a frame from a client to an appliance.
func (f sidedFlow) packet(p *pairing, through *device, client string, src, dst netip.AddrPort) []byte {
	p.Helper()
	to, from := p.mac(p.Node(through.node), "eth0"), p.mac(p.Client(client).Node, "eth0")
	if f.proto == protoUDP {
		return datagram(p.T, to, from, src, dst, 64, []byte("there and back"))
	}
	return rawPacket(p.T, to, from, src.Addr(), dst.Addr())
}

// rawPacket is an IPv4 packet of a protocol without ports in a frame.
func rawPacket(t *testing.T, to, from net.HardwareAddr, src, dst netip.Addr) []byte {
	return build(t,
		&layers.Ethernet{DstMAC: to, SrcMAC: from, EthernetType: layers.EthernetTypeIPv4},
		&layers.IPv4{Version: 4, TTL: 64, Protocol: lab.RawProtocol, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()},
		gopacket.Payload("there and back"),
	)
}

package forwarder

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"zonehop/conntrack"
	"zonehop/forwarder/claim"
	"zonehop/forwarder/xsk"
	"zonehop/selector"
)

// rig is a worker on fake ports: one service "web" with backends on port 0, a
// forwarding rule for TCP 80 and 443, one for all UDP ports, an L3_DEFAULT
// rule, IPv6 likewise, and a route.
type rig struct {
	testing.TB
	*Worker
	builder *selector.Builder
	options selector.Options
	table   *conntrack.Table
	clock   int64
	ports   []*fakePort
	claims  chan claim.Claim
}

var (
	applianceMAC = [6]byte{2, 0, 0, 0, 0, 1}
	clientMAC    = [6]byte{2, 0, 0, 0, 0, 9}
	vip4         = netip.MustParseAddr("10.0.100.10")
	vip4any      = netip.MustParseAddr("10.0.100.20")
	vip6         = netip.MustParseAddr("fd00:0:100::10")
	client4      = netip.MustParseAddr("10.1.0.99")
	client6      = netip.MustParseAddr("fd00:1::99")
)

func backendMAC(i int) [6]byte { return [6]byte{2, 0, 0, 1, byte(i >> 8), byte(i)} }

func backendAddr(i int) (v4, v6 netip.Addr) {
	return netip.AddrFrom4([4]byte{10, 3, byte(i >> 8), byte(i)}),
		netip.MustParseAddr(fmt.Sprintf("fd00:3::%x", i+1))
}

type rigOptions struct {
	backends int
	zones    int
	lines    int
	frames   int
	ports    []string // interface names; default one
	separate bool     // each port in memory of its own
}

func newRig(tb testing.TB, o rigOptions) *rig {
	tb.Helper()
	o.zones, o.lines, o.frames = max(o.zones, 1), max(o.lines, 1<<12), max(o.frames, 1024)
	if o.ports == nil {
		o.ports = []string{"eth0"}
	}
	r := &rig{TB: tb, clock: int64(time.Hour), claims: make(chan claim.Claim, 256)}
	service := selector.ServiceOptions{Name: "web", IdleTimeout: 10 * time.Minute}
	var zones []selector.ZoneOptions
	for z := range o.zones {
		zones = append(zones, selector.ZoneOptions{
			Name:         fmt.Sprintf("zone-%d", z),
			ClientRanges: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(z), 0}), 24)},
		})
	}
	for i := range o.backends {
		a4, a6 := backendAddr(i)
		service.Backends = append(service.Backends, selector.BackendOptions{
			Name: fmt.Sprintf("b%d", i), Zone: zones[i%o.zones].Name, Address: a4, Address6: a6, Weight: 1,
		})
	}
	service.Policy.Spillover = selector.SpillCrossZone
	rules := []selector.RuleOptions{
		{Name: "tcp", Address: vip4, Protocol: 6, Ports: []selector.PortRange{{First: 80, Last: 80}, {First: 443, Last: 443}}, Service: "web", VIPPing: true},
		{Name: "udp", Address: vip4, Protocol: 17, AllPorts: true, Service: "web", VIPPing: true},
		{Name: "any", Address: vip4any, AllPorts: true, Service: "web"},
		{Name: "tcp6", Address: vip6, Protocol: 6, Ports: []selector.PortRange{{First: 80, Last: 80}}, Service: "web", VIPPing: true},
	}
	routes := []selector.RouteOptions{
		{Name: "route4", DestRange: netip.MustParsePrefix("192.168.0.0/16"), Service: "web", DecrementTTL: true, Symmetric: true},
		{Name: "route6", DestRange: netip.MustParsePrefix("fd99::/16"), Service: "web", DecrementTTL: true, Symmetric: true},
	}
	var err error
	r.options = selector.Options{
		HashKey: "test", Ports: o.ports, Zones: zones,
		Services: []selector.ServiceOptions{service}, Rules: rules, Routes: routes,
	}
	r.builder, err = selector.New(r.options, r.clock)
	if err != nil {
		tb.Fatal(err)
	}
	var ports []selector.Port
	for i, name := range o.ports {
		mac := applianceMAC
		mac[4] = byte(i)
		ports = append(ports, selector.Port{Name: name, Index: i + 1, MAC: mac, MTU: 1500, Up: true, Addrs: []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/8", i+2)), netip.MustParsePrefix(fmt.Sprintf("fd00::%d/16", i+2))}})
	}
	r.builder.SetPorts(ports)
	for i := range o.backends {
		r.deliverable(i, 0)
		r.builder.SetHealth("web", fmt.Sprintf("b%d", i), selector.V4, selector.Healthy)
		r.builder.SetHealth("web", fmt.Sprintf("b%d", i), selector.V6, selector.Healthy)
	}
	r.builder.Publish(r.clock)

	if r.table, err = conntrack.New(conntrack.Options{Lines: o.lines, HalfOpenShare: 0.5, Seed: 1}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { r.table.Close() })
	shared := &Shared{
		Table: r.table, Fragments: conntrack.NewFragments(1024, 1), Snapshot: r.builder.Current, Clock: func() int64 { return r.clock },
		Batch: 64, Frame: 2048, Route: &Routing{}, Claims: r.claims,
	}
	if r.Worker, err = NewWorker(0, shared); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.mailbox.close)
	cfg := xsk.Config{FrameSize: 2048, Frames: 256, Fill: 64, RX: 32, TX: 32, Batch: 32}
	for cfg.Frames < o.frames {
		cfg.Frames *= 2
	}
	var umem *xsk.UMEM
	for i := range o.ports {
		if umem == nil || o.separate {
			if umem, err = xsk.NewMemory(cfg); err != nil {
				tb.Fatal(err)
			}
		}
		p := &fakePort{t: tb, umem: umem, txRoom: 256, keep: true}
		r.ports = append(r.ports, p)
		r.bind(&binding{Port: p, umem: umem, iface: i})
		shared.Route.Set(i, r.mailbox)
	}
	return r
}

// deliverable makes backend i reachable by a port.
func (r *rig) deliverable(i, port int) {
	mac := backendMAC(i)
	d := selector.Delivery{State: selector.Deliverable, Len: 12, Port: int16(port)}
	copy(d.Header[:6], mac[:])
	copy(d.Header[6:12], applianceMAC[:])
	d.Header[10] = byte(port)
	a4, a6 := backendAddr(i)
	r.builder.SetDelivery(a4, d)
	r.builder.SetDelivery(a6, d)
}

// run delivers frames to a port, lets the worker handle them all, and returns
// what each port transmitted.
func (r *rig) run(port int, frames ...[]byte) (out [][]byte) {
	r.Helper()
	for _, f := range frames {
		r.ports[port].deliver(f)
	}
	for r.Pass() > 0 {
	}
	for _, p := range r.ports {
		out = append(out, p.sent...)
		p.sent = nil
	}
	r.publish()
	return out
}

func (r *rig) totals() Totals {
	var t Totals
	r.counters.addTo(&t)
	return t
}

// checkAccounts fails unless every frame is accounted for and every chunk of
// memory is free again.
func (r *rig) checkAccounts() {
	r.Helper()
	t := r.totals()
	if out := t.Forwarded + t.AnsweredTotal() + t.DroppedTotal() + t.Held; t.Received != out {
		r.Errorf("received %d frames, but forwarded %d + answered %d + dropped %d + held %d = %d", t.Received, t.Forwarded, t.AnsweredTotal(), t.DroppedTotal(), t.Held, out)
	}
	if in := t.Forwarded + t.AnsweredTotal() + t.OriginatedTotal(); in != t.Completed {
		r.Errorf("put %d frames on TX rings, %d were completed", in, t.Completed)
	}
	for i, p := range r.ports {
		if c := p.umem.Census(); c.Worker != 0 || c.Misuse != 0 {
			r.Errorf("port %d: census %+v, want every frame free and no misuse", i, c)
		}
	}
}

// frame builds an Ethernet frame from the client to the appliance.
func frame(l ...gopacket.SerializableLayer) []byte {
	eth := &layers.Ethernet{SrcMAC: clientMAC[:], DstMAC: applianceMAC[:], EthernetType: layers.EthernetTypeIPv4}
	if _, ok := l[0].(*layers.IPv6); ok {
		eth.EthernetType = layers.EthernetTypeIPv6
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, append([]gopacket.SerializableLayer{eth}, l...)...); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

func ip4(src, dst netip.Addr, proto layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: proto, SrcIP: net.IP(src.AsSlice()), DstIP: net.IP(dst.AsSlice())}
}

func ip6(src, dst netip.Addr, proto layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: net.IP(src.AsSlice()), DstIP: net.IP(dst.AsSlice())}
}

func tcpFrame(src, dst netip.Addr, sport, dport uint16, flags string) []byte {
	t := &layers.TCP{SrcPort: layers.TCPPort(sport), DstPort: layers.TCPPort(dport), Window: 1000}
	for _, f := range flags {
		switch f {
		case 'S':
			t.SYN = true
		case 'A':
			t.ACK = true
		case 'F':
			t.FIN = true
		case 'R':
			t.RST = true
		}
	}
	if src.Is6() {
		ip := ip6(src, dst, layers.IPProtocolTCP)
		t.SetNetworkLayerForChecksum(ip)
		return frame(ip, t, gopacket.Payload("payload"))
	}
	ip := ip4(src, dst, layers.IPProtocolTCP)
	t.SetNetworkLayerForChecksum(ip)
	return frame(ip, t, gopacket.Payload("payload"))
}

func udpFrame(src, dst netip.Addr, sport, dport uint16) []byte {
	u := &layers.UDP{SrcPort: layers.UDPPort(sport), DstPort: layers.UDPPort(dport)}
	ip := ip4(src, dst, layers.IPProtocolUDP)
	u.SetNetworkLayerForChecksum(ip)
	return frame(ip, u, gopacket.Payload("payload"))
}

// entries iterates over the flow table.
func (r *rig) entries(yield func(conntrack.Entry) bool) {
	r.table.All(conntrack.TickOf(r.clock), yield)
}

// chosen returns which backend a transmitted frame is addressed to.
func chosen(f []byte) int { return int(binary.BigEndian.Uint16(f[4:6])) }

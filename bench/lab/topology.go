package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Topology says which nodes a lab has and how they are wired. The zero value
// of optional fields is meant to be useful; names are unique over all nodes.
type Topology struct {
	// Segments is the number of separate L2 segments (bridges); 0 means 1.
	Segments  int
	Appliance NodeSpec
	Backends  []BackendSpec
	Clients   []NodeSpec
}

// NodeSpec describes one namespace.
type NodeSpec struct {
	Name       string // namespace PREFIX-Name; at most 13 bytes, it names the switch port too
	Interfaces []InterfaceSpec
	Routes     []RouteSpec
}

// InterfaceSpec describes one interface of a node: one end of a veth pair
// whose other end is a port of the segment's bridge.
type InterfaceSpec struct {
	Name      string // eth0, eth1, …
	Segment   int    // index of the bridge, from 0
	Addresses []netip.Prefix
	MTU       int // bytes, of both ends; 0 means 1500
}

// RouteSpec is a static route through a next hop on a connected network.
type RouteSpec struct {
	Destination netip.Prefix
	Via         netip.Addr
}

// BackendSpec describes a node with servers.
type BackendSpec struct {
	NodeSpec
	// VIPs are addresses held on the loopback, answered by the servers but
	// neither by ARP nor by neighbour discovery.
	VIPs []netip.Addr
	// AnyIP ranges make the node the owner of every address in them, so that
	// its servers answer for destinations behind a next hop. Such a node
	// forwards as well: what is in no range goes where its routes say.
	AnyIP []netip.Prefix
}

// Addresses of TwoZones that tests and the demo need by name.
var (
	ApplianceIPv4 = netip.MustParseAddr("10.0.0.2")
	ApplianceIPv6 = netip.MustParseAddr("fd00::2")
	VIPv4         = netip.MustParseAddr("10.0.100.10")
	VIPv6         = netip.MustParseAddr("fd00:0:100::10")
	// Clients reach these ranges through the appliance as next hop.
	InspectedIPv4 = netip.MustParsePrefix("192.168.0.0/16")
	InspectedIPv6 = netip.MustParsePrefix("2001:db8:192::/48")
)

// TwoZones is the network of the two-zones example: one flat segment
// (10.0.0.0/8 and fd00::/16) with two primary zones b and c, failover backends
// in zone d, two firewalls reached as next hops, and a client in zone b, in
// zone c, in no zone (x) and behind an attachment that is incompatible with
// zonal affinity (n).
func TwoZones() Topology {
	t := Topology{Appliance: NodeSpec{Name: "lb", Interfaces: flatInterface(0, 0, "2")}}
	for _, b := range []struct {
		name string
		net  int
		host string
	}{
		{"web-b1", 1, "11"}, {"web-b2", 1, "12"},
		{"web-c1", 2, "11"}, {"web-c2", 2, "12"},
		{"web-d1", 3, "11"}, {"web-d2", 3, "12"},
	} {
		t.Backends = append(t.Backends, BackendSpec{
			NodeSpec: NodeSpec{Name: b.name, Interfaces: flatInterface(b.net, 0, b.host)},
			VIPs:     []netip.Addr{VIPv4, VIPv6},
		})
	}
	for i, name := range []string{"fw-b", "fw-c"} {
		t.Backends = append(t.Backends, BackendSpec{
			NodeSpec: NodeSpec{Name: name, Interfaces: flatInterface(1+i, 0, "21")},
			AnyIP:    []netip.Prefix{InspectedIPv4, InspectedIPv6},
		})
	}
	for _, c := range []struct {
		name string
		net  int
	}{{"client-b", 1}, {"client-c", 2}, {"client-x", 8}, {"client-n", 9}} {
		t.Clients = append(t.Clients, NodeSpec{
			Name:       c.name,
			Interfaces: flatInterface(c.net, 0, "101"),
			Routes: []RouteSpec{
				{Destination: InspectedIPv4, Via: ApplianceIPv4},
				{Destination: InspectedIPv6, Via: ApplianceIPv6},
			},
		})
	}
	return t
}

// TwoSegments is TwoZones with the backends on a segment of their own
// (172.20.0.0/16 and fd20::/16, backend x.y of TwoZones is 172.20.x.y). The
// appliance has eth1 there, and every backend has an eth1 on the clients'
// segment, with its address of TwoZones, through which it answers directly.
func TwoSegments() Topology {
	t := TwoZones()
	t.Segments = 2
	t.Appliance.Interfaces = append(t.Appliance.Interfaces, InterfaceSpec{
		Name: "eth1", Segment: 1,
		Addresses: []netip.Prefix{netip.MustParsePrefix("172.20.0.2/16"), netip.MustParsePrefix("fd20::2/16")},
	})
	for i := range t.Backends {
		front := t.Backends[i].Interfaces[0]
		a4 := front.Addresses[0].Addr().As4()
		a6 := front.Addresses[1].Addr().As16()
		a6[1] = 0x20
		back := InterfaceSpec{Name: "eth0", Segment: 1, Addresses: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 20, a4[1], a4[3]}), 16),
			netip.PrefixFrom(netip.AddrFrom16(a6), 16),
		}}
		front.Name = "eth1"
		t.Backends[i].Interfaces = []InterfaceSpec{back, front}
	}
	return t
}

// flatInterface is eth0 with 10.NET.0.HOST/8 and fd00:NET::HOST/16.
func flatInterface(net, segment int, host string) []InterfaceSpec {
	return []InterfaceSpec{{
		Name: "eth0", Segment: segment,
		Addresses: []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("10.%d.0.%s/8", net, host)),
			netip.MustParsePrefix(fmt.Sprintf("fd00:%d::%s/16", net, host)),
		},
	}}
}

// maxNodeName leaves room for "-N" in a 15-byte interface name.
const maxNodeName = 13

func (t *Topology) validate() error {
	var problems []error
	segments := max(t.Segments, 1)
	seen := map[string]bool{switchName: true}
	for _, n := range t.nodes() {
		if n.Name == "" || len(n.Name) > maxNodeName || strings.ContainsAny(n.Name, "/ ") {
			problems = append(problems, fmt.Errorf("node name %q: use 1 to %d bytes without slash or blank", n.Name, maxNodeName))
		}
		if seen[n.Name] {
			problems = append(problems, fmt.Errorf("node name %q: used twice", n.Name))
		}
		seen[n.Name] = true
		for _, i := range n.Interfaces {
			if i.Segment < 0 || i.Segment >= segments {
				problems = append(problems, fmt.Errorf("node %s: interface %s: segment %d is out of range; the topology has %d", n.Name, i.Name, i.Segment, segments))
			}
		}
	}
	return errors.Join(problems...)
}

// nodes lists all nodes but the switch, in the order they are built.
func (t *Topology) nodes() []NodeSpec {
	nodes := []NodeSpec{t.Appliance}
	for _, b := range t.Backends {
		nodes = append(nodes, b.NodeSpec)
	}
	return append(nodes, t.Clients...)
}

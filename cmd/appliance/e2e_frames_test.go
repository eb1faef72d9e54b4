package main

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"golang.org/x/sys/unix"

	"zonehop/bench/lab"
)

// Protocol numbers (IANA), and the ICMP types that tests look for.
const (
	protoICMP, protoTCP, protoUDP, protoICMPv6 = 1, 6, 17, 58

	echoRequest4, echoReply4, timeExceeded4 = 8, 0, 11
	echoRequest6, echoReply6, timeExceeded6 = 128, 129, 3
	solicitation, advertisement             = 135, 136
)

// ipPacket is a captured frame, taken apart as far as tests look.
type ipPacket struct {
	to, from string // hardware addresses, as net.HardwareAddr prints them
	src, dst netip.Addr
	proto    uint8
	ttl      uint8
	l3       []byte // from the IP header on
	l4       []byte // behind it
}

// readIP takes an untagged IPv4 or IPv6 frame without extension headers apart.
func readIP(f lab.Frame) (p ipPacket, ok bool) {
	b := f.Data
	if len(b) < 34 {
		return p, false
	}
	p.to, p.from, p.l3 = net.HardwareAddr(b[:6]).String(), net.HardwareAddr(b[6:12]).String(), b[14:]
	switch binary.BigEndian.Uint16(b[12:]) {
	case unix.ETH_P_IP:
		p.src, p.dst = netip.AddrFrom4([4]byte(b[26:])), netip.AddrFrom4([4]byte(b[30:]))
		p.ttl, p.proto = b[22], b[23]
		p.l4 = b[14+int(b[14]&15)*4 : min(len(b), 14+int(binary.BigEndian.Uint16(b[16:])))]
	case unix.ETH_P_IPV6:
		if len(b) < 54 {
			return p, false
		}
		p.src, p.dst = netip.AddrFrom16([16]byte(b[22:])), netip.AddrFrom16([16]byte(b[38:]))
		p.proto, p.ttl = b[20], b[21]
		p.l4 = b[54:min(len(b), 54+int(binary.BigEndian.Uint16(b[18:])))]
	default:
		return p, false
	}
	return p, true
}

// conversation is the traffic between a client and an address. Ports are 0
// where they do not matter.
type conversation struct {
	proto          uint8
	client, server netip.AddrPort
}

// between makes a conversation; the ports are those of a protocol that has any.
func between(proto uint8, client, server netip.AddrPort) conversation {
	return conversation{proto, client, server}
}

// there matches frames from the client, back those to it.
func (c conversation) there(f lab.Frame) bool { return c.matches(f, c.client, c.server, true) }
func (c conversation) back(f lab.Frame) bool  { return c.matches(f, c.server, c.client, false) }

func (c conversation) matches(f lab.Frame, src, dst netip.AddrPort, asks bool) bool {
	p, ok := readIP(f)
	if !ok || p.proto != c.proto || p.src != src.Addr() || p.dst != dst.Addr() {
		return false
	}
	switch c.proto {
	case protoTCP, protoUDP:
		return (src.Port() == 0 || binary.BigEndian.Uint16(p.l4) == src.Port()) &&
			(dst.Port() == 0 || binary.BigEndian.Uint16(p.l4[2:]) == dst.Port())
	case protoICMP:
		return asks && p.l4[0] == echoRequest4 || !asks && p.l4[0] == echoReply4
	case protoICMPv6: // not neighbour discovery
		return asks && p.l4[0] == echoRequest6 || !asks && p.l4[0] == echoReply6
	}
	return true
}

// going narrows a matcher to one direction.
func going(d lab.Direction, match func(lab.Frame) bool) func(lab.Frame) bool {
	return func(f lab.Frame) bool { return f.Direction == d && match(f) }
}

// framesOf lists captured frames that match.
func framesOf(c *lab.Capture, match func(lab.Frame) bool) (out [][]byte) {
	for _, f := range c.Frames() {
		if match(f) {
			out = append(out, f.Data)
		}
	}
	return out
}

// forwardedForm is what a frame must look like behind the appliance: other
// hardware addresses and, for a router, a TTL that is one less, with a header
// checksum computed from scratch.
func forwardedForm(frame []byte, to, from net.HardwareAddr, router bool) []byte {
	b := append([]byte(nil), frame...)
	copy(b[0:], to)
	copy(b[6:], from)
	switch {
	case !router:
	case binary.BigEndian.Uint16(b[12:]) == unix.ETH_P_IP:
		b[22]--
		b[24], b[25] = 0, 0
		binary.BigEndian.PutUint16(b[24:], internetSum(0, b[14:14+int(b[14]&15)*4]))
	default:
		b[21]--
	}
	return b
}

// internetSum is the checksum of RFC 1071, starting from a pseudo header's sum.
func internetSum(sum uint32, b []byte) uint16 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// pseudoSum is the sum of the pseudo header of RFC 8200 section 8.1.
func pseudoSum(src, dst netip.Addr, length int, proto uint8) uint32 {
	sum := uint32(length) + uint32(proto)
	for _, a := range []netip.Addr{src, dst} {
		for b := a.AsSlice(); len(b) > 0; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
	}
	return sum
}

// build puts layers together, with lengths and checksums.
func build(t *testing.T, parts ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, parts...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// datagram is a UDP packet in a frame.
func datagram(t *testing.T, to, from net.HardwareAddr, src, dst netip.AddrPort, ttl uint8, payload []byte) []byte {
	t.Helper()
	eth := &layers.Ethernet{DstMAC: to, SrcMAC: from, EthernetType: layers.EthernetTypeIPv4}
	udp := &layers.UDP{SrcPort: layers.UDPPort(src.Port()), DstPort: layers.UDPPort(dst.Port())}
	if src.Addr().Is4() {
		ip := &layers.IPv4{Version: 4, TTL: ttl, Id: 4711, Protocol: layers.IPProtocolUDP, SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
		if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
			t.Fatal(err)
		}
		return build(t, eth, ip, udp, gopacket.Payload(payload))
	}
	eth.EthernetType = layers.EthernetTypeIPv6
	ip := &layers.IPv6{Version: 6, HopLimit: ttl, NextHeader: layers.IPProtocolUDP, SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	return build(t, eth, ip, udp, gopacket.Payload(payload))
}

// broadcastMAC is every station's address.
var broadcastMAC = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// arpRequest asks, probes (an unspecified sender) or claims (sender = target).
func arpRequest(t *testing.T, from net.HardwareAddr, sender, target netip.Addr) []byte {
	t.Helper()
	return build(t,
		&layers.Ethernet{DstMAC: broadcastMAC, SrcMAC: from, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation: layers.ARPRequest, SourceHwAddress: from, SourceProtAddress: sender.AsSlice(),
			DstHwAddress: make([]byte, 6), DstProtAddress: target.AsSlice()},
	)
}

// solicit is a multicast neighbour solicitation (RFC 4861 section 4.3); from an
// unspecified sender one of duplicate address detection, without an option.
func solicit(t *testing.T, from net.HardwareAddr, sender, target netip.Addr) []byte {
	t.Helper()
	group := solicitedNode(target)
	g := group.As16()
	ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: sender.AsSlice(), DstIP: group.AsSlice()}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(solicitation, 0)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	ns := &layers.ICMPv6NeighborSolicitation{TargetAddress: target.AsSlice()}
	if !sender.IsUnspecified() {
		ns.Options = layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: from}}
	}
	return build(t, &layers.Ethernet{DstMAC: net.HardwareAddr{0x33, 0x33, g[12], g[13], g[14], g[15]}, SrcMAC: from, EthernetType: layers.EthernetTypeIPv6}, ip, icmp, ns)
}

// solicitedNode is the group in which an address is asked for (RFC 4291 section 2.7.1).
func solicitedNode(a netip.Addr) netip.Addr {
	g := netip.MustParseAddr("ff02::1:ff00:0").As16()
	b := a.As16()
	copy(g[13:], b[13:])
	return netip.AddrFrom16(g)
}

// capture records at an interface of a node until the test ends.
func (n *network) capture(node *lab.Node, iface string) *lab.Capture {
	n.Helper()
	c, err := node.Capture(iface)
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(c.Stop)
	return c
}

// port records at the switch's end of an interface.
func (n *network) port(node *lab.Node, iface string) *lab.Capture {
	n.Helper()
	c, err := node.CapturePort(iface)
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(c.Stop)
	return c
}

// mac is the hardware address of a node's interface.
func (n *network) mac(node *lab.Node, iface string) net.HardwareAddr {
	n.Helper()
	m, err := node.MAC(iface)
	if err != nil {
		n.Fatal(err)
	}
	return m
}

// send puts a frame on the wire.
func (n *network) send(node *lab.Node, iface string, frame []byte) {
	n.Helper()
	if err := node.SendFrame(iface, frame); err != nil {
		n.Fatal(err)
	}
}

// see waits for a captured frame.
func (n *network) see(c *lab.Capture, what string, match func(lab.Frame) bool) lab.Frame {
	n.Helper()
	f, err := c.Wait(n.soon(), match)
	if err != nil {
		n.Fatalf("%s: %v", what, err)
	}
	return f
}

// must fails the test on an error.
func (n *network) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// eventually waits for something outside the appliance.
func (n *network) eventually(what string, done func() (bool, error)) {
	n.Helper()
	n.must(lab.Wait(n.ctx, what, patience, done))
}

// soon is a deadline for what must come.
func (n *network) soon() context.Context {
	ctx, cancel := context.WithTimeout(n.ctx, patience)
	n.Cleanup(cancel)
	return ctx
}

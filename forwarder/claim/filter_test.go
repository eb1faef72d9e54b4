package claim

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"golang.org/x/net/bpf"

	"zonehop/forwarder/packet"
)

var (
	hostMAC = net.HardwareAddr{2, 0, 0, 0, 0, 0xaa}
	addr4   = netip.MustParseAddr("10.0.100.10")
	addr6   = netip.MustParseAddr("fd00:0:100::10")
	other4  = netip.MustParseAddr("10.1.0.9")
	other6  = netip.MustParseAddr("fd00:1::9")
	all6    = netip.IPv6LinkLocalAllNodes()
)

func serialize(l ...gopacket.SerializableLayer) []byte {
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, l...); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

func arp(op uint16, sender, target netip.Addr) []byte {
	return serialize(
		&layers.Ethernet{SrcMAC: hostMAC, DstMAC: layers.EthernetBroadcast, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation: op, SourceHwAddress: hostMAC, SourceProtAddress: sender.AsSlice(), DstHwAddress: make([]byte, 6), DstProtAddress: target.AsSlice()})
}

// neighbour is an advertisement or a solicitation behind extension headers.
func neighbour(kind uint8, src, dst, target netip.Addr, headers ...uint8) []byte {
	ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)}
	icmp.SetNetworkLayerForChecksum(ip)
	var message gopacket.SerializableLayer = &layers.ICMPv6NeighborSolicitation{TargetAddress: target.AsSlice()}
	if kind == advertisement {
		message = &layers.ICMPv6NeighborAdvertisement{Flags: 0x20, TargetAddress: target.AsSlice(),
			Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: hostMAC}}}
	}
	inner := serialize(icmp, message)
	next := uint8(icmpv6)
	for _, h := range headers {
		length := 8 + 8*(h%3) // of different lengths
		inner = append(append([]byte{next, length/8 - 1, 1, length - 4}, make([]byte, length-4)...), inner...)
		next = h
	}
	ip.NextHeader = layers.IPProtocol(next)
	return serialize(&layers.Ethernet{SrcMAC: hostMAC, DstMAC: net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, EthernetType: layers.EthernetTypeIPv6},
		ip, gopacket.Payload(inner))
}

// inTag puts a tag in front of what a frame carries.
func inTag(f []byte, protocol, number uint16) []byte {
	return Tags{uint32(protocol)<<16 | uint32(number)}.Tagged(f)
}

func tcp(dst netip.Addr) []byte {
	ip := &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: other4.AsSlice(), DstIP: dst.AsSlice()}
	t := &layers.TCP{SrcPort: 1, DstPort: 80, SYN: true}
	t.SetNetworkLayerForChecksum(ip)
	return serialize(&layers.Ethernet{SrcMAC: hostMAC, DstMAC: hostMAC, EthernetType: layers.EthernetTypeIPv4}, ip, t)
}

// heard are frames with the claim that is in each, if it is to an address of ours.
var heard = []struct {
	name  string
	frame []byte
	claim bool
}{
	{"ARP reply", arp(2, addr4, other4), true},
	{"gratuitous request", arp(1, addr4, addr4), true},
	{"request for another target", arp(1, addr4, other4), true},
	{"request by another sender", arp(1, other4, addr4), false},
	{"reply about another address", arp(2, other4, addr4), false},
	{"probe", arp(1, netip.IPv4Unspecified(), addr4), false},
	{"reverse ARP", arp(3, addr4, addr4), false},
	{"ARP reply in a VLAN", inTag(arp(2, addr4, other4), 0x8100, 7), true},
	{"in a provider's VLAN", inTag(arp(2, addr4, other4), 0x88a8, 7), true},
	{"advertisement", neighbour(advertisement, other6, all6, addr6), true},
	{"advertisement in a VLAN", inTag(neighbour(advertisement, other6, all6, addr6), 0x8100, 7), true},
	{"advertisement of another address", neighbour(advertisement, addr6, all6, other6), false},
	{"advertisement behind hop-by-hop options", neighbour(advertisement, other6, all6, addr6, hopByHop), true},
	{"behind two headers", neighbour(advertisement, other6, all6, addr6, options, routing), true},
	{"behind two headers in a VLAN", inTag(neighbour(advertisement, other6, all6, addr6, routing, hopByHop), 0x8100, 7), true},
	{"behind three headers", neighbour(advertisement, other6, all6, addr6, options, routing, hopByHop), false},
	{"behind a fragment header", neighbour(advertisement, other6, all6, addr6, 44), false},
	{"solicitation from the address", neighbour(solicitation, addr6, all6, other6), true},
	{"solicitation for the address", neighbour(solicitation, other6, all6, addr6), false},
	{"echo request from the address", neighbour(128, addr6, all6, addr6), false},
	{"TCP to the address", tcp(addr4), false},
	{"nothing", nil, false},
}

func newVM(t *testing.T, addrs ...netip.Addr) *bpf.VM {
	t.Helper()
	program := program(addrs)
	if _, err := bpf.Assemble(program); err != nil {
		t.Fatal(err)
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// wanted runs the filter over a frame.
func wanted(t *testing.T, vm *bpf.VM, frame []byte) bool {
	t.Helper()
	n, err := vm.Run(frame)
	if err != nil {
		t.Fatal(err)
	}
	if n != 0 && n < len(frame) {
		t.Errorf("%d of %d bytes are wanted, want all", n, len(frame))
	}
	return n != 0
}

// TestFilter: what the kernel lets through is what Of finds claims in.
func TestFilter(t *testing.T) {
	ours := newVM(t, other4.Next(), addr4, netip.MustParseAddr("fd00:0:100::11"), addr6)
	none, others := newVM(t), newVM(t, netip.MustParseAddr("10.0.100.11"), netip.MustParseAddr("fd00:0:100::11"))
	var all []netip.Addr
	for i := range maxFiltered + 1 {
		all = append(all, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	many := newVM(t, all...)
	for _, h := range heard {
		t.Run(h.name, func(t *testing.T) {
			if got := wanted(t, ours, h.frame); got != h.claim {
				t.Errorf("let through: %v, want %v", got, h.claim)
			}
			if wanted(t, none, h.frame) || wanted(t, others, h.frame) {
				t.Error("let through though nobody looks for the address")
			}
			if h.claim && !wanted(t, many, h.frame) {
				t.Error("not let through with more addresses than it compares with")
			}
			for n := range h.frame {
				wanted(t, ours, h.frame[:n]) // must not fail on what is cut short
			}
			var p packet.Parsed
			if h.frame == nil || p.Parse(h.frame) != packet.OK {
				return
			}
			c, ok := Of(h.frame, &p, 3)
			found := ok && c.Kind == Conflict && (c.Addr == packet.Addr(addr4) || c.Addr == packet.Addr(addr6))
			if found != h.claim && h.name != "behind three headers" { // which only the filter gives up on
				t.Errorf("Of = %+v, %v, want a claim of ours: %v", c, ok, h.claim)
			}
			if found && (c.MAC != 0x0200000000aa || c.Port != 3) {
				t.Errorf("claimed by %x on port %d, want %s on 3", c.MAC, c.Port, hostMAC)
			}
		})
	}
}

// TestFilterSize: as many addresses as it compares with stay below what a
// socket may have in instructions (BPF_MAXINSNS).
func TestFilterSize(t *testing.T) {
	var all []netip.Addr
	for i := range maxFiltered / 2 {
		all = append(all, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), netip.MustParseAddr(fmt.Sprintf("fd00::%x", i)))
	}
	if n := len(program(all)); n > 4096 || n < 2*maxFiltered {
		t.Errorf("%d instructions for %d addresses", n, len(all))
	}
	vm := newVM(t, all...)
	for _, a := range all {
		f := neighbour(advertisement, other6, all6, a)
		if a.Is4() {
			f = arp(2, a, other4)
		}
		if !wanted(t, vm, f) {
			t.Errorf("%v is not let through", a)
		}
	}
}

func FuzzOf(f *testing.F) {
	for _, h := range heard {
		f.Add(h.frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		hear(frame, 0, func(c Claim) {
			if c.MAC>>48 != 0 || c.Kind >= numKinds {
				t.Errorf("%x: claim %+v", frame, c)
			}
		})
	})
}

package forwarder

import (
	"net"
	"net/netip"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"zonehop/forwarder/xsk"
	"zonehop/selector"
)

type xskDesc = xsk.Desc

// f20 is a frame that ends within its IP header.
var f20 = tcpFrame(client4, vip4, 1, 80, "S")[:20]

func ptr[T any](v T) *T { return &v }

func serialize(l ...gopacket.SerializableLayer) []byte {
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, l...); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

func arpRequest(sender, target netip.Addr, mac [6]byte) []byte {
	return serialize(
		&layers.Ethernet{SrcMAC: mac[:], DstMAC: layers.EthernetBroadcast, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{
			AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation: layers.ARPRequest, SourceHwAddress: mac[:], SourceProtAddress: sender.AsSlice(),
			DstHwAddress: make([]byte, 6), DstProtAddress: target.AsSlice(),
		})
}

func ping(dst netip.Addr) []byte {
	return frame(ip4(client4, dst, layers.IPProtocolICMPv4),
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: 1, Seq: 1}, gopacket.Payload("ping"))
}

func solicitation(src, target netip.Addr, mac [6]byte) []byte {
	t := target.As16()
	group := net.IP{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, t[13], t[14], t[15]}
	ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: src.AsSlice(), DstIP: group}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0)}
	icmp.SetNetworkLayerForChecksum(ip)
	return serialize(
		&layers.Ethernet{SrcMAC: mac[:], DstMAC: net.HardwareAddr{0x33, 0x33, 0xff, t[13], t[14], t[15]}, EthernetType: layers.EthernetTypeIPv6},
		ip, icmp, &layers.ICMPv6NeighborSolicitation{
			TargetAddress: t[:], Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: mac[:]}},
		})
}

// bigFrame is a TCP frame of n bytes.
func bigFrame(n int) []byte {
	ip := ip4(client4, vip4, layers.IPProtocolTCP)
	t := &layers.TCP{SrcPort: 1, DstPort: 80, SYN: true}
	t.SetNetworkLayerForChecksum(ip)
	return frame(ip, t, gopacket.Payload(make([]byte, n-14-20-20)))
}

// reconfigure applies a changed service.
func (r *rig) reconfigure(change func(*selector.ServiceOptions)) {
	r.Helper()
	service := r.options.Services[0]
	change(&service)
	r.options.Services = []selector.ServiceOptions{service}
	if err := r.builder.Apply(r.options, r.clock); err != nil {
		r.Fatal(err)
	}
	r.builder.Publish(r.clock)
}

// health gives every backend the same verdict.
func (r *rig) health(h selector.Health) {
	for _, b := range r.options.Services[0].Backends {
		r.builder.SetHealth("web", b.Name, selector.V4, h)
		r.builder.SetHealth("web", b.Name, selector.V6, h)
	}
	r.builder.Publish(r.clock)
}

// unreachable is an ICMP error from a router to dst about a packet, given as
// a frame; the first n bytes of the packet are quoted, all if n is not given.
func unreachable(router, dst netip.Addr, about []byte, n ...int) []byte {
	quote := about[14:]
	if len(n) > 0 {
		quote = quote[:n[0]]
	}
	if dst.Is6() {
		ip := ip6(router, dst, layers.IPProtocolICMPv6)
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypePacketTooBig, 0)}
		icmp.SetNetworkLayerForChecksum(ip)
		return frame(ip, icmp, gopacket.Payload(append([]byte{0, 0, 5, 0}, quote...)))
	}
	return frame(ip4(router, dst, layers.IPProtocolICMPv4),
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeFragmentationNeeded), Seq: 1400},
		gopacket.Payload(quote))
}

// fragments cuts the payload of an IPv4 frame into fragments of at most n
// bytes, a multiple of 8.
func fragments(f []byte, id uint16, n int) (out [][]byte) {
	payload := f[34:]
	for off := 0; off < len(payload); off += n {
		end := min(off+n, len(payload))
		g := append(append([]byte{}, f[:34]...), payload[off:end]...)
		flags := uint16(off / 8)
		if end < len(payload) {
			flags |= 0x2000
		}
		putHeader(g, uint16(len(g)-14), id, flags)
		out = append(out, g)
	}
	return out
}

// putHeader sets length, identification and fragment fields, and the checksum.
func putHeader(f []byte, length, id, flags uint16) {
	for i, v := range []uint16{length, id, flags} {
		at := []int{16, 18, 20}[i]
		f[at], f[at+1] = byte(v>>8), byte(v)
	}
	f[24], f[25] = 0, 0
	sum := uint32(0)
	for i := 14; i < 34; i += 2 {
		sum += uint32(f[i])<<8 | uint32(f[i+1])
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	f[24], f[25] = byte(^sum>>8), byte(^sum)
}

// bigUDP is a UDP frame with n bytes of payload.
func bigUDP(dst netip.Addr, sport, dport uint16, n int) []byte {
	ip := ip4(client4, dst, layers.IPProtocolUDP)
	u := &layers.UDP{SrcPort: layers.UDPPort(sport), DstPort: layers.UDPPort(dport)}
	u.SetNetworkLayerForChecksum(ip)
	return frame(ip, u, gopacket.Payload(make([]byte, n)))
}

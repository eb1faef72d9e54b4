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

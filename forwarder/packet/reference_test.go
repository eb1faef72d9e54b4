package packet

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// reference reads an IP packet that starts at an offset of a frame, header by
// header with gopacket's decoders, and says what Parse (or, of a quote,
// ParseQuote) must make of it. It is not ok where they must refuse the packet.
// Of an IPv4 packet the header checksum is taken to be right.
//
// gopacket judges more than a forwarder may: what is in options, lengths in
// transport headers, headers that a fragment or a quote cuts short. So it gets
// options without content, and short headers filled up with zeros.
func reference(b []byte, at int, kind Kind, quote bool) (p Parsed, ok bool) {
	p.L3, p.Kind = uint16(at), kind
	if kind == KindIPv4 {
		return p, p.reference4(b, quote)
	}
	return p, p.reference6(b, quote)
}

func (p *Parsed) reference4(b []byte, quote bool) bool {
	c := bytes.Clone(b)
	if len(c) > ipv4Len {
		for i := range c[ipv4Len:min(len(c), max(ipv4Len, int(c[0]&15)*4))] {
			c[ipv4Len+i] = 1 // no operation
		}
	}
	var ip layers.IPv4
	err := ip.DecodeFromBytes(c, gopacket.NilDecodeFeedback)
	if err != nil || ip.Version != 4 || binary.BigEndian.Uint16(c[2:]) == 0 || !quote && int(ip.Length) > len(b) {
		return false // gopacket takes a length of 0 for one that the network card is to fill in
	}
	p.Src, p.Dst, p.Proto, p.TTL = words(ip.SrcIP), words(ip.DstIP), uint8(ip.Protocol), ip.TTL
	p.L4 = p.L3 + uint16(len(ip.Contents))
	p.End = p.L4 + uint16(len(ip.Payload))
	if len(ip.Options) > 0 {
		p.Flags |= IPOptions
	}
	offset, more := int(ip.FragOffset)*8, ip.Flags&layers.IPv4MoreFragments != 0
	if offset != 0 || more {
		p.FragID = uint32(ip.Id)
		if !p.referenceFragment(ip.Payload, offset, more, quote) {
			return false
		}
	}
	return p.referenceTransport(ip.Payload, quote)
}

func (p *Parsed) reference6(b []byte, quote bool) bool {
	if len(b) < ipv6Len {
		return false
	}
	c := bytes.Clone(b)
	next := c[6]
	c[6] = uint8(layers.IPProtocolNoNextHeader) // of a hop-by-hop header gopacket counts the length twice
	empty := c[4] == 0 && c[5] == 0
	if empty {
		c[5] = 1 // gopacket refuses what is allowed, an empty packet
	}
	var ip layers.IPv6
	if err := ip.DecodeFromBytes(c, gopacket.NilDecodeFeedback); err != nil || ip.Version != 6 || empty && next == ProtoHopByHop {
		return false
	}
	payload := ip.Payload
	if empty {
		payload = nil
	} else if !quote && int(ip.Length) > len(payload) {
		return false
	}
	for _, a := range [][]byte{ip.SrcIP, ip.DstIP} {
		if netip.AddrFrom16([16]byte(a)).Is4In6() {
			return false
		}
	}
	p.Src, p.Dst, p.TTL = words(ip.SrcIP), words(ip.DstIP), ip.HopLimit
	p.L4 = p.L3 + ipv6Len
	p.End = p.L4 + uint16(len(payload))
	for n := 0; ; n++ {
		p.Proto = next
		switch next {
		case ProtoHopByHop, ProtoRouting, ProtoFragment, ProtoAH, ProtoDstOpts:
			p.Flags |= ExtensionHeaders
		default:
			return p.referenceTransport(payload, quote)
		}
		if n == 8 {
			return true // the rest is not looked at
		}
		size, follows, complete := extension(next, payload)
		if !complete {
			return quote || p.Has(Fragment)
		}
		if next == ProtoFragment {
			if p.Flags&(Fragment|AtomicFragment) != 0 {
				return true // a second one
			}
			f := gopacket.NewPacket(payload, layers.LayerTypeIPv6Fragment, gopacket.NoCopy).Layer(layers.LayerTypeIPv6Fragment).(*layers.IPv6Fragment)
			p.Proto, p.L4 = follows, p.L4+uint16(size)
			if offset := int(f.FragmentOffset) * 8; offset == 0 && !f.MoreFragments {
				p.Flags |= AtomicFragment
			} else {
				p.FragID = f.Identification
				if ok := p.referenceFragment(f.Payload, offset, f.MoreFragments, quote); !ok || offset != 0 {
					return ok
				}
			}
		} else {
			p.L4 += uint16(size)
		}
		payload, next = payload[size:], follows
	}
}

// extension reads the extension header at the start of b.
func extension(kind uint8, b []byte) (size int, next uint8, complete bool) {
	if len(b) < 8 {
		return 0, 0, false
	}
	switch kind {
	case ProtoFragment:
		return 8, b[0], true
	case ProtoAH:
		if b[1] == 0 {
			return 8, b[0], true // too short for its own fields, about which gopacket panics
		}
		layer, ok := gopacket.NewPacket(b, layers.LayerTypeIPSecAH, gopacket.NoCopy).Layer(layers.LayerTypeIPSecAH).(*layers.IPSecAH)
		if !ok {
			return 0, 0, false
		}
		return layer.ActualLength, uint8(layer.NextHeader), true
	}
	c := append(bytes.Clone(b), 0) // gopacket looks one byte behind the last option
	clear(c[2:])                   // options of one byte each (Pad1)
	var h layers.IPv6Destination
	if h.DecodeFromBytes(c, gopacket.NilDecodeFeedback) != nil || h.ActualLength > len(b) {
		return 0, 0, false
	}
	return h.ActualLength, uint8(h.NextHeader), true
}

// referenceFragment notes a fragment, and judges one that is not quoted.
func (p *Parsed) referenceFragment(payload []byte, offset int, more, quote bool) bool {
	p.Flags |= Fragment
	if offset != 0 {
		p.Flags |= LaterFragment
	}
	switch {
	case quote:
		return true
	case len(payload) == 0, more && len(payload)%8 != 0, offset+len(payload) > 65535: // RFC 8200, section 4.5
		return false
	case p.Proto == ProtoTCP: // RFC 1858, RFC 3128
		return offset != 8 && (offset != 0 || len(payload) >= 16)
	}
	return true
}

// referenceTransport reads what there is of a transport header.
func (p *Parsed) referenceTransport(b []byte, quote bool) bool {
	if p.Has(LaterFragment) {
		return true
	}
	whole := append(bytes.Clone(b), make([]byte, 20)...)
	need := 0
	var src, dst uint16
	switch {
	case p.Proto == ProtoTCP:
		need = 20
		var tcp layers.TCP
		_ = tcp.DecodeFromBytes(whole, gopacket.NilDecodeFeedback) // an error is about what is beyond the fields
		if len(b) >= 20 {
			need = int(tcp.DataOffset) * 4
			if need < 20 && !quote {
				return false
			}
		}
		src, dst = uint16(tcp.SrcPort), uint16(tcp.DstPort)
		for flag, set := range map[Flags]bool{FIN: tcp.FIN, SYN: tcp.SYN, RST: tcp.RST, ACK: tcp.ACK} {
			if set && len(b) >= 14 {
				p.Flags |= flag
			}
		}
	case p.Proto == ProtoUDP:
		need = 8
		var udp layers.UDP
		_ = udp.DecodeFromBytes(whole, gopacket.NilDecodeFeedback) // an error is about the length
		src, dst = uint16(udp.SrcPort), uint16(udp.DstPort)
	case p.Proto == ProtoUDPLite:
		need = 8
		udp := gopacket.NewPacket(whole, layers.LayerTypeUDPLite, gopacket.NoCopy).Layer(layers.LayerTypeUDPLite).(*layers.UDPLite)
		src, dst = uint16(udp.SrcPort), uint16(udp.DstPort)
	case p.Proto == ProtoSCTP:
		need = 12
		var sctp layers.SCTP
		_ = sctp.DecodeFromBytes(whole, gopacket.NilDecodeFeedback) // 12 bytes are there
		src, dst = uint16(sctp.SrcPort), uint16(sctp.DstPort)
	case p.Proto == ProtoICMP && p.Kind == KindIPv4:
		need = 8
		var icmp layers.ICMPv4
		_ = icmp.DecodeFromBytes(whole, gopacket.NilDecodeFeedback) // 8 bytes are there
		if len(b) >= 2 {
			p.ICMPType, p.ICMPCode = icmp.TypeCode.Type(), icmp.TypeCode.Code()
			switch p.ICMPType {
			case layers.ICMPv4TypeEchoRequest:
				p.Flags |= EchoRequest
			case layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4TypeSourceQuench, layers.ICMPv4TypeRedirect,
				layers.ICMPv4TypeTimeExceeded, layers.ICMPv4TypeParameterProblem:
				p.Flags |= ICMPError
			}
		}
	case p.Proto == ProtoICMPv6 && p.Kind == KindIPv6:
		need = 8
		var icmp layers.ICMPv6
		_ = icmp.DecodeFromBytes(whole, gopacket.NilDecodeFeedback) // 8 bytes are there
		if len(b) >= 2 {
			p.ICMPType, p.ICMPCode = icmp.TypeCode.Type(), icmp.TypeCode.Code()
			switch {
			case p.ICMPType < 128:
				p.Flags |= ICMPError
			case p.ICMPType == layers.ICMPv6TypeEchoRequest:
				p.Flags |= EchoRequest
			case p.ICMPType == layers.ICMPv6TypeNeighborSolicitation:
				p.Flags |= NeighborSolicit
			case p.ICMPType == layers.ICMPv6TypeNeighborAdvertisement:
				p.Flags |= NeighborAdvert
			}
		}
	default:
		return true
	}
	if len(b) >= need {
		p.Flags |= HasTransport
	} else if !quote && !p.Has(Fragment) {
		return false
	}
	if hasPorts := p.Proto != ProtoICMP && p.Proto != ProtoICMPv6; hasPorts && len(b) >= 4 {
		p.Flags |= HasPorts
		p.SrcPort, p.DstPort = src, dst
	}
	return true
}

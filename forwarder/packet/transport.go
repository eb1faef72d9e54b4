package packet

import "encoding/binary"

const (
	tcpLen      = 20 // RFC 9293, without options
	tcpFlagsEnd = 16 // the least a first fragment must hold (RFC 1858, section 4)
	udpLen      = 8  // RFC 768; UDP-Lite (RFC 3828) the same
	sctpLen     = 12 // RFC 9260
	icmpLen     = 8  // RFC 792, and every message defined for ICMPv6
)

// parseTransport reads the transport header at the start of b. Only a whole
// packet must have a complete one; from a first fragment or a quote it takes
// what is there, since 8 bytes are all that an ICMP error promises to quote.
func (p *Parsed) parseTransport(b []byte, quote bool) Problem {
	if p.Flags&LaterFragment != 0 {
		return OK
	}
	need := 0
	switch p.Proto {
	case ProtoUDP, ProtoUDPLite:
		need = udpLen
	case ProtoTCP:
		need = tcpLen
		if len(b) >= tcpLen {
			need = int(b[12] >> 4 * 4)
			if need < tcpLen && !quote {
				return ShortTransport
			}
		}
		if len(b) >= 14 {
			p.Flags |= tcpFlags(b[13])
		}
	case ProtoSCTP:
		need = sctpLen
	case ProtoICMP, ProtoICMPv6:
		if (p.Proto == ProtoICMP) != (p.Kind == KindIPv4) {
			return OK // not ICMP in this family
		}
		need = icmpLen
	default:
		return OK
	}
	if len(b) >= need {
		p.Flags |= HasTransport
	} else if !quote && p.Flags&Fragment == 0 {
		return ShortTransport
	}
	if p.Proto == ProtoICMP || p.Proto == ProtoICMPv6 {
		p.parseICMP(b)
	} else if len(b) >= 4 {
		p.Flags |= HasPorts
		ports := binary.BigEndian.Uint32(b[:4])
		p.SrcPort, p.DstPort = uint16(ports>>16), uint16(ports)
	}
	return OK
}

// tcpFlags takes the flags that we keep out of byte 13 of a TCP header.
func tcpFlags(b uint8) Flags { return Flags(b) & (FIN | SYN | RST | ACK) }

// ICMP and ICMPv6 message types (RFC 792; RFC 4443; RFC 4861).
const (
	icmpEchoReply       = 0
	icmpUnreachable     = 3
	icmpSourceQuench    = 4
	icmpRedirect        = 5
	icmpEchoRequest     = 8
	icmpTimeExceeded    = 11
	icmpParameter       = 12
	icmpv6TooBig        = 2
	icmpv6TimeExceeded  = 3
	icmpv6FirstInfo     = 128 // types below are errors (RFC 4443, section 2.1)
	icmpv6EchoRequest   = 128
	icmpv6EchoReply     = 129
	icmpv6NeighborSol   = 135
	icmpv6NeighborAdv   = 136
	icmpv6Redirect      = 137
	hopLimitNeighbor    = 255 // RFC 4861: proof that no router forwarded it
	hopLimitOwn         = 64  // of what we send (RFC 1700)
	maxErrorLenIPv4     = 576 // RFC 1812, section 4.3.2.3
	maxErrorLenIPv6     = 1280
	tosInternetworkCtrl = 0xc0 // RFC 1812, section 4.3.2.5

	icmpFragmentationNeeded = 4 // code of icmpUnreachable
)

// parseICMP takes type and code from b, if it holds them.
func (p *Parsed) parseICMP(b []byte) {
	if len(b) < 2 {
		return
	}
	p.ICMPType, p.ICMPCode = b[0], b[1]
	if p.Kind == KindIPv4 {
		switch p.ICMPType {
		case icmpEchoRequest:
			p.Flags |= EchoRequest
		case icmpUnreachable, icmpSourceQuench, icmpRedirect, icmpTimeExceeded, icmpParameter:
			p.Flags |= ICMPError // RFC 1122, section 3.2.2
		}
		return
	}
	switch {
	case p.ICMPType < icmpv6FirstInfo:
		p.Flags |= ICMPError
	case p.ICMPType == icmpv6EchoRequest:
		p.Flags |= EchoRequest
	case p.ICMPType == icmpv6NeighborSol:
		p.Flags |= NeighborSolicit
	case p.ICMPType == icmpv6NeighborAdv:
		p.Flags |= NeighborAdvert
	}
}

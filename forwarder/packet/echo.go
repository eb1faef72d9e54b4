package packet

import "encoding/binary"

const dscpMask = 0xfc // the rest of the byte is congestion experienced by the request (RFC 3168)

// ReplyEcho turns an ICMP or ICMPv6 echo request into its reply (RFC 792; RFC
// 4443, section 4.2), from the address that was asked, with TTL 64 and the
// request's DSCP. IPv4 options and IPv6 extension headers are left out: a
// source route must not be followed back (RFC 7126; RFC 5095). The checksum is
// updated rather than computed, so data damaged on its way here stays
// recognisable as damaged.
//
// It is not ok, with the frame untouched, for anything but a whole echo request
// between two hosts: fragments, multicast or broadcast on either side or at
// either layer get no answer (RFC 1122, section 3.2.2.6).
func ReplyEcho(frame []byte, p *Parsed) (out []byte, ok bool) {
	if p.Flags&(EchoRequest|HasTransport|Fragment) != EchoRequest|HasTransport {
		return nil, false
	}
	l3, l4, end := int(p.L3), int(p.L4), int(p.End)
	if end > len(frame) || l4 > end-icmpLen || l3 < ethernetLen || l3 > l4-ipv4Len {
		return nil, false
	}
	if frame[0]&1 != 0 || isGroupMAC(p.SrcMAC) || !isHost(p.Src) || !isHost(p.Dst) {
		return nil, false
	}
	headers, request, reply := ipv4Len, uint8(icmpEchoRequest), uint8(icmpEchoReply)
	class := frame[l3+1]
	if p.Kind == KindIPv6 {
		headers, request, reply = ipv6Len, icmpv6EchoRequest, icmpv6EchoReply
		class = uint8(binary.BigEndian.Uint16(frame[l3:]) >> 4)
	}
	n := l3 + headers + end - l4
	if headers > l4-l3 || !fits(frame, n) {
		return nil, false
	}
	copy(frame[l3+headers:n], frame[l4:end])
	out = grow(frame, n)
	message := out[l3+headers : n]
	if p.Kind == KindIPv6 {
		putIPv6((*[ipv6Len]byte)(out[l3:]), p.Dst, p.Src, len(message), class&dscpMask, hopLimitOwn)
	} else {
		putIPv4((*[ipv4Len]byte)(out[l3:]), p.Dst, p.Src, len(message), class&dscpMask, ProtoICMP)
	}
	setEchoReply(message, request, reply)
	dst := [6]byte(out[0:6])
	*(*[6]byte)(out[0:6]) = [6]byte(out[6:12])
	*(*[6]byte)(out[6:12]) = dst
	return out, true
}

// setEchoReply changes the type of the message and its checksum with it.
func setEchoReply(message []byte, request, reply uint8) {
	m := message[:4]
	code := uint16(m[1])
	checksum := updateChecksum(binary.BigEndian.Uint16(m[2:4]), uint16(request)<<8|code, uint16(reply)<<8|code)
	m[0] = reply
	binary.BigEndian.PutUint16(m[2:4], checksum)
}

package packet

import "encoding/binary"

// EchoFragment reports whether a frame is the first fragment of an echo
// request, or may be a later one: of those only the protocol is known.
func (p *Parsed) EchoFragment() (first, later bool) {
	switch {
	case p.Flags&Fragment == 0:
		return false, false
	case p.Flags&LaterFragment == 0:
		return p.Flags&(EchoRequest|HasTransport) == EchoRequest|HasTransport, false
	case p.Kind == KindIPv4:
		return false, p.Proto == ProtoICMP
	}
	return false, p.Proto == ProtoICMPv6
}

// ReplyEchoFragment turns one fragment of an echo request into the same
// fragment of its reply, as [ReplyEcho] does for a whole one: nothing in the
// reply but its first four bytes depends on other fragments, so it need not be
// put together here. Identification, offset and the mark of the last fragment
// stay. IPv4 options and the extension headers in front of the fragment header
// are left out; behind the fragment header they are part of what was cut, and
// the answer is not ok, with the frame untouched. So it is for what ReplyEcho
// refuses, fragments apart.
//
// Whether a later fragment is of an echo request the caller has to know.
func ReplyEchoFragment(frame []byte, p *Parsed) (out []byte, ok bool) {
	first, later := p.EchoFragment()
	l3, l4, end := int(p.L3), int(p.L4), int(p.End)
	if !first && !later || end > len(frame) || l4 > end || l3 < ethernetLen || l3 > l4-ipv4Len {
		return nil, false
	}
	if frame[0]&1 != 0 || isGroupMAC(p.SrcMAC) || !isHost(p.Src) || !isHost(p.Dst) {
		return nil, false
	}
	headers, request, reply := ipv4Len, uint8(icmpEchoRequest), uint8(icmpEchoReply)
	class := frame[l3+1]
	var fragment [fragmentHeaderLen]byte
	if p.Kind == KindIPv6 {
		if !cutBehindFragmentHeader(frame[l3:l4]) {
			return nil, false
		}
		headers, request, reply = ipv6Len+fragmentHeaderLen, icmpv6EchoRequest, icmpv6EchoReply
		class = uint8(binary.BigEndian.Uint16(frame[l3:]) >> 4)
		fragment = [fragmentHeaderLen]byte(frame[l4-fragmentHeaderLen : l4])
	}
	flags := binary.BigEndian.Uint16(frame[l3+6:]) // of IPv4
	n := l3 + headers + end - l4
	if headers > l4-l3 || first && end-l4 < icmpLen || !fits(frame, n) {
		return nil, false
	}
	copy(frame[l3+headers:n], frame[l4:end])
	out = grow(frame, n)
	payload := out[l3+headers : n]
	if p.Kind == KindIPv6 {
		putIPv6((*[ipv6Len]byte)(out[l3:]), p.Dst, p.Src, fragmentHeaderLen+len(payload), class&dscpMask, hopLimitOwn)
		out[l3+6] = ProtoFragment
		copy(out[l3+ipv6Len:], fragment[:])
	} else {
		h := (*[ipv4Len]byte)(out[l3:])
		putIPv4(h, p.Dst, p.Src, len(payload), class&dscpMask, ProtoICMP)
		binary.BigEndian.PutUint16(h[4:6], uint16(p.FragID))
		binary.BigEndian.PutUint16(h[6:8], flags&(fragMore|fragOffset))
		h[10], h[11] = 0, 0
		binary.BigEndian.PutUint16(h[10:12], checksumOf(sumIPv4(h)))
	}
	if first {
		setEchoReply(payload, request, reply)
	}
	dst := [6]byte(out[0:6])
	*(*[6]byte)(out[0:6]) = [6]byte(out[6:12])
	*(*[6]byte)(out[6:12]) = dst
	return out, true
}

// cutBehindFragmentHeader reports whether the IPv6 headers end with a fragment
// header, which ICMPv6 follows.
func cutBehindFragmentHeader(headers []byte) bool {
	if len(headers) < ipv6Len+fragmentHeaderLen {
		return false
	}
	next, at := headers[6], ipv6Len
	for range maxExtensionHeaders {
		if len(headers)-at < fragmentHeaderLen {
			return false
		}
		h := headers[at : at+fragmentHeaderLen]
		switch next {
		case ProtoFragment:
			return h[0] == ProtoICMPv6 && at+fragmentHeaderLen == len(headers)
		case ProtoAH:
			at += (int(h[1]) + 2) * 4
		default:
			at += (int(h[1]) + 1) * 8
		}
		next = h[0]
	}
	return false
}

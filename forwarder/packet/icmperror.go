package packet

import "encoding/binary"

// TimeExceeded turns a packet whose TTL ran out into the ICMP error that tells
// its sender (RFC 792 and RFC 1812, section 4.3; RFC 4443, section 3.3), from
// src, the appliance's own address of the packet's family, and srcMAC. The
// packet must be as received. As much of it is quoted as keeps the error within
// 576 bytes for IPv4 and 1280 for IPv6.
//
// It is not ok, with the frame untouched, where no error may be sent: about an
// ICMP error or redirect or what may be one, about a later fragment, to or from
// anything but single hosts at either layer (RFC 1122, section 3.2.2; RFC 4443,
// section 2.4), and where the chunk lacks the room. Rate limiting, which both
// RFCs require, is the caller's, and so are broadcast addresses of subnets,
// which cannot be recognised from the packet.
func TimeExceeded(frame []byte, p *Parsed, src [2]uint64, srcMAC *[6]byte) (out []byte, ok bool) {
	if p.Kind == KindIPv6 {
		return report(frame, p, src, srcMAC, icmpv6TimeExceeded, 0, 0)
	}
	return report(frame, p, src, srcMAC, icmpTimeExceeded, 0, 0)
}

// TooBig turns a packet that is longer than the next link takes into the ICMP
// error that tells its sender how long it may be: mtu bytes from the IP header
// on, at most 65 535 (RFC 1191, section 4; RFC 4443, section 3.2). What holds for
// TimeExceeded holds for it too. Whether an IPv4 packet may be fragmented is not
// looked at.
func TooBig(frame []byte, p *Parsed, src [2]uint64, srcMAC *[6]byte, mtu int) (out []byte, ok bool) {
	if p.Kind == KindIPv6 {
		return report(frame, p, src, srcMAC, icmpv6TooBig, 0, uint32(mtu))
	}
	return report(frame, p, src, srcMAC, icmpUnreachable, icmpFragmentationNeeded, uint32(mtu))
}

// report makes an ICMP error of a type and code; word is the second half of its
// header.
func report(frame []byte, p *Parsed, src [2]uint64, srcMAC *[6]byte, icmpType, code uint8, word uint32) (out []byte, ok bool) {
	l3, end := int(p.L3), int(p.End)
	if end > len(frame) || l3 < ethernetLen || l3 > end || !mayReport(frame, p) {
		return nil, false
	}
	if !isHost(src) || isMapped(src) != (p.Kind == KindIPv4) {
		return nil, false
	}
	headers, most := ipv4Len+icmpLen, maxErrorLenIPv4
	if p.Kind == KindIPv6 {
		headers, most = ipv6Len+icmpLen, maxErrorLenIPv6
	}
	quote := min(end-l3, most-headers)
	if !fits(frame, l3+headers+quote) {
		return nil, false
	}
	packet := frame[l3 : l3+quote]
	copy(frame[l3+headers:l3+headers+quote], packet)
	out = grow(frame, l3+headers+quote)

	m := out[l3+headers-icmpLen : l3+headers+quote]
	m[0], m[1], m[2], m[3] = icmpType, code, 0, 0
	binary.BigEndian.PutUint32(m[4:8], word)
	if p.Kind == KindIPv4 {
		putIPv4((*[ipv4Len]byte)(out[l3:]), src, p.Src, len(m), tosInternetworkCtrl, ProtoICMP)
		binary.BigEndian.PutUint16(m[2:4], checksumOf(sumBytes(0, m)))
	} else {
		putIPv6((*[ipv6Len]byte)(out[l3:]), src, p.Src, len(m), tosInternetworkCtrl, hopLimitOwn)
		putICMPv6Checksum(m, src, p.Src)
	}
	putMAC((*[6]byte)(out[0:6]), p.SrcMAC)
	*(*[6]byte)(out[6:12]) = *srcMAC
	return out, true
}

// mayReport holds where an ICMP error about the packet is allowed.
func mayReport(frame []byte, p *Parsed) bool {
	if frame[0]&1 != 0 || isGroupMAC(p.SrcMAC) || !isHost(p.Src) || isMulticast(p.Dst) {
		return false
	}
	if p.Flags&(LaterFragment|ICMPError) != 0 {
		return false
	}
	switch p.Kind {
	case KindIPv4:
		return p.Proto != ProtoICMP || p.Flags&HasTransport != 0
	case KindIPv6:
		if isExtension(p.Proto) {
			return false // what follows was not read and may be an error
		}
		return p.Proto != ProtoICMPv6 || p.Flags&HasTransport != 0 && p.ICMPType != icmpv6Redirect
	}
	return false
}

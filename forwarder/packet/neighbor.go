package packet

import "encoding/binary"

const (
	neighborLen        = 24 // solicitation and advertisement (RFC 4861, sections 4.3 and 4.4)
	linkOptionLen      = 8  // for Ethernet (RFC 2464, section 6)
	optionSourceLink   = 1
	optionTargetLink   = 2
	neighborSolicited  = 0x40
	neighborOverride   = 0x20
	allNodesHigh       = 0xff02 << 48 // ff02::1
	allNodesLow        = 1
	allNodesMAC        = 0x333300000001
	solicitedNodeLow   = 1<<32 | 0xff000000 // ff02::1:ff00:0/104
	solicitedNodeBits  = 24
	unsolicitedNALen   = ethernetLen + ipv6Len + neighborLen + linkOptionLen
	neighborPayloadLen = neighborLen + linkOptionLen
)

var allNodes = [2]uint64{allNodesHigh, allNodesLow}

// neighborMessage returns the message at L4 if it passes what RFC 4861 asks of
// solicitations and advertisements alike (sections 7.1.1 and 7.1.2), and the
// address in its first link-layer option of the given type, if it has one.
func neighborMessage(frame []byte, p *Parsed, option uint8) (m []byte, link uint64, hasLink bool) {
	if p.Kind != KindIPv6 || p.Proto != ProtoICMPv6 || p.TTL != hopLimitNeighbor || p.ICMPCode != 0 {
		return nil, 0, false
	}
	if p.Flags&(Fragment|AtomicFragment) != 0 {
		return nil, 0, false // RFC 6980, section 5
	}
	l4, end := int(p.L4), int(p.End)
	if end > len(frame) || end-l4 < neighborLen {
		return nil, 0, false
	}
	m = frame[l4:end]
	if !validSum(sumBytes(sumPseudo6(p.Src, p.Dst, len(m), ProtoICMPv6), m)) {
		return nil, 0, false
	}
	if isMulticast(getAddr((*[16]byte)(m[8:24]))) {
		return nil, 0, false
	}
	for options := m[neighborLen:]; len(options) > 0; {
		if len(options) < linkOptionLen {
			return nil, 0, false
		}
		lenBytes := int(options[1]) * 8
		if lenBytes == 0 || lenBytes > len(options) {
			return nil, 0, false
		}
		if options[0] == option && !hasLink {
			link, hasLink = macOf((*[6]byte)(options[2:8])), true
		}
		options = options[lenBytes:]
	}
	return m, link, hasLink
}

// neighborSolicit validates a solicitation in full (RFC 4861, section 7.1.1)
// and returns the address asked for and the hardware address to answer to.
func neighborSolicit(frame []byte, p *Parsed) (target [2]uint64, mac uint64, ok bool) {
	if p.Flags&NeighborSolicit == 0 {
		return
	}
	m, link, hasLink := neighborMessage(frame, p, optionSourceLink)
	if m == nil {
		return
	}
	if p.Src == [2]uint64{} {
		if hasLink || p.Dst[0] != allNodesHigh || p.Dst[1]>>solicitedNodeBits != solicitedNodeLow>>solicitedNodeBits {
			return
		}
		return getAddr((*[16]byte)(m[8:24])), allNodesMAC, true
	}
	if !hasLink {
		link = p.SrcMAC
	}
	if !isHost(p.Src) || link == 0 || isGroupMAC(link) {
		return
	}
	return getAddr((*[16]byte)(m[8:24])), link, true
}

// NeighborSolicitTarget returns the address that a neighbour solicitation asks
// for. It is ok only for a message that passes every check of RFC 4861, section
// 7.1.1 (hop limit 255, checksum, code, options, and those on an unspecified
// source), that was not fragmented (RFC 6980) and whose sender can be answered.
func NeighborSolicitTarget(frame []byte, p *Parsed) (target [2]uint64, ok bool) {
	target, _, ok = neighborSolicit(frame, p)
	return target, ok
}

// NeighborClaims tells what a neighbour message means to the owner of addr. A
// probe is a solicitation from the unspecified address: its sender is about to
// take addr (duplicate address detection, RFC 4862, section 5.4.3). A claim is
// a valid message that says that addr is at mac: an advertisement of it, or a
// solicitation sent from it, which its receivers remember as well (RFC 4861,
// section 7.2.3). At most one of the two is true. The caller compares mac with
// its own.
func NeighborClaims(frame []byte, p *Parsed) (addr [2]uint64, mac uint64, probe, claim bool) {
	if p.Flags&NeighborAdvert == 0 {
		target, link, ok := neighborSolicit(frame, p)
		switch {
		case !ok:
			return
		case p.Src == [2]uint64{}:
			return target, p.SrcMAC, true, false
		}
		return p.Src, link, false, true
	}
	m, link, hasLink := neighborMessage(frame, p, optionTargetLink)
	if m == nil || isMulticast(p.Dst) && m[4]&neighborSolicited != 0 {
		return
	}
	if !hasLink {
		link = p.SrcMAC
	}
	return getAddr((*[16]byte)(m[8:24])), link, false, true
}

// ReplyNeighbor turns a solicitation into the advertisement that its target is
// at mac (RFC 4861, section 7.2.4): solicited and override flags, target
// link-layer option. Where the source is unspecified somebody is about to take
// the address, and the advertisement goes to all nodes without the solicited
// flag. It returns nil, with the frame untouched, where NeighborSolicitTarget
// is not ok or the chunk lacks the room.
func ReplyNeighbor(frame []byte, p *Parsed, mac *[6]byte) (out []byte) {
	target, link, ok := neighborSolicit(frame, p)
	if !ok {
		return nil
	}
	if out = grow(frame, int(p.L3)+ipv6Len+neighborPayloadLen); out == nil {
		return nil
	}
	dst, flags := p.Src, uint8(neighborSolicited|neighborOverride)
	if dst == [2]uint64{} {
		dst, flags = allNodes, neighborOverride
	}
	putMAC((*[6]byte)(out[0:6]), link)
	*(*[6]byte)(out[6:12]) = *mac
	putAdvertisement(out[p.L3:], target, dst, mac, flags)
	return out
}

// UnsolicitedNA writes an advertisement to all nodes that addr is at mac into
// buf's capacity, with the override flag, as for an address that has moved here
// (RFC 4861, section 7.2.6). It returns nil if addr is IPv4 or the capacity is
// below 86 bytes.
func UnsolicitedNA(buf []byte, addr [2]uint64, mac *[6]byte) (out []byte) {
	if isMapped(addr) {
		return nil
	}
	if out = grow(buf, unsolicitedNALen); out == nil {
		return nil
	}
	putMAC((*[6]byte)(out[0:6]), allNodesMAC)
	*(*[6]byte)(out[6:12]) = *mac
	binary.BigEndian.PutUint16(out[12:14], etherTypeIPv6)
	putAdvertisement(out[ethernetLen:], addr, allNodes, mac, neighborOverride)
	return out
}

// putAdvertisement writes IPv6 header, advertisement and option to b.
func putAdvertisement(b []byte, target, dst [2]uint64, mac *[6]byte, flags uint8) {
	putIPv6((*[ipv6Len]byte)(b), target, dst, neighborPayloadLen, 0, hopLimitNeighbor)
	m := b[ipv6Len : ipv6Len+neighborPayloadLen]
	clear(m[:8])
	m[0], m[4] = icmpv6NeighborAdv, flags
	putAddr((*[16]byte)(m[8:24]), target)
	m[24], m[25] = optionTargetLink, linkOptionLen/8
	*(*[6]byte)(m[26:32]) = *mac
	putICMPv6Checksum(m, target, dst)
}

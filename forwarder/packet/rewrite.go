package packet

import "encoding/binary"

// SetMACs writes the destination and source address of the Ethernet header. A
// frame shorter than the two is left alone.
func SetMACs(frame []byte, dst, src *[6]byte) {
	if len(frame) < 12 {
		return
	}
	*(*[6]byte)(frame[0:6]) = *dst
	*(*[6]byte)(frame[6:12]) = *src
}

// DecrementTTL takes one hop off the packet's TTL (and p.TTL) and updates the
// IPv4 header checksum, or off the IPv6 hop limit, which no checksum covers. It
// returns false and leaves the frame untouched if the packet may not be
// forwarded any further (TTL 1 or 0: RFC 1812, section 5.3.1), or is not IP.
func DecrementTTL(frame []byte, p *Parsed) bool {
	if int(p.L3) > len(frame) {
		return false
	}
	h := frame[p.L3:]
	switch {
	case p.Kind == KindIPv4 && len(h) >= ipv4Len:
		h = h[:ipv4Len]
		if h[8] <= 1 {
			return false
		}
		old := binary.BigEndian.Uint16(h[8:10]) // TTL and protocol
		binary.BigEndian.PutUint16(h[8:10], old-0x100)
		checksum := binary.BigEndian.Uint16(h[10:12])
		binary.BigEndian.PutUint16(h[10:12], updateChecksum(checksum, old, old-0x100))
	case p.Kind == KindIPv6 && len(h) >= ipv6Len:
		if h[7] <= 1 {
			return false
		}
		h[7]--
	default:
		return false
	}
	p.TTL--
	return true
}

// grow returns the first n bytes of the frame's chunk, padded with zeros to the
// length that Ethernet requires, so that nothing an earlier frame left in the
// chunk is sent as padding. It returns nil unless fits.
func grow(frame []byte, n int) []byte {
	if !fits(frame, n) {
		return nil
	}
	frame = frame[:max(n, minFrameLen)]
	clear(frame[n:])
	return frame
}

// fits reports whether the frame's chunk has room for n bytes, padded.
func fits(frame []byte, n int) bool { return max(n, minFrameLen) <= cap(frame) }

// putIPv4 writes a header without options for a payload of lenBytes. The
// packet must not be fragmented, which makes an identification of 0 right (RFC
// 6864, section 4.1).
func putIPv4(h *[ipv4Len]byte, src, dst [2]uint64, lenBytes int, tos, proto uint8) {
	h[0], h[1] = 4<<4|ipv4Len/4, tos
	binary.BigEndian.PutUint16(h[2:4], uint16(ipv4Len+lenBytes))
	binary.BigEndian.PutUint16(h[4:6], 0)
	binary.BigEndian.PutUint16(h[6:8], fragDont)
	h[8], h[9], h[10], h[11] = hopLimitOwn, proto, 0, 0
	binary.BigEndian.PutUint32(h[12:16], uint32(src[1]))
	binary.BigEndian.PutUint32(h[16:20], uint32(dst[1]))
	binary.BigEndian.PutUint16(h[10:12], checksumOf(sumIPv4(h)))
}

// putIPv6 writes a header for an ICMPv6 message of lenBytes, flow label 0.
func putIPv6(h *[ipv6Len]byte, src, dst [2]uint64, lenBytes int, class, hopLimit uint8) {
	binary.BigEndian.PutUint32(h[0:4], 6<<28|uint32(class)<<20)
	binary.BigEndian.PutUint16(h[4:6], uint16(lenBytes))
	h[6], h[7] = ProtoICMPv6, hopLimit
	putAddr((*[16]byte)(h[8:24]), src)
	putAddr((*[16]byte)(h[24:40]), dst)
}

// putICMPv6Checksum computes the checksum of a message between src and dst.
func putICMPv6Checksum(message []byte, src, dst [2]uint64) {
	message[2], message[3] = 0, 0
	sum := sumPseudo6(src, dst, len(message), ProtoICMPv6)
	binary.BigEndian.PutUint16(message[2:4], checksumOf(sumBytes(sum, message)))
}

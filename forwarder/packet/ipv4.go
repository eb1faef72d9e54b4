package packet

import "encoding/binary"

const (
	ipv4Len     = 20     // RFC 791, without options
	fragMore    = 0x2000 // MF
	fragDont    = 0x4000 // DF
	fragOffset  = 0x1fff // in units of 8 bytes
	maxIPLength = 0xffff
)

// parseIPv4 reads the header at l3. In a quote (RFC 792) the packet may be cut
// anywhere behind its header, and its header checksum is not judged: routers on
// the way have quoted it with a changed TTL.
func (p *Parsed) parseIPv4(frame []byte, l3 int, quote bool) Problem {
	b := frame[l3:]
	if len(b) < ipv4Len {
		return Truncated
	}
	h := b[:ipv4Len]
	if h[0]>>4 != 4 {
		return BadVersion
	}
	p.Kind = KindIPv4
	headerLen := int(h[0] & 0xf * 4)
	if headerLen < ipv4Len {
		return BadHeaderLength
	}
	total := int(binary.BigEndian.Uint16(h[2:4]))
	if total < headerLen {
		return BadLength
	}
	if total > len(b) {
		if !quote || headerLen > len(b) {
			return Truncated
		}
		total = len(b)
	}
	sum := sumIPv4((*[ipv4Len]byte)(h))
	if headerLen > ipv4Len {
		p.Flags |= IPOptions
		sum = sumBytes(sum, b[ipv4Len:headerLen])
	}
	if !quote && !validSum(sum) {
		return BadChecksum
	}
	p.Src = addr4(binary.BigEndian.Uint32(h[12:16]))
	p.Dst = addr4(binary.BigEndian.Uint32(h[16:20]))
	p.TTL, p.Proto = h[8], h[9]
	p.L4, p.End = uint16(l3+headerLen), uint16(l3+total)

	payload := b[headerLen:total]
	frag := binary.BigEndian.Uint16(h[6:8])
	if frag&(fragMore|fragOffset) != 0 {
		p.FragID = uint32(binary.BigEndian.Uint16(h[4:6]))
		if problem := p.parseFragment(payload, int(frag&fragOffset)*8, frag&fragMore != 0, quote); problem != OK {
			return problem
		}
	}
	return p.parseTransport(payload, quote)
}

// parseFragment notes and checks a fragment of payload at offset (in bytes).
// Fragments that no honest sender makes are refused: those which reassembly
// must reject anyway (RFC 791; RFC 8200, section 4.5), and those that split or
// overwrite the TCP flags in order to pass a SYN by a filter (RFC 1858, RFC 3128).
func (p *Parsed) parseFragment(payload []byte, offset int, more, quote bool) Problem {
	p.Flags |= Fragment
	if offset != 0 {
		p.Flags |= LaterFragment
	}
	if quote {
		return OK
	}
	if len(payload) == 0 || more && len(payload)%8 != 0 || offset+len(payload) > maxIPLength {
		return BadFragment
	}
	if p.Proto == ProtoTCP && (offset == 8 || offset == 0 && len(payload) < tcpFlagsEnd) {
		return TinyFragment
	}
	return OK
}

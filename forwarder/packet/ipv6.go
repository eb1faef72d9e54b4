package packet

import "encoding/binary"

const (
	ipv6Len             = 40 // RFC 8200
	fragmentHeaderLen   = 8  // RFC 8200, section 4.5
	minExtensionLen     = 8
	maxExtensionHeaders = 8 // walked; more would be a way to make us work
)

// parseIPv6 reads the header at l3 and walks its extension headers. A quote
// (RFC 4443) may be cut anywhere behind the fixed header.
func (p *Parsed) parseIPv6(frame []byte, l3 int, quote bool) Problem {
	b := frame[l3:]
	if len(b) < ipv6Len {
		return Truncated
	}
	h := b[:ipv6Len]
	if h[0]>>4 != 6 {
		return BadVersion
	}
	p.Kind = KindIPv6
	payloadLen := int(binary.BigEndian.Uint16(h[4:6]))
	p.Proto, p.TTL = h[6], h[7]
	if payloadLen == 0 && p.Proto == ProtoHopByHop {
		return BadLength // a jumbogram (RFC 2675) does not fit a frame, and nothing else looks like this
	}
	// Word by word: an array just written in halves and then read as a whole
	// waits for the stores, which doubled the time of this function.
	srcHigh, srcLow := binary.BigEndian.Uint64(h[8:16]), binary.BigEndian.Uint64(h[16:24])
	dstHigh, dstLow := binary.BigEndian.Uint64(h[24:32]), binary.BigEndian.Uint64(h[32:40])
	if srcHigh == 0 && srcLow>>32 == 0xffff || dstHigh == 0 && dstLow>>32 == 0xffff {
		return BadAddress
	}
	p.Src[0], p.Src[1], p.Dst[0], p.Dst[1] = srcHigh, srcLow, dstHigh, dstLow
	end := ipv6Len + payloadLen
	if end > len(b) {
		if !quote {
			return Truncated
		}
		end = len(b)
	}
	p.L4, p.End = uint16(l3+ipv6Len), uint16(l3+end)
	payload := b[ipv6Len:end]
	if isExtension(p.Proto) {
		return p.walkExtensions(payload, quote)
	}
	return p.parseTransport(payload, quote)
}

// walkExtensions follows the headers in payload up to the transport header and
// reads that. It ends early, with p.Proto the header it stands on and without
// ports, at a later fragment, after maxExtensionHeaders, at a second fragment
// header, and where a first fragment or a quote ends within the chain.
func (p *Parsed) walkExtensions(payload []byte, quote bool) Problem {
	for walked := 0; isExtension(p.Proto); walked++ {
		p.Flags |= ExtensionHeaders
		if walked == maxExtensionHeaders {
			return OK
		}
		partial := quote || p.Flags&Fragment != 0
		if len(payload) < minExtensionLen {
			return unlessPartial(BadHeaderLength, partial)
		}
		h := payload[:minExtensionLen]
		headerLen := minExtensionLen
		switch p.Proto {
		case ProtoFragment:
			if p.Flags&(Fragment|AtomicFragment) != 0 {
				return OK
			}
			p.Proto = h[0]
			p.L4 += fragmentHeaderLen
			payload = payload[fragmentHeaderLen:]
			frag := binary.BigEndian.Uint16(h[2:4]) // offset in units of 8 bytes, two reserved bits, M
			offset, more := int(frag&^7), frag&1 != 0
			if offset == 0 && !more {
				p.Flags |= AtomicFragment
				continue
			}
			p.FragID = binary.BigEndian.Uint32(h[4:8])
			problem := p.parseFragment(payload, offset, more, quote)
			if problem != OK || offset != 0 {
				return problem
			}
			continue
		case ProtoAH:
			headerLen = (int(h[1]) + 2) * 4 // RFC 4302, section 2.2
		default:
			headerLen = (int(h[1]) + 1) * 8
		}
		if headerLen > len(payload) {
			return unlessPartial(BadHeaderLength, partial)
		}
		p.Proto = h[0]
		p.L4 += uint16(headerLen)
		payload = payload[headerLen:]
	}
	return p.parseTransport(payload, quote)
}

func isExtension(proto uint8) bool {
	const extensions = 1<<ProtoHopByHop | 1<<ProtoRouting | 1<<ProtoFragment | 1<<ProtoAH | 1<<ProtoDstOpts
	return proto < 64 && extensions>>proto&1 != 0
}

func unlessPartial(problem Problem, partial bool) Problem {
	if partial {
		return OK
	}
	return problem
}

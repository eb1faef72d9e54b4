package packet

// ParseQuote reads the packet that an ICMP error quotes into p. outer is what
// Parse made of the frame, with ICMPError set. p describes the quoted packet as
// it was sent, so its source is the party that the error goes to; offsets are
// those in the frame, and End is where the packet or the quote ends, whichever
// comes first. SrcMAC and VLANs are the frame's.
//
// The 8 bytes that an ICMP error promises to quote behind the IP header are
// more than enough for HasPorts; TCP flags and HasTransport need the rest of the
// header too. It returns NotIP if the frame is not an ICMP error, Truncated if
// the quote ends within the IP header, and no verdict on anything behind it.
func (p *Parsed) ParseQuote(frame []byte, outer *Parsed) Problem {
	srcMAC, vlans := outer.SrcMAC, outer.VLANs
	at, end := int(outer.L4)+icmpLen, int(outer.End)
	isError := outer.Flags&ICMPError != 0
	kind := outer.Kind
	*p = Parsed{SrcMAC: srcMAC, VLANs: vlans}
	if !isError {
		return NotIP
	}
	if at > end || end > len(frame) {
		return Truncated
	}
	p.L3 = uint16(at)
	if kind == KindIPv4 {
		return p.parseIPv4(frame[:end], at, true)
	}
	return p.parseIPv6(frame[:end], at, true)
}

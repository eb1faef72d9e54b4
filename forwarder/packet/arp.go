package packet

import "encoding/binary"

const (
	arpLen     = 28 // RFC 826, IPv4 over Ethernet
	arpRequest = 1
	arpReply   = 2
	arpHeader  = 0x0001_0800_06_04 // Ethernet, IPv4, lengths of their addresses
)

// arpFrom returns the ARP message at l3, or nil if it is not all there or not
// about IPv4 over Ethernet.
func arpFrom(frame []byte, l3 int) *[arpLen]byte {
	if len(frame)-l3 < arpLen {
		return nil
	}
	m := (*[arpLen]byte)(frame[l3:])
	if binary.BigEndian.Uint64(m[0:8])>>16 != arpHeader {
		return nil
	}
	return m
}

func (p *Parsed) parseARP(frame []byte, l3 int) Problem {
	p.Kind = KindARP
	if len(frame)-l3 < arpLen {
		return Truncated
	}
	m := arpFrom(frame, l3)
	if m == nil {
		return BadARP
	}
	p.Src = addr4(binary.BigEndian.Uint32(m[14:18]))
	p.Dst = addr4(binary.BigEndian.Uint32(m[24:28]))
	p.L4, p.End = uint16(l3+arpLen), uint16(l3+arpLen)
	return OK
}

// ARPRequestTarget returns who asks for which address. It is ok only for a
// well-formed request whose sender can be answered: its hardware address names
// one station. The sender's address is 0.0.0.0 in a probe (RFC 5227).
func ARPRequestTarget(frame []byte, p *Parsed) (sender, target [2]uint64, senderMAC uint64, ok bool) {
	m := arpOf(frame, p)
	if m == nil || binary.BigEndian.Uint16(m[6:8]) != arpRequest {
		return
	}
	senderMAC = macOf((*[6]byte)(m[8:14]))
	if senderMAC == 0 || isGroupMAC(senderMAC) {
		return [2]uint64{}, [2]uint64{}, 0, false
	}
	sender = addr4(binary.BigEndian.Uint32(m[14:18]))
	target = addr4(binary.BigEndian.Uint32(m[24:28]))
	return sender, target, senderMAC, true
}

// ARPClaims tells what an ARP message means to the owner of addr (RFC 5227):
// a probe asks whether addr is free, without claiming it yet (section 2.1.1);
// a claim, request or reply alike, says that addr is at mac (section 2.4). At
// most one of the two is true. The caller compares mac with its own.
func ARPClaims(frame []byte, p *Parsed) (addr [2]uint64, mac uint64, probe, claim bool) {
	m := arpOf(frame, p)
	if m == nil {
		return
	}
	op := binary.BigEndian.Uint16(m[6:8])
	sender, target := binary.BigEndian.Uint32(m[14:18]), binary.BigEndian.Uint32(m[24:28])
	mac = macOf((*[6]byte)(m[8:14]))
	switch {
	case op != arpRequest && op != arpReply:
		return [2]uint64{}, 0, false, false
	case sender != 0:
		return addr4(sender), mac, false, true
	case op == arpRequest && target != 0:
		return addr4(target), mac, true, false
	}
	return [2]uint64{}, 0, false, false
}

func arpOf(frame []byte, p *Parsed) *[arpLen]byte {
	if p.Kind != KindARP {
		return nil
	}
	return arpFrom(frame, int(p.L3))
}

// ReplyARP turns a request into its reply: the address asked for is at mac
// (RFC 826). It returns nil, with the frame untouched, where ARPRequestTarget
// is not ok or the chunk has no room for the padded reply.
func ReplyARP(frame []byte, p *Parsed, mac *[6]byte) (out []byte) {
	_, _, senderMAC, ok := ARPRequestTarget(frame, p)
	if !ok {
		return nil
	}
	if out = grow(frame, int(p.L3)+arpLen); out == nil {
		return nil
	}
	m := (*[arpLen]byte)(out[p.L3:])
	target := [4]byte(m[24:28])
	m[7] = arpReply
	*(*[10]byte)(m[18:28]) = [10]byte(m[8:18])
	*(*[6]byte)(m[8:14]) = *mac
	*(*[4]byte)(m[14:18]) = target
	putMAC((*[6]byte)(out[0:6]), senderMAC)
	*(*[6]byte)(out[6:12]) = *mac
	return out
}

// GratuitousARP writes a broadcast announcement that addr is at mac into buf's
// capacity (RFC 5227, section 2.3: a request for the sender's own address). It
// returns nil if addr is not IPv4 or the capacity is below 60 bytes.
func GratuitousARP(buf []byte, addr [2]uint64, mac *[6]byte) (out []byte) {
	if !isMapped(addr) {
		return nil
	}
	if out = grow(buf, ethernetLen+arpLen); out == nil {
		return nil
	}
	putMAC((*[6]byte)(out[0:6]), 0xffffffffffff)
	*(*[6]byte)(out[6:12]) = *mac
	binary.BigEndian.PutUint16(out[12:14], etherTypeARP)
	m := (*[arpLen]byte)(out[ethernetLen:])
	binary.BigEndian.PutUint64(m[0:8], arpHeader<<16|arpRequest)
	*(*[6]byte)(m[8:14]) = *mac
	binary.BigEndian.PutUint32(m[14:18], uint32(addr[1]))
	clear(m[18:24])
	binary.BigEndian.PutUint32(m[24:28], uint32(addr[1]))
	return out
}

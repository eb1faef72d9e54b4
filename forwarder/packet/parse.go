package packet

import (
	"encoding/binary"
	"math/bits"
)

// Parse reads the frame's headers into p, replacing what p held. It returns OK
// and complete fields, or the reason why the frame must not be forwarded.
//
// The frame must hold the packet to the end that its length field claims;
// bytes after that are Ethernet padding and left out of End. What the
// transport header says beyond ports, TCP flags and ICMP type is between
// client and backend and not judged (UDP length and checksums, among others).
//
// The IPv4 header checksum is verified, for nobody else would: the kernel's
// own check is bypassed, and a router must not pass on a corrupt header (RFC
// 1812, section 5.2.2). In the common case it costs three additions and a
// multiplication on words that are loaded anyway: 0.3 ns of 5.2 for UDP, 0.7
// of 6.1 for TCP, call and loop included (2026-11, a shared virtual EPYC).
func (p *Parsed) Parse(frame []byte) Problem {
	// Nearly all frames of nearly all networks are IPv4 without tag, options
	// and fragmentation, carrying TCP or UDP. One is accepted here only if
	// parseEthernet would accept it with the same fields; all others, and every
	// verdict against a frame, are left to that.
	const (
		l4         = ethernetLen + ipv4Len
		mask, want = 0xff000000_0000bfff, 0x45000000_00000000 // version, IHL, reserved bit, MF, offset
	)
	if len(frame) < l4+udpLen || len(frame) > maxFrameLen {
		return p.parseEthernet(frame)
	}
	mac := binary.BigEndian.Uint64(frame[6:14]) // and EtherType
	w0 := binary.BigEndian.Uint64(frame[14:22]) // version, IHL, TOS, length, identification, fragment
	w1 := binary.BigEndian.Uint64(frame[22:30]) // TTL, protocol, checksum, source
	dst := uint64(binary.BigEndian.Uint32(frame[30:34]))
	ports := binary.BigEndian.Uint32(frame[34:38])
	total := int(w0 >> 32 & 0xffff)
	if uint16(mac) != etherTypeIPv4 || w0&mask != want || ethernetLen+total > len(frame) {
		return p.parseEthernet(frame)
	}
	sum, carry := bits.Add64(w0, w1, 0)
	sum, carry = bits.Add64(sum, dst, carry)
	if !validSum(sum + carry) {
		return p.parseEthernet(frame)
	}
	flags := HasPorts | HasTransport
	switch proto := uint8(w1 >> 48); {
	case proto == ProtoUDP && total >= ipv4Len+udpLen:
	case proto == ProtoTCP && total >= ipv4Len+tcpLen && len(frame) >= l4+tcpLen:
		headerLen := int(frame[l4+12] >> 4 * 4)
		if headerLen < tcpLen || ipv4Len+headerLen > total {
			return p.parseEthernet(frame)
		}
		flags |= tcpFlags(frame[l4+13])
	default:
		return p.parseEthernet(frame)
	}
	p.Src[0], p.Src[1] = 0, mappedPrefix|w1&0xffffffff
	p.Dst[0], p.Dst[1] = 0, mappedPrefix|dst
	p.SrcMAC = mac >> 16
	p.FragID = 0
	p.DstPort, p.SrcPort = uint16(ports), uint16(ports>>16)
	p.L3, p.L4, p.End, p.Flags = ethernetLen, l4, uint16(ethernetLen+total), flags
	p.Proto, p.TTL = uint8(w1>>48), uint8(w1>>56)
	p.Kind, p.VLANs, p.ICMPType, p.ICMPCode = KindIPv4, 0, 0, 0
	return OK
}

// parseEthernet reads any frame.
func (p *Parsed) parseEthernet(frame []byte) Problem {
	*p = Parsed{}
	if len(frame) < ethernetLen {
		return Truncated
	}
	if len(frame) > maxFrameLen {
		return BadLength
	}
	p.SrcMAC = macOf((*[6]byte)(frame[6:12]))
	etherType := binary.BigEndian.Uint16(frame[12:14])
	l3 := ethernetLen
	for etherType == etherTypeVLAN || etherType == etherTypeQinQ {
		if p.VLANs == maxTags {
			return TooManyTags
		}
		if len(frame)-l3 < tagLen {
			return Truncated
		}
		etherType = binary.BigEndian.Uint16(frame[l3+2:])
		l3 += tagLen
		p.VLANs++
	}
	p.L3 = uint16(l3)
	switch etherType {
	case etherTypeIPv4:
		return p.parseIPv4(frame, l3, false)
	case etherTypeIPv6:
		return p.parseIPv6(frame, l3, false)
	case etherTypeARP:
		return p.parseARP(frame, l3)
	}
	p.Kind = KindOther
	return NotIP
}

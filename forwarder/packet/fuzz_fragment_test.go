package packet

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzParseFragment makes fragments of every kind: any offset, flag and
// identification, IPv4 options, and IPv6 extension headers on either side of
// the fragment header. It holds what Parse makes of them against gopacket.
func FuzzParseFragment(f *testing.F) {
	udp := []byte{0x10, 0x92, 0, 53, 0, 24, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	tcp := append([]byte{0x10, 0x92, 1, 0xbb, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 0xff, 0xff, 0, 0, 0, 0, 2, 4, 5, 0xb4}, make([]byte, 8)...)
	for _, v6 := range []bool{false, true} {
		f.Add(v6, uint8(ProtoUDP), uint16(0), true, uint32(7), []byte{}, []byte{}, udp)
		f.Add(v6, uint8(ProtoUDP), uint16(3), false, uint32(0xdeadbeef), []byte{1}, []byte{}, udp[:5])
		f.Add(v6, uint8(ProtoUDP), uint16(0), false, uint32(7), []byte{0, 9}, []byte{2}, udp)
		f.Add(v6, uint8(ProtoTCP), uint16(0), true, uint32(7), []byte{}, []byte{1}, tcp)
		f.Add(v6, uint8(ProtoTCP), uint16(0), true, uint32(7), []byte{}, []byte{}, tcp[:8])
		f.Add(v6, uint8(ProtoTCP), uint16(1), false, uint32(7), []byte{}, []byte{}, tcp)
		f.Add(v6, uint8(ProtoTCP), uint16(2), true, uint32(7), []byte{3}, []byte{}, tcp)
		f.Add(v6, uint8(ProtoUDP), uint16(0x1fff), false, uint32(7), []byte{}, []byte{}, udp)
		f.Add(v6, uint8(ProtoUDP), uint16(4), true, uint32(7), []byte{}, []byte{}, udp[:7])
		f.Add(v6, uint8(ProtoUDP), uint16(4), true, uint32(7), []byte{}, []byte{}, []byte{})
		f.Add(v6, uint8(ProtoSCTP), uint16(0), true, uint32(7), []byte{0, 1, 2, 3, 0, 1, 2, 3}, []byte{0}, udp)
		f.Add(v6, uint8(ProtoUDP), uint16(0), true, uint32(7), []byte{0, 1, 2, 3}, []byte{0, 1, 4, 3}, udp)
		f.Add(v6, uint8(ProtoICMP), uint16(0), true, uint32(7), []byte{}, []byte{}, []byte{8, 0, 0, 0, 0, 0, 0, 1})
		f.Add(v6, uint8(ProtoICMPv6), uint16(0), true, uint32(7), []byte{}, []byte{}, []byte{1, 4, 0, 0, 0, 0, 0, 1})
	}
	f.Fuzz(func(t *testing.T, v6 bool, proto uint8, offset uint16, more bool, id uint32, before, behind, payload []byte) {
		if len(payload) > 1000 || len(before) > 10 || len(behind) > 10 {
			return
		}
		var frame []byte
		kind := KindIPv4
		if v6 {
			kind = KindIPv6
			frame = fragment6(proto, offset, more, id, before, behind, payload)
		} else {
			frame = fragment4(proto, offset, more, uint16(id), before, payload)
		}
		got := dirtyParsed()
		problem := got.Parse(frame)
		want, ok := reference(frame[ethernetLen:], ethernetLen, kind, false)
		want.SrcMAC = macOf((*[6]byte)(clientMAC))
		if (problem == OK) != ok {
			t.Fatalf("Parse(%x) = %v, accepted by gopacket: %v", frame, problem, ok)
		}
		if ok && got != want {
			t.Fatalf("Parse(%x) gives\n%+v, gopacket\n%+v", frame, got, want)
		}
	})
}

// fragment4 is an IPv4 frame; before are the bytes of its options.
func fragment4(proto uint8, offset uint16, more bool, id uint16, before, payload []byte) []byte {
	options := bytes.Clone(before)
	for len(options)%4 != 0 {
		options = append(options, 0)
	}
	h := make([]byte, ipv4Len)
	h[0] = 0x40 | byte((ipv4Len+len(options))/4)
	binary.BigEndian.PutUint16(h[2:], uint16(ipv4Len+len(options)+len(payload)))
	binary.BigEndian.PutUint16(h[4:], id)
	offset &= fragOffset
	if more {
		offset |= fragMore
	}
	binary.BigEndian.PutUint16(h[6:], offset)
	h[8], h[9] = 61, proto
	copy(h[12:], client4.To4())
	copy(h[16:], vip4.To4())
	frame := append(append(append(etherHeader(etherTypeIPv4), h...), options...), payload...)
	fixIPv4Checksum(frame)
	return frame
}

// fragment6 is an IPv6 frame. Each byte of before and behind makes an extension
// header before or behind the fragment header.
func fragment6(proto uint8, offset uint16, more bool, id uint32, before, behind, payload []byte) []byte {
	offset <<= 3
	if more {
		offset |= 1
	}
	next, chain := extensions(proto, behind)
	chain = append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16([]byte{next, 0}, offset), id), chain...)
	next, first := extensions(ProtoFragment, before)
	chain = append(append(first, chain...), payload...)
	h := make([]byte, ipv6Len)
	h[0], h[6], h[7] = 0x60, next, 61
	binary.BigEndian.PutUint16(h[4:], uint16(len(chain)))
	copy(h[8:], client6)
	copy(h[24:], vip6)
	return append(append(etherHeader(etherTypeIPv6), h...), chain...)
}

func etherHeader(etherType uint16) []byte {
	return binary.BigEndian.AppendUint16(append(bytes.Clone(vipMAC), clientMAC...), etherType)
}

// extensions makes a chain of headers, one for each byte: its low bits choose
// the kind, the others the length, which may be more than there is.
func extensions(last uint8, kinds []byte) (first uint8, chain []byte) {
	first = last
	for i := len(kinds) - 1; i >= 0; i-- {
		kind := []uint8{ProtoHopByHop, ProtoDstOpts, ProtoRouting, ProtoAH, ProtoFragment}[kinds[i]%5]
		units := kinds[i] / 5 % 4
		h := make([]byte, 8*(int(units)+1))
		h[0], h[1] = first, units
		switch kind {
		case ProtoAH:
			h[1] = 2 * units
		case ProtoFragment:
			h = h[:8]
		}
		if kinds[i] >= 0xf0 {
			h[1] = kinds[i]
		}
		chain = append(h, chain...)
		first = kind
	}
	return first, chain
}

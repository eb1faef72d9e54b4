package main

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// ipHead is an IP header to be put before something.
type ipHead struct {
	src, dst netip.Addr
	proto    uint8  // of what follows; with IPv6 extension headers, of the first of them
	ext      []byte // IPv4 options, or IPv6 extension headers
	id, frag uint16 // IPv4: identification; flags and offset
}

// The flags of an IPv4 header.
const moreFragments, dontFragment = 0x2000, 0x4000

// Numbers of IPv6 extension headers (IANA).
const protoHopByHop, protoRouting, protoFragment, protoAH, protoDstOpts = 0, 43, 44, 51, 60

// packet puts the header before a payload.
func (h ipHead) packet(payload []byte) []byte {
	var b []byte
	if h.src.Is4() {
		b = make([]byte, 20, 20+len(h.ext)+len(payload))
		b[0] = 0x40 | byte((20+len(h.ext))/4)
		binary.BigEndian.PutUint16(b[2:], uint16(20+len(h.ext)+len(payload)))
		binary.BigEndian.PutUint16(b[4:], h.id)
		binary.BigEndian.PutUint16(b[6:], h.frag)
		b[8], b[9] = 64, h.proto
		copy(b[12:], h.src.AsSlice())
		copy(b[16:], h.dst.AsSlice())
		b = append(b, h.ext...)
		binary.BigEndian.PutUint16(b[10:], internetSum(0, b))
	} else {
		b = make([]byte, 40, 40+len(h.ext)+len(payload))
		b[0] = 0x60
		binary.BigEndian.PutUint16(b[4:], uint16(len(h.ext)+len(payload)))
		b[6], b[7] = h.proto, 64
		copy(b[8:], h.src.AsSlice())
		copy(b[24:], h.dst.AsSlice())
		b = append(b, h.ext...)
	}
	return append(b, payload...)
}

// fragment is the packet with a part of a payload, beginning at a byte offset.
func (h ipHead) fragment(id uint32, payload []byte, from, to int) []byte {
	more := to < len(payload)
	if h.src.Is4() {
		h.id, h.frag = uint16(id), uint16(from/8)
		if more {
			h.frag |= moreFragments
		}
		return h.packet(payload[from:to])
	}
	f := []byte{h.proto, 0, byte(from >> 8), byte(from)} // RFC 8200 section 4.5
	if more {
		f[3] |= 1
	}
	h.ext, h.proto = binary.BigEndian.AppendUint32(f, id), protoFragment
	return h.packet(payload[from:to])
}

// fragments cuts a payload into packets of size bytes, a multiple of 8, in order.
func (h ipHead) fragments(id uint32, payload []byte, size int) (out [][]byte) {
	for from := 0; from < len(payload); from += size {
		out = append(out, h.fragment(id, payload, from, min(from+size, len(payload))))
	}
	return out
}

// udpHeader puts a UDP header, with its checksum, before a payload.
func udpHeader(src, dst netip.AddrPort, payload []byte) []byte {
	b := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(b, src.Port())
	binary.BigEndian.PutUint16(b[2:], dst.Port())
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(payload)))
	b = append(b, payload...)
	sum := internetSum(pseudoSum(src.Addr(), dst.Addr(), len(b), protoUDP), b)
	if sum == 0 {
		sum = 0xffff // RFC 768: 0 stands for none
	}
	binary.BigEndian.PutUint16(b[6:], sum)
	return b
}

// Flags of a TCP header (RFC 9293 section 3.1).
const tcpFIN, tcpSYN, tcpRST, tcpPSH, tcpACK, tcpURG = 1, 2, 4, 8, 16, 32

// tcpHeader is a TCP header, with its checksum, without a payload.
func tcpHeader(src, dst netip.AddrPort, flags byte) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, src.Port())
	binary.BigEndian.PutUint16(b[2:], dst.Port())
	binary.BigEndian.PutUint32(b[4:], 1)
	b[12], b[13], b[14] = 0x50, flags, 0xff
	binary.BigEndian.PutUint16(b[16:], internetSum(pseudoSum(src.Addr(), dst.Addr(), len(b), protoTCP), b))
	return b
}

// icmpAbout is an ICMP error that quotes a packet, as far as given. word is
// what type and code put into the second half of the header: an MTU, a pointer.
func icmpAbout(src, dst netip.Addr, kind, code byte, word uint32, quote []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{kind, code, 0, 0}, word)
	b = append(b, quote...)
	h := ipHead{src: src, dst: dst, proto: icmpOf(src)}
	sum := uint32(0)
	if src.Is6() {
		sum = pseudoSum(src, dst, len(b), protoICMPv6)
	}
	binary.BigEndian.PutUint16(b[2:], internetSum(sum, b))
	return h.packet(b)
}

// A VLAN tag: EtherType of the tag and its number.
type vlanTag struct{ kind, id uint16 }

// ethernet puts a packet into a frame, behind tags if there are any.
func ethernet(to, from net.HardwareAddr, packet []byte, tags ...vlanTag) []byte {
	b := append(append(make([]byte, 0, 14+4*len(tags)+len(packet)), to...), from...)
	for _, t := range tags {
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, t.kind), t.id)
	}
	etherType := uint16(unix.ETH_P_IP)
	if packet[0]>>4 == 6 {
		etherType = unix.ETH_P_IPV6
	}
	return append(binary.BigEndian.AppendUint16(b, etherType), packet...)
}

package packet

import (
	"encoding/binary"
	"net/netip"
)

const mappedPrefix = 0xffff << 32 // ::ffff:0:0/96 in the low word (RFC 4291, section 2.5.5.2)

// Addr returns the address as two host-order words, high half first. IPv4
// becomes IPv4-mapped; a zone is dropped; the zero Addr gives zeros.
func Addr(a netip.Addr) [2]uint64 {
	b := a.As16()
	return [2]uint64{binary.BigEndian.Uint64(b[0:8]), binary.BigEndian.Uint64(b[8:16])}
}

// Netip is the inverse of Addr; an IPv4-mapped address becomes IPv4.
func Netip(a [2]uint64) netip.Addr {
	var b [16]byte
	putAddr(&b, a)
	return netip.AddrFrom16(b).Unmap()
}

func addr4(a uint32) [2]uint64 { return [2]uint64{0, mappedPrefix | uint64(a)} }

func getAddr(b *[16]byte) [2]uint64 {
	return [2]uint64{binary.BigEndian.Uint64(b[0:8]), binary.BigEndian.Uint64(b[8:16])}
}

func putAddr(b *[16]byte, a [2]uint64) {
	binary.BigEndian.PutUint64(b[0:8], a[0])
	binary.BigEndian.PutUint64(b[8:16], a[1])
}

func isMapped(a [2]uint64) bool { return a[0] == 0 && a[1]>>32 == 0xffff }

// isMulticast holds for 224.0.0.0/4, the limited broadcast address and ff00::/8.
func isMulticast(a [2]uint64) bool {
	if isMapped(a) {
		return uint32(a[1])>>28 == 0xe || uint32(a[1]) == 0xffffffff
	}
	return a[0]>>56 == 0xff
}

// isHost holds for an address that can name one host as the sender of a packet
// and to which an answer may go: not unspecified ("this network"), loopback,
// multicast, broadcast or reserved (RFC 1122, section 3.2.1.3; RFC 4443, section 2.4).
func isHost(a [2]uint64) bool {
	if isMapped(a) {
		top := uint32(a[1]) >> 24
		return top != 0 && top != 127 && top < 224
	}
	return a[0]>>56 != 0xff && (a[0] != 0 || a[1] > 1)
}

// macOf reads a MAC address into the low 48 bits, first byte highest.
func macOf(b *[6]byte) uint64 {
	return uint64(binary.BigEndian.Uint32(b[0:4]))<<16 | uint64(binary.BigEndian.Uint16(b[4:6]))
}

func putMAC(b *[6]byte, mac uint64) {
	binary.BigEndian.PutUint32(b[0:4], uint32(mac>>16))
	binary.BigEndian.PutUint16(b[4:6], uint16(mac))
}

// isGroupMAC holds for multicast and broadcast: the lowest bit of the first byte (IEEE 802, section 8.2).
func isGroupMAC(mac uint64) bool { return mac>>40&1 != 0 }

// Martian reports whether a router must not forward a packet from an address:
// unspecified, this network, loopback, link-local, multicast or reserved (RFC
// 1812, section 5.3.7; RFC 4291, sections 2.5 and 2.7).
func Martian(a [2]uint64) bool {
	if isMapped(a) {
		switch first := uint8(a[1] >> 24); {
		case first == 0, first == 127, first >= 224:
			return true
		}
		return uint16(a[1]>>16) == 169<<8|254
	}
	return a[0] == 0 && a[1] <= 1 || a[0]>>54 == 0xfe80>>6 || a[0]>>56 == 0xff
}

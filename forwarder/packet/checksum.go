package packet

import (
	"encoding/binary"
	"math/bits"
)

// The Internet checksum (RFC 1071) is a sum in ones' complement, that is,
// modulo 0xffff. 2^64-1 is a multiple of 0xffff, so it can be taken in 64-bit
// words whose carry is added back, and reduced once at the end.

// sumBytes adds b, as big-endian 16-bit words padded with a zero byte, to sum.
func sumBytes(sum uint64, b []byte) uint64 {
	for len(b) >= 8 {
		sum = addCarry(sum, binary.BigEndian.Uint64(b))
		b = b[8:]
	}
	var last uint64
	for i, v := range b {
		last |= uint64(v) << (56 - 8*i)
	}
	return addCarry(sum, last)
}

func addCarry(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	return sum + carry
}

// validSum reports whether the sum over data and its checksum field is right:
// zero in ones' complement. The compiler turns the remainder into one multiplication.
func validSum(sum uint64) bool { return sum%0xffff == 0 }

// checksumOf returns the value for the checksum field, given the sum of everything else.
func checksumOf(sum uint64) uint16 {
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum)
}

// updateChecksum returns the checksum after one 16-bit word changed from old
// to new: equation 3 of RFC 1624, which unlike that of RFC 1141 also holds
// where the sum passes through zero.
func updateChecksum(checksum, old, new uint16) uint16 {
	sum := uint32(^checksum) + uint32(^old) + uint32(new)
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum)
}

// sumIPv4 is the sum over a header without options.
func sumIPv4(h *[ipv4Len]byte) uint64 {
	sum := addCarry(binary.BigEndian.Uint64(h[0:8]), binary.BigEndian.Uint64(h[8:16]))
	return addCarry(sum, uint64(binary.BigEndian.Uint32(h[16:20])))
}

// sumPseudo6 is the sum over the pseudo-header of RFC 8200, section 8.1.
func sumPseudo6(src, dst [2]uint64, lenBytes int, proto uint8) uint64 {
	sum := addCarry(src[0], src[1])
	sum = addCarry(sum, dst[0])
	sum = addCarry(sum, dst[1])
	return addCarry(sum, uint64(lenBytes)+uint64(proto))
}

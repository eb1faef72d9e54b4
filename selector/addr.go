package selector

import (
	"encoding/binary"
	"net/netip"
)

// words is an address in the form of the forwarding path: host order, IPv4 as IPv4-mapped.
func words(a netip.Addr) [2]uint64 {
	b := a.As16()
	return [2]uint64{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// netipOf is the reverse of words; an IPv4-mapped address becomes an IPv4 one.
func netipOf(w [2]uint64) netip.Addr {
	if w[0] == 0 && w[1]>>32 == 0xffff {
		return netip.AddrFrom4([4]byte{byte(w[1] >> 24), byte(w[1] >> 16), byte(w[1] >> 8), byte(w[1])})
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], w[0])
	binary.BigEndian.PutUint64(b[8:], w[1])
	return netip.AddrFrom16(b)
}

// familyOf is the family of an address; an IPv4-mapped one is IPv4.
func familyOf(a netip.Addr) Family {
	if a.Unmap().Is4() {
		return V4
	}
	return V6
}

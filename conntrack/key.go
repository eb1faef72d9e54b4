package conntrack

import "math/bits"

// Kind says which fields of a packet a [Key] holds. Keys of different kinds
// never meet in the table, even if all their other fields are equal.
type Kind uint8

const (
	// KeyConnection is the 5-tuple: addresses, ports, protocol. Only entries
	// of this kind can be Closing, and only they become Unconfirmed again when
	// a new selection replaces their backend.
	KeyConnection Kind = iota
	Key3               // addresses and protocol
	Key2               // addresses
	Key1               // source address
	KeyFragment        // addresses, protocol and the identification of a fragmented datagram
)

// Key is what packets of one flow share. Fields that a [Kind] leaves out are
// zero. Addresses are in host order; IPv4 ones in their IPv4-mapped form.
type Key struct {
	Src, Dst [2]uint64
	Meta     uint64 // ports, protocol, kind and service; see [MakeMeta]
}

// MakeMeta packs the parts of a key that are not addresses: srcPort<<48 |
// dstPort<<32 | proto<<24 | kind<<16 | service. The two ports of a
// [KeyFragment] key carry the 32 bits of the identification.
func MakeMeta(srcPort, dstPort uint16, proto uint8, kind Kind, service uint16) uint64 {
	return uint64(srcPort)<<48 | uint64(dstPort)<<32 | uint64(proto)<<24 | uint64(kind)<<16 | uint64(service)
}

// SrcPort returns the source port, in host order.
func (k *Key) SrcPort() uint16 { return uint16(k.Meta >> 48) }

// DstPort returns the destination port, in host order.
func (k *Key) DstPort() uint16 { return uint16(k.Meta >> 32) }

// Proto returns the transport protocol number.
func (k *Key) Proto() uint8 { return uint8(k.Meta >> 24) }

// Kind returns which fields the key holds.
func (k *Key) Kind() Kind { return kindOf(k.Meta) }

// Service returns the id of the backend service the key belongs to.
func (k *Key) Service() uint16 { return uint16(k.Meta) }

func kindOf(meta uint64) Kind { return Kind(meta >> 16) }

// Odd constants with half their bits set, from the hexadecimal digits of pi.
const (
	hashSrc   = 0x243f6a8885a308d3
	hashDst   = 0x13198a2e03707345
	hashMeta  = 0xa4093822299f31d1
	hashFinal = 0x082efa98ec4e6c89
)

// Hash returns 64 well-mixed bits of the key. Whoever does not know seed
// cannot choose keys that fall into one bucket, so it should be drawn at
// random by the process that makes the table. Every key of a table must be
// hashed with the same seed, [Table.Seed].
//
// Each pair of words is folded by one 64×64→128 multiplication. The source
// and destination operands hold the seed, so that an all-zero half (every
// IPv4 address has one) does not cancel the other half.
func (k *Key) Hash(seed uint64) uint64 {
	a, b := bits.Mul64(k.Src[0]^seed^hashSrc, k.Src[1]^hashMeta)
	c, d := bits.Mul64(k.Dst[0]^seed^hashDst, k.Dst[1]^hashFinal)
	a, b = bits.Mul64(a^d^hashMeta, b^c^k.Meta)
	a, b = bits.Mul64(a^seed, b^hashFinal)
	return a ^ b
}

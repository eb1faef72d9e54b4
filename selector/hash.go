package selector

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// defaultHashKey keys selection when no hash key is configured. It is fixed and public on purpose:
// a random one would send every untracked flow elsewhere after a restart, and to different backends
// on different appliances.
const defaultHashKey = "zonehop built-in hash key"

// secret keys one symmetry group: everything derived from it (slots of a table, hash of a tuple) is
// equal on every appliance with the same hash key, and cannot be predicted without it.
type secret [8]uint64

// newSecret derives the secret of a symmetry group from the configured hash key.
func newSecret(hashKey, group string) secret {
	if hashKey == "" {
		hashKey = defaultHashKey
	}
	var s secret
	for half := range 2 {
		sum := digest("flow", []byte{byte(half)}, []byte(hashKey), []byte(group))
		for i := range 4 {
			s[4*half+i] = binary.LittleEndian.Uint64(sum[8*i:])
		}
	}
	return s
}

// digest is SHA-256 over length-prefixed parts, so that no two lists of parts collide by shifting a
// byte from one to the next.
func digest(purpose string, parts ...[]byte) [sha256.Size]byte {
	buf := append([]byte("zonehop/"), purpose...)
	for _, p := range parts {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(len(p)))
		buf = append(buf, p...)
	}
	return sha256.Sum256(buf)
}

// fold is the 128-bit product of a and b, its halves combined by exclusive or: every input bit
// reaches about half of the output bits. With secret words mixed into both operands an outsider can
// neither aim for a result nor hit the weak operand 0 (Wang Yi, "wyhash", 2019).
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// hash mixes the members of a tuple. Members outside the affinity's tuple are passed as zero, and
// shape (which members there are) is mixed in so that tuples of different shapes do not meet.
func (k *secret) hash(src, dst [2]uint64, srcPort, dstPort uint16, proto, shape uint8) uint64 {
	meta := uint64(srcPort)<<48 | uint64(dstPort)<<32 | uint64(proto)<<8 | uint64(shape)
	a := fold(src[0]^k[0], src[1]^k[1])
	b := fold(dst[0]^k[2], dst[1]^k[3])
	return fold(fold(a^k[4], b^meta^k[5])^k[6], meta^k[7])
}

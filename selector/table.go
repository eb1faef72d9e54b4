package selector

import (
	"encoding/binary"
	"math/bits"
)

// slots is the number of slots of a selection table, large enough for shares within 1 % at a hundred
// backends; an odd number, so that nothing in the construction lines up with powers of two.
const slots = 65537

// table assigns every slot to a candidate, by its index in the list the table was built from. It
// depends on that list alone.
type table [slots]uint16

// slotOf scales a hash to a slot without a division.
func slotOf(hash uint64) uint64 {
	hi, _ := bits.Mul64(hash, slots)
	return hi
}

// candidate is what a table is built from: the seed stands for the hash key, the symmetry group and
// the backend's name.
type candidate struct {
	seed   seed
	weight uint32 // > 0
}

// seed is the pseudo-random identity of a backend in one symmetry group.
type seed [2]uint64

func newSeed(hashKey, group, name string) seed {
	if hashKey == "" {
		hashKey = defaultHashKey
	}
	sum := digest("slots", []byte(hashKey), []byte(group), []byte(name))
	return seed{binary.LittleEndian.Uint64(sum[:8]), binary.LittleEndian.Uint64(sum[8:16])}
}

package selector

import (
	"encoding/binary"
	"math/bits"
)

// slots is the number of slots of a selection table: a prime, so that every step through the slots
// visits all of them, and large enough for shares within 1 % at a hundred backends.
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

// buildTable fills a table: candidates take turns, in proportion to their weight, each taking the
// next free slot of its own permutation (Eisenbud et al., "Maglev", NSDI 2016, 3.4).
func buildTable(cs []candidate) *table {
	t := new(table)
	if len(cs) == 1 {
		return t
	}
	taken := make([]bool, slots)
	next := make([]uint32, len(cs))
	step := make([]uint32, len(cs))
	credit := make([]uint64, len(cs))
	var heaviest uint64
	for i, c := range cs {
		hi, _ := bits.Mul64(c.seed[0], slots)
		next[i] = uint32(hi)
		hi, _ = bits.Mul64(c.seed[1], slots-1)
		step[i] = uint32(hi) + 1
		heaviest = max(heaviest, uint64(c.weight))
	}
	for filled := 0; ; {
		for i := range cs {
			credit[i] += uint64(cs[i].weight)
			if credit[i] < heaviest {
				continue
			}
			credit[i] -= heaviest
			s := next[i]
			for taken[s] {
				s += step[i]
				if s >= slots {
					s -= slots
				}
			}
			taken[s] = true
			t[s] = uint16(i)
			next[i] = s
			if filled++; filled == slots {
				return t
			}
		}
	}
}

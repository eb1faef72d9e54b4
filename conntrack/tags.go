package conntrack

import "math/bits"

// A bucket's tags are one word beside the table: a byte for each of its lines,
// 0 for one that holds no entry, else eight bits of its entry's hash. They say
// where to look, and no more: which entry a line holds is the line's to say. So
// a search reads one line instead of sixteen, a key without an entry costs none,
// and the words of a whole table of 2^22 lines fit the processor's caches.
//
// A tag changes only while the line's ident is odd, by the one who made it odd:
// it is there before the entry can be seen, and gone before the line is free
// again. Tags are in memory of this process alone; [Table.Recover] makes them
// from the lines of a file.
const (
	everyByte = 0x0101_0101_0101_0101
	everyTop  = 0x8080_8080_8080_8080
)

// tagOf is the tag of a hash, 1 to 255. Up to 2^24 lines its bits have no part in
// choosing the bucket; in larger tables they tell the entries of one a little
// less well apart.
func tagOf(hash uint64) uint64 { return max((hash>>24^hash>>56)&0xff, 1) }

// tagged marks the bytes of a bucket's tags that equal tag by their top bit. Now
// and then it marks the byte above such a one as well, by a borrow: its lines
// are to be looked at anyway.
func tagged(tags, tag uint64) uint64 {
	x := tags ^ tag*everyByte
	return (x - everyByte) &^ x & everyTop
}

// untagged marks exactly the bytes that are 0 by their top bit.
func untagged(tags uint64) uint64 {
	return ^((tags&^everyTop + everyByte*0x7f) | tags) & everyTop
}

// marked is the line of the first mark in the bucket of line i.
func marked(i uint32, marks uint64) uint32 {
	return i&^(bucketLines-1) | uint32(bits.TrailingZeros64(marks))/8
}

// tagShift is where the tag of line i is in its word.
func tagShift(i uint32) uint32 { return i % bucketLines * 8 }

// setTag gives a line its tag. It has none, and the caller has made ident odd.
func (s *store) setTag(i uint32, tag uint64) { s.tags(i).Or(tag << tagShift(i)) }

// clearTag takes it away. The caller has made ident odd.
func (s *store) clearTag(i uint32) { s.tags(i).And(^(uint64(0xff) << tagShift(i))) }

// vacancy is where a new entry of a hash goes, as far as tags tell: into the
// first bucket while that is nearly empty, else into the emptier one; there into
// the home line if that is free. ok is false if both buckets are full.
func (s *store) vacancy(hash uint64) (i uint32, ok bool) {
	home, other := s.homes(hash)
	free, more := untagged(s.tags(home).Load()), untagged(s.tags(other).Load())
	if n := bits.OnesCount64(free); n < bucketLines-firstBucketLines && n < bits.OnesCount64(more) {
		home, free = other, more
	}
	if free>>tagShift(home)&0x80 != 0 {
		return home, true
	}
	return marked(home, free), free != 0
}

// firstBucketLines is up to how many entries the first bucket of a key is taken
// without looking which one is emptier: so most look-ups end in the first line
// of the first bucket. Simulated with 2^24 lines and 10 M entries: 0 refuses
// none and has 51 % of the entries there, 3 refuses none and has 62 % (86 % of
// 4 M), 5 refuses 3, 6 refuses 517.
const firstBucketLines = 3

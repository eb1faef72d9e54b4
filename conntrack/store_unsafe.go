package conntrack

import (
	"sync/atomic"
	"unsafe"
)

// store is the memory of the lines: mask+1 of them, a power of two, from base,
// which is aligned to a page, so that a bucket is 512 bytes of one page; and of
// their tags, one word for each bucket.
type store struct {
	base unsafe.Pointer
	tag0 unsafe.Pointer
	mask uint32
}

// at returns line i modulo the number of lines.
//
// The masked index is at most mask and the memory from base holds mask+1 lines
// until the table is closed, so the result is always inside it. Doing this
// without a slice spares the bounds check and the second word in registers.
func (s *store) at(i uint32) *line {
	return (*line)(unsafe.Add(s.base, uintptr(i&s.mask)*unsafe.Sizeof(line{})))
}

// tags returns the tags of the bucket of line i modulo the number of lines.
//
// They are as many bytes as there are lines, in words of bucketLines, so the
// masked index with its lowest bits cleared is the offset of a word inside them.
func (s *store) tags(i uint32) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Add(s.tag0, uintptr(i&s.mask&^(bucketLines-1))))
}

// storeOf makes a store of memory that holds a power of two of lines, as bytes
// or lines, and of the tags of as many. Both outlive it.
func storeOf[T byte | line](mem []T, tags []atomic.Uint64) store {
	n := linesIn(mem)
	if len(tags) != n/bucketLines {
		panic("conntrack: tags of another number of lines")
	}
	return store{base: unsafe.Pointer(unsafe.SliceData(mem)), tag0: unsafe.Pointer(unsafe.SliceData(tags)), mask: uint32(n - 1)}
}

// toBoundary is how many bytes of mem come before the first address that is a
// multiple of n. The address is looked at, not kept.
func toBoundary(mem []byte, n uintptr) int {
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(mem))) & (n - 1))
}

// linesIn is how many lines memory holds.
func linesIn[T byte | line](mem []T) int {
	return len(mem) * int(unsafe.Sizeof(mem[0])) / lineLen
}

// wordsOf returns memory as words. mem is aligned to a page and a multiple of
// eight bytes long; the result is valid as long as mem is mapped.
func wordsOf(mem []byte) []atomic.Uint64 {
	return unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/8)
}

// The sizes that the layout relies on; a change does not compile.
var (
	_ [lineLen]byte = [unsafe.Sizeof(line{})]byte{}
	_ [8]byte       = [bucketLines]byte{} // a word of tags
	_ [128]byte     = [unsafe.Sizeof(counters{})]byte{}
	_ [256]byte     = [unsafe.Sizeof(Writer{})]byte{}
)

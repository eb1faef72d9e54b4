package conntrack

import (
	"sync/atomic"
	"unsafe"
)

// store is the memory of the lines: mask+1 of them, a power of two, from base,
// which is aligned to a page, so that a bucket is 512 bytes of one page.
type store struct {
	base unsafe.Pointer
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

// storeOf makes a store of memory that holds a power of two of lines, as bytes
// or lines, and outlives it.
func storeOf[T byte | line](mem []T) store {
	n := uintptr(len(mem)) * unsafe.Sizeof(mem[0]) / unsafe.Sizeof(line{})
	return store{base: unsafe.Pointer(unsafe.SliceData(mem)), mask: uint32(n - 1)}
}

// wordsOf returns memory as words. mem is aligned to a page and a multiple of
// eight bytes long; the result is valid as long as mem is mapped.
func wordsOf(mem []byte) []atomic.Uint64 {
	return unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/8)
}

// The sizes that the layout relies on; a change does not compile.
var (
	_ [lineLen]byte = [unsafe.Sizeof(line{})]byte{}
	_ [128]byte     = [unsafe.Sizeof(counters{})]byte{}
	_ [256]byte     = [unsafe.Sizeof(Writer{})]byte{}
)

//go:build !race

package conntrack

import (
	"fmt"
	"sync/atomic"
	"syscall"
)

// newLines maps zeroed memory for n lines, a power of two, outside the Go heap:
// the garbage collector neither scans it nor counts it. Pages are taken from the
// system when they are first written. The lines begin where a huge page can.
func newLines(n int) (lines []byte, release func() error, err error) {
	mem, release, err := mapZeroed(n*lineLen + hugePageLen)
	if err != nil {
		return nil, nil, err
	}
	from := toBoundary(mem, hugePageLen)
	return mem[from : from+n*lineLen], release, nil
}

const madvCollapse = 25 // MADV_COLLAPSE of asm-generic/mman-common.h

// joiner returns the function that makes huge pages of parts of mem.
func joiner(mem []byte) func(offset int) {
	return func(offset int) {
		// Refused by kernels before 6.1, and where no huge page is free.
		_ = syscall.Madvise(mem[offset:offset+hugePageLen], madvCollapse)
	}
}

// newTags maps the tags of n lines likewise. Each page of them stands for 4096
// lines all over the memory that flows use, so few pages stay unused; they are
// large ones if the system has some.
func newTags(n int) (tags []atomic.Uint64, release func() error, err error) {
	mem, release, err := mapZeroed(n)
	if err != nil {
		return nil, nil, err
	}
	_ = syscall.Madvise(mem, syscall.MADV_HUGEPAGE) // refused where there are none: a matter of speed alone
	return wordsOf(mem), release, nil
}

func mapZeroed(lenBytes int) (mem []byte, release func() error, err error) {
	mem, err = syscall.Mmap(-1, 0, lenBytes, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		return nil, nil, fmt.Errorf("map %d bytes for the flow table: %w", lenBytes, err)
	}
	return mem, func() error { return syscall.Munmap(mem) }, nil
}

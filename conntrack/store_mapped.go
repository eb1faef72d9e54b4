//go:build !race

package conntrack

import (
	"fmt"
	"syscall"
)

// newStore maps zeroed memory for n lines, a power of two, outside the Go
// heap: the garbage collector neither scans it nor counts it. Pages are taken
// from the system when they are first written.
func newStore(n int) (s store, release func() error, err error) {
	mem, err := syscall.Mmap(-1, 0, n*lineLen, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		return store{}, nil, fmt.Errorf("map %d bytes for the flow table: %w", n*lineLen, err)
	}
	return storeOf(mem), func() error { return syscall.Munmap(mem) }, nil
}

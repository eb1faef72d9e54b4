package xsk

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const ringNeedWakeup = unix.XDP_RING_NEED_WAKEUP

// ringBytes is the size in bytes of a mapping that holds n slots of type T.
func ringBytes[T slot](off unix.XDPRingOffset, n int) int {
	var v T
	return int(off.Desc) + n*int(unsafe.Sizeof(v))
}

// ringAt lays a ring of n slots over mem at the offsets the kernel gives.
//
// The pointers stay inside mem because its length is checked against the
// farthest of them, and are aligned because mappings start on a page and the
// offsets are multiples of a field's size, which is checked too. mem must
// outlive the ring: rings over a mapping die with the mapping, rings over the
// heap keep it alive.
func ringAt[T slot](mem []byte, off unix.XDPRingOffset, n int) (ringMemory[T], error) {
	base := unsafe.Pointer(unsafe.SliceData(mem))
	if !powerOfTwo(n) || off.Producer%4 != 0 || off.Consumer%4 != 0 || off.Flags%4 != 0 || off.Desc%8 != 0 || uintptr(base)%8 != 0 {
		return ringMemory[T]{}, fmt.Errorf("ring of %d slots at offsets %+v: not aligned", n, off)
	}
	if need := max(uint64(ringBytes[T](off, n)), off.Producer+4, off.Consumer+4, off.Flags+4); uint64(len(mem)) < need {
		return ringMemory[T]{}, fmt.Errorf("ring of %d slots: %d bytes of memory, want %d", n, len(mem), need)
	}
	return ringMemory[T]{
		producer: (*uint32)(unsafe.Add(base, off.Producer)),
		consumer: (*uint32)(unsafe.Add(base, off.Consumer)),
		flags:    (*uint32)(unsafe.Add(base, off.Flags)),
		slots:    unsafe.Slice((*T)(unsafe.Add(base, off.Desc)), n),
	}, nil
}

package xsk

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// getOption reads an option of an AF_XDP socket into a T, which must be the plain
// C structure of that option.
//
// The kernel writes at most size bytes to v, which stays alive and in place
// because its address is taken in the call itself.
func getOption[T any](fd, option int) (T, error) {
	var v T
	size := uint32(unsafe.Sizeof(v))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option),
		uintptr(unsafe.Pointer(&v)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return v, errno
	}
	return v, nil
}

// registerUMEM makes area the UMEM of a socket. The kernel pins its pages until
// the last socket on it is gone; the structure itself is only read.
func registerUMEM(fd int, area []byte, frameSize int) error {
	reg := unix.XDPUmemReg{
		Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(area)))),
		Len:  uint64(len(area)),
		Size: uint32(frameSize),
	}
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, unix.XDP_UMEM_REG,
		uintptr(unsafe.Pointer(&reg)), unsafe.Sizeof(reg), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

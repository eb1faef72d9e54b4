package xsk

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolChannels is struct ethtool_channels of linux/ethtool.h.
type ethtoolChannels struct {
	cmd                                 uint32
	maxRX, maxTX, maxOther, maxCombined uint32
	rx, tx, other, combined             uint32
}

// queueCount returns how many receive queues an interface has; ok is false where
// the driver does not tell.
//
// The request (struct ifreq: a name and a pointer) and the structure it points to
// live on this stack frame until the call returns, and the kernel keeps neither.
func queueCount(name string) (n int, ok bool) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil || len(name) >= unix.IFNAMSIZ {
		return 0, false
	}
	defer unix.Close(fd)
	channels := ethtoolChannels{cmd: unix.ETHTOOL_GCHANNELS}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		pad  [16]byte // struct ifreq is larger than this member of its union
	}{data: unsafe.Pointer(&channels)}
	copy(request.name[:], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return 0, false
	}
	return int(channels.rx + channels.combined), true
}

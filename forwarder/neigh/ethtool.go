package neigh

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolChannels is struct ethtool_channels of linux/ethtool.h.
type ethtoolChannels struct {
	cmd                                         uint32
	maxRX, maxTX, maxOther, maxCombined         uint32
	rxCount, txCount, otherCount, combinedCount uint32
}

// ifreqData is struct ifreq of linux/if.h, with the pointer member of its
// union; the padding makes up its full 40 bytes on 64-bit machines.
type ifreqData struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

// rxQueues returns the number of receive queues in use on the interface name
// (as `ethtool -l` shows it: combined plus receive-only channels). fd is any
// socket of the interface's network namespace.
//
// The kernel writes to req and channels during the call only; both stay alive
// because req is reachable from the argument and points to channels.
func rxQueues(fd int, name string) (int, error) {
	channels := &ethtoolChannels{cmd: unix.ETHTOOL_GCHANNELS}
	req := &ifreqData{data: unsafe.Pointer(channels)}
	if len(name) >= len(req.name) {
		return 0, fmt.Errorf("interface name %q is longer than %d bytes", name, len(req.name)-1)
	}
	copy(req.name[:], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(req)))
	if errno != 0 {
		return 0, fmt.Errorf("read channels of %s: %w", name, errno)
	}
	return int(channels.rxCount + channels.combinedCount), nil
}

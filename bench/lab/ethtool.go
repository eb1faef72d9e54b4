package lab

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolValue is struct ethtool_value of linux/ethtool.h.
type ethtoolValue struct{ cmd, data uint32 }

// ifreqData is struct ifreq of linux/if.h with its pointer member; the kernel
// copies the whole union, which is 24 bytes on 64-bit machines.
type ifreqData struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [24 - unsafe.Sizeof(uintptr(0))]byte
}

// offloads that would leave work undone in a frame: checksums not filled in,
// segments not cut, packets merged.
var offloads = []struct {
	name string
	cmd  uint32
}{
	{"tx-checksum", unix.ETHTOOL_STXCSUM},
	{"scatter-gather", unix.ETHTOOL_SSG},
	{"tcp-segmentation", unix.ETHTOOL_STSO},
	{"generic-segmentation", unix.ETHTOOL_SGSO},
	{"generic-receive", unix.ETHTOOL_SGRO},
}

// flagTXVLAN is ETH_FLAG_TXVLAN of linux/ethtool.h. With it, the VLAN tag of a
// frame travels beside it through a veth, and XDP at the other end never sees it.
const flagTXVLAN = 1 << 7

// disableOffloads makes every frame on the interface complete: what a socket
// sends is what arrives, with its checksum, one segment per frame. The calling
// thread must be in the interface's namespace.
func disableOffloads(iface string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("disable offloads of %s: %w", iface, err)
	}
	defer unix.Close(fd)
	for _, o := range offloads {
		// EOPNOTSUPP: the device never had it.
		if err := ethtoolSet(fd, iface, o.cmd, 0); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("disable %s offload of %s: %w", o.name, iface, err)
		}
	}
	flags, err := ethtoolDo(fd, iface, unix.ETHTOOL_GFLAGS, 0)
	if err == nil && flags&flagTXVLAN != 0 {
		err = ethtoolSet(fd, iface, unix.ETHTOOL_SFLAGS, flags&^flagTXVLAN)
	}
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("disable VLAN tag offload of %s: %w", iface, err)
	}
	return nil
}

// ethtoolSet runs one of the ioctls that change something.
func ethtoolSet(fd int, iface string, cmd, data uint32) error {
	_, err := ethtoolDo(fd, iface, cmd, data)
	return err
}

// ethtoolDo runs one of the ioctls that take a struct ethtool_value, and
// returns what the kernel left in it.
//
// The kernel reads and writes value through the pointer inside request only
// during the call; both stay reachable and, being Go memory whose address is
// in an unsafe.Pointer, in place until the KeepAlive.
func ethtoolDo(fd int, iface string, cmd, data uint32) (uint32, error) {
	value := &ethtoolValue{cmd: cmd, data: data}
	request := &ifreqData{data: unsafe.Pointer(value)}
	if len(iface) >= len(request.name) {
		return 0, unix.ENAMETOOLONG
	}
	copy(request.name[:], iface)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(request)))
	runtime.KeepAlive(value)
	if errno != 0 {
		return 0, errno
	}
	return value.data, nil
}

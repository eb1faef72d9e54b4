package xsk

import (
	"bytes"
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// ErrCannotShare is returned by Bind and Join for an interface that cannot, or
// is not to, use the UMEM in the mode in which its other sockets have it. Give
// that interface a UMEM of its own.
var ErrCannotShare = errors.New("the umem is used in a mode that is not the interface's")

// explain adds to the refusal of a queue what can be done about it.
func explain(ifindex, queue int, err error) error {
	name := interfaceName(ifindex)
	wrap := func(remedy string) error {
		return fmt.Errorf("open af_xdp socket on %s queue %d: %w; %s", name, queue, err, remedy)
	}
	switch {
	case errors.Is(err, unix.EBUSY):
		return wrap("another socket has the queue, perhaps of another process (ss --xdp shows it)")
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ERANGE):
		if n, ok := queueCount(name); ok && queue >= n {
			return fmt.Errorf("queue %d: %s has %s; use fewer queues or raise their number with ethtool -L %s combined N: %w", queue, name, queueRange(n), name, err)
		}
		return wrap("the kernel or driver does not accept this queue, ring size or frame size for AF_XDP")
	case errors.Is(err, unix.ENODEV):
		return wrap("there is no such interface in this network namespace")
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return wrap(capabilityRemedy(unix.CAP_NET_RAW, unix.CAP_NET_ADMIN))
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOBUFS):
		return wrap(memlockRemedy())
	case errors.Is(err, ErrCannotShare):
		return wrap("open a umem of its own for the interface, or use mode copy for all")
	case errors.Is(err, unix.EOPNOTSUPP):
		return wrap("the driver does not support this mode; use mode auto or copy")
	case errors.Is(err, unix.EAFNOSUPPORT):
		return wrap("the kernel is built without CONFIG_XDP_SOCKETS")
	}
	return fmt.Errorf("open af_xdp socket on %s queue %d: %w", name, queue, err)
}

func queueRange(n int) string {
	if n == 1 {
		return "1 queue (0)"
	}
	return fmt.Sprintf("%d queues (0–%d)", n, n-1)
}

// raiseMemlock lifts the soft limit on locked memory to the hard one. It is only
// an attempt: with CAP_IPC_LOCK the limit does not matter, and without it the
// kernel refuses the UMEM, which explain turns into a remedy.
func raiseMemlock() {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) == nil && l.Cur < l.Max {
		l.Cur = l.Max
		_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &l)
	}
}

// liftMemlock lifts the limit on locked memory, against which kernels before 5.11
// account maps.
func liftMemlock() error {
	err := rlimit.RemoveMemlock()
	if err == nil {
		return nil
	}
	// It finds out by making a map, which fails without the capability too.
	if len(missing(loadCapabilities...)) > 0 {
		return fmt.Errorf("make maps for the classifier: %w; %s", unix.EPERM, capabilityRemedy(loadCapabilities...))
	}
	return fmt.Errorf("lift the limit on locked memory for maps: %w; %s", err, memlockRemedy())
}

func memlockRemedy() string {
	const how = "grant CAP_IPC_LOCK, raise the limit on locked memory (ulimit -l, LimitMEMLOCK= in a systemd unit), or use fewer frames"
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) != nil || l.Cur == unix.RLIM_INFINITY {
		return how
	}
	return fmt.Sprintf("RLIMIT_MEMLOCK is %d KiB: %s", l.Cur>>10, how)
}

// interfaceName returns the name of an interface for messages.
func interfaceName(ifindex int) string {
	if i, err := net.InterfaceByIndex(ifindex); err == nil {
		return i.Name
	}
	return fmt.Sprintf("interface %d", ifindex)
}

// driverName returns the driver of an interface as ethtool -i shows it, or "".
func driverName(name string) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
	if err != nil {
		return ""
	}
	driver, _, _ := bytes.Cut(info.Driver[:], []byte{0})
	return string(driver)
}

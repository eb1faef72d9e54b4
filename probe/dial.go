package probe

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a TCP connection of a probe. It is an os.File around a
// non-blocking descriptor, so waiting goes through the runtime's poller and
// SetDeadline works, at half the cost of a net.Dialer: no context, no resolver
// types, no look-up of both addresses, and on a fast network no parking for
// the connect.
type socket struct {
	*os.File
	raw syscall.RawConn
	to  netip.AddrPort
}

// socketOptions are the properties of a check that its sockets need to know.
type socketOptions struct {
	// abort makes close send a reset (linger time 0). Otherwise every probe
	// would leave a connection in TIME_WAIT on this host, 600 000 of them at
	// 10 000 probes a second, and with few addresses to probe the local ports
	// would run out. The verdict is in by then, so whatever the backend
	// answers cannot count. Only a probe whose last act is to send must not do
	// so, since a reset overtakes data that was not read yet.
	abort bool
	// noDelay is for checks that send more than once: Nagle's algorithm would
	// hold the second part until the backend's delayed acknowledgement.
	noDelay bool
}

func (c *Check) socketOptions() socketOptions {
	return socketOptions{
		abort:   !c.Lingers(),
		noDelay: c.ProxyV1 || c.Type != TCP && c.Type != HTTP,
	}
}

// openSocket makes an unconnected socket for to and calls control on it if
// that is not nil.
func openSocket(to netip.AddrPort, opts socketOptions, control func(fd int) error) (*socket, error) {
	family := unix.AF_INET6
	if to.Addr().Unmap().Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err = opts.apply(fd); err == nil && control != nil {
		err = control(fd)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "")
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &socket{File: f, raw: raw, to: to}, nil
}

func (o socketOptions) apply(fd int) error {
	if o.abort {
		if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
			return os.NewSyscallError("setsockopt SO_LINGER", err)
		}
	}
	if o.noDelay {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return os.NewSyscallError("setsockopt TCP_NODELAY", err)
		}
	}
	return nil
}

// connect returns when the connection is up, has failed, or the deadline set
// on the socket has passed.
func (s *socket) connect() error {
	sa, err := sockaddr(s.to)
	if err != nil {
		return err
	}
	var result error
	started := false
	err = s.raw.Write(func(fd uintptr) (done bool) {
		if !started {
			started = true
			switch err := unix.Connect(int(fd), sa); err {
			case unix.EINPROGRESS, unix.EINTR:
			default:
				result = err
				return true
			}
		}
		// The poller may report a socket writable before it is connected: only
		// a peer address proves the connection.
		if _, err := unix.Getpeername(int(fd)); err == nil {
			return true
		}
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			result = err
		case code != 0:
			result = syscall.Errno(code)
		}
		return result != nil
	})
	if err != nil && s.connected() {
		return errNoticedLate
	}
	if err != nil {
		return err
	}
	return result
}

// errNoticedLate is the error of a connect that was completed by the kernel in
// time, but not noticed before the deadline.
var errNoticedLate = errors.New("up in time, but this host was too slow to notice")

func (s *socket) connected() (yes bool) {
	_ = s.raw.Control(func(fd uintptr) { // fails only on a closed socket
		_, err := unix.Getpeername(int(fd))
		yes = err == nil
	})
	return yes
}

// readable reports whether something has arrived that was not read yet.
func (s *socket) readable() (yes bool) {
	_ = s.raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		yes = err == nil && n == 1 && p[0].Revents&unix.POLLIN != 0
	})
	return yes
}

func sockaddr(to netip.AddrPort) (unix.Sockaddr, error) {
	addr := to.Addr().Unmap()
	if addr.Is4() {
		return &unix.SockaddrInet4{Port: int(to.Port()), Addr: addr.As4()}, nil
	}
	sa := &unix.SockaddrInet6{Port: int(to.Port()), Addr: addr.As16()}
	if zone := addr.Zone(); zone != "" {
		ifc, err := net.InterfaceByName(zone)
		if err != nil {
			return nil, err
		}
		sa.ZoneId = uint32(ifc.Index)
	}
	return sa, nil
}

// LocalAddr returns the address the kernel chose, as a *net.TCPAddr.
func (s *socket) LocalAddr() net.Addr {
	var local netip.AddrPort
	_ = s.raw.Control(func(fd uintptr) { // fails only on a closed socket
		switch sa, _ := unix.Getsockname(int(fd)); sa := sa.(type) {
		case *unix.SockaddrInet4:
			local = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
		case *unix.SockaddrInet6:
			local = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
		}
	})
	return net.TCPAddrFromAddrPort(local)
}

// RemoteAddr returns the address of the target, as a *net.TCPAddr.
func (s *socket) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(s.to) }

var _ net.Conn = (*socket)(nil)

// longAgo is a deadline that ends every operation at once.
var longAgo = time.Unix(1, 0)

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Client is a node that talks to the others. Its helpers make their sockets
// inside the namespace and return once there is an answer; they need no thread
// while they wait, so thousands may run at once.
type Client struct{ *Node }

// DialTCP opens a connection to an address. from pins the source: a zero
// address means the node's own of that family, port 0 any free port; an address
// must be one of the node's. The connection may be used from any goroutine.
func (c *Client) DialTCP(ctx context.Context, to, from netip.AddrPort) (*net.TCPConn, error) {
	conn, err := c.dial(ctx, unix.SOCK_STREAM, to, from)
	if err != nil {
		return nil, fmt.Errorf("dial tcp %s from %s: %w", to, c.name, err)
	}
	return conn.(*net.TCPConn), nil
}

// DialUDP connects a UDP socket to an address; from is as for DialTCP. ICMP
// errors come back as errors of Read and Write.
func (c *Client) DialUDP(ctx context.Context, to, from netip.AddrPort) (*net.UDPConn, error) {
	conn, err := c.dial(ctx, unix.SOCK_DGRAM, to, from)
	if err != nil {
		return nil, fmt.Errorf("dial udp %s from %s: %w", to, c.name, err)
	}
	return conn.(*net.UDPConn), nil
}

// dial makes, binds and starts to connect a socket inside the namespace, and
// waits for the connection outside.
func (c *Client) dial(ctx context.Context, kind int, to, from netip.AddrPort) (net.Conn, error) {
	if !from.Addr().IsValid() || from.Addr().IsUnspecified() {
		from = netip.AddrPortFrom(c.Addr(to.Addr()), from.Port())
	}
	if !from.Addr().IsValid() {
		return nil, errors.New("the client has no address of that family")
	}
	family := unix.AF_INET
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd := -1
	err := c.Exec(func() error {
		var err error
		fd, err = unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), c.ns.name+" socket") // owns fd; polls, because it is non-blocking
	defer file.Close()                                   // net.FileConn works on a copy
	// A port that an earlier connection left in TIME-WAIT may be pinned again.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return nil, fmt.Errorf("set option: %w", err)
	}
	if err := unix.Bind(fd, sockaddr(from)); err != nil {
		return nil, fmt.Errorf("bind to %s: %w", from, err)
	}
	if err := unix.Connect(fd, sockaddr(to)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return nil, err
	} else if err != nil {
		if err := connected(ctx, file); err != nil {
			return nil, err
		}
	}
	return net.FileConn(file)
}

// connected waits until a connection attempt has ended.
func connected(ctx context.Context, file *os.File) error {
	stop := context.AfterFunc(ctx, func() { file.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = conn.Write(func(fd uintptr) bool {
		// Without an error and without a peer it is still under way.
		if code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); err != nil || code != 0 {
			result = err
			if code != 0 {
				result = unix.Errno(code)
			}
			return true
		}
		_, err := unix.Getpeername(int(fd))
		return err == nil
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(err, result)
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}

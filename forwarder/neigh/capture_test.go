package neigh

import (
	"bytes"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// frameSeen is one captured frame and when it came.
type frameSeen struct {
	at   time.Time
	data []byte
}

// capture collects the frames that arrive at one interface.
type capture struct {
	mu     sync.Mutex
	frames []frameSeen // guarded by mu
}

func newCapture(t testing.TB, n *node, name string) *capture {
	t.Helper()
	index := n.link(name).Attrs().Index
	all := binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL & 0xff})
	var fd int
	n.must(inNamespace(n.ns, func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index})
	}))
	n.must(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20))
	n.must(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000}))
	c := &capture{}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 2048)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if length, _, err := unix.Recvfrom(fd, buf, 0); err == nil {
				c.mu.Lock()
				c.frames = append(c.frames, frameSeen{time.Now(), bytes.Clone(buf[:length])})
				c.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done; unix.Close(fd) })
	return c
}

// arpRequests returns the frames that ask for an IPv4 address (RFC 826), by
// address.
func (c *capture) arpRequests() map[[4]byte][]frameSeen {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := make(map[[4]byte][]frameSeen)
	for _, f := range c.frames {
		// EtherType ARP, operation 1; the target's address is at 14+24.
		if len(f.data) >= 42 && f.data[12] == 0x08 && f.data[13] == 0x06 && f.data[21] == 1 {
			addr := [4]byte(f.data[38:42])
			asked[addr] = append(asked[addr], f)
		}
	}
	return asked
}

// contains reports whether any IPv6 frame contains the bytes.
func (c *capture) contains(part []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.frames {
		if len(f.data) > 14 && f.data[12] == 0x86 && f.data[13] == 0xdd && bytes.Contains(f.data[14+40:], part) {
			return true
		}
	}
	return false
}

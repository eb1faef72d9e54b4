package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of one capture: a socket buffer for bursts, and what is kept in
// memory before further frames are counted and forgotten.
const (
	captureBuffer = 32 << 20
	captureFrames = 200_000
)

// Capture records the frames of one interface until Stop.
type Capture struct {
	name string
	file *os.File // the packet socket
	done sync.WaitGroup

	mu      sync.Mutex // guards what follows
	frames  []Frame
	dropped uint64
	more    chan struct{} // closed and replaced when frames arrive
}

// Capture records frames at an interface of the node. Frames that an XDP
// program takes do not show here, nor those that an AF_XDP socket sends; they
// do at the other end: see CapturePort.
func (n *Node) Capture(iface string) (*Capture, error) {
	return n.lab.capture(n.ns, iface, n.name+"-"+iface)
}

// CapturePort records frames at the switch's end of an interface: Out is what
// goes to the node, In is what comes from it, whatever the node uses to
// receive and send.
func (n *Node) CapturePort(iface string) (*Capture, error) {
	n.mu.Lock()
	i, err := n.find(iface)
	n.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return n.lab.capture(n.sw.ns, i.port, switchName+"-"+i.port)
}

// capture starts a capture and remembers it, so that Close of the lab ends it.
func (l *Lab) capture(ns *namespace, iface, name string) (*Capture, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errors.New("capture: the lab is closed")
	}
	c, err := newCapture(ns, iface, name)
	if err == nil {
		l.captures = append(l.captures, c)
	}
	return c, err
}

func newCapture(ns *namespace, iface, name string) (*Capture, error) {
	fd := -1
	err := ns.do(func() error {
		dev, err := net.InterfaceByName(iface)
		if err != nil {
			return err
		}
		// Protocol 0 receives nothing until it is bound to the interface.
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBuffer),
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: dev.Index}),
		)
	})
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, fmt.Errorf("capture at %s: %w", name, err)
	}
	c := &Capture{name: name, file: os.NewFile(uintptr(fd), name), more: make(chan struct{})}
	conn, err := c.file.SyscallConn()
	if err != nil {
		c.file.Close()
		return nil, fmt.Errorf("capture at %s: %w", name, err)
	}
	c.done.Go(func() {
		buf, oob := make([]byte, 1<<16+64), make([]byte, 256)
		// Ends when Stop closes the file.
		conn.Read(func(fd uintptr) bool {
			for c.receive(int(fd), buf, oob) {
			}
			return false
		})
	})
	return c, nil
}

// receive takes one frame off the socket; false means there is none now.
func (c *Capture) receive(fd int, buf, oob []byte) bool {
	n, oobn, _, from, err := unix.Recvmsg(fd, buf, oob, unix.MSG_DONTWAIT)
	if err != nil {
		return errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENETDOWN) // the link went down: told once
	}
	f := Frame{Time: time.Now()}
	if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
		f.Direction = Out
	}
	f.Data = withMetadata(&f, buf[:n], oob[:oobn])
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.frames) >= captureFrames {
		c.dropped++
		return true
	}
	c.frames = append(c.frames, f)
	close(c.more)
	c.more = make(chan struct{})
	return true
}

// Frames returns what was captured so far. The slice and its bytes are shared;
// treat them as read-only.
func (c *Capture) Frames() []Frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frames[:len(c.frames):len(c.frames)]
}

// Count counts the captured frames that match.
func (c *Capture) Count(match func(Frame) bool) int {
	n := 0
	for _, f := range c.Frames() {
		if match(f) {
			n++
		}
	}
	return n
}

// Wait returns the first captured frame that matches, waiting for it if it has
// not come yet.
func (c *Capture) Wait(ctx context.Context, match func(Frame) bool) (Frame, error) {
	ctx, cancel := withAnswerTime(ctx)
	defer cancel()
	for seen := 0; ; {
		c.mu.Lock()
		frames, more := c.frames, c.more
		c.mu.Unlock()
		for seen = min(seen, len(frames)); seen < len(frames); seen++ {
			if match(frames[seen]) {
				return frames[seen], nil
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return Frame{}, fmt.Errorf("capture at %s: no such frame among %d: %w", c.name, seen, ctx.Err())
		}
	}
}

// Clear forgets what was captured so far.
func (c *Capture) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frames = nil
}

// Dropped counts frames that are missing because they came faster than they
// were read, or were too many to keep.
func (c *Capture) Dropped() (uint64, error) {
	conn, err := c.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var stats *unix.TpacketStats
	var failure error
	err = conn.Control(func(fd uintptr) {
		stats, failure = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
	})
	if err := errors.Join(err, failure); err != nil {
		return 0, fmt.Errorf("capture at %s: read statistics: %w", c.name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped += uint64(stats.Drops) // the kernel starts again from 0 at each read
	return c.dropped, nil
}

// Stop ends the capture; the frames stay. Calling it again does nothing.
func (c *Capture) Stop() {
	c.file.Close()
	c.done.Wait()
}

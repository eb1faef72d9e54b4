package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
	"golang.org/x/sys/unix"
)

const captureSuffix = ".pcap"

// Limits of one capture: a socket buffer for bursts, and what is kept in
// memory before further frames are counted and forgotten.
const (
	captureBuffer = 32 << 20
	captureFrames = 200_000
)

// Direction of a frame as seen from the interface it was captured on.
type Direction uint8

const (
	In  Direction = iota // the interface received it
	Out                  // the interface sends it
)

func (d Direction) String() string {
	if d == Out {
		return "out"
	}
	return "in"
}

// Frame is one captured frame.
type Frame struct {
	Time      time.Time
	Direction Direction
	Data      []byte // Ethernet header to payload, VLAN tags in place, no FCS
}

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

// SaveCaptures writes every capture made so far into Dir and returns the
// paths, for a test that failed. Close then leaves Dir in place.
func (l *Lab) SaveCaptures() ([]string, error) {
	l.mu.Lock()
	captures := l.captures
	l.mu.Unlock()
	var paths []string
	for number, c := range captures {
		path := filepath.Join(l.dir, fmt.Sprintf("%d-%s%s", number, c.name, captureSuffix))
		if err := c.WriteFile(path); err != nil {
			return paths, err
		}
		paths = append(paths, path)
	}
	return paths, nil
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
	f.Data = c.withMetadata(&f, buf[:n], oob[:oobn])
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

// withMetadata copies the frame, with the VLAN tag back in that the kernel
// keeps beside it, and sets its time of arrival.
func (c *Capture) withMetadata(f *Frame, data, oob []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return append([]byte(nil), data...)
	}
	var tag []byte
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16:
			f.Time = time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		case m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= 20:
			// struct tpacket_auxdata of linux/if_packet.h
			status := binary.NativeEndian.Uint32(m.Data)
			if status&unix.TP_STATUS_VLAN_VALID == 0 {
				continue
			}
			tpid := uint16(unix.ETH_P_8021Q)
			if status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
				tpid = binary.NativeEndian.Uint16(m.Data[18:])
			}
			tag = binary.BigEndian.AppendUint16(nil, tpid)
			tag = binary.BigEndian.AppendUint16(tag, binary.NativeEndian.Uint16(m.Data[16:]))
		}
	}
	out := make([]byte, 0, len(data)+len(tag))
	at := min(12, len(data)) // after the addresses
	out = append(append(out, data[:at]...), tag...)
	return append(out, data[at:]...)
}

func htons(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
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

// WriteFile writes the frames as a pcap file that tcpdump and Wireshark read.
func (c *Capture) WriteFile(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write capture: %w", err)
	}
	w := pcapgo.NewWriterNanos(file)
	err = w.WriteFileHeader(1<<16, layers.LinkTypeEthernet)
	for _, f := range c.Frames() {
		if err != nil {
			break
		}
		err = w.WritePacket(gopacket.CaptureInfo{Timestamp: f.Time, CaptureLength: len(f.Data), Length: len(f.Data)}, f.Data)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write capture %s: %w", path, err)
	}
	return nil
}

package claim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"zonehop/forwarder/packet"
)

const (
	// burst bounds how many frames one Receive reads.
	burst = 64
	// maxFrame is the longest frame that is looked at whole: jumbo frames with
	// two tags. ARP is far shorter; a neighbour advertisement is as a rule.
	maxFrame = 9216 + ethernetLen + 2*tagLen
	// receiveBuffer is what the kernel keeps for us, some 300 frames of this
	// kind. It is its default, written down: a flood must not take more.
	receiveBuffer = 212992
	auxdataLen    = 20 // struct tpacket_auxdata of linux/if_packet.h
)

// Listener is a packet socket that gets a copy of the frames which the kernel
// takes in, on any interface, and which may claim one of the addresses it is
// told to look for. In native and in generic mode XDP decides first, so it sees
// what the classifier passes to the kernel.
type Listener struct {
	file *os.File
	conn syscall.RawConn
	buf  []byte // of Receive
	oob  []byte

	mu     sync.Mutex // guards missed
	missed uint64
}

// Listen opens a Listener for the addresses, in the network namespace of the
// calling thread. It needs CAP_NET_RAW.
func Listen(addrs []netip.Addr) (*Listener, error) {
	// Protocol 0 receives nothing until the filter is in place.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	if err := prepare(fd, addrs); err != nil {
		unix.Close(fd)
		return nil, err
	}
	l := &Listener{file: os.NewFile(uintptr(fd), "packet socket"), buf: make([]byte, maxFrame), oob: make([]byte, 128)}
	if l.conn, err = l.file.SyscallConn(); err != nil {
		l.file.Close()
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	return l, nil
}

// prepare sets a packet socket up and makes it receive.
func prepare(fd int, addrs []netip.Addr) error {
	set := func(what string, level, option, value int) error {
		if err := unix.SetsockoptInt(fd, level, option, value); err != nil {
			return fmt.Errorf("packet socket: %s: %w", what, err)
		}
		return nil
	}
	if err := errors.Join(
		set("set receive buffer", unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer/2), // the kernel doubles it
		set("ask for VLAN tags", unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		// Without it the kernel copies every frame that the host sends.
		set("leave out what this host sends", unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		attach(fd, addrs),
	); err != nil {
		return err
	}
	// All protocols: a frame is then seen where it comes in, before a bridge,
	// a VLAN or a bond takes it over.
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: hostToNet(unix.ETH_P_ALL)}); err != nil {
		return fmt.Errorf("packet socket: bind: %w", err)
	}
	return nil
}

// attach has the kernel filter for the addresses, instead of those before.
func attach(fd int, addrs []netip.Addr) error {
	raw, err := bpf.Assemble(program(addrs))
	if err != nil {
		return fmt.Errorf("packet socket: assemble filter: %w", err)
	}
	filters := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filters[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(filters)), Filter: &filters[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog); err != nil {
		return fmt.Errorf("packet socket: attach filter: %w", err)
	}
	return nil
}

// Look replaces the addresses that the Listener looks for.
func (l *Listener) Look(addrs []netip.Addr) error {
	var failure error
	if err := l.conn.Control(func(fd uintptr) { failure = attach(int(fd), addrs) }); err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	return failure
}

// Receive waits for frames and calls fn for the claims in them, of at most
// burst frames; more says that there may be further ones. port tells the port
// of an interface by its index; frames of those that are none (negative) are
// left alone. The error is that of a socket that is closed or broken.
func (l *Listener) Receive(port func(index int) int, fn func(Claim)) (more bool, err error) {
	var failure error
	read := 0
	err = l.conn.Read(func(fd uintptr) bool {
		for ; read < burst; read++ {
			n, oobn, _, from, err := unix.Recvmsg(int(fd), l.buf, l.oob, unix.MSG_DONTWAIT)
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.EAGAIN):
				return read > 0
			case err != nil:
				failure = err
				return true
			}
			if ll, ok := from.(*unix.SockaddrLinklayer); ok {
				if p := port(ll.Ifindex); p >= 0 {
					hear(withTag(l.buf[:n], l.oob[:oobn]), p, fn)
				}
			}
		}
		return true
	})
	if err = errors.Join(err, failure); err != nil {
		return false, fmt.Errorf("packet socket: receive: %w", err)
	}
	return read == burst, nil
}

// hear reads one frame.
func hear(frame []byte, port int, fn func(Claim)) {
	var p packet.Parsed
	if p.Parse(frame) != packet.OK {
		return
	}
	if c, ok := Of(frame, &p, port); ok {
		fn(c)
	}
}

// withTag puts the tag back into a frame that the kernel keeps beside it.
func withTag(frame, oob []byte) []byte {
	if len(frame) < addressesLen {
		return frame
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return frame
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA || len(m.Data) < auxdataLen {
			continue
		}
		status := binary.NativeEndian.Uint32(m.Data[0:])
		number, protocol := binary.NativeEndian.Uint16(m.Data[16:]), binary.NativeEndian.Uint16(m.Data[18:])
		if status&unix.TP_STATUS_VLAN_VALID == 0 {
			continue
		}
		if status&unix.TP_STATUS_VLAN_TPID_VALID == 0 {
			protocol = unix.ETH_P_8021Q
		}
		out := append(make([]byte, 0, len(frame)+tagLen), frame[:addressesLen]...)
		out = binary.BigEndian.AppendUint16(out, protocol)
		out = binary.BigEndian.AppendUint16(out, number)
		return append(out, frame[addressesLen:]...)
	}
	return frame
}

// Missed counts the frames that the socket lost because they came faster than
// they were read.
func (l *Listener) Missed() uint64 {
	var stats *unix.TpacketStats
	var failure error
	err := l.conn.Control(func(fd uintptr) {
		stats, failure = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && failure == nil {
		l.missed += uint64(stats.Drops) // the kernel starts again from 0 at each read
	}
	return l.missed
}

// Close ends a Receive that waits. Closing twice is fine.
func (l *Listener) Close() { _ = l.file.Close() }

func hostToNet(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

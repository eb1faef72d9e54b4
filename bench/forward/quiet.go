package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// quiet is what an application does when there is next to nothing to do.
type quiet struct {
	Mode string
	// Of a single packet after a pause: from the system call that sends it to
	// the kernel's time stamp on the way back, in microseconds. Both of the
	// sender's own ends, and two veth passages, are part of it.
	P50, P99 float64
	Packets  int
	Lost     int
	IdleCPU  float64 // share of one CPU of the whole process, without traffic
}

const (
	idlePause = 10 * time.Millisecond // between single packets
	idleTime  = 2 * time.Second       // over which idle CPU is taken
)

// quiet measures single packets and idle CPU.
func (b *bed) quiet(ctx context.Context, name string) (q quiet, err error) {
	app, err := b.start(name)
	if err != nil {
		return q, err
	}
	defer func() { err = errors.Join(err, app.stop()) }()
	q.Mode = app.Mode
	if err := pause(ctx, time.Second); err != nil { // start-up is not idling
		return q, err
	}
	before, err := app.all()
	if err != nil {
		return q, err
	}
	if err := pause(ctx, idleTime); err != nil {
		return q, err
	}
	after, err := app.all()
	if err != nil {
		return q, err
	}
	q.IdleCPU = (after.ran - before.ran).Seconds() / idleTime.Seconds()

	var took []time.Duration
	err = b.port.Exec(func() error {
		p, err := openProbe(b.port.Name, b.mac)
		if err != nil {
			return err
		}
		defer p.close()
		for n := range b.o.samples {
			if err := pause(ctx, idlePause); err != nil {
				return err
			}
			d, ok, err := p.roundTrip(uint16(n))
			if err != nil {
				return err
			}
			if ok {
				took = append(took, d)
			}
		}
		return nil
	})
	if err != nil {
		return q, err
	}
	if len(took) == 0 {
		return q, errors.New("no single packet came back")
	}
	slices.Sort(took)
	at := func(share float64) float64 {
		return float64(took[int(share*float64(len(took)-1))].Nanoseconds()) / 1e3
	}
	q.P50, q.P99, q.Packets, q.Lost = at(0.5), at(0.99), len(took), b.o.samples-len(took)
	return q, nil
}

// probe sends single frames out of the switch's port and waits for them.
type probe struct {
	fd      int
	frame   []byte
	mac     net.HardwareAddr
	buf     [2048]byte
	control [256]byte
}

// openProbe must be called inside the port's namespace.
func openProbe(name string, mac net.HardwareAddr) (*probe, error) {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	p := &probe{fd: fd, mac: mac, frame: probeFrame(mac)}
	err = errors.Join(
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: dev.Index}),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000}),
	)
	if err != nil {
		p.close()
		return nil, fmt.Errorf("prepare packet socket: %w", err)
	}
	return p, nil
}

func (p *probe) close() { unix.Close(p.fd) }

// htons is in network byte order.
func htons(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// probeFrame is UDP from a client to the rule's address.
func probeFrame(mac net.HardwareAddr) []byte {
	f := make([]byte, 60)
	copy(f, mac)
	copy(f[6:], generatorMAC)
	copy(f[12:], []byte{8, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, unix.IPPROTO_UDP})
	copy(f[26:], firstClient.AsSlice())
	copy(f[30:], vip.Addr().AsSlice())
	binary.BigEndian.PutUint16(f[36:], vip.Port())
	binary.BigEndian.PutUint16(f[38:], 26)
	sum := uint32(0)
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(f[24:], ^uint16(sum>>16+sum&0xffff))
	return f
}

// roundTrip sends one frame, of a source port of its own, and waits for it.
func (p *probe) roundTrip(n uint16) (time.Duration, bool, error) {
	binary.BigEndian.PutUint16(p.frame[34:], 20000+n)
	sent := time.Now()
	if _, err := unix.Write(p.fd, p.frame); err != nil {
		return 0, false, fmt.Errorf("send frame: %w", err)
	}
	for {
		got, controlLen, _, from, err := unix.Recvmsg(p.fd, p.buf[:], p.control[:], 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return 0, false, nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, false, fmt.Errorf("receive frame: %w", err)
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); !ok || ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		f := p.buf[:got]
		if len(f) < 42 || net.HardwareAddr(f[6:12]).String() != p.mac.String() || [4]byte(f[34:38]) != [4]byte(p.frame[34:38]) {
			continue
		}
		at, err := stamp(p.control[:controlLen])
		return at.Sub(sent), err == nil, err
	}
}

// stamp is when the kernel received a packet.
func stamp(control []byte) (time.Time, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Time{}, fmt.Errorf("read time stamp: %w", err)
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:]))), nil
		}
	}
	return time.Time{}, errors.New("a packet without time stamp")
}

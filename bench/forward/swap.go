package main

import (
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"zonehop/forwarder/xsk"
)

const (
	batch   = 64
	maxSpin = 32 // empty passes before sleeping, as the worker's
)

// swapper sends each frame back with its MAC addresses swapped. It differs
// from the worker only in what it does with a frame: memory, socket, program,
// batch and the way to idle are the same.
type swapper struct {
	dev     *net.Interface
	umem    *xsk.UMEM
	socket  *xsk.Socket
	program *xsk.Program
	rx      [batch]xsk.Desc
	spin    int
	count   counts
}

func startSwap(dev *net.Interface) (application, error) {
	s := &swapper{dev: dev}
	return startLoop(s.open, s.pass, s.read, s.end)
}

func (s *swapper) open() (mode string, err error) {
	if s.umem, s.socket, err = xsk.OpenPrimary(s.dev.Index, 0, xsk.DefaultConfig()); err != nil {
		return "", err
	}
	if s.program, err = xsk.Attach(s.dev.Index, xsk.Native); err != nil {
		return "", err
	}
	return s.socket.Mode().String(), errors.Join(
		s.program.SetMAC([6]byte(s.dev.HardwareAddr)),
		s.program.SetRuleAddresses([]netip.Addr{vip.Addr()}),
		s.program.SetSocket(0, s.socket.FD()),
	)
}

func (s *swapper) pass() error {
	s.socket.Complete()
	n := s.socket.Receive(s.rx[:min(batch, s.socket.TXFree())])
	for _, d := range s.rx[:n] {
		swapMACs(s.umem.Frame(d))
	}
	s.count.Received += uint64(n)
	s.count.Transmitted += uint64(s.socket.Transmit(s.rx[:n]))
	s.socket.Kick()
	s.socket.Fill()
	switch {
	case n >= batch/2:
		s.spin = maxSpin
	case n == 0 && s.spin > 0:
		s.spin--
	case n == 0:
		timeout := 100
		if s.socket.Census().TX > 0 {
			timeout = 2
		}
		// Interrupted at worst; the next pass finds out what there is.
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(s.socket.FD()), Events: unix.POLLIN}}, timeout)
	}
	return nil
}

func (s *swapper) read() counts {
	st, _ := s.socket.Stats() // without the kernel's part, frames show as lost
	c := s.count
	c.Missed, c.Calls = st.RXDropped+st.RXRingFull, st.Kicks+st.Wakes
	return c
}

func (s *swapper) end() error {
	err := errors.Join(s.program.Close(), s.socket.Close())
	s.umem.Reclaim(s.socket)
	return errors.Join(err, s.umem.Close())
}

func swapMACs(f []byte) {
	if len(f) < 12 {
		return
	}
	dst, src := [6]byte(f[:6]), [6]byte(f[6:12])
	copy(f, src[:])
	copy(f[6:], dst[:])
}

package main

import (
	"errors"
	"net"

	"github.com/asavie/xdp"
)

// library is the forwarding loop of the library's documentation, with its
// default options: fill, poll, receive, change the frames, transmit. Of it are
// only the counters and the end.
type library struct {
	dev     *net.Interface
	program *xdp.Program
	socket  *xdp.Socket
	count   counts
}

func startLibrary(dev *net.Interface) (application, error) {
	l := &library{dev: dev}
	return startLoop(l.open, l.pass, l.read, l.end)
}

func (l *library) open() (mode string, err error) {
	if l.program, err = xdp.NewProgram(1); err != nil {
		return "", err
	}
	if err := l.program.Attach(l.dev.Index); err != nil {
		return "", err
	}
	if l.socket, err = xdp.NewSocket(l.dev.Index, 0, nil); err != nil {
		return "", err
	}
	return "library default", l.program.Register(0, l.socket.FD())
}

func (l *library) pass() error {
	if n := l.socket.NumFreeFillSlots(); n > 0 {
		l.socket.Fill(l.socket.GetDescs(n))
	}
	received, _, err := l.socket.Poll(100) // milliseconds; the documentation waits for ever
	if err != nil || received == 0 {
		return err
	}
	descs := l.socket.Receive(received)
	for _, d := range descs {
		swapMACs(l.socket.GetFrame(d))
	}
	l.count.Received += uint64(len(descs))
	l.count.Transmitted += uint64(l.socket.Transmit(descs))
	l.count.Calls++
	return nil
}

func (l *library) read() counts {
	c := l.count
	if st, err := l.socket.Stats(); err == nil {
		c.Missed = st.KernelStats.Rx_dropped + st.KernelStats.Rx_ring_full
	}
	return c
}

// end leaves the rings to the end of the process: the library never unmaps them.
func (l *library) end() error {
	return errors.Join(l.program.Detach(l.dev.Index), l.socket.Close(), l.program.Close())
}

package neigh

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	// receiveBufferLen bounds the events the kernel holds for us: some 5000
	// neighbour events of about 800 bytes of socket memory each.
	receiveBufferLen = 4 << 20
	// resubscribeDelay is the pause before a failed event socket is opened
	// again a second time in a row.
	resubscribeDelay = time.Second
)

// eventGroups are the rtnetlink multicast groups whose events can change a View.
var eventGroups = []uint{
	unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
	unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
	unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
	unix.RTNLGRP_NEXTHOP,
}

// update is what the reader hands to Run.
type update struct {
	messages []syscall.NetlinkMessage
	// lost is true when events may be missing before this point, so that
	// everything has to be read again.
	lost bool
}

// subscription reads rtnetlink events on a goroutine of its own and survives
// the loss of its socket. close ends it and waits.
type subscription struct {
	namespace netns.NsHandle
	bufferLen int
	updates   chan update
	stop      chan struct{} // closed by close
	done      chan struct{} // closed when the reader has ended

	mu     sync.Mutex
	socket *nl.NetlinkSocket // guarded by mu
	closed bool              // guarded by mu
}

// subscribe opens the event socket in ns. Events are collected by the kernel
// from here on; start begins to read them.
func subscribe(ns netns.NsHandle, bufferLen int) (*subscription, error) {
	s := &subscription{
		namespace: ns,
		bufferLen: bufferLen,
		updates:   make(chan update, 64),
		stop:      make(chan struct{}),
		done:      make(chan struct{}),
	}
	if err := s.open(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *subscription) open() error {
	var socket *nl.NetlinkSocket
	err := inNamespace(s.namespace, func() (err error) {
		socket, err = nl.Subscribe(unix.NETLINK_ROUTE, eventGroups...)
		return err
	})
	if err != nil {
		return fmt.Errorf("subscribe to rtnetlink events: %w", err)
	}
	// Without CAP_NET_ADMIN the size is capped by net.core.rmem_max. A small
	// buffer overruns sooner, which is handled, so it is no error.
	if socket.SetReceiveBufferSize(s.bufferLen, true) != nil {
		_ = socket.SetReceiveBufferSize(s.bufferLen, false)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		socket.Close()
		return unix.EBADF
	}
	s.socket = socket
	return nil
}

func (s *subscription) start() { go s.read() }

// close ends the reader and waits for it; the reader must have been started.
func (s *subscription) close() {
	s.discard()
	<-s.done
}

// discard closes the socket without waiting for a reader.
func (s *subscription) discard() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.stop)
		if s.socket != nil {
			s.socket.Close()
		}
	}
	s.mu.Unlock()
}

func (s *subscription) read() {
	defer close(s.done)
	for {
		if !s.receive() {
			return
		}
		for delay := time.Duration(0); s.open() != nil; delay = resubscribeDelay {
			select {
			case <-s.stop:
				return
			case <-time.After(delay):
			}
		}
		if !s.deliver(update{lost: true}) {
			return
		}
	}
}

// receive passes events on until the socket fails, and closes it. It reports
// whether to go on with a new one.
func (s *subscription) receive() bool {
	s.mu.Lock()
	socket := s.socket
	s.mu.Unlock()
	for {
		messages, from, err := socket.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS):
			// netlink(7): the socket overran. It works on, with a gap.
			if !s.deliver(update{lost: true}) {
				return false
			}
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		case err != nil:
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.closed {
				return false
			}
			socket.Close()
			s.socket = nil
			return true
		case from.Pid != nl.PidKernel:
			// Any process may send to our address; only the kernel is believed.
		default:
			if !s.deliver(update{messages: messages}) {
				return false
			}
		}
	}
}

func (s *subscription) deliver(u update) bool {
	select {
	case s.updates <- u:
		return true
	case <-s.stop:
		return false
	}
}

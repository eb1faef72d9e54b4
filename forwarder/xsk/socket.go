package xsk

import (
	"sync"
	"sync/atomic"
	"syscall"
)

// Socket is one queue of one interface on a UMEM. Its data-path methods belong
// to the worker that owns the UMEM.
type Socket struct {
	umem *UMEM
	rx   consumer[Desc]
	tx   producer[Desc]
	fill producer[uint64]
	done consumer[uint64] // completion ring

	fillOwned int    // chunks with the fill side, those on the RX ring included
	txOwned   int    // chunks with the transmit side, never more than the TX ring's size
	completed uint64 // frames taken back from the completion ring since Bind

	fd      int
	slot    int
	copies  bool // the kernel copies: nothing is sent without a system call
	ifindex int
	queue   int
	cfg     Config
	count   counters

	// The two system calls of the data path; a test puts its own kernel here.
	kickTX func(fd int) syscall.Errno
	kickRX func(fd int) syscall.Errno

	// Set by whoever opens and closes the socket.
	mode    Mode
	reason  string
	prefill []uint64 // fill ring contents to be, between Reserve and Bind
	release func() error

	mu   sync.Mutex // guards open against Close beside Stats
	open bool
}

func newSocket(u *UMEM, slot, ifindex, queue int, cfg Config) *Socket {
	return &Socket{
		umem: u, slot: slot, ifindex: ifindex, queue: queue, cfg: cfg, fd: -1,
		kickTX: sendtoNothing, kickRX: recvfromNothing,
	}
}

// Interface is the index of the interface the socket was made for.
func (s *Socket) Interface() int { return s.ifindex }

// Queue is the number of the queue the socket was made for.
func (s *Socket) Queue() int { return s.queue }

// Mode is the mode the kernel granted, ModeZeroCopy or ModeCopy; valid once bound.
func (s *Socket) Mode() Mode { return s.mode }

// ModeReason says why zero-copy was not obtained; empty if it was, or if copy
// was asked for.
func (s *Socket) ModeReason() string { return s.reason }

// FD is the file descriptor, for poll(2) and the XDP program's socket map; -1
// before Bind and after Close. Not to be called beside either.
func (s *Socket) FD() int { return s.fd }

// Receive takes up to len(d) received frames off the RX ring and returns how
// many it wrote to d. They then belong to the worker.
func (s *Socket) Receive(d []Desc) int {
	n := s.rx.ready(len(d))
	if n == 0 {
		return 0
	}
	u, from := s.umem, fillOwner(s.slot)
	got, owned := 0, 0
	for range n {
		v := s.rx.pop()
		if !u.move(v.Addr, from, ownerWorker) {
			s.count.invalidRX.Add(1)
			continue
		}
		owned++
		if v.Options != 0 || !u.contains(v) {
			s.count.invalidRX.Add(1)
			u.Free(v.Addr)
			continue
		}
		d[got] = v
		got++
	}
	s.rx.release()
	s.fillOwned -= owned
	return got
}

// TXFree is the number of frames Transmit would accept now. Frames count until
// they are completed, so that the completion ring always has room for all.
func (s *Socket) TXFree() int {
	return s.tx.room(len(s.tx.slots) - s.txOwned)
}

// Transmit puts frames the worker owns on the TX ring and returns how many of d,
// from its start, it dealt with; the rest found no room and stay with the worker.
// Nothing is sent before Kick. A descriptor the kernel would refuse is not put on
// the ring but counted (Stats.InvalidTX), and its chunk is freed.
func (s *Socket) Transmit(d []Desc) int {
	n := s.tx.room(min(len(d), len(s.tx.slots)-s.txOwned))
	if n == 0 {
		return 0
	}
	u, to := s.umem, txOwner(s.slot)
	put := 0
	for _, v := range d[:n] {
		if v.Options != 0 || !u.contains(v) {
			s.count.invalidTX.Add(1)
			u.Free(v.Addr)
			continue
		}
		if !u.move(v.Addr, ownerWorker, to) {
			s.count.invalidTX.Add(1)
			continue
		}
		s.tx.push(v)
		put++
	}
	s.tx.publish()
	s.txOwned += put
	return n
}

// Complete moves frames that were sent to the UMEM's free stack and returns how many.
func (s *Socket) Complete() int {
	n := s.done.ready(len(s.done.slots))
	if n == 0 {
		return 0
	}
	u, from := s.umem, txOwner(s.slot)
	freed := 0
	for range n {
		addr := s.done.pop()
		if !u.move(addr, from, ownerFree) {
			s.count.invalidCompletion.Add(1)
			continue
		}
		u.give(uint32(addr >> u.shift))
		freed++
	}
	s.done.release()
	s.txOwned -= freed
	s.completed += uint64(freed)
	return freed
}

// Fill tops the fill ring up from the UMEM's free stack and wakes the receive
// side if the kernel asks for it.
func (s *Socket) Fill() {
	u, to := s.umem, fillOwner(s.slot)
	n := min(s.fill.room(len(s.fill.slots)), len(u.free))
	for range n {
		chunk, _ := u.take(to)
		s.fill.push(uint64(chunk) << u.shift)
	}
	if n > 0 {
		s.fill.publish()
		s.fillOwned += n
	}
	s.wakeRX(false)
}

// TXPending returns how many frames wait for completion and how many were
// completed since Bind. A worker that sees pending > 0 and no growth of completed
// for some time kicks again, and at last closes the socket and binds a new one.
func (s *Socket) TXPending() (pending int, completed uint64) { return s.txOwned, s.completed }

// Census says where the frames of a socket are.
type Census struct {
	Fill int // with the kernel for reception
	RX   int // received, not yet taken by Receive
	TX   int // transmitted, not yet taken back by Complete
}

// Census counts the frames of the socket; it belongs to the worker.
func (s *Socket) Census() Census {
	rx := 0
	if s.rx.slots != nil {
		rx = s.rx.occupied()
	}
	return Census{Fill: s.fillOwned - rx, RX: rx, TX: s.txOwned}
}

// counters are written by the worker and read by anyone. All of them change at
// most once per batch, except in the presence of faults.
type counters struct {
	kicks, kicksSaved           atomic.Uint64
	wakes, wakesSaved           atomic.Uint64
	again, busy, noBufs         atomic.Uint64
	netDown, interrupted, other atomic.Uint64
	lastOther                   atomic.Uint32
	invalidRX, invalidTX        atomic.Uint64
	invalidCompletion           atomic.Uint64
}

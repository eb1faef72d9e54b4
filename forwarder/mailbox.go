package forwarder

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"zonehop/selector"
)

// mailboxSlots is the number of frames a mailbox holds. With 2 KiB frames one
// takes 512 KiB per worker.
const mailboxSlots = 256

// Mailbox hands frames by copy to the worker that owns the queue they leave
// by: from workers that cannot share memory with it, and from the control side
// (announcements). Any number of goroutines may put, only the owner takes;
// nobody waits.
//
// It is a bounded multi-producer queue with a sequence number per slot: a slot
// is free for the put of turn t when its number is t, and holds a letter for
// the take of turn t when it is t+1.
type Mailbox struct {
	slots []letter
	tail  atomic.Uint64 // next turn to put
	_     [120]byte     // the producers' line and the owner's are apart
	head  uint64        // next turn to take; the owner's

	sleeping atomic.Bool // the owner is, or is about to be, in poll(2)
	eventFD  int
}

// letter is one frame on its way to a worker.
type letter struct {
	turn   atomic.Uint64
	iface  int    // where it leaves
	length uint32 // bytes in data
	// What to count once it is accepted on the TX ring: a forwarded pair of
	// this layout, or, without a layout, a frame of this origin.
	layout *selector.Layout
	pair   uint32
	origin OriginKind
	data   []byte
}

// newMailbox makes a mailbox for frames of at most frameSize bytes.
func newMailbox(frameSize int) (*Mailbox, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	m := &Mailbox{slots: make([]letter, mailboxSlots), eventFD: fd}
	backing := make([]byte, mailboxSlots*frameSize)
	for i := range m.slots {
		m.slots[i].turn.Store(uint64(i))
		m.slots[i].data = backing[i*frameSize : (i+1)*frameSize : (i+1)*frameSize]
	}
	return m, nil
}

// put copies a frame into the mailbox. False: it is full, or the frame is
// longer than a slot; nothing was kept.
func (m *Mailbox) put(frame []byte, iface int, layout *selector.Layout, pair uint32, origin OriginKind) bool {
	for {
		turn := m.tail.Load()
		s := &m.slots[turn%mailboxSlots]
		switch seq := s.turn.Load(); {
		case seq == turn:
			if len(frame) > len(s.data) {
				return false
			}
			if !m.tail.CompareAndSwap(turn, turn+1) {
				continue
			}
			copy(s.data, frame)
			s.length, s.iface = uint32(len(frame)), iface
			s.layout, s.pair, s.origin = layout, pair, origin
			s.turn.Store(turn + 1)
			m.wake()
			return true
		case seq < turn:
			return false
		}
	}
}

// take calls fn for each waiting letter, at most limit of them. The letter and
// its data are valid during the call.
func (m *Mailbox) take(limit int, fn func(*letter)) (n int) {
	for n < limit {
		s := &m.slots[m.head%mailboxSlots]
		if s.turn.Load() != m.head+1 {
			break
		}
		fn(s)
		s.layout = nil
		s.turn.Store(m.head + mailboxSlots)
		m.head++
		n++
	}
	return n
}

// empty reports whether nothing waits. Only the owner may ask.
func (m *Mailbox) empty() bool {
	return m.slots[m.head%mailboxSlots].turn.Load() != m.head+1
}

// wake ends the owner's sleep, if it sleeps.
func (m *Mailbox) wake() {
	if m.sleeping.Swap(false) {
		one := [8]byte{1}
		_, _ = unix.Write(m.eventFD, one[:]) // EAGAIN: already pending
	}
}

// drainEvents clears the event descriptor after a wake-up.
func (m *Mailbox) drainEvents() {
	var b [8]byte
	_, _ = unix.Read(m.eventFD, b[:]) // EAGAIN: nothing pending
}

// close releases the event descriptor.
func (m *Mailbox) close() { _ = unix.Close(m.eventFD) }

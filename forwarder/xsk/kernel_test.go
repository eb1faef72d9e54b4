package xsk

import (
	"encoding/binary"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fakeKernel plays the kernel's side of one socket over rings in plain memory.
type fakeKernel struct {
	rx   producer[Desc]
	tx   consumer[Desc]
	fill consumer[uint64]
	done producer[uint64]

	umem   []byte
	pool   []uint64 // taken off the fill ring, not yet received into
	flight []Desc   // taken off the TX ring, not yet completed
	sent   [][]byte // contents of frames at the moment they were taken

	down   bool
	budget int           // frames per kick
	refuse syscall.Errno // what the next kick answers without doing anything
}

// heapRing is memory for one ring, laid out unlike the kernel's on purpose.
func heapRing[T slot](t testing.TB, n int) ringMemory[T] {
	t.Helper()
	off := unix.XDPRingOffset{Producer: 128, Consumer: 0, Flags: 64, Desc: 192}
	words := make([]uint64, (ringBytes[T](off, n)+7)/8)
	mem := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
	m, err := ringAt[T](mem, off, n)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// heapUMEM is a UMEM in plain memory.
func heapUMEM(t testing.TB, cfg Config) *UMEM {
	t.Helper()
	u, err := newUMEM(make([]byte, cfg.Frames*cfg.FrameSize), cfg, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// joinFake reserves a socket and binds it to a fake kernel.
func joinFake(t testing.TB, u *UMEM, ifindex, queue int) (*Socket, *fakeKernel) {
	t.Helper()
	s, err := u.Reserve(ifindex, queue, u.cfg)
	if err != nil {
		t.Fatal(err)
	}
	k := &fakeKernel{umem: u.area, budget: s.cfg.Batch}
	s.rx.ringMemory, s.tx.ringMemory = heapRing[Desc](t, s.cfg.RX), heapRing[Desc](t, s.cfg.TX)
	s.fill.ringMemory, s.done.ringMemory = heapRing[uint64](t, s.cfg.Fill), heapRing[uint64](t, s.cfg.TX)
	k.rx.ringMemory, k.tx.ringMemory = s.rx.ringMemory, s.tx.ringMemory
	k.fill.ringMemory, k.done.ringMemory = s.fill.ringMemory, s.done.ringMemory
	// Start close to the indices' overflow, which must not matter.
	const start = ^uint32(0) - 5
	for _, p := range []*uint32{s.rx.producer, s.rx.consumer, s.tx.producer, s.tx.ringMemory.consumer,
		s.fill.producer, s.fill.ringMemory.consumer, s.done.producer, s.done.consumer} {
		*p = start
	}
	s.rx.next, s.rx.seen, s.tx.next, s.tx.seen = start, start, start, start
	s.fill.next, s.fill.seen, s.done.next, s.done.seen = start, start, start, start
	k.rx.next, k.rx.seen, k.tx.next, k.tx.seen = start, start, start, start
	k.fill.next, k.fill.seen, k.done.next, k.done.seen = start, start, start, start
	for _, a := range s.prefill {
		s.fill.push(a)
	}
	s.fill.publish()
	s.prefill = nil
	s.copies = true
	s.kickTX = func(int) syscall.Errno { return k.transmit() }
	s.kickRX = func(int) syscall.Errno { return 0 }
	return s, k
}

// receive puts up to n frames on the RX ring, each with a number inside, and
// returns how many found a chunk and a slot.
func (k *fakeKernel) receive(n int, id func() uint64) int {
	if k.down {
		return 0
	}
	got := 0
	for ; got < n; got++ {
		if len(k.pool) == 0 {
			if k.fill.ready(1) == 0 {
				break
			}
			k.pool = append(k.pool, k.fill.pop())
			k.fill.release()
		}
		if k.rx.room(1) == 0 { // ring full: the chunk stays in the pool
			break
		}
		d := Desc{Addr: k.pool[len(k.pool)-1] + Headroom, Len: 64}
		k.pool = k.pool[:len(k.pool)-1]
		binary.BigEndian.PutUint64(k.umem[d.Addr:], id())
		k.rx.push(d)
		k.rx.publish()
	}
	return got
}

// transmit is one kick.
func (k *fakeKernel) transmit() syscall.Errno {
	if e := k.refuse; e != 0 {
		k.refuse = 0
		return e
	}
	if k.down {
		return unix.ENETDOWN
	}
	n := k.tx.ready(k.budget + 1)
	for range min(n, k.budget) {
		d := k.tx.pop()
		k.flight = append(k.flight, d)
		k.sent = append(k.sent, append([]byte(nil), k.umem[d.Addr:d.Addr+uint64(d.Len)]...))
	}
	k.tx.release()
	if n > k.budget {
		return unix.EAGAIN
	}
	return 0
}

// complete finishes the i-th frame in flight.
func (k *fakeKernel) complete(i int) bool {
	if k.done.room(1) == 0 {
		return false
	}
	k.done.push(k.flight[i].Addr)
	k.done.publish()
	k.flight[i] = k.flight[len(k.flight)-1]
	k.flight = k.flight[:len(k.flight)-1]
	return true
}

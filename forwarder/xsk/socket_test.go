package xsk

import (
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestKickObeysTheFlag(t *testing.T) {
	u := heapUMEM(t, smallConfig())
	s, k := joinFake(t, u, 1, 0)
	s.copies = false // zero-copy: the driver may be polling the ring by itself
	put := func() {
		addr, _ := u.Alloc()
		s.Transmit([]Desc{{Addr: addr, Len: 60}})
	}
	put()
	s.Kick()
	if len(k.flight) != 0 || s.count.kicksSaved.Load() != 1 {
		t.Errorf("kicked although the flag is clear: %d in flight, %d saved", len(k.flight), s.count.kicksSaved.Load())
	}
	atomic.StoreUint32(s.tx.flags, ringNeedWakeup)
	s.Kick()
	if len(k.flight) != 1 || s.count.kicks.Load() != 1 {
		t.Errorf("not kicked although the flag is set: %d in flight", len(k.flight))
	}
	s.Kick()
	if s.count.kicks.Load() != 1 {
		t.Error("kicked with nothing on the ring")
	}
	wakes := s.count.wakes.Load()
	s.Fill()
	if s.count.wakes.Load() != wakes {
		t.Error("woke the receive side although the flag is clear")
	}
	atomic.StoreUint32(s.fill.flags, ringNeedWakeup)
	s.Fill()
	if s.count.wakes.Load() != wakes+1 {
		t.Error("did not wake the receive side although the flag is set")
	}
}

// allocate takes n frames for the worker.
func allocate(t testing.TB, u *UMEM, n int) (d []Desc) {
	t.Helper()
	for range n {
		addr, ok := u.Alloc()
		if !ok {
			t.Fatal("no free frame")
		}
		d = append(d, Desc{Addr: addr, Len: 60})
	}
	return d
}

// In copy mode a kick sends a budget of frames: Kick goes on as long as that
// helps, and stops when it does not.
func TestKickEmptiesTheRing(t *testing.T) {
	u := heapUMEM(t, smallConfig())
	s, k := joinFake(t, u, 1, 0)
	k.budget = 7
	s.Transmit(allocate(t, u, 50))
	s.Kick()
	if got, st := s.unsent(), s.count.kicks.Load(); got != 0 || st != 8 || s.count.again.Load() != 7 {
		t.Errorf("%d unsent after %d kicks and %d times EAGAIN, want 0 after 8 and 7", got, st, s.count.again.Load())
	}
	s.Transmit(allocate(t, u, 5))
	k.budget = 0 // EAGAIN without progress
	s.Kick()
	if got := s.count.kicks.Load(); got != 9 || s.unsent() != 5 {
		t.Errorf("%d kicks and %d unsent without progress, want 9 and 5", got, s.unsent())
	}
}

func TestKickErrorsAreFiled(t *testing.T) {
	u := heapUMEM(t, smallConfig())
	s, k := joinFake(t, u, 1, 0)
	s.Transmit(allocate(t, u, 1))
	for _, e := range []syscall.Errno{unix.EAGAIN, unix.EBUSY, unix.EBUSY, unix.ENOBUFS, unix.ENETDOWN, unix.EINTR, unix.EIO, unix.ENXIO} {
		k.refuse = e
		s.Kick()
	}
	st, err := s.Stats()
	want := KickErrors{Again: 1, Busy: 2, NoBufs: 1, NetDown: 1, Interrupted: 1, Other: 2, LastOther: unix.ENXIO}
	if err != nil || st.KickErrors != want {
		t.Errorf("kick errors %+v, %v; want %+v", st.KickErrors, err, want)
	}
	if s.Kick(); s.unsent() != 0 {
		t.Error("the frame is still on the ring after a good kick")
	}
}

// Frames count against the TX ring until they are completed, so the completion
// ring cannot overflow.
func TestTransmitIsBoundedByCompletions(t *testing.T) {
	u := heapUMEM(t, smallConfig())
	s, k := joinFake(t, u, 1, 0)
	size := s.cfg.TX
	d := allocate(t, u, size+10)
	if n := s.Transmit(d); n != size {
		t.Fatalf("Transmit of %d = %d, want the ring's %d", len(d), n, size)
	}
	s.Kick()
	if free, n := s.TXFree(), s.Transmit(d[size:]); free != 0 || n != 0 {
		t.Fatalf("with all in flight TXFree = %d, Transmit = %d; want 0, 0", free, n)
	}
	for range 3 {
		k.complete(0)
	}
	if n := s.Complete(); n != 3 {
		t.Fatalf("Complete = %d, want 3", n)
	}
	if free, n := s.TXFree(), s.Transmit(d[size:]); free != 3 || n != 3 {
		t.Fatalf("after 3 completions TXFree = %d, Transmit = %d; want 3, 3", free, n)
	}
}

// What the kernel would refuse never reaches the TX ring, where its chunk would
// be lost: the chunk is freed and the descriptor counted.
func TestBadDescriptors(t *testing.T) {
	for _, tt := range []struct {
		name string
		bad  func(Desc) Desc
	}{
		{"empty", func(d Desc) Desc { d.Len = 0; return d }},
		{"over the chunk's end", func(d Desc) Desc { d.Len = 2048 - Headroom + 1; return d }},
		{"huge", func(d Desc) Desc { d.Len = ^uint32(0); return d }},
		{"options", func(d Desc) Desc { d.Options = unix.XDP_PKT_CONTD; return d }},
	} {
		u := heapUMEM(t, smallConfig())
		s, k := joinFake(t, u, 1, 0)
		d := allocate(t, u, 3)
		d[1] = tt.bad(d[1])
		free := len(u.free)
		if n := s.Transmit(d); n != 3 || s.count.invalidTX.Load() != 1 || s.txOwned != 2 || len(u.free) != free+1 {
			t.Errorf("%s: Transmit = %d, %d invalid, %d on their way, %d freed; want 3, 1, 2, 1",
				tt.name, n, s.count.invalidTX.Load(), s.txOwned, len(u.free)-free)
		}

		// The same from the kernel.
		fill := s.fillOwned
		k.receive(1, func() uint64 { return 1 })
		k.rx.slots[(k.rx.next-1)&uint32(len(k.rx.slots)-1)] = tt.bad(contents(&k.rx.ringMemory)[0])
		if n := s.Receive(make([]Desc, 4)); n != 0 || s.count.invalidRX.Load() != 1 || s.fillOwned != fill-1 {
			t.Errorf("%s: Receive = %d, %d invalid; want 0, 1", tt.name, n, s.count.invalidRX.Load())
		}
		if c := u.Census(); c.Worker != 0 || c.Misuse != 0 {
			t.Errorf("%s: census %+v, want nothing with the worker", tt.name, c)
		}
	}
	// The largest frame that fits goes through.
	u := heapUMEM(t, smallConfig())
	s, _ := joinFake(t, u, 1, 0)
	d := allocate(t, u, 1)
	d[0].Len = 2048 - Headroom
	if s.Transmit(d); s.txOwned != 1 {
		t.Error("the largest frame was refused")
	}
}

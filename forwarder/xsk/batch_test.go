package xsk

import (
	"fmt"
	"testing"
)

// loop is one turn of a worker over a fake kernel: n frames in, n frames out.
type loop struct {
	s *Socket
	k *fakeKernel
	d []Desc
}

func newLoop(t testing.TB, n int) *loop {
	cfg := DefaultConfig()
	s, k := joinFake(t, heapUMEM(t, cfg), 1, 0)
	k.flight = make([]Desc, 0, n)
	return &loop{s, k, make([]Desc, n)}
}

// offer puts the batch on the RX ring without touching the frames.
func (l *loop) offer() {
	k := l.k
	n := min(k.fill.ready(len(l.d)), k.rx.room(len(l.d)))
	for range n {
		k.rx.push(Desc{Addr: k.fill.pop() + Headroom, Len: 60})
	}
	k.fill.release()
	k.rx.publish()
}

// sendAll takes the TX ring over to the completion ring.
func (l *loop) sendAll() {
	k := l.k
	n := min(k.tx.ready(len(l.d)), k.done.room(len(l.d)))
	for range n {
		k.done.push(k.tx.pop().Addr)
	}
	k.tx.release()
	k.done.publish()
}

func (l *loop) turn() int {
	l.offer()
	l.s.Fill()
	n := l.s.Receive(l.d)
	l.s.Transmit(l.d[:n])
	l.sendAll()
	l.s.Kick()
	return min(n, l.s.Complete())
}

func TestBatchAllocatesNothing(t *testing.T) {
	l := newLoop(t, 64)
	if raceEnabled {
		t.Log("allocations are not counted under the race detector; the loop still runs")
	}
	// Faults too: foreign addresses, a full ring, a chunk freed twice.
	addr, _ := l.s.umem.Alloc()
	l.s.umem.Free(addr)
	allocs := testing.AllocsPerRun(200, func() {
		if n := l.turn(); n != 64 {
			t.Fatalf("turn moved %d frames, want 64", n)
		}
		l.s.umem.Free(addr)
		l.s.Transmit(l.d[:1])
		l.s.TXPending()
		l.s.Census()
	})
	if allocs != 0 && !raceEnabled {
		t.Errorf("%v allocations per batch, want 0", allocs)
	}
	if l.s.umem.misuse == 0 || l.s.count.invalidTX.Load() == 0 {
		t.Error("the faults were not met")
	}
}

// BenchmarkBatch is the cost of moving a batch through all four rings, the fake
// kernel's share included, with the frames themselves untouched.
func BenchmarkBatch(b *testing.B) {
	for _, n := range []int{16, 64, 256} {
		b.Run(fmt.Sprintf("frames=%d", n), func(b *testing.B) {
			l := newLoop(b, n)
			b.ReportAllocs()
			for b.Loop() {
				if l.turn() != n {
					b.Fatal("frames lost")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/frame")
		})
	}
}

// BenchmarkRing is one ring alone, both sides of it, in batches of 64.
func BenchmarkRing(b *testing.B) {
	m := heapRing[uint64](b, 2048)
	p, c := producer[uint64]{ringMemory: m}, consumer[uint64]{ringMemory: m}
	b.ReportAllocs()
	for b.Loop() {
		for range p.room(64) {
			p.push(1)
		}
		p.publish()
		for range c.ready(64) {
			c.pop()
		}
		c.release()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/slot")
}

package xsk

import (
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRingRefusesBadMemory(t *testing.T) {
	good := unix.XDPRingOffset{Producer: 0, Consumer: 64, Flags: 128, Desc: 192}
	for _, tt := range []struct {
		name  string
		bytes int
		n     int
		off   unix.XDPRingOffset
	}{
		{"short", 192 + 16*8 - 1, 16, good},
		{"not a power of two", 4096, 15, good},
		{"no slots", 4096, 0, good},
		{"producer not aligned", 4096, 16, unix.XDPRingOffset{Producer: 2, Consumer: 64, Flags: 128, Desc: 192}},
		{"slots not aligned", 4096, 16, unix.XDPRingOffset{Producer: 0, Consumer: 64, Flags: 128, Desc: 196}},
		{"flags outside", 320, 16, unix.XDPRingOffset{Producer: 0, Consumer: 64, Flags: 320, Desc: 192}},
	} {
		if _, err := ringAt[uint64](make([]byte, tt.bytes), tt.off, tt.n); err == nil {
			t.Errorf("%s: accepted", tt.name)
		}
	}
	if _, err := ringAt[uint64](make([]byte, 192+16*8), good, 16); err != nil {
		t.Errorf("good memory: %v", err)
	}
}

// An index that no honest other side could have written grants nothing.
func TestRingDistrustsIndices(t *testing.T) {
	m := heapRing[uint64](t, 16)
	p, c := producer[uint64]{ringMemory: m}, consumer[uint64]{ringMemory: m}
	atomic.StoreUint32(m.consumer, 5) // ahead of the producer
	if n := p.room(17); n != 0 {
		t.Errorf("room = %d with the consumer ahead, want 0", n)
	}
	atomic.StoreUint32(m.producer, 17) // more than fit
	if n := c.ready(32); n != 0 {
		t.Errorf("ready = %d with 17 in 16 slots, want 0", n)
	}
}

// One goroutine produces, another consumes; under the race detector this also
// checks that the indices order the slots.
func TestRingBetweenGoroutines(t *testing.T) {
	m := heapRing[Desc](t, 16)
	p, c := producer[Desc]{ringMemory: m}, consumer[Desc]{ringMemory: m}
	const total = 20000
	var wg sync.WaitGroup
	wg.Go(func() {
		for sent := 0; sent < total; {
			n := p.room(min(7, total-sent))
			for range n {
				p.push(Desc{Addr: uint64(sent), Len: uint32(sent)})
				sent++
			}
			p.publish()
		}
	})
	for got := 0; got < total; {
		n := c.ready(5)
		for range n {
			if d := c.pop(); d.Addr != uint64(got) || d.Len != uint32(got) {
				t.Fatalf("slot %d holds %+v", got, d)
			}
			got++
		}
		c.release()
	}
	wg.Wait()
}

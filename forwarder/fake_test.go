package forwarder

import (
	"testing"

	"zonehop/forwarder/xsk"
)

// fakePort is a port without a kernel: it delivers the frames a test queues
// and keeps those the worker transmits until Complete. It obeys the ownership
// rules of a real one, so a frame used after it was given away shows up as
// misuse of the UMEM.
type fakePort struct {
	t      testing.TB
	umem   *xsk.UMEM
	rx     []xsk.Desc // from head on
	head   int
	tx     []xsk.Desc
	txRoom int
	sent   [][]byte // copies of transmitted frames, if keep is set
	keep   bool
	loop   bool // transmitted frames are received again: an endless load
}

func (p *fakePort) Receive(d []xsk.Desc) int {
	n := copy(d, p.rx[p.head:])
	p.head += n
	if 2*p.head > len(p.rx) { // seldom enough to cost nothing per frame
		p.rx = p.rx[:copy(p.rx, p.rx[p.head:])]
		p.head = 0
	}
	return n
}

func (p *fakePort) TXFree() int { return p.txRoom - len(p.tx) }

func (p *fakePort) Transmit(d []xsk.Desc) int {
	n := min(len(d), p.TXFree())
	for _, v := range d[:n] {
		if p.keep {
			p.sent = append(p.sent, append([]byte(nil), p.umem.Frame(v)...))
		}
		p.tx = append(p.tx, v)
	}
	return n
}

func (p *fakePort) Kick() {}

func (p *fakePort) Complete() int {
	n := len(p.tx)
	if p.loop {
		p.rx = append(p.rx, p.tx...)
	} else {
		for _, v := range p.tx {
			p.umem.Free(v.Addr)
		}
	}
	p.tx = p.tx[:0]
	return n
}

func (p *fakePort) Fill()              {}
func (p *fakePort) FD() int            { return -1 }
func (p *fakePort) Census() xsk.Census { return xsk.Census{RX: len(p.rx) - p.head, TX: len(p.tx)} }

// deliver queues a frame for the worker.
func (p *fakePort) deliver(frame []byte) {
	p.t.Helper()
	addr, ok := p.umem.Alloc()
	if !ok {
		p.t.Fatal("no free frame to deliver")
	}
	d := xsk.Desc{Addr: addr, Len: uint32(len(frame))}
	copy(p.umem.Frame(d), frame)
	p.rx = append(p.rx, d)
}

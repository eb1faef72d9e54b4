package xsk

import (
	"encoding/binary"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// model is one UMEM with two sockets on fake kernels, and what a worker holds.
type model struct {
	tb      testing.TB // for constructors; failures go to the rapid test
	u       *UMEM
	sockets [2]*Socket
	kernels [2]*fakeKernel
	held    []Desc            // with the worker
	content map[uint64]uint64 // by address of held frames: the number inside
	queued  [2][]uint64       // by socket: the numbers of transmitted frames, in order
	ids     uint64
	ends    map[string]uint64 // where frames went
	binds   int
}

func newModel(tb testing.TB) *model {
	cfg := Config{FrameSize: 2048, Frames: 320, Fill: 64, RX: 32, TX: 32, Batch: 32}
	m := &model{tb: tb, u: heapUMEM(tb, cfg), content: map[uint64]uint64{}, ends: map[string]uint64{}}
	for i := range m.sockets {
		m.bind(i)
	}
	return m
}

func (m *model) bind(i int) {
	m.binds++
	m.queued[i] = nil
	m.sockets[i], m.kernels[i] = joinFake(m.tb, m.u, i, m.binds)
}

func (m *model) nextID() uint64 { m.ids++; return m.ids }

// check finds every chunk by looking into the rings, the fake kernels, the worker
// and the free stack, and compares with the owner bytes and the counts.
func (m *model) check(t *rapid.T) {
	place := make([]string, len(m.u.owner))
	put := func(addr uint64, where string, owner uint8) {
		c := addr >> m.u.shift
		if place[c] != "" {
			t.Fatalf("chunk %d is in %s and in %s", c, place[c], where)
		}
		place[c] = where
		if m.u.owner[c] != owner {
			t.Fatalf("chunk %d is in %s with owner %d, want %d", c, where, m.u.owner[c], owner)
		}
	}
	for _, c := range m.u.free {
		put(uint64(c)<<m.u.shift, "free stack", ownerFree)
	}
	for _, d := range m.held {
		put(d.Addr, "worker", ownerWorker)
		if got := binary.BigEndian.Uint64(m.u.Frame(d)); got != m.content[d.Addr] {
			t.Fatalf("frame %#x with the worker holds %d, want %d", d.Addr, got, m.content[d.Addr])
		}
	}
	for i, s := range m.sockets {
		k, fill, tx := m.kernels[i], 0, 0
		for _, a := range contents(&s.fill.ringMemory) {
			put(a, "fill ring", fillOwner(s.slot))
			fill++
		}
		for _, a := range k.pool {
			put(a, "kernel's pool", fillOwner(s.slot))
			fill++
		}
		rx := contents(&s.rx.ringMemory)
		for _, d := range rx {
			put(d.Addr, "RX ring", fillOwner(s.slot))
		}
		for _, d := range append(contents(&s.tx.ringMemory), k.flight...) {
			put(d.Addr, "TX ring or in flight", txOwner(s.slot))
			tx++
		}
		for _, a := range contents(&s.done.ringMemory) {
			put(a, "completion ring", txOwner(s.slot))
			tx++
		}
		if got, want := s.Census(), (Census{Fill: fill, RX: len(rx), TX: tx}); got != want {
			t.Fatalf("socket %d: census %+v, want %+v", i, got, want)
		}
		if got, want := s.TXFree(), s.cfg.TX-tx; got != want {
			t.Fatalf("socket %d: TXFree = %d, want %d", i, got, want)
		}
	}
	for c, p := range place {
		if p == "" {
			t.Fatalf("chunk %d (owner %d) is nowhere", c, m.u.owner[c])
		}
	}
	// Every transmitted frame was sent as the worker left it, in order.
	for i, k := range m.kernels {
		for j, b := range k.sent {
			if got := binary.BigEndian.Uint64(b); got != m.queued[i][j] {
				t.Fatalf("socket %d sent %d as frame %d, want %d", i, got, j, m.queued[i][j])
			}
		}
	}
}

// contents lists what lies between the two shared indices of a ring.
func contents[T slot](r *ringMemory[T]) (out []T) {
	for i := atomic.LoadUint32(r.consumer); i != atomic.LoadUint32(r.producer); i++ {
		out = append(out, r.slots[i&uint32(len(r.slots)-1)])
	}
	return out
}

func (m *model) receive(t *rapid.T, i, n int) {
	d := make([]Desc, n)
	for _, d := range d[:m.sockets[i].Receive(d)] {
		m.content[d.Addr] = binary.BigEndian.Uint64(m.u.Frame(d))
		m.held = append(m.held, d)
	}
}

func (m *model) transmit(t *rapid.T, i, n int) {
	n = min(n, len(m.held))
	s := m.sockets[i]
	want := min(n, s.TXFree())
	got := s.Transmit(m.held[:n])
	if got != want {
		t.Fatalf("Transmit of %d = %d, want %d", n, got, want)
	}
	for _, d := range m.held[:got] {
		m.queued[i] = append(m.queued[i], m.content[d.Addr])
	}
	m.held = append([]Desc(nil), m.held[got:]...)
	m.ends["transmitted"] += uint64(got)
}

// kick checks that a refused kick loses nothing and that a good one empties the ring.
func (m *model) kick(t *rapid.T, i int, refuse syscall.Errno) {
	s, k := m.sockets[i], m.kernels[i]
	before, left := s.count.kicks.Load(), s.unsent()
	k.refuse = refuse
	s.Kick()
	if left == 0 && s.count.kicks.Load() != before {
		t.Fatal("kicked an empty ring")
	}
	if left != 0 && refuse != 0 && refuse != unix.EAGAIN && s.unsent() != left {
		t.Fatalf("%v on a kick: %d on the ring, want %d", refuse, s.unsent(), left)
	}
	if refuse == 0 && !k.down && s.unsent() != 0 {
		t.Fatalf("%d left on the ring after a good kick", s.unsent())
	}
	k.refuse = 0
}

// rebind closes a socket wherever its frames are and opens another in its place.
func (m *model) rebind(t *rapid.T, i int) {
	s := m.sockets[i]
	want := s.Census()
	abandoned, fill := m.u.Reclaim(s)
	if abandoned != want.TX || fill != want.Fill+want.RX {
		t.Fatalf("Reclaim = %d, %d; want %d, %d", abandoned, fill, want.TX, want.Fill+want.RX)
	}
	if a, f := m.u.Reclaim(s); a != 0 || f != 0 {
		t.Fatalf("second Reclaim = %d, %d", a, f)
	}
	m.ends["abandoned"] += uint64(abandoned)
	m.ends["completed"] += s.completed
	m.bind(i)
}

// lie lets the kernel hand out an address that it must not, which changes nothing.
func (m *model) lie(t *rapid.T, i int) {
	s, k := m.sockets[i], m.kernels[i]
	chunk := uint64(rapid.IntRange(0, len(m.u.owner)+3).Draw(t, "chunk"))
	if len(m.held) > 0 && rapid.Bool().Draw(t, "a frame of the worker") {
		chunk = m.held[0].Addr >> m.u.shift
	}
	addr := chunk << m.u.shift
	known := chunk < uint64(len(m.u.owner))
	if rapid.Bool().Draw(t, "on completion ring") {
		if known && m.u.owner[chunk] == txOwner(s.slot) || k.done.room(1) == 0 {
			return
		}
		k.done.push(addr)
		k.done.publish()
		before := s.count.invalidCompletion.Load()
		s.Complete()
		if got := s.count.invalidCompletion.Load() - before; got != 1 {
			t.Fatalf("foreign completion of %#x counted %d times", addr, got)
		}
		return
	}
	if known && m.u.owner[chunk] == fillOwner(s.slot) || k.rx.room(1) == 0 {
		return
	}
	k.rx.push(Desc{Addr: addr, Len: 64})
	k.rx.publish()
	before := s.count.invalidRX.Load()
	m.receive(t, i, s.cfg.RX+1)
	if got := s.count.invalidRX.Load() - before; got != 1 {
		t.Fatalf("foreign reception at %#x counted %d times", addr, got)
	}
}

// TestFramesAreNeverLostOrOwnedTwice runs random steps of workers, kernels and
// faults, and looks for every frame after each of them.
func TestFramesAreNeverLostOrOwnedTwice(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := newModel(t)
		pick := func() int { return rapid.IntRange(0, 1).Draw(r, "socket") }
		count := func(n int) int { return rapid.IntRange(0, n).Draw(r, "n") }
		errnos := []syscall.Errno{0, 0, unix.EAGAIN, unix.EBUSY, unix.ENOBUFS, unix.ENETDOWN, unix.EINTR, unix.ENXIO, unix.EINVAL}
		r.Repeat(map[string]func(*rapid.T){
			"kernel receives": func(r *rapid.T) { m.kernels[pick()].receive(count(70), m.nextID) },
			"kernel completes": func(r *rapid.T) {
				k := m.kernels[pick()]
				for range min(count(40), len(k.flight)) {
					k.complete(rapid.IntRange(0, len(k.flight)-1).Draw(r, "which"))
				}
			},
			"burst": func(r *rapid.T) { // fills and drains rings, which single steps seldom do
				i := pick()
				m.kernels[i].receive(64, m.nextID)
				m.receive(r, i, 40)
				m.transmit(r, 1-i, 40)
				m.kick(r, 1-i, 0)
			},
			"link":          func(r *rapid.T) { k := m.kernels[pick()]; k.down = !k.down },
			"small budget":  func(r *rapid.T) { m.kernels[pick()].budget = 1 + count(31) },
			"receive":       func(r *rapid.T) { m.receive(r, pick(), count(40)) },
			"transmit":      func(r *rapid.T) { m.transmit(r, pick(), count(40)) },
			"kick":          func(r *rapid.T) { m.kick(r, pick(), rapid.SampledFrom(errnos).Draw(r, "errno")) },
			"complete":      func(r *rapid.T) { m.sockets[pick()].Complete() },
			"fill":          func(r *rapid.T) { m.sockets[pick()].Fill() },
			"rebind":        func(r *rapid.T) { m.rebind(r, pick()) },
			"kernel lies":   func(r *rapid.T) { m.lie(r, pick()) },
			"drop a packet": func(r *rapid.T) { m.free(r) },
			"originate":     func(r *rapid.T) { m.alloc(r) },
			"misuse":        func(r *rapid.T) { m.misuse(r) },
			"":              m.check,
		})
		var pending, completed uint64
		for _, s := range m.sockets {
			n, done := s.TXPending()
			pending, completed = pending+uint64(n), completed+done
		}
		if in, out := m.ends["transmitted"], m.ends["completed"]+completed+pending+m.ends["abandoned"]; in != out {
			r.Fatalf("%d transmitted; completed, in flight and abandoned are %d", in, out)
		}
	})
}

func (m *model) free(t *rapid.T) {
	if len(m.held) > 0 {
		m.u.Free(m.held[0].Addr)
		m.held = m.held[1:]
	}
}

func (m *model) alloc(t *rapid.T) {
	want := len(m.u.free) > 0
	addr, ok := m.u.Alloc()
	if ok != want {
		t.Fatalf("Alloc with %d free: %v", len(m.u.free), ok)
	}
	if ok {
		d := Desc{Addr: addr, Len: 60}
		m.content[addr] = m.nextID()
		binary.BigEndian.PutUint64(m.u.Frame(d), m.content[addr])
		m.held = append(m.held, d)
	}
}

// misuse is what a broken worker might do: free or transmit what is not its own,
// or what is no frame. It is counted and moves nothing of anyone else's.
func (m *model) misuse(t *rapid.T) {
	addr := uint64(rapid.IntRange(0, len(m.u.area)+5000).Draw(t, "address"))
	s := m.sockets[0]
	if c := addr >> m.u.shift; c < uint64(len(m.u.owner)) && m.u.owner[c] == ownerWorker || s.TXFree() == 0 {
		return
	}
	misused, invalid := m.u.misuse, s.count.invalidTX.Load()
	m.u.Free(addr)
	if n := s.Transmit([]Desc{{Addr: addr, Len: 1}}); n != 1 {
		t.Fatalf("Transmit of a foreign frame = %d, want 1", n)
	}
	if m.u.misuse != misused+1 || s.count.invalidTX.Load() != invalid+1 {
		t.Fatalf("misuse of %#x was not counted once each", addr)
	}
}

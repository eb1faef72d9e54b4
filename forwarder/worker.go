package forwarder

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"zonehop/conntrack"
	"zonehop/forwarder/claim"
	"zonehop/forwarder/packet"
	"zonehop/forwarder/xsk"
	"zonehop/selector"
)

const (
	// maxPorts is how many interfaces an appliance can have: the interface
	// index is a bit in Snapshot's answer masks.
	maxPorts = 64
	// publishInterval bounds the age of published counters under load.
	publishInterval = 5 * time.Millisecond
	// idleTimeout is how long a worker sleeps when nothing happens. Packets,
	// letters and commands wake it; the timeout only bounds what a lost
	// wake-up can cost.
	idleTimeout = 100 * time.Millisecond
	// pendingTimeout replaces it while frames wait for the kernel to send them.
	pendingTimeout = 2 * time.Millisecond
	// maxSpin is the number of empty passes a worker makes before it sleeps,
	// if its last batch was at least half full. Below that it sleeps at once:
	// a sleep lets frames gather, and larger batches cost less CPU per frame.
	maxSpin = 32
)

// Shared is what all workers of an appliance have in common.
type Shared struct {
	Table     *conntrack.Table
	Fragments *conntrack.Fragments
	Snapshot  func() *selector.Snapshot // one atomic load; never nil
	Clock     func() int64              // nanoseconds of CLOCK_BOOTTIME
	Batch     int                       // frames per pass and port, 1..256
	Frame     int                       // bytes per frame, for mailboxes
	Route     *Routing
	Claims    chan<- claim.Claim // by other hosts to addresses of ours; never waited for
}

// Routing tells which worker owns a queue of an interface, for frames that
// leave by an interface on which the deciding worker has no queue of its own.
type Routing struct {
	owners [maxPorts]atomic.Pointer[Mailbox]
}

// Set names the worker that sends for those who have no queue on an interface.
func (r *Routing) Set(iface int, m *Mailbox) { r.owners[iface].Store(m) }

// Clear withdraws a worker from every interface it is named for.
func (r *Routing) clear(iface int, m *Mailbox) { r.owners[iface].CompareAndSwap(m, nil) }

// Worker owns one queue number: queue q of every interface, the memory their
// frames live in, and everything written on the packet path. Its Run method is
// the only goroutine that touches those; others talk to it through Do and its
// mailbox, and read its counters.
type Worker struct {
	Index int

	shared  *Shared
	flows   *conntrack.Writer
	seed    uint64 // of the flow hash
	mailbox *Mailbox
	cmds    chan func()

	bindings []*binding         // what this worker receives from
	byIface  [maxPorts]*binding // what it sends by
	umems    []*xsk.UMEM        // the supervisor's: memory of this worker's sockets

	// Of the current pass.
	snap   *selector.Snapshot
	ports  [maxPorts]portFacts // of snap
	now    int64
	tick   conntrack.Tick
	rx     []xsk.Desc
	items  []item
	limits [numOrigins]limiter // of originated ICMP errors, by kind
	claims limiter             // passed on

	holding  holding
	counters counters
	touched  uint64 // sink for reads that only warm the cache
	stopped  atomic.Bool
	anyCPU   *unix.CPUSet // of the thread at its start
	pinned   bool
	nextPub  int64
	spin     int
	pollFDs  []unix.PollFd
}

// NewWorker makes a worker without ports.
func NewWorker(index int, s *Shared) (*Worker, error) {
	m, err := newMailbox(s.Frame)
	if err != nil {
		return nil, fmt.Errorf("worker %d: create event descriptor: %w", index, err)
	}
	w := &Worker{
		Index: index, shared: s, flows: s.Table.NewWriter(), seed: s.Table.Seed(), mailbox: m,
		cmds: make(chan func(), 8), rx: make([]xsk.Desc, s.Batch), items: make([]item, s.Batch),
		claims: limiter{perSecond: 100, burst: 100},
	}
	for i := range w.limits {
		w.limits[i] = limiter{perSecond: 100, burst: 20}
	}
	w.holding.ring = make([]held, maxHeld)
	w.adopt(s.Snapshot())
	w.publish()
	return w, nil
}

// Run drives the worker until Stop. It locks itself to its thread and, with
// cpu >= 0, to that CPU. The error says that the CPU was refused; it is given to
// refused at once, and the worker runs where the scheduler puts it.
func (w *Worker) Run(cpu int, refused func(error)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := w.pin(cpu); err != nil {
		refused(err)
	}
	for !w.stopped.Load() {
		switch n := w.Pass(); {
		case n == 0:
			w.idle()
		case n >= w.shared.Batch/2:
			w.spin = maxSpin
		}
	}
	w.drain()
	w.publish()
}

// Stop makes Run return after it has given the kernel what waits on TX rings.
func (w *Worker) Stop() {
	w.stopped.Store(true)
	w.mailbox.sleeping.Store(true) // make sure that wake writes
	w.mailbox.wake()
}

// Do has fn run by the worker between two passes and waits for it. It must not
// be called after Stop.
func (w *Worker) Do(fn func()) {
	done := make(chan struct{})
	w.cmds <- func() { fn(); close(done) }
	w.mailbox.wake()
	<-done
}

// Pass takes one batch from each port and from the mailbox, and returns how
// many frames it handled. Exported for tests and benchmarks, which drive a
// worker without Run.
func (w *Worker) Pass() (frames int) {
	for len(w.cmds) > 0 {
		(<-w.cmds)()
	}
	w.now = w.shared.Clock()
	w.tick = conntrack.TickOf(w.now)
	if snap := w.shared.Snapshot(); snap != w.snap {
		w.adopt(snap)
	}
	for _, b := range w.bindings {
		w.counters.local[cCompleted] += uint64(b.Complete())
	}
	for _, b := range w.bindings {
		frames += w.receive(b)
	}
	if !w.mailbox.empty() {
		frames += w.collect()
	}
	if w.holding.count > 0 {
		frames += w.look()
	}
	if frames > 0 {
		w.counters.local[cPasses]++
		if w.now >= w.nextPub {
			w.publish()
		}
	}
	return frames
}

// receive handles one batch of one port. A full TX ring is back-pressure: the
// port receives no more than it could send back by itself.
func (w *Worker) receive(b *binding) int {
	w.open()
	n := min(b.room, len(w.rx))
	if n > 0 {
		n = b.Receive(w.rx[:n])
	}
	if n > 0 {
		b.received += uint64(n)
		w.counters.local[cReceived] += uint64(n)
		w.process(b, w.rx[:n])
	}
	w.flush()
	b.Fill()
	return n
}

// collect sends the frames that wait in the mailbox.
func (w *Worker) collect() int {
	w.open()
	n := w.mailbox.take(len(w.rx), w.send)
	w.flush()
	return n
}

// look releases held fragments.
func (w *Worker) look() int {
	w.open()
	n := w.release()
	w.flush()
	return n
}

// open starts staging frames on every port.
func (w *Worker) open() {
	for _, b := range w.bindings {
		b.room = min(b.TXFree(), cap(b.out))
	}
}

// flush puts the staged frames on their TX rings and kicks. Staging never
// exceeds the room seen by open, and nobody else fills these rings, so all of
// them are accepted.
func (w *Worker) flush() {
	for _, b := range w.bindings {
		if len(b.out) > 0 {
			b.Transmit(b.out)
			b.out = b.out[:0]
		}
		b.Kick()
	}
}

// adopt switches to another snapshot between two passes.
func (w *Worker) adopt(snap *selector.Snapshot) {
	if w.counters.layout != snap.Layout {
		w.counters.relayout(snap.Layout)
	}
	for i := range snap.Ports {
		w.ports[i] = factsOf(&snap.Ports[i])
	}
	w.snap = snap
}

// portFacts is what the packet path needs to know of an interface.
type portFacts struct {
	maxFrame int          // bytes, Ethernet header included, VLAN tags not
	source   [2][2]uint64 // by family: an own address, for errors; zero if there is none
	mac      [6]byte
	station  uint64 // mac, as packet.Parsed has it
}

func factsOf(p *selector.Port) portFacts {
	f := portFacts{mac: p.MAC, maxFrame: p.MTU + ethernetLen}
	for _, octet := range p.MAC {
		f.station = f.station<<8 | uint64(octet)
	}
	for _, a := range p.Addrs {
		switch {
		case a.Addr().IsLinkLocalUnicast():
		case a.Addr().Is4() && f.source[selector.V4] == [2]uint64{}:
			f.source[selector.V4] = packet.Addr(a.Addr())
		case a.Addr().Is6() && f.source[selector.V6] == [2]uint64{}:
			f.source[selector.V6] = packet.Addr(a.Addr())
		}
	}
	return f
}

const ethernetLen = 14

// publish makes counters and census visible.
func (w *Worker) publish() {
	w.counters.publish()
	w.nextPub = w.now + int64(publishInterval)
}

// idle spins for a few passes after a busy time, then sleeps until a packet, a
// letter or a command arrives.
func (w *Worker) idle() {
	if w.spin > 0 {
		w.spin--
		return
	}
	w.publish()
	timeout := idleTimeout
	if w.holding.count > 0 {
		timeout = holdPoll
	}
	w.pollFDs = append(w.pollFDs[:0], unix.PollFd{Fd: int32(w.mailbox.eventFD), Events: unix.POLLIN})
	for _, b := range w.bindings {
		b.Fill()
		if b.Census().TX > 0 {
			timeout = min(timeout, pendingTimeout)
		}
		if fd := b.FD(); fd >= 0 {
			p := unix.PollFd{Fd: int32(fd)}
			if b.TXFree() > 0 { // else what has come waits too, and must not wake the worker
				p.Events = unix.POLLIN
			}
			w.pollFDs = append(w.pollFDs, p)
		}
	}
	w.mailbox.sleeping.Store(true)
	if w.mailbox.empty() && len(w.cmds) == 0 && !w.stopped.Load() {
		// Errors: EINTR only; every other cause shows again in the next pass.
		_, _ = unix.Poll(w.pollFDs, int(timeout.Milliseconds()))
		w.counters.local[cWakeups]++
		if w.pollFDs[0].Revents != 0 {
			w.mailbox.drainEvents()
		}
		for _, p := range w.pollFDs[1:] {
			if p.Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0 {
				time.Sleep(time.Millisecond) // a dead socket must not make this loop spin
				break
			}
		}
	}
	w.mailbox.sleeping.Store(false)
}

// drain handles what was received before a stop and gives the kernel what is
// on the TX rings. It ends when nothing moved for a few milliseconds, and after
// 50 ms in any case.
func (w *Worker) drain() {
	deadline := w.shared.Clock() + int64(50*time.Millisecond)
	for quiet := 0; quiet < 3 && w.shared.Clock() < deadline; {
		pending := 0
		for _, b := range w.bindings {
			pending += b.Census().TX
		}
		if w.Pass() > 0 || pending > 0 {
			quiet = 0
		} else {
			quiet++
		}
		time.Sleep(time.Millisecond)
	}
}

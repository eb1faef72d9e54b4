package forwarder

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"zonehop/forwarder/xsk"
)

const (
	// reconcileInterval is how often the supervisor compares what should be
	// attached with what is, beside doing so at each change.
	reconcileInterval = time.Second
	// retryDelay is how long a refused attach or bind is left alone.
	retryDelay = 2 * time.Second
	// stallTicks is how many reconcile intervals a queue may show the signs of
	// a stall before it is bound anew: frames waiting to be sent without one
	// being completed, or frames redirected to it without one received.
	stallTicks = 3
	// busyPatience is how long a busy queue is tried again, every busyPause,
	// before it counts as refused: the kernel gives a queue free from a work
	// queue, some 20 ms after its socket was closed.
	busyPatience = 300 * time.Millisecond
	busyPause    = 10 * time.Millisecond
)

// InterfaceConfig is what the configuration says of one interface.
type InterfaceConfig struct {
	Name    string
	Queues  []int // nil: all
	Rings   xsk.Config
	Generic bool // generic XDP, which must be asked for
}

// Link is the present state of a configured interface.
type Link struct {
	Index  int // 0: absent
	Up     bool
	MAC    [6]byte
	Queues int // receive queues in use
	MTU    int
}

// Classification is what the XDP programs take from the kernel.
type Classification struct {
	Rules   []netip.Addr   // rule addresses: everything sent to them
	Answers [][]netip.Addr // by interface: addresses whose MAC is asked for here
	Routes  []netip.Prefix // destinations, if the frame is for our MAC
	Own     []netip.Addr   // the host's own addresses, exempt from Routes
}

// EventKind says what a supervisor did.
type EventKind uint8

// The kinds of events.
const (
	EventAttached  EventKind = iota // the classifier is on the interface
	EventDetached                   // the interface vanished or was removed
	EventBound                      // a queue has its socket
	EventRefused                    // the kernel refused; Err says what and the remedy
	EventStalled                    // a queue is bound anew because it stood still
	EventRecovered                  // bound after a refusal
)

// Event tells the control side what happened, for its log.
type Event struct {
	Kind      EventKind
	Interface string
	Queue     int // -1: the interface as a whole
	Detail    string
	Err       error
}

// SupervisorOptions configure a Supervisor.
type SupervisorOptions struct {
	Shared     *Shared
	Interfaces []InterfaceConfig // in the order of the snapshot's ports
	Probes     *xsk.Probes       // nil: SetProbing must not turn it on
	CPU        func(worker int) int
	Event      func(Event) // called from the supervisor's goroutine
}

// Supervisor attaches the classifier to interfaces, binds their queues, gives
// the sockets to workers, and repairs what breaks: an interface that vanishes
// is given up and taken again when it is back, a refused queue is tried again,
// a queue that stands still is bound anew. What works goes on meanwhile.
//
// Its methods are safe for concurrent use. One goroutine, in Run, changes
// anything; the setters only say what is wanted.
type Supervisor struct {
	opts    SupervisorOptions
	changed chan struct{}

	// brief guards what is wanted, how far that is in force, and the list of
	// workers. It is held for moments only: publishing a snapshot must not wait
	// for the kernel.
	brief   sync.Mutex
	want    wanted
	settled settlement
	workers []*Worker // appended to by reconcile

	// mu guards what there is. Only the goroutine in Run changes that, and it
	// lets go of mu while the kernel attaches, binds and closes (see slowly), so
	// that readers never wait for a driver. Locked before brief.
	mu      sync.Mutex
	have    wanted // what is being reconciled
	ifaces  []*attachment
	retired QueueStatus // of interfaces that were removed
	running sync.WaitGroup
}

// wanted is the state to bring about.
type wanted struct {
	version     uint64            // counts changes of anything here
	interfaces  []InterfaceConfig // by index in the snapshot's ports; without a name: none
	arrangement int               // counts changes of them

	links   []Link
	take    Classification
	probing bool
}

// attachment is one configured interface.
type attachment struct {
	config     InterfaceConfig
	slot       int // index in the snapshot's ports
	index      int // interface index the program is attached to; 0: not attached
	program    *xsk.Program
	classifies bool // the program has been told what to take
	queues     map[int]*queue
	problem    error
	retryAt    time.Time // zero: not refused yet
	// Of programs that are gone: what they counted for queues not used.
	retiredUnused ProgramCounters
}

// ProgramCounters sum what the classifier counted on an interface. Redirected
// is all that it took from the kernel, what met no socket included. Returned are
// probes as rules' addresses that came back, which it drops.
type ProgramCounters struct{ Redirected, NoSocket, Passed, Returned uint64 }

// queue is one receive queue of an attached interface.
type queue struct {
	number  int
	worker  *Worker
	binding *binding // nil: not bound
	socket  *xsk.Socket
	problem error
	retryAt time.Time // zero: not refused yet
	// busyUntil is the end of the patience with a busy queue; zero: it is not busy.
	busyUntil time.Time
	dropped   bool          // not to be used any more
	retired   QueueCounters // of sockets that are closed
	// Of programs that are gone: what they counted for this queue.
	retiredProgram ProgramCounters

	stall         int // intervals in a row with signs of a stall
	lastCompleted uint64
	lastReceived  uint64
	lastTaken     uint64
}

// NewSupervisor makes a supervisor; Run starts it.
func NewSupervisor(o SupervisorOptions) *Supervisor {
	s := &Supervisor{opts: o, changed: make(chan struct{}, 1), settled: settlement{moved: make(chan struct{})}}
	s.want.interfaces, s.want.links = slices.Clone(o.Interfaces), make([]Link, len(o.Interfaces))
	s.have = s.want
	for i, c := range o.Interfaces {
		s.ifaces = append(s.ifaces, &attachment{config: c, slot: i, queues: make(map[int]*queue)})
	}
	return s
}

// SetLinks says which interfaces are present, in the order of the options.
func (s *Supervisor) SetLinks(links []Link) {
	s.ask(func(w *wanted) { w.links = slices.Clone(links) })
}

// SetClassification says what to take from the kernel, on all interfaces.
func (s *Supervisor) SetClassification(c Classification) {
	s.ask(func(w *wanted) { w.take = c })
}

// SetProbing says whether backends are probed as rules' addresses, through
// SupervisorOptions.Probes.
func (s *Supervisor) SetProbing(on bool) {
	s.ask(func(w *wanted) { w.probing = on })
}

// ask changes what is wanted.
func (s *Supervisor) ask(change func(*wanted)) {
	s.brief.Lock()
	change(&s.want)
	s.want.version++
	s.brief.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Run keeps interfaces attached and queues bound until ctx is done, then
// detaches, lets the workers drain their TX rings, and closes everything.
func (s *Supervisor) Run(ctx context.Context) error {
	tick := time.NewTicker(reconcileInterval)
	defer tick.Stop()
	busy := time.NewTimer(reconcileInterval)
	defer busy.Stop()
	for {
		ticked := false
		select {
		case <-ctx.Done():
			return s.stop()
		case <-s.changed:
		case <-busy.C:
		case <-tick.C:
			ticked = true
		}
		if s.follow(ticked) {
			busy.Reset(busyPause)
		}
	}
}

// follow brings everything to the state wanted. What the classifiers take
// comes first: it needs no driver, and operators wait for it. It reports
// whether a queue is busy and to be tried again soon.
func (s *Supervisor) follow(ticked bool) (busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.brief.Lock()
	rearranged := s.have.arrangement != s.want.arrangement
	s.have = s.want
	s.brief.Unlock()
	if rearranged {
		s.arrange()
	}
	for _, a := range s.ifaces {
		if link := s.link(a.slot); a.classifies && a.index == link.Index {
			s.classify(a, link)
		}
	}
	if !s.pending() {
		s.settle()
	}
	for _, a := range s.ifaces {
		s.reconcile(a, s.link(a.slot), ticked)
	}
	busy = s.pending()
	if !busy {
		s.settle()
	}
	return busy
}

// slowly runs what may take the kernel long, without mu. Nobody else changes
// what mu guards.
func (s *Supervisor) slowly(fn func()) {
	s.mu.Unlock()
	defer s.mu.Lock()
	fn()
}

// reconcile brings one interface to the state wanted.
func (s *Supervisor) reconcile(a *attachment, link Link, ticked bool) {
	if a.index != 0 && a.index != link.Index {
		s.release(a)
		s.event(a, EventDetached, -1, "interface vanished", nil)
	}
	if link.Index == 0 {
		a.problem = fmt.Errorf("interface %s does not exist; it is used as soon as it appears", a.config.Name)
		return
	}
	now := time.Now()
	if a.program == nil {
		if now.Before(a.retryAt) {
			return
		}
		if err := s.attach(a, link); err != nil {
			s.refuse(a, -1, &a.problem, &a.retryAt, err)
			return
		}
	}
	// Sockets first, so that nothing is taken from the kernel before somebody
	// receives it.
	for _, n := range s.numbers(a, link) {
		q := a.queues[n]
		if q == nil {
			q = &queue{number: n}
			a.queues[n] = q
		}
		q.dropped = false
		if ticked {
			s.watch(a, q, link)
		}
		if q.binding == nil && !now.Before(q.retryAt) {
			if err := s.open(a, q); err != nil && !q.wait(err) {
				s.refuse(a, n, &q.problem, &q.retryAt, err)
			}
		}
	}
	if !a.classifies {
		s.classify(a, link)
	}
}

// wait reports whether a queue that could not be opened is to be tried again
// at once, before that is a refusal.
func (q *queue) wait(err error) bool {
	now := time.Now()
	switch {
	case !errors.Is(err, unix.EBUSY):
		q.busyUntil = time.Time{}
	case q.busyUntil.IsZero():
		q.busyUntil = now.Add(busyPatience)
	}
	if !now.Before(q.busyUntil) {
		return false
	}
	q.retryAt = now.Add(busyPause)
	return true
}

// numbers lists the queue numbers to bind.
func (s *Supervisor) numbers(a *attachment, link Link) []int {
	if a.config.Queues != nil {
		return a.config.Queues
	}
	all := make([]int, max(link.Queues, 1))
	for i := range all {
		all[i] = i
	}
	return all
}

// refuse remembers a refusal, tells it once, and delays the next try.
func (s *Supervisor) refuse(a *attachment, queue int, problem *error, retryAt *time.Time, err error) {
	*retryAt = time.Now().Add(retryDelay)
	if *problem == nil || (*problem).Error() != err.Error() {
		s.event(a, EventRefused, queue, "", err)
	}
	*problem = err
}

func (s *Supervisor) event(a *attachment, k EventKind, queue int, detail string, err error) {
	if s.opts.Event != nil {
		s.opts.Event(Event{Kind: k, Interface: a.config.Name, Queue: queue, Detail: detail, Err: err})
	}
}

// attach puts the classifier on an interface. It takes nothing yet: until
// classify, every frame passes to the kernel.
func (s *Supervisor) attach(a *attachment, link Link) error {
	mode := xsk.Native
	if a.config.Generic {
		mode = xsk.Generic
	}
	var p *xsk.Program
	var err error
	s.slowly(func() { p, err = s.opts.Probes.Attach(link.Index, mode) })
	if err != nil {
		return err
	}
	a.program, a.index = p, link.Index
	recovered := !a.retryAt.IsZero() // it was refused
	a.problem = nil
	kind := EventAttached
	if recovered {
		kind = EventRecovered
	}
	s.event(a, kind, -1, "classifier attached", nil)
	return nil
}

// classify tells the program what to take.
func (s *Supervisor) classify(a *attachment, link Link) {
	var answers []netip.Addr
	if a.slot < len(s.have.take.Answers) {
		answers = s.have.take.Answers[a.slot]
	}
	err := errors.Join(
		a.program.SetMAC(link.MAC),
		a.program.SetOwn(s.have.take.Own),
		a.program.SetRoutes(s.have.take.Routes),
		a.program.SetAnswers(answers),
		a.program.SetRuleAddresses(s.have.take.Rules),
		a.program.SetProbing(s.have.probing),
	)
	a.classifies = true
	if err != nil {
		s.refuse(a, -1, &a.problem, &a.retryAt, fmt.Errorf("tell the classifier on %s what to take: %w", a.config.Name, err))
		return
	}
	a.problem = nil
}

// worker returns the worker of a queue number, starting it if need be.
func (s *Supervisor) worker(q int) (*Worker, error) {
	for len(s.workers) <= q {
		w, err := NewWorker(len(s.workers), s.opts.Shared)
		if err != nil {
			return nil, err
		}
		s.brief.Lock()
		s.workers = append(s.workers, w)
		s.brief.Unlock()
		cpu := -1
		if s.opts.CPU != nil {
			cpu = s.opts.CPU(w.Index)
		}
		// Workers that spin occupy a P each; without extra ones, probes and
		// timers would wait for them.
		runtime.GOMAXPROCS(runtime.NumCPU() + len(s.workers))
		s.running.Go(func() {
			w.Run(cpu, func(err error) {
				if s.opts.Event != nil {
					s.opts.Event(Event{Kind: EventRefused, Queue: w.Index, Err: err})
				}
			})
		})
	}
	return s.workers[q], nil
}

// open binds a queue and gives the socket to its worker.
func (s *Supervisor) open(a *attachment, q *queue) error {
	w, err := s.worker(q.number)
	if err != nil {
		return err
	}
	q.worker = w
	var umem *xsk.UMEM
	var socket *xsk.Socket
	rings := a.config.Rings
	rings.NoWait = true // the queue has its own patience
	s.slowly(func() { umem, socket, err = w.socket(a.index, q.number, rings) })
	if err != nil {
		return err
	}
	b := &binding{Port: socket, umem: umem, iface: a.slot, queue: q.number}
	w.Do(func() { w.bind(b) })
	if err := a.program.SetSocket(q.number, socket.FD()); err != nil {
		w.Do(func() { w.unbind(b) })
		return errors.Join(err, w.close(b, socket))
	}
	q.binding, q.socket = b, socket
	q.stall, q.lastCompleted, q.lastReceived = 0, 0, 0
	kind := EventBound
	if q.problem != nil {
		kind = EventRecovered
	}
	q.problem, q.busyUntil = nil, time.Time{}
	s.event(a, kind, q.number, socket.Mode().String()+modeReason(socket), nil)
	s.reroute()
	return nil
}

func modeReason(socket *xsk.Socket) string {
	if r := socket.ModeReason(); r != "" {
		return " (" + r + ")"
	}
	return ""
}

// reroute names, for each interface, the worker that sends for the workers
// without a queue of their own there: the first that has one.
func (s *Supervisor) reroute() {
	for _, a := range s.ifaces {
		for _, w := range s.workers {
			if q := a.queues[w.Index]; q != nil && q.binding != nil {
				s.opts.Shared.Route.Set(a.slot, w.mailbox)
				break
			}
		}
	}
}

// shut takes a queue's socket from its worker and closes it.
func (s *Supervisor) shut(a *attachment, q *queue) {
	if q.binding == nil {
		return
	}
	if a.program != nil {
		// Fails if the interface is gone, and the map with it.
		_ = a.program.ClearSocket(q.number)
	}
	b, socket := q.binding, q.socket
	q.worker.Do(func() { q.worker.unbind(b) })
	q.retired.add(q.counters())
	q.binding, q.socket = nil, nil
	q.busyUntil = time.Time{} // this one will be, for a moment
	s.reroute()
	// What closing can fail with is of a socket that is gone either way.
	s.slowly(func() { _ = q.worker.close(b, socket) })
}

// release gives up an interface: its program, so that frames are the kernel's
// again, then its sockets.
func (s *Supervisor) release(a *attachment) {
	if a.program != nil {
		s.slowly(func() { _ = a.program.Detach() }) // fails if the link went with the interface
	}
	for _, q := range a.queues {
		s.shut(a, q)
		q.retiredProgram.add(a.counters(q.number))
		q.problem, q.retryAt = nil, time.Time{}
	}
	a.retiredUnused.add(a.unused())
	if a.program != nil {
		_ = a.program.Close() // detached, or gone with the interface
	}
	a.program, a.index, a.classifies, a.problem = nil, 0, false, nil
	a.retryAt = time.Time{}
}

// watch binds a queue anew that stands still although its link is up.
func (s *Supervisor) watch(a *attachment, q *queue, link Link) {
	if q.binding == nil || !link.Up {
		q.stall = 0
		return
	}
	var pending int
	var completed, received uint64
	q.worker.Do(func() {
		pending, completed = q.socket.TXPending()
		received = q.binding.received
	})
	stats, _ := q.socket.Stats() // without the kernel's part, received alone tells
	received += stats.RXDropped + stats.RXRingFull
	taken := uint64(0)
	if c, err := a.program.Counters(q.number); err == nil {
		taken = c.Redirected
	}
	deafTX := pending > 0 && completed == q.lastCompleted
	deafRX := taken > q.lastTaken && received == q.lastReceived
	q.lastCompleted, q.lastReceived, q.lastTaken = completed, received, taken
	if !deafTX && !deafRX {
		q.stall = 0
		return
	}
	if q.stall++; q.stall < stallTicks {
		return
	}
	detail := "frames wait to be sent and none is completed"
	if deafRX {
		detail = "frames are redirected to it and none is received"
	}
	s.event(a, EventStalled, q.number, detail, nil)
	s.shut(a, q)
}

// stop detaches the programs first, so that frames go to the kernel again,
// then stops the workers, which send what they hold, then closes the sockets.
func (s *Supervisor) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, a := range s.ifaces {
		if a.program != nil {
			s.slowly(func() { errs = append(errs, a.program.Detach()) })
		}
		// No worker gives a frame to another one that may have ended already.
		s.opts.Shared.Route.owners[a.slot].Store(nil)
	}
	for _, w := range s.workers {
		w.Stop()
	}
	s.running.Wait()
	s.end()
	for _, a := range s.ifaces {
		if a.program != nil { // nothing is redirected any more: the last count
			for _, q := range a.queues {
				q.retiredProgram.add(a.counters(q.number))
			}
			a.retiredUnused.add(a.unused())
			errs = append(errs, a.program.Close())
			a.program = nil
		}
		for _, q := range a.queues {
			if q.binding != nil {
				q.retired.add(q.counters())
				errs = append(errs, q.worker.closeStopped(q.binding, q.socket))
				q.binding, q.socket = nil, nil
			}
		}
	}
	for _, w := range s.workers {
		errs = append(errs, w.closeMemory())
		w.mailbox.close()
	}
	return errors.Join(errs...)
}

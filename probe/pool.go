package probe

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

const (
	// defaultConcurrency suits 10 000 targets of which a third never answers,
	// with timeouts as long as the interval.
	defaultConcurrency = 4096
	// tick is the least time between two passes over the schedule. What is due
	// and what has finished within it is handled together, which keeps the
	// cost of waking up small at high rates.
	tick = time.Millisecond
	// coalesce is how long transitions are gathered before they are delivered.
	coalesce = 10 * time.Millisecond
)

// Options of a Pool. The zero value of every field is usable.
type Options struct {
	// Concurrency bounds the probes in flight, and with them goroutines and
	// descriptors. Targets that never answer occupy timeout/interval each.
	// 0 means 4096.
	Concurrency int

	// OnTransitions receives state changes in the order they happened, at most
	// about 10 ms after the verdict. Changes of a target that was removed in
	// the meantime are left out. The slice belongs to the callee.
	OnTransitions func([]Transition)

	// OnOutage is called after OnTransitions when the last healthy targets
	// turned unhealthy together. Then the prober may be the sick one.
	OnOutage func(Outage)

	// Observe is called for every finished probe, from many goroutines at
	// once, so it must be quick and safe for concurrent use.
	Observe func(Observation)

	// Control is called for every socket before it connects, for socket
	// options such as a mark. An error fails the probe. Not used with Dial.
	Control func(t Target, fd int) error

	// Dial replaces the pool's own sockets. The context ends at the probe's
	// deadline and when the pool stops; the connection is closed by the pool.
	Dial func(ctx context.Context, t Target) (net.Conn, error)

	// Seed makes phases and jitter repeatable; 0 means random.
	Seed uint64
}

// Observation describes one finished probe for metrics.
type Observation struct {
	Key      Key
	Type     Type
	Result   Result
	Lateness time.Duration // how much later than planned it started, ≥ 0
}

// Pool probes targets. Make one with New, give it targets with Update, run it
// with Run. Safe for concurrent use.
type Pool struct {
	opts Options
	run  func(*worker, *spec, time.Time) Result // execute; replaced in tests of the schedule

	jobs   chan job      // capacity Concurrency: dispatch never blocks
	wake   chan struct{} // capacity 1: ends a long sleep of the schedule
	notify chan struct{} // capacity 1: there are transitions to deliver

	// Lock order: mu before inbox.mu.
	mu        sync.Mutex
	rng       *rand.Rand
	entries   map[Key]*entry
	queue     queue
	grids     map[time.Duration]*grid
	updates   uint64
	lastFirst time.Time // when the last first probe of a target started
	workers   []*worker
	inFlight  int
	healthy   int // targets in state Healthy
	pending   []Transition
	outage    *Outage
	stats     Stats
	started   bool

	inbox inbox
	spare []finished // buffer exchanged with the inbox; written by the schedule only
}

// inbox takes finished probes from the workers to the schedule.
type inbox struct {
	mu     sync.Mutex
	done   []finished
	asleep bool // the schedule sleeps for longer than a tick
}

// job is one probe to run; finished is its outcome.
type (
	job struct {
		entry *entry
		spec  *spec
		due   time.Time
	}
	finished struct {
		entry  *entry
		spec   *spec
		start  time.Time
		late   time.Duration
		result Result
	}
)

// New returns a pool without targets. The error names the option that is out
// of range.
func New(opts Options) (*Pool, error) {
	if opts.Concurrency < 0 {
		return nil, errors.New("probe concurrency: must not be negative")
	}
	if opts.Concurrency == 0 {
		opts.Concurrency = defaultConcurrency
	}
	seed := opts.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	p := &Pool{
		opts:    opts,
		jobs:    make(chan job, opts.Concurrency),
		wake:    make(chan struct{}, 1),
		notify:  make(chan struct{}, 1),
		rng:     rand.New(rand.NewPCG(seed, seed)),
		entries: make(map[Key]*entry),
		grids:   make(map[time.Duration]*grid),
	}
	p.run = p.execute
	return p, nil
}

// Run probes until ctx ends, then cancels the probes in flight, waits for
// every goroutine and returns nil. A pool runs once.
func (p *Pool) Run(ctx context.Context) error {
	p.mu.Lock()
	if p.started {
		p.mu.Unlock()
		return errors.New("probe pool: already run")
	}
	p.started = true
	p.mu.Unlock()

	var goroutines sync.WaitGroup
	goroutines.Go(func() { p.deliver(ctx) })
	p.schedule(ctx, &goroutines)
	close(p.jobs)
	p.cancelAll()
	goroutines.Wait()
	return nil
}

// schedule is the loop that starts probes and takes their results.
func (p *Pool) schedule(ctx context.Context, goroutines *sync.WaitGroup) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		sleep := max(p.pass(ctx, now, goroutines).Sub(now), tick)
		sleep = p.inbox.fallAsleep(sleep)
		timer.Reset(sleep)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			continue
		case <-p.wake:
		}
		if rest := tick - time.Since(now); rest > 0 {
			timer.Reset(rest)
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
		}
	}
}

// fallAsleep returns how long to sleep: what was asked for if nothing has
// finished, else a tick.
func (in *inbox) fallAsleep(d time.Duration) time.Duration {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.done) > 0 {
		return tick
	}
	in.asleep = d > tick
	return d
}

// take empties the inbox into buf.
func (in *inbox) take(buf []finished) []finished {
	in.mu.Lock()
	defer in.mu.Unlock()
	buf, in.done = in.done, buf[:0]
	in.asleep = false
	return buf
}

// nudge ends a sleep of the schedule.
func (p *Pool) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// report hands a finished probe to the schedule.
func (p *Pool) report(f finished) {
	p.inbox.mu.Lock()
	p.inbox.done = append(p.inbox.done, f)
	wake := p.inbox.asleep
	p.inbox.asleep = false
	p.inbox.mu.Unlock()
	if wake {
		p.nudge()
	}
}

// pass takes all results, starts all probes that are due as far as the bound
// allows, and returns when the next one is due.
func (p *Pool) pass(ctx context.Context, now time.Time, goroutines *sync.WaitGroup) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spare = p.inbox.take(p.spare)
	for i := range p.spare {
		p.finish(&p.spare[i], now)
		p.spare[i] = finished{}
	}
	for len(p.queue) > 0 {
		e := p.queue[0]
		if e.due.After(now) {
			return e.due
		}
		if p.inFlight >= p.opts.Concurrency {
			p.stats.Saturated++
			break // the next result makes room
		}
		p.start(ctx, e, now, goroutines)
	}
	return now.Add(time.Hour)
}

// start begins the probe of e, which is first in the queue.
func (p *Pool) start(ctx context.Context, e *entry, now time.Time, goroutines *sync.WaitGroup) {
	heap.Pop(&p.queue)
	if e.waiting {
		e.waiting = false
		p.lastFirst = now
	}
	j := job{entry: e, spec: e.spec, due: e.due}
	e.inFlight = true
	p.stats.Skipped += uint64(e.plan(now, p.rng))
	if p.inFlight == len(p.workers) {
		w := &worker{ctx: ctx}
		p.workers = append(p.workers, w)
		goroutines.Go(func() { p.work(w) })
	}
	p.inFlight++
	p.jobs <- j
}

// finish takes one result: verdict, history, next due time.
func (p *Pool) finish(f *finished, now time.Time) {
	e := f.entry
	p.inFlight--
	e.inFlight = false
	p.count(f)
	if e.removed {
		delete(p.entries, e.spec.target.Key)
		return
	}
	if f.spec == e.spec {
		p.judge(e, f, now)
	}
	if e.due.Before(now) {
		// Its own probe took longer than the interval: the target's phase
		// moves, so that this is not mistaken for a late schedule.
		e.due = now
		if !e.slot.IsZero() {
			e.slot = now
		}
	}
	heap.Push(&p.queue, e)
}

// judge applies a result of the entry's present check to its state.
func (p *Pool) judge(e *entry, f *finished, now time.Time) {
	e.last, e.lastAt = f.result, f.start
	e.probes++
	if f.result.Inconclusive {
		return
	}
	if !f.result.OK && e.verdict.failures == 0 {
		e.runStart = f.start
	}
	from := e.verdict.state
	if !e.verdict.add(f.result.OK, e.spec.target.Check) {
		return
	}
	if from == Unknown {
		e.plan(f.start, p.rng) // from the first spacing to the grid
	}
	p.changed(e, from, Transition{
		Key: e.spec.target.Key, From: from, To: e.verdict.state,
		Cause: f.result.Text, Latency: f.result.Latency, At: now,
	})
}

package probe

import (
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
	// options such as a mark. An error fails the probe, or says nothing about the
	// backend if it wraps ErrInconclusive. Not used with Dial.
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
	idle      []*worker // the one that finished last is at the end and gets the next job: its stack is in cache
	inFlight  int
	healthy   int // targets in state Healthy
	pending   []Transition
	outage    *Outage
	stats     Stats
	started   bool

	inbox inbox
	spare []finished // buffer exchanged with the inbox; written by the schedule only
}

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
	p.stopWorkers()
	goroutines.Wait()
	return nil
}

package probe

import (
	"context"
	"net"
	"sync"
	"time"
)

// stallSlack is how late the end of a timeout may be noticed before the probe
// is held to have failed for want of processor time.
const stallSlack = 20 * time.Millisecond

// worker is a goroutine that runs one probe at a time. It stays until the pool
// stops: its stack has grown to what a probe needs.
type worker struct {
	ctx  context.Context // of Run
	jobs chan job        // capacity 1: an idle worker takes a job at once

	mu      sync.Mutex
	conn    net.Conn // of the running probe
	stopped bool
}

// work runs jobs until the pool stops.
func (p *Pool) work(w *worker) {
	for j := range w.jobs {
		if w.ctx.Err() != nil {
			continue // drain: the schedule has ended, nobody wants the result
		}
		start := time.Now()
		res := p.run(w, j.spec, start)
		late := max(start.Sub(j.due), 0)
		if w.ctx.Err() == nil && p.opts.Observe != nil {
			t := &j.spec.target
			p.opts.Observe(Observation{Key: t.Key, Type: t.Check.Type, Result: res, Lateness: late})
		}
		p.report(finished{worker: w, entry: j.entry, spec: j.spec, start: start, late: late, result: res})
	}
}

// execute runs one probe from connect to close. It returns at the deadline at
// the latest, or when the pool stops.
func (p *Pool) execute(w *worker, s *spec, start time.Time) Result {
	timeout := s.target.Check.Timeout
	res := p.converse(w, s, start.Add(timeout))
	res.Latency = time.Since(start)
	if over := res.Latency - timeout; res.timedOut && over > max(stallSlack, timeout/10) {
		// Noticed so late, the timeout says that this process was not running:
		// the probe may have had no time to ask.
		res.Inconclusive = true
		res.Text += ", but this host was stalled for " + over.Round(time.Millisecond).String()
	}
	return res
}

func (p *Pool) converse(w *worker, s *spec, deadline time.Time) Result {
	var conn net.Conn
	if p.opts.Dial != nil {
		ctx, cancel := context.WithDeadline(w.ctx, deadline)
		defer cancel()
		c, err := p.opts.Dial(ctx, s.target)
		if err != nil {
			return failed("connect", err)
		}
		conn = c
	} else {
		c, err := p.open(s)
		if err != nil {
			return failed("open socket", err)
		}
		conn = c
	}
	defer conn.Close()
	if !w.begin(conn, deadline) {
		return Result{Text: "cancelled", Inconclusive: true}
	}
	defer w.end()
	sock, own := conn.(*socket)
	if own {
		if err := sock.connect(); err != nil {
			return failed("connect", err)
		}
	}
	res := s.checker.Probe(conn, s.target.destination())
	if res.timedOut && own && sock.readable() {
		// At the deadline the runtime ends a read even if the answer waits to
		// be read. A probe that is scheduled in time leaves nothing unread.
		res.Inconclusive = true
		res.Text += ", with data unread: this host was too slow"
	}
	return res
}

func (p *Pool) open(s *spec) (*socket, error) {
	var control func(int) error
	if p.opts.Control != nil {
		control = func(fd int) error { return p.opts.Control(s.target, fd) }
	}
	return openSocket(s.target.Addr, s.target.Check.socketOptions(), control)
}

// begin makes conn known to stop and sets its deadline; false if the pool has
// stopped already.
func (w *worker) begin(conn net.Conn, deadline time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || conn.SetDeadline(deadline) != nil {
		return false
	}
	w.conn = conn
	return true
}

// end is called before conn is closed.
func (w *worker) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn = nil
}

// stop ends the running probe and prevents further ones.
func (w *worker) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.conn != nil {
		_ = w.conn.SetDeadline(longAgo) // fails only if the probe has ended anyway
	}
}

// stopWorkers ends the probes in flight and then their goroutines.
func (p *Pool) stopWorkers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		w.stop()
		close(w.jobs)
	}
}

package probe

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

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

// nudge ends a sleep of the schedule.
func (p *Pool) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
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
	p.inFlight++
	w := p.takeWorker(ctx, goroutines)
	w.jobs <- j
}

// takeWorker returns an idle worker, a new one if there is none.
func (p *Pool) takeWorker(ctx context.Context, goroutines *sync.WaitGroup) *worker {
	if n := len(p.idle); n > 0 {
		w := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return w
	}
	w := &worker{ctx: ctx, jobs: make(chan job, 1)}
	p.workers = append(p.workers, w)
	goroutines.Go(func() { p.work(w) })
	return w
}

// finish takes one result: verdict, history, next due time.
func (p *Pool) finish(f *finished, now time.Time) {
	e := f.entry
	p.inFlight--
	p.idle = append(p.idle, f.worker)
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

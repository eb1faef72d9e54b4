package probe

import (
	"context"
	"time"
)

// Outage says that every target that was healthy began to fail within one
// interval. Backends seldom do that; a prober that lost its own network does.
type Outage struct {
	Failed  int           // targets that turned unhealthy together, at least 2
	Targets int           // all targets
	Window  time.Duration // the interval within which they began to fail
	At      time.Time     // verdict of the last of them
}

// changed records a transition of e and sets off its delivery.
func (p *Pool) changed(e *entry, from State, t Transition) {
	switch {
	case t.To == Healthy:
		p.healthy++
	case from == Healthy:
		p.healthy--
	}
	e.since = t.At
	e.history.add(t)
	p.stats.Transitions++
	p.pending = append(p.pending, t)
	if t.To == Unhealthy && from == Healthy && p.healthy == 0 {
		p.outage = p.findOutage(t.At)
	}
	select {
	case p.notify <- struct{}{}:
	default:
	}
}

// findOutage decides whether the loss of the last healthy target is an outage
// of everything. What counts is when each target began to fail, not when it
// was judged: thresholds and timeouts differ. Targets that have been failing
// for longer are not part of it, and must not be the majority.
func (p *Pool) findOutage(now time.Time) *Outage {
	var window time.Duration
	var newest time.Time
	for _, e := range p.entries {
		if e.removed || e.verdict.state == Unknown {
			continue
		}
		window = max(window, e.spec.target.Check.Interval)
		if e.runStart.After(newest) {
			newest = e.runStart
		}
	}
	o := Outage{Window: window, At: now}
	window += time.Duration(4 * jitterShare * float64(window)) // two probes moved apart
	for _, e := range p.entries {
		if e.removed {
			continue
		}
		o.Targets++
		if e.verdict.state == Unhealthy && newest.Sub(e.runStart) <= window {
			o.Failed++
		}
	}
	if o.Failed < 2 || 2*o.Failed <= o.Targets {
		return nil
	}
	return &o
}

// deliver runs the callbacks until ctx ends. While a callback runs, further
// transitions gather for the next one.
func (p *Pool) deliver(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.notify:
		}
		timer.Reset(coalesce - tick) // the verdict may have waited a tick already
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		transitions, outage := p.takePending()
		if len(transitions) > 0 && p.opts.OnTransitions != nil {
			p.opts.OnTransitions(transitions)
		}
		if outage != nil && p.opts.OnOutage != nil {
			p.opts.OnOutage(*outage)
		}
	}
}

// takePending returns what is to be delivered.
func (p *Pool) takePending() ([]Transition, *Outage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	transitions, outage := p.pending, p.outage
	p.pending, p.outage = nil, nil
	return transitions, outage
}

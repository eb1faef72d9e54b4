package probe

import (
	"slices"
	"strings"
	"time"
)

// Status is what is known about one target.
type Status struct {
	Target    Target
	State     State
	Since     time.Time // of the state; for Unknown, when the target was added
	Successes int       // in a row
	Failures  int       // in a row
	Last      Result    // of the last finished probe; zero before that
	LastStart time.Time // when that probe started; zero before that
	Next      time.Time // when the next probe is due
	Running   bool      // a probe is in flight
	Probes    uint64    // finished
}

// Stats counts since the pool was made, except for the first three.
type Stats struct {
	Targets  int
	Healthy  int
	InFlight int

	OK           uint64 // probes that succeeded
	Failed       uint64 // probes that failed
	Inconclusive uint64 // probes that could not be made: a shortage on this host
	Transitions  uint64
	Skipped      uint64        // probes left out because the one before started an interval late
	Saturated    uint64        // passes in which a due probe had to wait for the bound on concurrency
	Late         uint64        // probes that started more than a tenth of the interval late
	MaxLateness  time.Duration // the latest start of all
}

// States returns the status of every target, ordered by key. The slice belongs
// to the caller.
func (p *Pool) States() []Status {
	p.mu.Lock()
	out := make([]Status, 0, len(p.entries))
	for _, e := range p.entries {
		if !e.removed {
			out = append(out, e.status())
		}
	}
	p.mu.Unlock()
	slices.SortFunc(out, func(a, b Status) int { return compareKeys(a.Target.Key, b.Target.Key) })
	return out
}

// State returns the status of one target, false if there is no such target.
func (p *Pool) State(key Key) (Status, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[key]
	if e == nil || e.removed {
		return Status{}, false
	}
	return e.status(), true
}

// History returns the last transitions of a target, oldest first, at most 16.
// The slice belongs to the caller; it is nil if there is no such target.
func (p *Pool) History(key Key) []Transition {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[key]
	if e == nil || e.removed {
		return nil
	}
	return e.history.list()
}

// Stats returns the pool's counters.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Healthy, s.InFlight = p.healthy, p.inFlight
	for _, e := range p.entries {
		if !e.removed {
			s.Targets++
		}
	}
	return s
}

func (e *entry) status() Status {
	return Status{
		Target: e.spec.target, State: e.verdict.state, Since: e.since,
		Successes: e.verdict.successes, Failures: e.verdict.failures,
		Last: e.last, LastStart: e.lastAt, Next: e.due, Running: e.inFlight, Probes: e.probes,
	}
}

// count adds a finished probe to the counters.
func (p *Pool) count(f *finished) {
	switch {
	case f.result.Inconclusive:
		p.stats.Inconclusive++
	case f.result.OK:
		p.stats.OK++
	default:
		p.stats.Failed++
	}
	p.stats.MaxLateness = max(p.stats.MaxLateness, f.late)
	if f.late > f.spec.target.Check.Interval/10 {
		p.stats.Late++
	}
}

func compareKeys(a, b Key) int {
	if c := a.Backend.Compare(b.Backend); c != 0 {
		return c
	}
	if c := a.Rule.Compare(b.Rule); c != 0 {
		return c
	}
	return strings.Compare(a.Check, b.Check)
}

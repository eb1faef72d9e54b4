package probe

import (
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Update makes targets the targets of the pool. It is a diff by Key:
//
//   - what is unchanged keeps its state, its run and its place in the schedule;
//   - a target whose check or address changed keeps its state until the new
//     check has its own verdict, with the run starting anew;
//   - a new target is Unknown, unless it comes after another: then it has that one's state until its
//     own first verdict, and its history if that one leaves;
//   - what is not listed is forgotten.
//
// Listing the same target several times is the same as once. An invalid check
// or two different targets under one key is an error that changes nothing.
// Targets and their checks must not be changed afterwards.
func (p *Pool) Update(targets []Target) error {
	prepared, err := Prepare(targets)
	if err != nil {
		return err
	}
	p.Replace(prepared)
	return nil
}

// Prepared is a list of targets without an error, for Replace.
type Prepared struct{ specs []*spec }

// Prepare does the part of Update that can fail, for callers that change
// something else along with it.
func Prepare(targets []Target) (*Prepared, error) {
	specs, err := compile(targets)
	if err != nil {
		return nil, err
	}
	return &Prepared{specs}, nil
}

// Replace does the rest of Update.
func (p *Pool) Replace(targets *Prepared) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updates++
	now := time.Now()
	listed := make(map[Key]bool, len(targets.specs))
	for _, s := range targets.specs {
		listed[s.target.Key] = true
	}
	var fresh []*entry
	for _, s := range targets.specs {
		if e := p.place(s, now, listed); e != nil {
			fresh = append(fresh, e)
		}
	}
	for key, e := range p.entries {
		if e.mark != p.updates && !e.removed {
			p.remove(key, e)
		}
	}
	p.pending = slices.DeleteFunc(p.pending, func(t Transition) bool {
		e := p.entries[t.Key]
		return e == nil || e.removed
	})
	p.forgetGrids()
	p.pace(fresh, now)
	p.nudge()
}

// compile checks targets and prepares each once.
func compile(targets []Target) ([]*spec, error) {
	var errs []error
	checkers := make(map[*Check]Checker)
	byKey := make(map[Key]*spec, len(targets))
	specs := make([]*spec, 0, len(targets))
	for _, t := range targets {
		if known := byKey[t.Key]; known != nil {
			if !sameTarget(&known.target, &t) {
				errs = append(errs, fmt.Errorf("probe target %v: listed with two different checks or addresses", t.Key))
			}
			continue
		}
		if t.Check == nil || !t.Addr.IsValid() || t.Addr.Port() == 0 {
			errs = append(errs, fmt.Errorf("probe target %v: needs a check, an address and a port", t.Key))
			continue
		}
		c, seen := checkers[t.Check]
		if !seen {
			var err error
			if c, err = NewChecker(t.Check); err != nil {
				errs = append(errs, fmt.Errorf("health check %q: %w", t.Check.Name, err))
			}
			checkers[t.Check] = c
		}
		s := &spec{target: t, checker: c}
		byKey[t.Key] = s
		specs = append(specs, s)
	}
	return specs, errors.Join(errs...)
}

func sameTarget(a, b *Target) bool {
	return a.Addr == b.Addr && (a.Check == b.Check || a.Check != nil && b.Check != nil && *a.Check == *b.Check)
}

// place brings one of the listed targets into the entries and returns it if it is new
// or changed.
func (p *Pool) place(s *spec, now time.Time, listed map[Key]bool) *entry {
	e := p.entries[s.target.Key]
	switch {
	case e == nil:
		e = newEntry(now)
		p.entries[s.target.Key] = e
		p.succeed(e, s.target.After, listed)
	case e.removed: // came back while its last probe is still running
		*e = *newEntry(now)
		e.inFlight = true
		p.succeed(e, s.target.After, listed)
	case sameTarget(&e.spec.target, &s.target):
		e.mark = p.updates
		return nil
	}
	e.mark = p.updates
	e.spec = s
	e.grid = p.gridFor(s.target.Check.Interval, now)
	e.slot = time.Time{}
	e.verdict.successes, e.verdict.failures = 0, 0
	e.waiting = true
	return e
}

// succeed gives a new entry the state of the target that it comes after, and its history if that one is
// not listed any more.
func (p *Pool) succeed(e *entry, after Key, listed map[Key]bool) {
	before := p.entries[after]
	if before == nil || before == e || before.removed {
		return
	}
	e.verdict.state, e.since = before.verdict.state, before.since
	if e.verdict.state == Healthy {
		p.healthy++
	}
	if !listed[after] {
		e.history = before.history.clone()
	}
}

func (p *Pool) gridFor(interval time.Duration, now time.Time) *grid {
	g := p.grids[interval]
	if g == nil {
		g = newGrid(interval, now, p.rng)
		p.grids[interval] = g
	}
	return g
}

// forgetGrids drops the grids that no target uses any more.
func (p *Pool) forgetGrids() {
	used := make(map[*grid]bool, len(p.grids))
	for _, e := range p.entries {
		used[e.grid] = true
	}
	for interval, g := range p.grids {
		if !used[g] {
			delete(p.grids, interval)
		}
	}
}

// remove forgets a target, or marks it for that if its probe is running.
func (p *Pool) remove(key Key, e *entry) {
	if e.verdict.state == Healthy {
		p.healthy--
	}
	if e.index >= 0 {
		heap.Remove(&p.queue, e.index)
	}
	if e.inFlight {
		e.removed = true
		return
	}
	delete(p.entries, key)
}

// pace gives every target that waits for its first probe a time for it. The
// first starts at once; together with the regular probes of the others they
// stay within twice the rate that all targets have later. Those that waited
// before come first; fresh ones come in random order, so that the targets of
// one service or one machine are spread over the whole time.
func (p *Pool) pace(fresh []*entry, now time.Time) {
	if len(fresh) == 0 {
		return
	}
	p.rng.Shuffle(len(fresh), func(i, j int) { fresh[i], fresh[j] = fresh[j], fresh[i] })
	for _, e := range fresh {
		e.due = time.Time{} // not paced yet
	}
	var waiting []*entry
	var total, steady float64 // probes per second
	for _, e := range p.entries {
		if e.removed {
			continue
		}
		rate := 1 / e.spec.target.Check.Interval.Seconds()
		total += rate
		switch {
		case !e.waiting:
			steady += rate
		case !e.due.IsZero():
			waiting = append(waiting, e)
		}
	}
	slices.SortFunc(waiting, func(a, b *entry) int { return a.due.Compare(b.due) })
	waiting = append(waiting, fresh...)

	gap := time.Duration(float64(time.Second) / (2*total - steady))
	at := p.lastFirst.Add(gap)
	if at.Before(now) {
		at = now
	}
	for _, e := range waiting {
		e.due = at
		at = at.Add(gap)
		if e.index < 0 && !e.inFlight {
			p.queue.Push(e)
		}
	}
	heap.Init(&p.queue) // many due times changed at once
}

package probe

import (
	"math"
	"math/rand/v2"
	"time"
)

const (
	// firstSpacing separates the probes of a target without a verdict.
	firstSpacing = 200 * time.Millisecond
	// jitterShare of the interval is how far a probe may be moved either way,
	// so that appliances that started together do not probe in step.
	jitterShare = 0.02
)

// spec is what a probe needs to know of its target. It is never changed: a
// changed check is a new spec, which also tells results of the old one apart.
type spec struct {
	target  Target
	checker Checker
}

// entry is one target in the schedule. Guarded by the pool's mutex.
type entry struct {
	spec *spec
	grid *grid
	mark uint64 // number of the last Update that listed the target

	slot  time.Time // point of the grid that due stands for; zero while not on the grid
	due   time.Time // when the next probe is to start: slot plus jitter
	index int       // position in the queue, -1 while not in it

	waiting  bool // no probe of this spec has started yet
	inFlight bool // then not in the queue
	removed  bool // left the targets while a probe was running

	verdict  verdict
	since    time.Time // of the state
	runStart time.Time // start of the first failed probe of the present run
	last     Result
	lastAt   time.Time // start of the last finished probe
	probes   uint64    // finished
	history  history
}

// newEntry returns an entry in its first state, in no queue yet.
func newEntry(now time.Time) *entry {
	return &entry{index: -1, verdict: verdict{state: Unknown}, since: now}
}

// queue is a heap of entries, the one due first in front; implements
// heap.Interface.
type queue []*entry

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	e := x.(*entry)
	e.index = len(*q)
	*q = append(*q, e)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	e.index = -1
	*q = old[:len(old)-1]
	return e
}

// grid spreads the targets of one interval over it. The phases follow the
// golden-ratio sequence (Kronecker sequence): any number of consecutive
// members is spread almost evenly, so targets can join at any time without
// moving the others.
type grid struct {
	interval time.Duration
	epoch    time.Time // random within one interval
	members  uint64    // phases given out so far
}

func newGrid(interval time.Duration, now time.Time, rng *rand.Rand) *grid {
	return &grid{interval: interval, epoch: now.Add(-time.Duration(rng.Int64N(int64(interval))))}
}

// phase gives out the next place in the interval.
func (g *grid) phase() time.Duration {
	_, frac := math.Modf(float64(g.members) * (math.Phi - 1))
	g.members++
	return time.Duration(frac * float64(g.interval))
}

// after returns the first time with the given phase that is later than t.
func (g *grid) after(t time.Time, phase time.Duration) time.Time {
	since := t.Sub(g.epoch) - phase
	n := since / g.interval
	if since >= 0 || since%g.interval == 0 { // division rounds towards zero
		n++
	}
	return g.epoch.Add(phase + n*g.interval)
}

// plan sets when an entry whose probe starts now is due next, and returns how
// many intervals were lost because it starts too late.
func (e *entry) plan(now time.Time, rng *rand.Rand) (skipped int) {
	interval := e.spec.target.Check.Interval
	if e.verdict.state == Unknown {
		e.slot = time.Time{}
		e.due = now.Add(min(firstSpacing, interval))
		return 0
	}
	if e.slot.IsZero() {
		// First probe after the verdict: take a place in the grid. A gap
		// shorter than a quarter of the interval would be of no use.
		e.slot = e.grid.after(now.Add(interval/4), e.grid.phase())
	} else {
		e.slot = e.slot.Add(interval)
		for e.slot.Before(now) { // so late that a whole interval is lost
			e.slot = e.slot.Add(interval)
			skipped++
		}
	}
	e.due = e.slot.Add(jitter(interval, rng))
	return skipped
}

// jitter returns a random offset within jitterShare of the interval.
func jitter(interval time.Duration, rng *rand.Rand) time.Duration {
	return time.Duration((2*rng.Float64() - 1) * jitterShare * float64(interval))
}

package probe

import (
	"slices"
	"time"
)

// State is the health of a target.
type State int8

// The states. The numbers are those of the exported health metric.
const (
	Unknown   State = -1 // no verdict yet; not healthy
	Unhealthy State = 0
	Healthy   State = 1
)

// String returns HEALTHY, UNHEALTHY or UNKNOWN.
func (s State) String() string {
	switch s {
	case Healthy:
		return "HEALTHY"
	case Unhealthy:
		return "UNHEALTHY"
	}
	return "UNKNOWN"
}

// Transition is one change of a target's state.
type Transition struct {
	Key      Key
	From, To State
	Cause    string        // Text of the result that completed the run
	Latency  time.Duration // of that probe
	At       time.Time     // when its verdict was known
}

// verdict is a target's state and its run of equal results. Only the run
// matters: one opposite result sets it back to zero, so occasional misses
// never add up to an outage.
type verdict struct {
	state     State
	successes int // in a row; 0 if the last result was a failure
	failures  int // in a row; 0 if the last result was a success
}

// add takes one conclusive result and reports whether the state changed.
func (v *verdict) add(ok bool, c *Check) bool {
	if ok {
		v.successes, v.failures = v.successes+1, 0
		if v.state != Healthy && v.successes >= c.HealthyThreshold {
			v.state = Healthy
			return true
		}
		return false
	}
	v.successes, v.failures = 0, v.failures+1
	if v.state != Unhealthy && v.failures >= c.UnhealthyThreshold {
		v.state = Unhealthy
		return true
	}
	return false
}

// historyLen is how many transitions are kept per target.
const historyLen = 16

// history is a ring of a target's last transitions. It takes memory only once
// there is something to remember.
type history struct {
	ring []Transition // at most historyLen
	next int          // where the next one goes once the ring is full
}

func (h *history) add(t Transition) {
	if len(h.ring) < historyLen {
		h.ring = append(h.ring, t)
		return
	}
	h.ring[h.next] = t
	h.next = (h.next + 1) % historyLen
}

func (h *history) clone() history { return history{slices.Clone(h.ring), h.next} }

// list returns a copy, oldest first.
func (h *history) list() []Transition {
	out := make([]Transition, 0, len(h.ring))
	out = append(out, h.ring[h.next:]...)
	return append(out, h.ring[:h.next]...)
}

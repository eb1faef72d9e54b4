package selector

import (
	"math"
	"math/bits"
)

// WeightState says what a backend's last health check answer said about its weight.
type WeightState uint8

// Weight states.
const (
	NoWeight          WeightState = iota // nothing was reported yet
	ValidWeight                          // a number
	MissingWeight                        // an answer without a weight
	InvalidWeight                        // not one non-negative number
	UnavailableWeight                    // no answer; the last valid one goes on
)

// String is WEIGHT_NONE, VALID_WEIGHT, MISSING_WEIGHT, INVALID_WEIGHT or UNAVAILABLE_WEIGHT.
func (s WeightState) String() string {
	return [...]string{"WEIGHT_NONE", "VALID_WEIGHT", "MISSING_WEIGHT", "INVALID_WEIGHT", "UNAVAILABLE_WEIGHT"}[s]
}

// ReportedWeight is what a backend says its share of new connections should be, beside the others'.
type ReportedWeight struct {
	State WeightState
	Value float32 // with ValidWeight: finite, at least 0
}

// reported is the weight of a backend in one family. The value is the last valid one, if there was
// any: a backend that does not answer keeps it until its health check takes it out.
type reported struct {
	state WeightState
	known bool
	value float32
}

// SetWeight records what a backend of a service reported in one family; it counts in services with
// ReportedWeights. A weight touches new connections only. It reports whether such a backend is
// configured.
func (b *Builder) SetWeight(service, backend string, f Family, w ReportedWeight) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, e := b.backend(service, backend, f)
	if e == nil {
		return false
	}
	next := e.reported[f]
	next.state = w.State
	if w.State == ValidWeight {
		if v := float64(w.Value); v >= 0 && !math.IsInf(v, 0) {
			next.known, next.value = true, w.Value
		} else {
			next.state = InvalidWeight
		}
	}
	if next != e.reported[f] {
		e.reported[f] = next
		if s.config.ReportedWeights {
			s.dirty, b.changed = true, true
		}
	}
	return true
}

// BackendWeight is what is known of one backend's weight.
type BackendWeight struct {
	Backend string
	State   WeightState
	Known   bool    // Value is the last valid one
	Value   float32 // as reported
}

// Weights lists the weights of a service's backends in one family, in configuration order, and says
// whether they are in use: every backend that counts reported a valid one, or did not answer.
// Otherwise all weigh the same. It is nil for services without ReportedWeights.
func (b *Builder) Weights(service string, f Family) (list []BackendWeight, used bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.byName[service]
	if s == nil || !s.config.ReportedWeights {
		return nil, false
	}
	members, entries, _ := b.members(s, f)
	for _, e := range entries {
		r := e.reported[f]
		list = append(list, BackendWeight{e.name, r.state, r.known, r.value})
	}
	return list, reportsCount(f, members, entries)
}

// weights are those of the members for the tables: from the configuration, or as reported if they
// count, and else 1 for each.
func (s *serviceEntry) weights(f Family, members []Member, entries []*backendEntry) []uint32 {
	weights := make([]uint32, len(entries))
	switch {
	case !s.config.ReportedWeights:
		for i, e := range entries {
			weights[i] = e.weight
		}
	case reportsCount(f, members, entries):
		scaleWeights(weights, f, entries)
	default:
		for i := range weights {
			weights[i] = 1
		}
	}
	return weights
}

// reportsCount reports whether every member that counts has a weight to use. Who counts is as for
// the sets: a drained backend does not, nor does one without a first verdict once any has one, so
// that a new backend does not make all others weigh the same for the time it takes to get known.
func reportsCount(f Family, members []Member, entries []*backendEntry) bool {
	judged := false
	for i := range members {
		judged = judged || members[i].Health != Unknown
	}
	some := false
	for i, e := range entries {
		if members[i].Drained || members[i].Health == Unknown && judged {
			continue
		}
		switch e.reported[f].state {
		case ValidWeight:
			some = true
		case UnavailableWeight:
			some = some || e.reported[f].known
		default:
			return false
		}
	}
	return some
}

// weightBits is the precision of scaled weights: that of the single-precision numbers reported.
const weightBits = 24

// scaleWeights turns reported weights into integers in the same proportions. They are scaled by a
// power of two, so that as long as the greatest weight keeps its magnitude the others' integers do
// not depend on it; then by their common divisor, so that equal weights are 1 and make the table that
// there is without weights. A weight above 0 never becomes 0. Who has no weight yet gets the average.
func scaleWeights(weights []uint32, f Family, entries []*backendEntry) {
	greatest := float32(0)
	for _, e := range entries {
		if e.reported[f].known {
			greatest = max(greatest, e.reported[f].value)
		}
	}
	if greatest == 0 {
		return // all 0: they share alike
	}
	_, magnitude := math.Frexp(float64(greatest))
	var sum, known uint64
	for i, e := range entries {
		if r := e.reported[f]; r.known && r.value > 0 {
			weights[i] = max(1, uint32(math.RoundToEven(math.Ldexp(float64(r.value), weightBits-magnitude))))
		}
		if e.reported[f].known {
			sum += uint64(weights[i])
			known++
		}
	}
	average := max(1, uint32(sum/known))
	divisor := uint32(0)
	for i, e := range entries {
		if !e.reported[f].known {
			weights[i] = average
		}
		divisor = commonDivisor(divisor, weights[i])
	}
	for i := range weights {
		weights[i] /= divisor
	}
}

// commonDivisor is the greatest, by Stein's algorithm; that with 0 is the other number.
func commonDivisor(a, b uint32) uint32 {
	if a == 0 || b == 0 {
		return a | b
	}
	shift := bits.TrailingZeros32(a | b)
	a >>= bits.TrailingZeros32(a)
	for b != 0 {
		b >>= bits.TrailingZeros32(b)
		a, b = min(a, b), max(a, b)-min(a, b)
	}
	return a << shift
}

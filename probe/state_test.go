package probe

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The model has no counters: it looks at the whole list of results. A state is
// entered when the last threshold results all say so.
func modelState(results []bool, healthy, unhealthy int) State {
	state := Unknown
	for end := 1; end <= len(results); end++ {
		allEqual := func(n int, want bool) bool {
			if end < n {
				return false
			}
			for _, r := range results[end-n : end] {
				if r != want {
					return false
				}
			}
			return true
		}
		if allEqual(healthy, true) {
			state = Healthy
		}
		if allEqual(unhealthy, false) {
			state = Unhealthy
		}
	}
	return state
}

func TestVerdictMatchesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &Check{
			HealthyThreshold:   rapid.IntRange(1, 5).Draw(t, "healthy"),
			UnhealthyThreshold: rapid.IntRange(1, 5).Draw(t, "unhealthy"),
		}
		results := rapid.SliceOfN(rapid.Bool(), 0, 60).Draw(t, "results")
		v := verdict{state: Unknown}
		for i, ok := range results {
			before := v.state
			changed := v.add(ok, c)
			want := modelState(results[:i+1], c.HealthyThreshold, c.UnhealthyThreshold)
			if v.state != want {
				t.Fatalf("after %v: state = %v, want %v", results[:i+1], v.state, want)
			}
			if changed != (before != want) {
				t.Fatalf("after %v: changed = %v from %v to %v", results[:i+1], changed, before, want)
			}
			if v.successes > 0 && v.failures > 0 {
				t.Fatalf("both runs are counted: %+v", v)
			}
		}
	})
}

func TestHistoryKeepsTheLast(t *testing.T) {
	var h history
	for i := range 3*historyLen + 5 {
		h.add(Transition{Latency: time.Duration(i)})
		list := h.list()
		if want := min(i+1, historyLen); len(list) != want {
			t.Fatalf("after %d: %d kept, want %d", i+1, len(list), want)
		}
		for j, tr := range list {
			if want := time.Duration(i - len(list) + 1 + j); tr.Latency != want {
				t.Fatalf("after %d: element %d = %d, want %d", i+1, j, tr.Latency, want)
			}
		}
	}
}

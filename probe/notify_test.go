package probe

import (
	"testing"
	"time"
)

// outageProbe fails for every target once now is at or after the time given
// for it.
func outageProbe(failFrom func(Key) time.Time) func(Key, time.Time) (time.Duration, Result) {
	return func(k Key, now time.Time) (time.Duration, Result) {
		if from := failFrom(k); !from.IsZero() && !now.Before(from) {
			return time.Millisecond, Result{Text: "refused"}
		}
		return time.Millisecond, Result{OK: true, Text: "ok"}
	}
}

// Verdicts that fall close together are delivered together, none later than
// 10 ms (and the tick of the schedule) after it fell.
func TestTransitionsAreCoalesced(t *testing.T) {
	const n = 1000
	simulate(t, Options{}, alwaysOK, func(t *testing.T, s *simulation) {
		update(t, s.Pool, simTargets(n, simCheck(time.Second))...)
		s.sleep(3 * time.Second)
		s.log.mu.Lock()
		defer s.log.mu.Unlock()
		if len(s.log.list) != n {
			t.Fatalf("%d transitions, want %d", len(s.log.list), n)
		}
		for i, tr := range s.log.list {
			if d := s.log.arrived[i].Sub(tr.At); d < 0 || d > coalesce {
				t.Fatalf("transition delivered %v after the verdict", d)
			}
		}
		// They fall within half a second: a batch holds some twenty.
		if s.log.batches > n/10 {
			t.Errorf("%d transitions in %d batches", n, s.log.batches)
		}
	})
}

// A slow callback delays callbacks, not probes, and loses nothing.
func TestSlowCallback(t *testing.T) {
	const n = 100
	var got []Transition
	slow := func(ts []Transition) {
		time.Sleep(700 * time.Millisecond)
		got = append(got, ts...)
	}
	simulate(t, Options{}, alwaysOK, func(t *testing.T, s *simulation) {
		s.Pool.opts.OnTransitions = slow
		update(t, s.Pool, simTargets(n, simCheck(time.Second))...)
		s.sleep(10 * time.Second)
		if len(got) != n {
			t.Errorf("%d transitions, want %d", len(got), n)
		}
		if st := s.Stats(); st.Late > 0 || st.MaxLateness > 2*tick {
			t.Errorf("probes were late: %+v", st)
		}
	})
}

func TestOutage(t *testing.T) {
	const n = 20
	at := func(d time.Duration) time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d) } // synctest's epoch
	index := func(k Key) int { return int(k.Backend.As4()[3]) }
	for _, tc := range []struct {
		name     string
		failFrom func(Key) time.Time
		want     int // failed targets in the report; 0: no report
	}{
		{"all at once", func(Key) time.Time { return at(10 * time.Second) }, n},
		{"all but one", func(k Key) time.Time {
			if index(k) == 0 {
				return time.Time{}
			}
			return at(10 * time.Second)
		}, 0},
		{"one after the other", func(k Key) time.Time { return at(time.Duration(10+2*index(k)) * time.Second) }, 0},
		{"one was down before", func(k Key) time.Time {
			if index(k) == 0 {
				return at(5 * time.Second)
			}
			return at(20 * time.Second)
		}, n - 1},
		{"most were down before", func(k Key) time.Time {
			if index(k) < 15 {
				return at(5 * time.Second)
			}
			return at(20 * time.Second)
		}, 0},
		{"never up", func(Key) time.Time { return at(-time.Hour) }, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			simulate(t, Options{}, outageProbe(tc.failFrom), func(t *testing.T, s *simulation) {
				if !s.begin.Equal(at(0)) {
					t.Fatalf("time begins at %v", s.begin)
				}
				update(t, s.Pool, simTargets(n, simCheck(time.Second))...)
				s.sleep(70 * time.Second)
				s.log.mu.Lock()
				defer s.log.mu.Unlock()
				switch {
				case tc.want == 0 && len(s.log.outages) > 0:
					t.Errorf("reported %+v", s.log.outages)
				case tc.want > 0 && (len(s.log.outages) != 1 || s.log.outages[0].Failed != tc.want || s.log.outages[0].Targets != n):
					t.Errorf("reported %+v, want one outage of %d of %d", s.log.outages, tc.want, n)
				}
			})
		})
	}
}

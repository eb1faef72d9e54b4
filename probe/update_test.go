package probe

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestUpdateRefusesAsAWhole(t *testing.T) {
	good := simTargets(2, simCheck(time.Second))
	other := *good[0].Check
	other.UnhealthyThreshold++
	bad := *good[0].Check
	bad.Name, bad.Interval = "bad", 0
	for _, tc := range []struct {
		name string
		add  Target
		want string
	}{
		{"two checks under one key", Target{Key: good[0].Key, Addr: good[0].Addr, Check: &other}, "two different checks"},
		{"invalid check", NewTarget(good[0].Addr.Addr(), &bad), `health check "bad": interval`},
		{"no check", Target{Key: Key{Check: "x"}, Addr: good[0].Addr}, "needs a check"},
		{"no address", Target{Key: Key{Check: "x"}, Check: good[0].Check}, "needs a check, an address"},
	} {
		p, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		update(t, p, good...)
		err = p.Update(append(simTargets(3, good[0].Check), tc.add))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: Update() = %v, want %q", tc.name, err, tc.want)
		}
		if n := len(p.States()); n != 2 {
			t.Errorf("%s: %d targets after a refused update, want the 2 before", tc.name, n)
		}
	}
}

// Services that share a backend and a check share one schedule.
func TestUpdateShares(t *testing.T) {
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, b := simCheck(time.Second), simCheck(time.Second)
	update(t, p, append(simTargets(5, a), simTargets(5, b)...)...)
	if n := len(p.States()); n != 5 {
		t.Errorf("%d targets, want 5", n)
	}
	for _, s := range p.States() {
		if s.State != Unknown || s.Since.IsZero() || s.Next.IsZero() {
			t.Errorf("new target = %+v", s)
		}
	}
}

// A changed check keeps the verdict until it has its own; the run starts anew,
// and a result of the old check does not count for the new one.
func TestChangedCheckKeepsState(t *testing.T) {
	old := simCheck(time.Second)
	changed := *old
	changed.Interval, changed.Timeout, changed.UnhealthyThreshold = 2*time.Second, time.Second, 3
	var failing atomic.Bool
	probe := func(Key, time.Time) (time.Duration, Result) {
		if failing.Load() {
			return 400 * time.Millisecond, Result{Text: "no"}
		}
		return 400 * time.Millisecond, Result{OK: true, Text: "yes"}
	}
	simulate(t, Options{}, probe, func(t *testing.T, s *simulation) {
		target := simTargets(1, old)[0]
		update(t, s.Pool, target)
		s.sleep(5 * time.Second)
		for st, _ := s.State(target.Key); !st.Running; st, _ = s.State(target.Key) {
			s.sleep(10 * time.Millisecond)
		}
		before, _ := s.State(target.Key)
		target.Check = &changed
		update(t, s.Pool, target) // while a probe of the old check runs
		failing.Store(true)
		s.sleep(300 * time.Millisecond)
		st, _ := s.State(target.Key)
		if st.State != Healthy || st.Since != before.Since || st.Successes != 0 {
			t.Errorf("after the change: %+v", st)
		}
		s.sleep(3500 * time.Millisecond) // at most two failures so far
		if st, _ := s.State(target.Key); st.State != Healthy {
			t.Errorf("unhealthy before the new threshold: %+v", st)
		}
		s.sleep(5 * time.Second)
		if st, _ := s.State(target.Key); st.State != Unhealthy || st.Failures < 3 {
			t.Errorf("not unhealthy after the new threshold: %+v", st)
		}
	})
}

// Transitions of a target that is removed before they are delivered must not
// reach the caller, who would not know the target any more.
func TestRemovedTargetIsSilent(t *testing.T) {
	simulate(t, Options{}, alwaysOK, func(t *testing.T, s *simulation) {
		targets := simTargets(2, simCheck(time.Second))
		update(t, s.Pool, targets...)
		for s.Stats().Healthy == 0 {
			s.sleep(100 * time.Microsecond)
		}
		gone, stays := targets[0], targets[1]
		if st, _ := s.State(gone.Key); st.State != Healthy {
			gone, stays = stays, gone
		}
		update(t, s.Pool, stays)
		s.sleep(5 * time.Second)
		s.log.mu.Lock()
		defer s.log.mu.Unlock()
		if len(s.log.list) != 1 || s.log.list[0].Key == gone.Key {
			t.Errorf("delivered %+v", s.log.list)
		}
	})
}

// A target that comes back while its last probe is still running starts as
// unknown, and that probe counts for nothing.
func TestTargetComesBack(t *testing.T) {
	probe := func(Key, time.Time) (time.Duration, Result) {
		return 500 * time.Millisecond, Result{OK: true}
	}
	simulate(t, Options{}, probe, func(t *testing.T, s *simulation) {
		target := simTargets(1, simCheck(time.Second))[0]
		update(t, s.Pool, target)
		s.sleep(10 * time.Second)
		for st, _ := s.State(target.Key); !st.Running; st, _ = s.State(target.Key) {
			s.sleep(10 * time.Millisecond)
		}
		update(t, s.Pool)
		update(t, s.Pool, target)
		st, ok := s.State(target.Key)
		if !ok || st.State != Unknown || st.Probes != 0 || st.Last.OK || s.Stats().Healthy != 0 {
			t.Fatalf("came back as %+v", st)
		}
		s.sleep(600 * time.Millisecond) // the old probe has ended, the first new one has not
		if st, _ := s.State(target.Key); st.Successes != 0 || st.Probes != 0 {
			t.Errorf("the old probe counted: %+v", st)
		}
		s.sleep(5 * time.Second)
		if st, _ := s.State(target.Key); st.State != Healthy {
			t.Errorf("state = %v", st.State)
		}
	})
}

// A target that comes after another has its state until it has a verdict of its own, and its history if
// that one leaves.
func TestComesAfterAnother(t *testing.T) {
	var failing atomic.Bool
	probe := func(k Key, _ time.Time) (time.Duration, Result) {
		if failing.Load() && k.Check == "new" {
			return time.Millisecond, Result{Text: "no"}
		}
		return time.Millisecond, Result{OK: true, Text: "yes"}
	}
	simulate(t, Options{}, probe, func(t *testing.T, s *simulation) {
		check := simCheck(time.Second)
		old := simTargets(2, check)
		update(t, s.Pool, old...)
		s.sleep(10 * time.Second)
		failing.Store(true)
		other := *check
		other.Name = "new"
		replaced, beside := NewTarget(old[0].Key.Backend, &other), NewTarget(old[1].Key.Backend, &other)
		replaced.After, beside.After = old[0].Key, old[1].Key
		stranger := NewTarget(netip.MustParseAddr("192.0.2.1"), &other)
		stranger.After = Key{Check: "nobody"}
		update(t, s.Pool, replaced, beside, old[1], stranger)
		for _, want := range []struct {
			target  Target
			state   State
			history int
		}{{replaced, Healthy, 1}, {beside, Healthy, 0}, {old[1], Healthy, 1}, {stranger, Unknown, 0}} {
			st, ok := s.State(want.target.Key)
			if !ok || st.State != want.state || len(s.History(want.target.Key)) != want.history {
				t.Errorf("%v is %v with a history of %d, want %v and %d", want.target.Key, st.State, len(s.History(want.target.Key)), want.state, want.history)
			}
		}
		if n := s.Stats().Healthy; n != 3 {
			t.Errorf("%d healthy, want 3", n)
		}
		s.sleep(10 * time.Second)
		if st, _ := s.State(replaced.Key); st.State != Unhealthy || s.Stats().Healthy != 1 {
			t.Errorf("after the new check's own verdict: %+v, %d healthy", st, s.Stats().Healthy)
		}
		if h := s.History(replaced.Key); len(h) != 2 || h[1].From != Healthy || h[1].To != Unhealthy {
			t.Errorf("history %+v", h)
		}
	})
}

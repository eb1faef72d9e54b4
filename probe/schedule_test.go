package probe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// simulation runs a pool against fake probes in the fake time of synctest.
type simulation struct {
	*Pool
	log    transitionLog
	begin  time.Time
	starts map[Key][]time.Time
	all    []time.Time
	active map[Key]int
	most   int // probes in flight at once
	flying int
	faults []string
	lock   chan struct{} // capacity 1; a mutex that synctest sees as blocking
}

// simulate runs body in fake time. probe says how long a probe takes and how
// it ends.
func simulate(t *testing.T, opts Options, probe func(Key, time.Time) (time.Duration, Result), body func(*testing.T, *simulation)) {
	synctest.Test(t, func(t *testing.T) {
		s := &simulation{begin: time.Now(), starts: map[Key][]time.Time{}, active: map[Key]int{}, lock: make(chan struct{}, 1)}
		opts.OnTransitions, opts.OnOutage = s.log.add, s.log.outage
		if opts.Seed == 0 {
			opts.Seed = 42
		}
		p, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		s.Pool = p
		p.run = func(w *worker, sp *spec, start time.Time) Result {
			key := sp.target.Key
			s.enter(key, start)
			took, res := probe(key, start)
			timer := time.NewTimer(min(took, sp.target.Check.Timeout))
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-w.ctx.Done():
			}
			s.leave(key)
			res.Latency = took
			return res
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		body(t, s)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, f := range s.faults {
			t.Error(f)
		}
	})
}

// sleep lets time pass, and returns when everything due has been done, so that
// the records may be read.
func (s *simulation) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (s *simulation) enter(k Key, now time.Time) {
	s.lock <- struct{}{}
	defer func() { <-s.lock }()
	s.starts[k] = append(s.starts[k], now)
	s.all = append(s.all, now)
	s.flying++
	s.most = max(s.most, s.flying)
	if s.active[k]++; s.active[k] > 1 {
		s.faults = append(s.faults, fmt.Sprintf("%v: two probes at once after %v", k, now.Sub(s.begin)))
	}
}

func (s *simulation) leave(k Key) {
	s.lock <- struct{}{}
	defer func() { <-s.lock }()
	s.active[k]--
	s.flying--
}

func simCheck(interval time.Duration) *Check {
	return &Check{Name: interval.String(), Type: TCP, Port: 1, Interval: interval, Timeout: interval, HealthyThreshold: 2, UnhealthyThreshold: 2}
}

func simTargets(n int, c *Check) []Target {
	targets := make([]Target, n)
	for i := range targets {
		targets[i] = NewTarget(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), c)
	}
	return targets
}

func alwaysOK(Key, time.Time) (time.Duration, Result) {
	return 5 * time.Millisecond, Result{OK: true, Text: "ok"}
}

// maxIn returns the largest number of times within any window of the length.
func maxIn(times []time.Time, window time.Duration) int {
	most, first := 0, 0
	for last := range times {
		for times[last].Sub(times[first]) >= window {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

func between(times []time.Time, from, to time.Time) []time.Time {
	var out []time.Time
	for _, t := range times {
		if !t.Before(from) && t.Before(to) {
			out = append(out, t)
		}
	}
	return out
}

// First probes: at once, but at no more than twice the later rate; the second
// follows after 200 ms; then everything is spread over the interval.
func TestScheduleStart(t *testing.T) {
	const n, interval = 1000, 5 * time.Second
	simulate(t, Options{}, alwaysOK, func(t *testing.T, s *simulation) {
		update(t, s.Pool, simTargets(n, simCheck(interval))...)
		s.sleep(30 * time.Second)
		var firsts []time.Time
		for _, times := range s.starts {
			firsts = append(firsts, times[0])
			if gap := times[1].Sub(times[0]); gap < 190*time.Millisecond || gap > 215*time.Millisecond {
				t.Fatalf("second probe %v after the first, want 200 ms", gap)
			}
			for i := 3; i < len(times); i++ {
				if gap := times[i].Sub(times[i-1]); gap < interval*95/100 || gap > interval*105/100 {
					t.Fatalf("probe %d started %v after the one before, want %v", i, gap, interval)
				}
			}
		}
		if len(firsts) != n {
			t.Fatalf("%d targets were probed, want %d", len(firsts), n)
		}
		slices.SortFunc(firsts, time.Time.Compare)
		if d := firsts[0].Sub(s.begin); d > 5*time.Millisecond {
			t.Errorf("first probe after %v", d)
		}
		if d := firsts[n-1].Sub(s.begin); d < 2*time.Second || d > 2600*time.Millisecond {
			t.Errorf("last first probe after %v, want about half the interval", d)
		}
		const rate = float64(n) / 5 // per second
		if got := maxIn(firsts, 100*time.Millisecond); float64(got) > 2*rate*0.1+1 {
			t.Errorf("%d first probes in 100 ms, want at most %v", got, 2*rate*0.1+1)
		}
		steady := between(s.all, s.begin.Add(15*time.Second), s.begin.Add(30*time.Second))
		slices.SortFunc(steady, time.Time.Compare)
		if got, most := maxIn(steady, interval/10), 2*n/10; got > most {
			t.Errorf("%d probes in a tenth of the interval, want at most %d", got, most)
		}
		t.Logf("steady: at most %d in a tenth of the interval, average %d", maxIn(steady, interval/10), n/10)
		if st := s.Stats(); st.Healthy != n || st.Skipped > 0 || st.Late > 0 {
			t.Errorf("stats = %+v", st)
		}
	})
}

// A reload must not move what it does not change, nor cause a burst.
func TestScheduleReload(t *testing.T) {
	const n, interval = 500, time.Second
	c := simCheck(interval)
	simulate(t, Options{}, alwaysOK, func(t *testing.T, s *simulation) {
		update(t, s.Pool, simTargets(n, c)...)
		s.sleep(5 * time.Second)
		before := s.States()
		reload := time.Now()
		same := *c // equal data under another pointer is the same check
		update(t, s.Pool, append(simTargets(n, &same), simTargets(n, simCheck(2*time.Second))...)...)
		for _, b := range before {
			if a, _ := s.State(b.Target.Key); a.Next != b.Next || a.Since != b.Since || a.Probes != b.Probes || a.State != b.State {
				t.Fatalf("unchanged target moved: before %+v, after %+v", b, a)
			}
		}
		s.sleep(4 * time.Second)
		after := between(s.all, reload, reload.Add(4*time.Second))
		slices.SortFunc(after, time.Time.Compare)
		// n + n/2 a second in the end. In between at most twice that, and the
		// second probes of the new ones, which follow at the pace of the first.
		if got, most := maxIn(after, 100*time.Millisecond), 2*150+100+2; got > most {
			t.Errorf("%d probes in 100 ms after a reload, want at most %d", got, most)
		}
		update(t, s.Pool, simTargets(3, c)...)
		if got := len(s.States()); got != 3 {
			t.Errorf("%d targets after removal, want 3", got)
		}
		if st := s.Stats(); st.Healthy != 3 || st.Targets != 3 {
			t.Errorf("stats after removal = %+v", st)
		}
	})
}

// Targets that never answer must not slow down the others, and keep their
// interval, as long as the bound on concurrency suffices.
func TestScheduleTimeouts(t *testing.T) {
	const n, interval = 100, time.Second
	dead := func(k Key) bool { return k.Backend.As4()[3]%2 == 1 }
	probe := func(k Key, now time.Time) (time.Duration, Result) {
		if dead(k) {
			return time.Hour, Result{Text: "timed out"}
		}
		return alwaysOK(k, now)
	}
	simulate(t, Options{Concurrency: 60}, probe, func(t *testing.T, s *simulation) {
		update(t, s.Pool, simTargets(n, simCheck(interval))...)
		s.sleep(600 * time.Second)
		for k, times := range s.starts {
			for i := 4; i < len(times); i++ {
				if gap := times[i].Sub(times[i-1]); gap < interval*95/100 || gap > interval*105/100 {
					t.Fatalf("%v (dead %v): probe %d started %v after the one before", k, dead(k), i, gap)
				}
			}
		}
		if s.most > 60 {
			t.Errorf("%d probes in flight, bound 60", s.most)
		}
		if st := s.Stats(); st.Healthy != n/2 || st.Skipped > 0 || st.Late > 0 {
			t.Errorf("stats = %+v", st)
		}
	})
}

// With too small a bound probes run late but in order: every target gets its
// turn, and nothing runs in bursts to catch up.
func TestScheduleSaturated(t *testing.T) {
	const n, bound = 50, 5 // 50 probes of 300 ms each second need 15
	probe := func(Key, time.Time) (time.Duration, Result) {
		return 300 * time.Millisecond, Result{OK: true}
	}
	simulate(t, Options{Concurrency: bound}, probe, func(t *testing.T, s *simulation) {
		update(t, s.Pool, simTargets(n, simCheck(time.Second))...)
		s.sleep(60 * time.Second)
		if s.most != bound {
			t.Errorf("%d probes in flight at most, want %d", s.most, bound)
		}
		least, most := 1<<30, 0
		for _, times := range s.starts {
			least, most = min(least, len(times)), max(most, len(times))
		}
		if len(s.starts) != n || least < most-2 {
			t.Errorf("probes per target from %d to %d over %d targets; want equal shares", least, most, len(s.starts))
		}
		if st := s.Stats(); st.Saturated == 0 || st.Skipped == 0 || st.Late == 0 {
			t.Errorf("saturation is not reported: %+v", st)
		}
	})
}

// Random updates at random times over random probe durations: never two
// probes of one target at once (checked by simulate), never more in flight
// than allowed, and the targets are those of the last update.
func TestScheduleRandomUpdates(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	checks := []*Check{simCheck(100 * time.Millisecond), simCheck(time.Second), simCheck(7 * time.Second)}
	changed := *checks[1]
	changed.UnhealthyThreshold = 5
	probe := func(k Key, now time.Time) (time.Duration, Result) {
		h := uint64(now.UnixNano()) * 0x9e3779b97f4a7c15 >> 33
		return time.Duration(h%1500) * time.Millisecond, Result{OK: h%3 > 0, Inconclusive: h%7 == 0}
	}
	simulate(t, Options{Concurrency: 20, Seed: seed}, probe, func(t *testing.T, s *simulation) {
		for range 300 {
			want := map[Key]bool{}
			var targets []Target
			for range rng.IntN(60) {
				c := checks[rng.IntN(len(checks))]
				if c == checks[1] && rng.IntN(2) == 0 {
					c = &changed
				}
				tg := NewTarget(netip.AddrFrom4([4]byte{10, 0, 0, byte(rng.IntN(20))}), c)
				if !want[tg.Key] {
					want[tg.Key] = true
					targets = append(targets, tg)
				}
			}
			update(t, s.Pool, targets...)
			s.sleep(time.Duration(rng.Int64N(int64(500 * time.Millisecond))))
			healthy := 0
			for _, st := range s.States() {
				if !want[st.Target.Key] {
					t.Fatalf("%v is still there", st.Target.Key)
				}
				delete(want, st.Target.Key)
				if st.State == Healthy {
					healthy++
				}
			}
			if len(want) > 0 {
				t.Fatalf("missing targets: %v", want)
			}
			if got := s.Stats().Healthy; got != healthy {
				t.Fatalf("Stats().Healthy = %d, counted %d", got, healthy)
			}
		}
		if s.most > 20 {
			t.Errorf("%d in flight, bound 20", s.most)
		}
	})
}

func TestGridAfter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := time.Duration(rapid.Int64Range(int64(minInterval), int64(maxInterval)).Draw(t, "interval"))
		base := time.Unix(1_700_000_000, 0)
		g := newGrid(interval, base, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		g.members = rapid.Uint64Range(0, 1<<20).Draw(t, "members")
		phase := g.phase()
		if phase < 0 || phase >= interval {
			t.Fatalf("phase = %v of %v", phase, interval)
		}
		now := base.Add(time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "now")))
		next := g.after(now, phase)
		if d := next.Sub(now); d <= 0 || d > interval {
			t.Fatalf("after(%v) is %v later, want (0, %v]", now, d, interval)
		}
		if off := next.Sub(g.epoch.Add(phase)) % interval; off != 0 {
			t.Fatalf("after is off the grid by %v", off)
		}
	})
}

// It occupies every processor for seconds.

//go:build !race

package probe

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// Forwarding workers spin on threads of their own. With GOMAXPROCS raised by
// their number probes must go on: the kernel then shares the processors. The
// lateness is printed, not asserted, since it is the machine's, and so are
// probes that fail; what is asserted is that no target starves and that nothing
// is judged unhealthy for want of processor time.
func TestSpinningWorkers(t *testing.T) {
	workers := runtime.NumCPU()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + workers))

	stop := make(chan struct{})
	var spinning sync.WaitGroup
	for range workers {
		spinning.Go(func() {
			runtime.LockOSThread()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	defer spinning.Wait()
	defer close(stop)

	const n, interval, run = 200, time.Second, 6 * time.Second
	check := &Check{
		Name: "spin", Type: HTTP, Port: childServer(t), Interval: interval, Timeout: interval,
		HealthyThreshold: 2, UnhealthyThreshold: 5,
	}
	var l lateness
	var log transitionLog
	opts := log.options()
	opts.Observe = l.observe
	p := startPool(t, opts)
	update(t, p, loopbackTargets(n, check)...)
	waitFor(t, "all healthy", func() bool { return p.Stats().Healthy == n })
	l.reset()
	before := map[Key]uint64{}
	for _, s := range p.States() {
		before[s.Target.Key] = s.Probes
	}
	begin := time.Now()
	time.Sleep(run)
	elapsed := time.Since(begin)
	late, probes := l.percentiles()
	t.Logf("%d probes beside %d spinning threads on %d CPUs: late by p50 %v, p99 %v, p99.9 %v, at most %v",
		probes, workers, runtime.NumCPU(), late[0], late[1], late[2], late[3])

	want := uint64(elapsed / interval)
	for _, s := range p.States() {
		if got := s.Probes - before[s.Target.Key]; got < want/3 || got > want+2 {
			t.Errorf("%v: %d probes in %v, want about %d", s.Target.Key, got, elapsed, want)
		}
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	for _, tr := range log.list {
		if tr.To != Healthy {
			t.Errorf("transition %+v", tr)
		}
	}
	t.Logf("%d probes failed", p.Stats().Failed)
}

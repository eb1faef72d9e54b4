package probe

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	runChildServer()
	goleak.VerifyTestMain(m)
}

// startPool runs a pool until the test ends.
func startPool(t testing.TB, opts Options) *Pool {
	t.Helper()
	p, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return p
}

func update(t testing.TB, p *Pool, targets ...Target) {
	t.Helper()
	if err := p.Update(targets); err != nil {
		t.Fatal(err)
	}
}

// waitFor polls until ok holds.
func waitFor(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

func fastCheck(typ Type, port uint16) *Check {
	return &Check{
		Name: "fast", Type: typ, Port: port,
		Interval: 100 * time.Millisecond, Timeout: 100 * time.Millisecond,
		HealthyThreshold: 2, UnhealthyThreshold: 3,
	}
}

func addrOf(l net.Listener) netip.AddrPort {
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// transitionLog gathers callbacks.
type transitionLog struct {
	mu      sync.Mutex
	list    []Transition
	arrived []time.Time // when list[i] was delivered
	batches int
	outages []Outage
}

func (l *transitionLog) options() Options {
	return Options{OnTransitions: l.add, OnOutage: l.outage}
}

func (l *transitionLog) add(ts []Transition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batches++
	for _, t := range ts {
		l.list = append(l.list, t)
		l.arrived = append(l.arrived, time.Now())
	}
}

func (l *transitionLog) outage(o Outage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outages = append(l.outages, o)
}

func (l *transitionLog) last() (Transition, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) == 0 {
		return Transition{}, time.Time{}
	}
	return l.list[len(l.list)-1], l.arrived[len(l.arrived)-1]
}

// The whole way over real sockets: unknown, healthy, dead and out of rotation
// in time, alive again.
func TestPoolFollowsServer(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	addr := addrOf(srv.Listener)
	var log transitionLog
	p := startPool(t, log.options())
	target := NewTarget(addr.Addr(), fastCheck(HTTP, addr.Port()))
	update(t, p, target)
	waitFor(t, 2*time.Second, "first verdict", func() bool { tr, _ := log.last(); return tr.To == Healthy })
	if tr, _ := log.last(); tr.From != Unknown || tr.Cause != "status 200" || tr.Key != target.Key {
		t.Errorf("first transition = %+v", tr)
	}

	// Die right after a probe: the longest way to the verdict.
	probes := func() uint64 { s, _ := p.State(target.Key); return s.Probes }
	n := probes()
	waitFor(t, time.Second, "next probe", func() bool { return probes() > n })
	died := time.Now()
	srv.Close()
	waitFor(t, 2*time.Second, "unhealthy", func() bool { tr, _ := log.last(); return tr.To == Unhealthy })
	tr, at := log.last()
	t.Logf("verdict after %v, delivered after %v: %s", tr.At.Sub(died), at.Sub(died), tr.Cause)
	if took := at.Sub(died); took < 200*time.Millisecond || took > 450*time.Millisecond {
		t.Errorf("dead backend delivered after %v, want 200 ms to 450 ms", took)
	}

	l, err := net.Listen("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	srv = &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}}
	srv.Start()
	defer srv.Close()
	waitFor(t, 2*time.Second, "healthy again", func() bool { tr, _ := log.last(); return tr.To == Healthy })
	if h := p.History(target.Key); len(h) != 3 || h[1].To != Unhealthy || h[1].Cause != "connect: connection refused" {
		t.Errorf("history = %+v", h)
	}
}

package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	runChildServer()
	code := m.Run()
	if code == 0 {
		// A goroutine that has done its work ends when the scheduler lets it.
		err := goleak.Find()
		for deadline := time.Now().Add(patience); err != nil && time.Now().Before(deadline); {
			err = goleak.Find()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// patience is how long tests wait for what must come: far longer than it takes
// on a machine that is busy with other things.
const patience = time.Minute

// ownLoopback is an address of 127.0.0.0/8 for this process alone: ports of
// 127.0.0.1 are given out to everybody on the machine, between one use in a
// test and the next.
var ownLoopback = fmt.Sprintf("127.%d.%d.%d", 1+os.Getpid()>>16&127, os.Getpid()>>8&255, max(2, os.Getpid()&255))

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
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
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

// The whole way over real sockets: unknown, healthy, dead, alive again.
func TestPoolFollowsServer(t *testing.T) {
	start := func(address string) *httptest.Server {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}}
		srv.Start()
		return srv
	}
	srv := start(ownLoopback + ":0")
	addr := addrOf(srv.Listener)
	var log transitionLog
	p := startPool(t, log.options())
	check := fastCheck(HTTP, addr.Port())
	check.UnhealthyThreshold = 10 // or a busy machine makes verdicts of its own
	target := NewTarget(addr.Addr(), check)
	update(t, p, target)
	waitFor(t, "first verdict", func() bool { tr, _ := log.last(); return tr.To == Healthy })
	if tr, _ := log.last(); tr.From != Unknown || tr.Cause != "status 200" || tr.Key != target.Key {
		t.Errorf("first transition = %+v", tr)
	}

	// Die right after a probe: the longest way to the verdict.
	probes := func() uint64 { s, _ := p.State(target.Key); return s.Probes }
	n := probes()
	waitFor(t, "next probe", func() bool { return probes() > n })
	died := time.Now()
	srv.Close()
	waitFor(t, "unhealthy", func() bool { tr, _ := log.last(); return tr.To == Unhealthy })
	tr, at := log.last()
	t.Logf("verdict after %v (aim: 1 s), delivered after %v: %s", tr.At.Sub(died), at.Sub(died), tr.Cause)
	if s, _ := p.State(target.Key); s.Failures < check.UnhealthyThreshold {
		t.Errorf("unhealthy after %d failures, want %d", s.Failures, check.UnhealthyThreshold)
	}

	srv = start(addr.String())
	defer srv.Close()
	waitFor(t, "healthy again", func() bool { tr, _ := log.last(); return tr.To == Healthy })
	if h := p.History(target.Key); len(h) != 3 || h[1].To != Unhealthy || h[1].Cause != "connect: connection refused" {
		t.Errorf("history = %+v", h)
	}
}

// Stopping must not wait for timeouts.
func TestRunStopsAtOnce(t *testing.T) {
	c := fastCheck(HTTP, 80)
	c.Interval, c.Timeout = 300*time.Second, 300*time.Second
	silent, hole := serve(t, untilClosed), blackHole(t)
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, b := NewTarget(silent.Addr(), c), NewTarget(hole.Addr(), c)
	a.Addr, b.Addr = silent, hole
	b.Key.Check = "hole"
	other := *c
	other.Name = "hole"
	other.Interval, other.Timeout = 2*time.Second, 2*time.Second
	b.Check = &other
	update(t, p, a)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Run(ctx) }()
	waitFor(t, "probe in flight", func() bool { return p.Stats().InFlight == 1 })
	update(t, p, b) // the first one is removed while it runs
	waitFor(t, "second probe in flight", func() bool { s, ok := p.State(b.Key); return ok && s.Running })
	cancel()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("Run does not return")
	}
	if err := p.Run(context.Background()); err == nil {
		t.Error("a pool ran twice")
	}
}

// A shortage of descriptors is the fault of this host: no backend may be
// judged by it.
func TestShortageIsInconclusive(t *testing.T) {
	addr := serve(t, answer("HTTP/1.1 200 OK\r\n\r\n"))
	var mu sync.Mutex
	short := false
	opts := Options{Control: func(Target, int) error {
		mu.Lock()
		defer mu.Unlock()
		if short {
			return os.NewSyscallError("socket", syscall.EMFILE)
		}
		return nil
	}}
	p := startPool(t, opts)
	target := NewTarget(addr.Addr(), fastCheck(HTTP, addr.Port()))
	update(t, p, target)
	waitFor(t, "healthy", func() bool { s, _ := p.State(target.Key); return s.State == Healthy })
	mu.Lock()
	short = true
	mu.Unlock()
	waitFor(t, "five shortages", func() bool { return p.Stats().Inconclusive >= 5 })
	s, _ := p.State(target.Key)
	if s.State != Healthy || !s.Last.Inconclusive || !strings.Contains(s.Last.Text, "too many open files") {
		t.Errorf("status = %+v", s)
	}
}

// Control sees the socket before it connects.
func TestControl(t *testing.T) {
	addr := serve(t, answer("HTTP/1.1 200 OK\r\n\r\n"))
	target := NewTarget(addr.Addr(), fastCheck(HTTP, addr.Port()))
	called := make(chan error, 100)
	p := startPool(t, Options{Control: func(got Target, fd int) error {
		if got != target {
			called <- fmt.Errorf("target = %+v", got)
		}
		if _, err := unix.Getpeername(fd); err != unix.ENOTCONN {
			called <- fmt.Errorf("getpeername: %v, want ENOTCONN", err)
		}
		called <- nil
		return errors.New("no mark for you")
	}})
	update(t, p, target)
	if err := <-called; err != nil {
		t.Error(err)
	}
	waitFor(t, "unhealthy", func() bool { s, _ := p.State(target.Key); return s.State == Unhealthy })
	if s, _ := p.State(target.Key); s.Last.Text != "open socket: no mark for you" {
		t.Errorf("text = %q", s.Last.Text)
	}
}

// Dial replaces the pool's sockets; its context ends with the probe.
func TestDial(t *testing.T) {
	addr := serve(t, answer("HTTP/1.1 200 OK\r\n\r\n"))
	target := Target{Key: Key{Check: "elsewhere"}, Addr: netip.MustParseAddrPort("192.0.2.1:80"), Check: fastCheck(HTTP, 80)}
	var mu sync.Mutex
	broken := false
	p := startPool(t, Options{Dial: func(ctx context.Context, got Target) (net.Conn, error) {
		if _, ok := ctx.Deadline(); !ok || got != target {
			t.Errorf("deadline %v, target %+v", ok, got)
		}
		mu.Lock()
		defer mu.Unlock()
		if broken {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return new(net.Dialer).DialContext(ctx, "tcp", addr.String())
	}})
	update(t, p, target)
	waitFor(t, "healthy", func() bool { s, _ := p.State(target.Key); return s.State == Healthy })
	mu.Lock()
	broken = true
	mu.Unlock()
	waitFor(t, "unhealthy", func() bool { s, _ := p.State(target.Key); return s.State == Unhealthy })
	if h := p.History(target.Key); h[len(h)-1].Cause != "connect: timed out" {
		t.Errorf("history = %+v", h)
	}
}

// A timeout that is noticed much too late says that this process was not
// running, not that the backend was silent.
func TestStallIsInconclusive(t *testing.T) {
	for _, tc := range []struct {
		stall time.Duration
		want  bool
	}{{0, false}, {300 * time.Millisecond, true}} {
		p, err := New(Options{Dial: func(ctx context.Context, _ Target) (net.Conn, error) {
			<-ctx.Done()
			time.Sleep(tc.stall)
			return nil, ctx.Err()
		}})
		if err != nil {
			t.Fatal(err)
		}
		c := fastCheck(TCP, 1)
		checker, err := NewChecker(c)
		if err != nil {
			t.Fatal(err)
		}
		unlessStalled(t, tc.want, func() Result {
			return p.execute(&worker{ctx: t.Context()}, &spec{Target{Check: c}, checker}, time.Now())
		})
	}
}

// unlessStalled makes a probe that must be inconclusive or not, again where the
// machine itself stalled it.
func unlessStalled(t *testing.T, inconclusive bool, probe func() Result) (res Result) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if res = probe(); res.Inconclusive == inconclusive {
			return res
		}
		if inconclusive { // no stall makes it conclusive
			break
		}
	}
	t.Errorf("inconclusive %v wanted: %+v", inconclusive, res)
	return res
}

// checkerFunc is a Checker made of a function.
type checkerFunc func(net.Conn) Result

func (f checkerFunc) Probe(c net.Conn, _ netip.AddrPort) Result { return f(c) }

// An answer that waits unread at the deadline says that this host was slow; a
// deadline with nothing to read says that the backend was.
func TestUnreadAnswerIsInconclusive(t *testing.T) {
	written := make(chan struct{}, 1)
	banner := serve(t, func(c net.Conn) { c.Write([]byte("220 ready")); written <- struct{}{}; untilClosed(c) })
	silent := serve(t, untilClosed)
	for _, tc := range []struct {
		addr netip.AddrPort
		want bool
	}{{banner, true}, {silent, false}} {
		p, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		target := NewTarget(tc.addr.Addr(), fastCheck(TCP, tc.addr.Port()))
		var deadline time.Time
		late := checkerFunc(func(c net.Conn) Result {
			if tc.want {
				<-written
			}
			time.Sleep(time.Until(deadline) + time.Millisecond)
			_, err := c.Read(make([]byte, 10))
			return failed("read", err)
		})
		s := &spec{target: target, checker: late}
		res := unlessStalled(t, tc.want, func() Result {
			deadline = time.Now().Add(target.Check.Timeout)
			return p.converse(&worker{ctx: t.Context()}, s, deadline)
		})
		if !res.timedOut || strings.Contains(res.Text, "unread") != tc.want {
			t.Errorf("inconclusive %v wanted: %+v", tc.want, res)
		}
	}
}

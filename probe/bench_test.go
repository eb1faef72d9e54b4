package probe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// childEnv makes the test binary a web server, so that the server's cost is
// not counted as the prober's.
const childEnv = "ZONEHOP_PROBE_TEST_SERVER"

// runChildServer serves a fixed answer to everything until its standard input
// ends, if this process is the child.
func runChildServer() {
	if os.Getenv(childEnv) == "" {
		return
	}
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(addrOf(l).Port())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var buf [1024]byte
				if _, err := c.Read(buf[:]); err == nil {
					c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"))
				}
			}()
		}
	}()
	bufio.NewReader(os.Stdin).ReadByte()
	os.Exit(0)
}

// childServer starts the server process and returns its port, which is open on
// every address of 127.0.0.0/8.
func childServer(tb testing.TB) uint16 {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { in.Close(); cmd.Wait() })
	var port uint16
	if _, err := fmt.Fscan(out, &port); err != nil {
		tb.Fatal(err)
	}
	return port
}

// loopbackTargets returns n targets on different addresses of 127.0.0.0/8.
func loopbackTargets(n int, c *Check) []Target {
	targets := make([]Target, n)
	for i := range targets {
		targets[i] = NewTarget(netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), c)
	}
	return targets
}

// lateness gathers how late probes start.
type lateness struct {
	mu   sync.Mutex
	late []time.Duration
}

func (l *lateness) observe(o Observation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = append(l.late, o.Lateness)
}

func (l *lateness) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = l.late[:0]
}

// percentiles returns the median, the 99th, the 99.9th and the worst.
func (l *lateness) percentiles() (p [4]time.Duration, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = len(l.late)
	if n == 0 {
		return p, 0
	}
	slices.Sort(l.late)
	for i, q := range []float64{0.5, 0.99, 0.999, 1} {
		p[i] = l.late[int(q*float64(n-1))]
	}
	return p, n
}

// cpuTime is what this process has used.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// BenchmarkTenThousand probes 10 000 HTTP backends each second for ten seconds
// and reports the processor cores used and how late probes start. The server
// is another process on the same machine and competes for its processors.
func BenchmarkTenThousand(b *testing.B) {
	port := childServer(b)
	check := &Check{
		Name: "web", Type: HTTP, Port: port, Interval: time.Second, Timeout: time.Second,
		HealthyThreshold: 2, UnhealthyThreshold: 2,
	}
	const n = 10_000
	var l lateness
	p, err := New(Options{Observe: l.observe, Seed: 1})
	if err != nil {
		b.Fatal(err)
	}
	if err := p.Update(loopbackTargets(n, check)); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Run(ctx) }()
	defer func() { cancel(); <-ended }()

	waitFor(b, "all healthy", func() bool { return p.Stats().Healthy == n })
	time.Sleep(2 * time.Second) // the last ones reach their place in the interval
	for b.Loop() {
		l.reset()
		cpu, start := cpuTime(b), time.Now()
		time.Sleep(10 * time.Second)
		took := time.Since(start)
		used := cpuTime(b) - cpu
		late, probes := l.percentiles()
		b.ReportMetric(used.Seconds()/took.Seconds(), "cores")
		b.ReportMetric(float64(probes)/took.Seconds(), "probes/s")
		b.ReportMetric(float64(used.Microseconds())/float64(probes), "µs/probe")
		b.ReportMetric(late[0].Seconds()*1e3, "late-p50-ms")
		b.ReportMetric(late[1].Seconds()*1e3, "late-p99-ms")
		b.ReportMetric(late[3].Seconds()*1e3, "late-max-ms")
	}
	if s := p.Stats(); s.Failed > 0 || s.Healthy != n {
		b.Errorf("stats = %+v, want no failure", s)
	}
}

// BenchmarkProbe is the cost of one probe at a time: the pool's own way, and
// the same request through net.Dialer and through net/http for comparison.
// Processor time includes the kernel's, on loopback for both directions.
func BenchmarkProbe(b *testing.B) {
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), childServer(b))
	c := &Check{Name: "web", Type: HTTP, Port: addr.Port(), Interval: time.Second, Timeout: time.Second, HealthyThreshold: 1, UnhealthyThreshold: 1}
	checker, err := NewChecker(c)
	if err != nil {
		b.Fatal(err)
	}
	s := &spec{target: NewTarget(addr.Addr(), c), checker: checker}
	w := &worker{ctx: context.Background()}
	pool := func(opts Options) func() error {
		p, err := New(opts)
		if err != nil {
			b.Fatal(err)
		}
		return func() error {
			if res := p.execute(w, s, time.Now()); !res.OK {
				return errors.New(res.Text)
			}
			return nil
		}
	}
	dial := func(ctx context.Context, t Target) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", t.Addr.String())
		if err == nil {
			err = conn.(*net.TCPConn).SetLinger(0)
		}
		return conn, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	url := "http://" + addr.String() + "/"
	for _, v := range []struct {
		name  string
		probe func() error
	}{
		{"own", pool(Options{})},
		{"dialer", pool(Options{Dial: dial})},
		{"nethttp", func() error {
			resp, err := client.Get(url)
			if err != nil {
				return err
			}
			return resp.Body.Close()
		}},
	} {
		b.Run(v.name, func(b *testing.B) {
			b.ReportAllocs()
			cpu := cpuTime(b)
			for b.Loop() {
				if err := v.probe(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpuTime(b)-cpu).Nanoseconds())/1e3/float64(b.N), "cpu-µs/probe")
		})
	}
}

// BenchmarkUpdate is a reload that changes nothing, and a look at every state,
// with 10 000 targets. Both hold up the schedule while they have its lock.
func BenchmarkUpdate(b *testing.B) {
	p, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	targets := loopbackTargets(10_000, simCheck(time.Second))
	update(b, p, targets...)
	b.Run("same", func(b *testing.B) {
		for b.Loop() {
			update(b, p, targets...)
		}
	})
	b.Run("states", func(b *testing.B) {
		for b.Loop() {
			p.States()
		}
	})
}

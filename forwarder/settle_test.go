package forwarder

import (
	"context"
	"errors"
	"testing"
	"time"

	"zonehop/forwarder/xsk"
)

// TestSettle: what was asked for before is waited for, with a bound, and a
// stopped supervisor keeps nobody waiting.
func TestSettle(t *testing.T) {
	r := newRig(t, rigOptions{backends: 1})
	s := NewSupervisor(SupervisorOptions{Shared: r.shared, Interfaces: []InterfaceConfig{{Name: "absent", Rings: xsk.DefaultConfig()}}})
	within := func(d time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		return s.Settle(ctx)
	}
	if err := within(time.Second); err != nil {
		t.Errorf("nothing was asked for, and Settle says %v", err)
	}
	s.SetClassification(Classification{})
	if err := within(20 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody brings it about, and Settle says %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	// None waits for the supervisor's next look at everything. Busy machines
	// delay some of them.
	const times = 100
	began := time.Now()
	for range times {
		s.SetClassification(Classification{})
		if err := within(time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > times*reconcileInterval/2 {
		t.Errorf("%d times took %v", times, took)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.SetClassification(Classification{})
	if err := within(time.Minute); !errors.Is(err, ErrStopped) {
		t.Errorf("after the end Settle says %v", err)
	}
}

// TestPending: an interface is settled once it works or was refused, not before.
func TestPending(t *testing.T) {
	bound, refused := &queue{binding: &binding{}}, &queue{retryAt: time.Now()}
	for _, c := range []struct {
		name string
		a    attachment
		link Link
		want bool
	}{
		{"absent", attachment{}, Link{}, false},
		{"never tried", attachment{}, Link{Index: 3}, true},
		{"refused", attachment{retryAt: time.Now()}, Link{Index: 3}, false},
		{"made again", attachment{index: 2, classifies: true}, Link{Index: 3}, true},
		{"attached, not told what to take", attachment{index: 3}, Link{Index: 3}, true},
		{"a queue never tried", attachment{index: 3, classifies: true, queues: map[int]*queue{0: bound}}, Link{Index: 3, Queues: 2}, true},
		{"a queue refused", attachment{index: 3, classifies: true, queues: map[int]*queue{0: bound, 1: refused}}, Link{Index: 3, Queues: 2}, false},
		{"a queue busy", attachment{index: 3, classifies: true, queues: map[int]*queue{0: {retryAt: time.Now(), busyUntil: time.Now().Add(time.Minute)}}}, Link{Index: 3, Queues: 1}, true},
		{"a queue busy for too long", attachment{index: 3, classifies: true, queues: map[int]*queue{0: {retryAt: time.Now(), busyUntil: time.Now()}}}, Link{Index: 3, Queues: 1}, false},
		{"works", attachment{index: 3, classifies: true, queues: map[int]*queue{0: bound}}, Link{Index: 3, Queues: 1}, false},
	} {
		s := &Supervisor{ifaces: []*attachment{&c.a}}
		s.have.links = []Link{c.link}
		if got := s.pending(); got != c.want {
			t.Errorf("%s: pending %v, want %v", c.name, got, c.want)
		}
	}
}

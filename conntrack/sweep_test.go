package conntrack

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// TestKeepSwept: entries vanish everywhere in the table when their time is over,
// not before, until the context ends.
func TestKeepSwept(t *testing.T) {
	table := newTable(t, Options{Lines: 1 << 14, Seed: 3})
	w := table.NewWriter()
	defer w.Close()
	const flows = 5000
	fill(t, w, flows, 0)
	var clock atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		table.KeepSwept(ctx, clock.Load)
		close(ended)
	}()
	time.Sleep(2 * sweepTick)
	if used := table.Stats().Used; used != flows {
		t.Errorf("%d of %d entries are left before their time is over", used, flows)
	}
	clock.Store(int64(24 * time.Hour))
	for end := time.Now().Add(10 * SweepPeriod); table.Stats().Used != 0; time.Sleep(sweepTick) {
		if time.Now().After(end) {
			t.Fatalf("%d entries are left long after their time", table.Stats().Used)
		}
	}
	stop()
	<-ended
}

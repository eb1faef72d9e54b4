package conntrack

import (
	"context"
	"time"
)

// SweepPeriod is how long [Table.KeepSwept] takes for a whole table, however large.
const SweepPeriod = sweepTicks * sweepTick

const (
	sweepTick  = 100 * time.Millisecond
	sweepTicks = 64
)

// KeepSwept sweeps the table, and joins its pages, until ctx is done, beside those
// that handle packets. clock gives what [TickOf] takes.
func (t *Table) KeepSwept(ctx context.Context, clock func() int64) {
	w := t.NewWriter()
	defer w.Close()
	tick := time.NewTicker(sweepTick)
	defer tick.Stop()
	lines := max(t.Lines()/sweepTicks, 1024)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			t.JoinPages()
			w.Sweep(TickOf(clock()), lines)
		}
	}
}

// Sweep frees expired entries in about maxLines lines, and continues where the
// last call stopped, whichever writer made it; so writers share the work. It
// looks at whole regions of 64 lines, and one that was never used counts as
// one line. Nothing depends on how often it is called but the room that
// expired entries take, the quota of Unconfirmed ones included.
func (w *Writer) Sweep(now Tick, maxLines int) {
	t := w.t
	regions := uint64(t.mask>>regionShift) + 1
	for turn := uint64(0); turn < regions && maxLines > 0; turn++ {
		region := (t.cursor.Add(1) - 1) & (regions - 1)
		if !t.isTouched(region) {
			maxLines--
			continue
		}
		maxLines -= regionLines
		for i := uint32(region) << regionShift; ; {
			for marks := everyTop &^ untagged(w.tags(i).Load()); marks != 0; marks &= marks - 1 {
				w.sweepLine(marked(i, marks), now)
			}
			if i += bucketLines; i%regionLines == 0 {
				break
			}
		}
	}
}

func (w *Writer) sweepLine(i uint32, now Tick) {
	l := w.at(i)
	ident := l.ident.Load()
	if !holdsEntry(ident) {
		return
	}
	seen, meta := l.seen.Load(), l.meta.Load()
	if seen != 0 && l.ident.Load() == ident && w.limits.expired(seen, meta, now) {
		w.expire(i, seen)
	}
}

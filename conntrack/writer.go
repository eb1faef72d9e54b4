package conntrack

import "sync/atomic"

// Writer is one goroutine's access to a [Table]. It must not be used by two
// goroutines at once.
type Writer struct {
	store          // copies of what never changes, for one load less
	limits *limits //
	t      *Table
	lease  int64 // Unconfirmed entries this writer may still make; below 0: owed
	_      [80]byte

	counters // written by this writer alone, read by all
}

// counters is what one writer did, in a block of its own that no other writer
// touches, 128 bytes because adjacent cache lines are fetched in pairs.
type counters struct {
	n [16]atomic.Uint64
}

// Events. How many entries are in each state follows from them, so that each
// change of an entry is one store.
const (
	madeUnconfirmed = iota
	madeConfirmed
	freedUnconfirmed // freed…: by the state of the entry at its end, in the order of State
	freedConfirmed
	freedClosing
	confirmedUnconfirmed // the second packet
	closedUnconfirmed
	closedConfirmed
	reopenedConfirmed // a new selection: unconfirmed again
	reopenedClosing
	expiredEvent   // of those freed
	existedEvent   // insertions that found an entry
	withdrawnEvent // of those made and freed: lost against another writer's
	reselectedEvent
	rejectedQuota
	rejectedFull
	eventCount
)

func (c *counters) count(event int) {
	n := &c.n[event&15]
	n.Store(n.Load() + 1) // one writer: no read-modify-write needed
}

// totals are sums over writers.
type totals [eventCount]uint64

func (s *totals) add(c *counters) {
	for i := range s {
		s[i] += c.n[i].Load()
	}
}

// NewWriter makes a writer for one goroutine. Close it when the goroutine ends
// and the table lives on.
func (t *Table) NewWriter() *Writer {
	w := &Writer{store: t.store, limits: t.limits, t: t}
	t.mu.Lock()
	t.writers = append(t.writers, w)
	t.mu.Unlock()
	return w
}

// Close gives the writer's share of the quota back and adds its counters to
// those of the table. It must not be used afterwards.
func (w *Writer) Close() {
	t := w.t
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, other := range t.writers {
		if other == w {
			t.writers = append(t.writers[:i], t.writers[i+1:]...)
			t.retired.add(&w.counters)
			t.unused.Add(w.lease)
			w.lease = 0
			return
		}
	}
}

// acquire takes one of the quota of Unconfirmed entries. Writers take it from
// the table leaseLen at a time, so there are never more than the quota (but
// for the few that reopen made) and at most 2*leaseLen of it, an eighth of a
// percent or 128 entries, lie idle with each other writer when it is refused.
func (w *Writer) acquire() bool {
	if w.lease <= 0 {
		t := w.t
		for {
			unused := t.unused.Load()
			if unused <= 0 {
				return false
			}
			n := min(unused, t.leaseLen-w.lease)
			if t.unused.CompareAndSwap(unused, unused-n) {
				w.lease += n
				break
			}
		}
		if w.lease <= 0 {
			return false
		}
	}
	w.lease--
	return true
}

// giveBack returns one of the quota.
func (w *Writer) giveBack() {
	w.lease++
	if n := w.t.leaseLen; w.lease > 2*n {
		w.lease -= n
		w.t.unused.Add(n)
	}
}

// reopen takes one of the quota for an entry that is Unconfirmed again, even
// if there is none left; then as many new ones are refused until it is paid.
func (w *Writer) reopen() {
	if !w.acquire() {
		w.lease--
	}
}

// end ends the entry of line i if its seen word still is the given one: it
// accounts for it and frees the line. False means that somebody else changed the
// entry and nothing was done.
func (w *Writer) end(i uint32, seen uint64) bool {
	l := w.at(i)
	if !l.seen.CompareAndSwap(seen, 0) {
		return false
	}
	w.accountFreed(seen)
	for {
		// The entry stays dead as long as ident is the same. Another ident
		// with a live entry, or none: a rival has freed the line already.
		ident := l.ident.Load()
		if !holdsEntry(ident) || l.seen.Load() != 0 {
			return true
		}
		if l.ident.CompareAndSwap(ident, claimIdent(ident)) {
			w.clearTag(i)
			l.ident.Store(freeIdent(ident))
			return true
		}
	}
}

// expire ends an entry whose time is over, unless it was hit by now.
func (w *Writer) expire(i uint32, seen uint64) {
	if w.end(i, seen) {
		w.count(expiredEvent)
	}
}

func (w *Writer) accountFreed(seen uint64) {
	s := stateOf(seen)
	w.count(freedUnconfirmed + int(s))
	if s == Unconfirmed {
		w.giveBack()
	}
}

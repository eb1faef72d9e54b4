package forwarder

import (
	"sync"
	"sync/atomic"

	"zonehop/selector"
)

// The fixed part of a worker's counters: one number per drop reason, answer
// and origin, and a few more. After them come two numbers per (rule, backend)
// pair and one per (rule, client zone, backend zone), whose count the
// snapshot's layout decides, and the bytes per (client zone, backend zone).
const (
	cDropped    = 0
	cAnswered   = cDropped + NumReasons
	cOriginated = cAnswered + int(numAnswers)
	cReceived   = cOriginated + int(numOrigins)
	cForwarded  = cReceived + 1
	cHeld       = cForwarded + 1 // fragments that wait; the only number here that also falls
	cMidFlow    = cHeld + 1      // non-SYN TCP packets without an entry
	cCopied     = cMidFlow + 1   // frames copied to another worker's memory
	cHandedOn   = cCopied + 1    // copies taken from the mailbox
	cCompleted  = cHandedOn + 1  // frames the kernel has sent and given back
	cAbandoned  = cCompleted + 1 // frames on their way out when their port was closed
	cWakeups    = cAbandoned + 1 // times the worker slept and was woken
	cPasses     = cWakeups + 1   // batches processed
	// claims to addresses of ours that were not passed on
	cMissedClaims = cPasses + 1
	cFixed        = cMissedClaims + 1
)

// counters belong to one worker. It counts in plain integers and publishes
// them from time to time (always before it sleeps) with atomic stores, so a
// reader sees exact numbers whenever the worker is quiet and numbers at most
// publishInterval old otherwise.
//
// When a reload changes the layout, the worker folds the old pairs into a map
// by name and starts a new array: nothing is lost, and the packet path keeps
// its dense index.
type counters struct {
	local  []uint64 // the worker's own
	pairs  int      // index of the first pair in local
	conns  int      // index of the first connection counter in local
	zones  int      // index of the first zone counter in local
	layout *selector.Layout

	mu     sync.Mutex // guards shared, layout as readers see it, and folded
	shared []atomic.Uint64
	pubLay *selector.Layout
	folded Totals
}

// Totals are counters by name, summed over workers and over layouts.
type Totals struct {
	Dropped    [NumReasons]uint64
	Answered   [numAnswers]uint64
	Originated [numOrigins]uint64

	Received, Forwarded uint64
	Held                uint64
	MidFlowMisses       uint64
	Copied, HandedOn    uint64
	Completed           uint64
	Abandoned           uint64
	Wakeups, Passes     uint64
	MissedClaims        uint64

	Pairs map[PairLabel]PairTotals
	Conns map[ConnLabel]uint64
	// Zones are bytes by client zone and backend zone; they are counted only
	// if the appliance's own zone is known.
	Zones map[ZoneLabel]uint64
}

// PairLabel names a pair counter.
type PairLabel struct{ Rule, Backend string }

// ConnLabel names a connection counter; an empty zone is none.
type ConnLabel struct{ Rule, ClientZone, BackendZone string }

// ZoneLabel names a zone counter; an empty zone is none.
type ZoneLabel struct{ ClientZone, BackendZone string }

func pairLabel(l *selector.Layout, i int) PairLabel {
	rule, backend, _ := l.PairLabel(i)
	return PairLabel{rule, backend}
}

// PairTotals counts what one rule sent to one backend.
type PairTotals struct{ Packets, Bytes uint64 }

// relayout starts counting for a snapshot with another layout.
func (c *counters) relayout(l *selector.Layout) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.layout != nil {
		addLabelled(&c.folded, c.layout, func(i int) uint64 { return c.local[i] })
		c.folded.forget(l)
	}
	next := make([]uint64, cFixed+2*l.Pairs+l.Conns+l.Stride*l.Stride)
	copy(next, c.local[:min(len(c.local), cFixed)])
	c.local, c.layout = next, l
	c.pairs, c.conns, c.zones = cFixed, cFixed+2*l.Pairs, cFixed+2*l.Pairs+l.Conns
	c.shared, c.pubLay = make([]atomic.Uint64, len(next)), l
	for i, v := range next[:cFixed] {
		c.shared[i].Store(v)
	}
}

// publish makes the worker's numbers visible to readers.
func (c *counters) publish() {
	for i, v := range c.local {
		if s := &c.shared[i]; s.Load() != v {
			s.Store(v)
		}
	}
}

// pair counts one packet of n bytes sent on behalf of a rule to a backend.
func (c *counters) pair(index uint32, n uint32) {
	i := c.pairs + 2*int(index)
	c.local[i]++
	c.local[i+1] += uint64(n)
	c.local[cForwarded]++
}

// foreignPair counts a packet that was decided under another layout than the
// one this worker counts in: a frame in a mailbox while a reload went by.
func (c *counters) foreignPair(l *selector.Layout, index uint32, n uint32) {
	c.local[cForwarded]++
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.folded.Pairs == nil {
		c.folded.Pairs = make(map[PairLabel]PairTotals)
	}
	label := pairLabel(l, int(index))
	p := c.folded.Pairs[label]
	p.Packets++
	p.Bytes += uint64(n)
	c.folded.Pairs[label] = p
}

// addTo adds the published numbers to t. Safe for concurrent use.
func (c *counters) addTo(t *Totals) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.merge(&c.folded)
	if c.pubLay == nil {
		return
	}
	at := func(i int) uint64 { return c.shared[i].Load() }
	for i := range t.Dropped {
		t.Dropped[i] += at(cDropped + i)
	}
	for i := range t.Answered {
		t.Answered[i] += at(cAnswered + i)
	}
	for i := range t.Originated {
		t.Originated[i] += at(cOriginated + i)
	}
	t.Received += at(cReceived)
	t.Forwarded += at(cForwarded)
	t.Held += at(cHeld)
	t.MidFlowMisses += at(cMidFlow)
	t.Copied += at(cCopied)
	t.HandedOn += at(cHandedOn)
	t.Completed += at(cCompleted)
	t.Abandoned += at(cAbandoned)
	t.Wakeups += at(cWakeups)
	t.Passes += at(cPasses)
	t.MissedClaims += at(cMissedClaims)
	addLabelled(t, c.pubLay, at)
}

// addLabelled adds the pair and connection counters of one layout to t.
func addLabelled(t *Totals, l *selector.Layout, at func(int) uint64) {
	if t.Pairs == nil {
		t.Pairs = make(map[PairLabel]PairTotals)
	}
	if t.Conns == nil {
		t.Conns = make(map[ConnLabel]uint64)
	}
	for i := range l.Pairs {
		if n := at(cFixed + 2*i); n != 0 {
			label := pairLabel(l, i)
			p := t.Pairs[label]
			p.Packets += n
			p.Bytes += at(cFixed + 2*i + 1)
			t.Pairs[label] = p
		}
	}
	for i := range l.Conns {
		if n := at(cFixed + 2*l.Pairs + i); n != 0 {
			rule, client, backend := l.ConnLabel(i)
			t.Conns[ConnLabel{rule, client, backend}] += n
		}
	}
	for i := range l.Stride * l.Stride {
		if n := at(cFixed + 2*l.Pairs + l.Conns + i); n != 0 {
			t.addZones(ZoneLabel{l.ZoneLabel(i / l.Stride), l.ZoneLabel(i % l.Stride)}, n)
		}
	}
}

func (t *Totals) addZones(l ZoneLabel, n uint64) {
	if t.Zones == nil {
		t.Zones = make(map[ZoneLabel]uint64)
	}
	t.Zones[l] += n
}

// merge adds the labelled part of o, which is all that a fold holds.
func (t *Totals) merge(o *Totals) {
	if len(o.Pairs) > 0 && t.Pairs == nil {
		t.Pairs = make(map[PairLabel]PairTotals)
	}
	for l, p := range o.Pairs {
		q := t.Pairs[l]
		q.Packets += p.Packets
		q.Bytes += p.Bytes
		t.Pairs[l] = q
	}
	if len(o.Conns) > 0 && t.Conns == nil {
		t.Conns = make(map[ConnLabel]uint64)
	}
	for l, n := range o.Conns {
		t.Conns[l] += n
	}
	for l, n := range o.Zones {
		t.addZones(l, n)
	}
}

// DroppedTotal is the sum over all reasons.
func (t *Totals) DroppedTotal() (n uint64) {
	for _, v := range t.Dropped {
		n += v
	}
	return n
}

// AnsweredTotal is the sum over all kinds.
func (t *Totals) AnsweredTotal() (n uint64) {
	for _, v := range t.Answered {
		n += v
	}
	return n
}

// OriginatedTotal is the sum over all kinds.
func (t *Totals) OriginatedTotal() (n uint64) {
	for _, v := range t.Originated {
		n += v
	}
	return n
}

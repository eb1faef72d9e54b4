package claim

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

const (
	// DefendInterval is the least time between two defences of an address on
	// one link (RFC 5227 section 1.1, DEFEND_INTERVAL).
	DefendInterval = 10 * time.Second
	// maxDefences bounds the defences within one DefendInterval: who claims
	// addresses in every VLAN must not make us flood them all.
	maxDefences = 1024
	// maxRecords bounds the hosts that are remembered; the ones not heard of
	// for longest are forgotten first.
	maxRecords = 64
	// recordLife is how long after its last claim a host is remembered.
	recordLife = time.Hour
	// tellInterval is the least time between two reports of one record,
	// tellEvery and tellBurst the rate of all reports.
	tellInterval = time.Minute
	tellEvery    = 6 * time.Second
	tellBurst    = 10
)

// Options configure a Guard. The functions are called with its lock held: they
// must not call it, and are called by whoever calls Take.
type Options struct {
	// Answers reports whether an address is answered for on a port now.
	Answers func(addr [2]uint64, port int) bool
	// Own reports whether a MAC is that of an interface of ours: what is heard
	// from it is our own announcement, reflected or on another interface.
	Own func(mac uint64) bool
	// Defend sends one announcement of the claim's address on its port and in
	// its VLAN, and reports whether it could be sent.
	Defend func(Claim) bool
	// Tell is called for what an operator should know, at a limited rate.
	Tell func(Report)
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Record is what is known of one host's claims to one address.
type Record struct {
	Claim
	First, Last time.Time
	Count       uint64 // claims, or probes
	Defences    uint64 // answered with an announcement of ours
}

// Report is a record at the moment of a claim.
type Report struct {
	Record
	Defended bool   // this time
	Untold   uint64 // reports left out since the last one, for their number
}

// Counts sum what a Guard was given.
type Counts struct {
	Conflicts, Probes uint64 // claims by others to what is answered for
	Defences          uint64
}

// Guard decides about claims. Make one with NewGuard.
type Guard struct {
	opts Options

	mu       sync.Mutex // guards what follows
	counts   Counts
	records  map[Claim]*record
	defended map[defence]time.Time
	tellable time.Duration // saved up, at most tellBurst times tellEvery
	credited time.Time     // when it was last added to
	untold   uint64
}

type record struct {
	Record
	told time.Time
}

// defence is an address on one link: neighbours in one VLAN do not hear what is
// announced in another.
type defence struct {
	addr [2]uint64
	tags Tags
	port int
}

// NewGuard makes a Guard.
func NewGuard(o Options) *Guard {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Guard{
		opts: o, records: make(map[Claim]*record), defended: make(map[defence]time.Time),
		tellable: tellBurst * tellEvery, credited: o.Now(),
	}
}

// Take deals with one claim. It is ignored unless another host makes it to an
// address that is answered for on its port.
func (g *Guard) Take(c Claim) {
	if !g.opts.Answers(c.Addr, c.Port) || g.opts.Own(c.MAC) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.opts.Now()
	r := g.record(c, now)
	r.Last = now
	r.Count++
	defended := false
	switch c.Kind {
	case Probe: // the answer to it is the defence
		g.counts.Probes++
	default:
		g.counts.Conflicts++
		if defended = g.defend(c, now); defended {
			r.Defences++
			g.counts.Defences++
		}
	}
	g.tell(r, now, defended)
}

// record finds or makes the record of a claim.
func (g *Guard) record(c Claim, now time.Time) *record {
	r := g.records[c]
	if r != nil {
		return r
	}
	if len(g.records) >= maxRecords {
		var oldest *record
		for _, o := range g.records {
			if oldest == nil || o.Last.Before(oldest.Last) {
				oldest = o
			}
		}
		delete(g.records, oldest.Claim)
	}
	r = &record{Record: Record{Claim: c, First: now}}
	g.records[c] = r
	return r
}

// defend sends a defence unless the address was defended within the interval.
//
// This is RFC 5227 section 2.4 (c), for hosts whose address others rely on: it
// is never given up, and one announcement in an interval keeps two hosts of
// this kind from answering each other for ever. IPv6 has no such rule of its
// own; the same is done with an unsolicited advertisement that overrides what
// neighbours know (RFC 4861 section 7.2.6).
func (g *Guard) defend(c Claim, now time.Time) bool {
	key := defence{c.Addr, c.Tags, c.Port}
	if last, ok := g.defended[key]; ok && now.Sub(last) < DefendInterval {
		return false
	}
	if len(g.defended) >= maxDefences {
		for k, last := range g.defended {
			if now.Sub(last) >= DefendInterval {
				delete(g.defended, k)
			}
		}
		if len(g.defended) >= maxDefences {
			return false
		}
	}
	if !g.opts.Defend(c) {
		return false
	}
	g.defended[key] = now
	return true
}

// tell reports a record, unless it was reported within a minute or too many
// others were.
func (g *Guard) tell(r *record, now time.Time, defended bool) {
	if !r.told.IsZero() && now.Sub(r.told) < tellInterval {
		return
	}
	g.tellable = min(g.tellable+now.Sub(g.credited), tellBurst*tellEvery)
	g.credited = now
	if g.tellable < tellEvery {
		g.untold++
		return
	}
	g.tellable -= tellEvery
	r.told = now
	g.opts.Tell(Report{Record: r.Record, Defended: defended, Untold: g.untold})
	g.untold = 0
}

// Counts returns the sums.
func (g *Guard) Counts() Counts {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.counts
}

// Records returns who claimed or probed an address within the last hour, the
// latest first.
func (g *Guard) Records() (out []Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.opts.Now()
	for c, r := range g.records {
		if now.Sub(r.Last) > recordLife {
			delete(g.records, c)
			continue
		}
		out = append(out, r.Record)
	}
	slices.SortFunc(out, func(a, b Record) int {
		return cmp.Or(b.Last.Compare(a.Last), b.First.Compare(a.First), slices.Compare(a.Addr[:], b.Addr[:]), cmp.Compare(a.MAC, b.MAC))
	})
	return out
}

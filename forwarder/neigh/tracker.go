package neigh

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

const (
	// gatherTime is how long after a change further ones are waited for
	// before a View is made.
	gatherTime = 5 * time.Millisecond
	// recheckInterval is the pause between two slices of route look-ups that
	// no event asked for, and recheckSlices how many make a full round.
	recheckInterval = time.Second
	recheckSlices   = 30
	// relinkInterval and rereadInterval are how often links, and everything,
	// are read without an event.
	relinkInterval = 5 * time.Second
	rereadInterval = time.Minute
	// retryInterval is the pause after a failed dump.
	retryInterval = time.Second
	// solicitInterval is the pause between two groups of solicitations.
	solicitInterval = 20 * time.Millisecond
	// lookUpBatch bounds the route look-ups (some 20 µs each) done before
	// events and neighbours get their turn.
	lookUpBatch = 512
	// restFactor bounds the share of a CPU that dumps and look-ups take in a
	// storm of events (a routing daemon loading a full table): after work
	// that took d, the same work rests for restFactor·d.
	restFactor = 4
)

// tracker is the state of a running Watcher. Run's goroutine owns it.
type tracker struct {
	w *Watcher

	names      []string
	links      *linkTable
	neighbours map[neighbourKey]neighbour
	targets    map[netip.Addr]*target
	order      []*target // the same, by address, for going round in slices

	linksDirty bool      // links or addresses changed
	linksFrom  time.Time // not to be read before
	readDirty  bool      // everything is to be read
	readFrom   time.Time

	rerouted    []netip.Prefix // gathered route changes
	recheck     int            // targets whose route is to be looked up
	recheckAt   int            // index in order where the look-ups go on
	recheckFrom time.Time
	sliceAt     int // index in order of the next periodic slice
	slice       time.Time
	relink      time.Time
	reread      time.Time

	solicitGroup int // most solicitations per solicitInterval
	solicitAt    int // index in order where they go on
	solicit      time.Time
	solicitFrom  time.Time // not before

	changed  bool // a View is due
	viewFrom time.Time
}

func newTracker(w *Watcher, solicitRate int) tracker {
	perGroup := solicitRate * int(solicitInterval) / int(time.Second)
	return tracker{
		w:            w,
		links:        &linkTable{},
		targets:      make(map[netip.Addr]*target),
		solicitGroup: max(1, perGroup),
	}
}

// work does whatever is due, and returns a View if it is time for one.
func (t *tracker) work(now time.Time) (View, bool) {
	if t.readDirty && !now.Before(t.readFrom) || !now.Before(t.reread) {
		if t.readAll(now) != nil {
			t.readDirty, t.readFrom, t.reread = true, now.Add(retryInterval), now.Add(rereadInterval)
		}
	}
	if t.linksDirty && !now.Before(t.linksFrom) || !now.Before(t.relink) {
		t.readLinks(now)
	}
	if !now.Before(t.slice) {
		t.slice = now.Add(recheckInterval)
		t.markSlice()
	}
	if (t.recheck > 0 || len(t.rerouted) > 0) && !now.Before(t.recheckFrom) {
		t.markCovered()
		t.lookUp(now, lookUpBatch)
	}
	if !now.Before(t.solicit) {
		t.solicitDue(now)
	}
	if !t.changed || now.Before(t.viewFrom) {
		return View{}, false
	}
	t.changed = false
	return t.view(), true
}

// nextWork returns when work has to be called again if nothing happens.
func (t *tracker) nextWork() time.Time {
	next := t.slice
	earlier := func(at time.Time) {
		if at.Before(next) {
			next = at
		}
	}
	earlier(t.relink)
	earlier(t.reread)
	earlier(t.solicit)
	if t.readDirty {
		earlier(t.readFrom)
	}
	if t.linksDirty {
		earlier(t.linksFrom)
	}
	if t.recheck > 0 || len(t.rerouted) > 0 {
		earlier(t.recheckFrom)
	}
	if t.changed {
		earlier(t.viewFrom)
	}
	return next
}

// touch asks for a View; the first change since the last one sets its time.
func (t *tracker) touch(now time.Time) {
	if !t.changed {
		t.changed, t.viewFrom = true, now.Add(gatherTime)
	}
}

func (t *tracker) view() View {
	v := View{Links: t.links.links, Own: t.links.own, Targets: make(map[netip.Addr]Target, len(t.targets))}
	for addr, target := range t.targets {
		if target.asked {
			v.Targets[addr] = target.view
		}
	}
	return v
}

// applySettings takes over the interfaces and targets last set.
func (t *tracker) applySettings(now time.Time) {
	names, addrs := t.w.settings()
	if !slices.Equal(names, t.names) {
		t.names, t.linksDirty, t.linksFrom = names, true, now
	}
	old := maps.Clone(t.targets)
	clear(t.targets)
	t.order = make([]*target, 0, len(addrs))
	for _, addr := range addrs {
		followed := old[addr]
		if followed == nil {
			followed = &target{addr: addr}
			t.mark(followed)
		}
		delete(old, addr)
		t.targets[addr] = followed
		t.order = append(t.order, followed)
	}
	for _, gone := range old {
		if gone.recheck {
			t.recheck--
		}
	}
	t.recheckAt, t.sliceAt, t.solicitAt = 0, 0, 0
	t.touch(now)
}

func (t *tracker) judgeAll(now time.Time) {
	for _, target := range t.order {
		t.judge(target, now)
	}
}

func (t *tracker) judge(target *target, now time.Time) {
	if !target.asked {
		return
	}
	if target.judge(t.links, t.neighbours, now) {
		t.touch(now)
	}
	if target.need != needNothing {
		t.solicitBy(target.due)
	}
}

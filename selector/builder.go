package selector

import (
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Builder keeps the state that snapshots are made of: configuration, health, deliveries, drains. Its
// setters only record; Publish makes a snapshot of everything recorded since the last one, so that
// callers can coalesce changes. All methods are safe for concurrent use; Current never waits.
type Builder struct {
	current atomic.Pointer[Snapshot]

	mu         sync.Mutex // guards everything below
	options    Options
	frame      *frame
	services   []*serviceEntry // by Service.index
	byName     map[string]*serviceEntry
	serviceIDs map[string]uint16 // also of services that are gone
	backends   []*backendEntry   // by id, nil = unused
	byAddress  map[[2]uint64][]*backendEntry
	lastGen    []uint16 // by id
	freeIDs    []uint32 // first in, first out
	deliveries map[[2]uint64]Delivery
	drained    map[string]bool // backend names
	announced  map[string]bool // rule names
	ready      map[string]bool // rule names
	ports      []Port
	routes     *routeTable
	cache      tableCache
	changed    bool // something was recorded since the last publish
	generation uint64
}

// serviceEntry is the changing side of a service.
type serviceEntry struct {
	config  *Service
	listed  []*backendEntry          // configuration order
	sorted  []int                    // indices into listed, by name
	named   map[string]*backendEntry // listed, by name
	leaving []*backendEntry          // removed, still draining; after listed in positions
	role    [2]activeRole
	settled [2]bool // the role may change: see followRole
	ready   bool    // stop waiting for first verdicts
	dirty   bool    // state is stale
	state   *serviceState
}

// activeRole is which role serves in one family; undecided until the service has settled.
type activeRole uint8

const (
	roleUndecided activeRole = iota
	rolePrimary
	roleFailover
)

// backendEntry is the changing side of a backend.
type backendEntry struct {
	ref       Ref
	service   *serviceEntry
	name      string
	addresses [2]netip.Addr // by family
	zone      uint16
	pos       uint16
	failover  bool
	weight    uint32
	seed      seed
	health    [2]Health
	reported  [2]reported
	// inactiveSince is when the backend's role stopped serving; 0 while it serves.
	inactiveSince [2]int64
	removed       bool
	drainUntil    int64
}

func (b *backendEntry) id() uint32            { return b.ref >> refGenerationBits }
func (b *backendEntry) present(f Family) bool { return b.addresses[f].IsValid() }

// New makes a builder and publishes its first snapshot, in which no backend has a verdict and
// nothing is deliverable.
func New(o Options, nowNanos int64) (*Builder, error) {
	b := newBuilder()
	if err := b.Apply(o, nowNanos); err != nil {
		return nil, err
	}
	b.Publish(nowNanos)
	return b, nil
}

func newBuilder() *Builder {
	return &Builder{
		byName: map[string]*serviceEntry{}, serviceIDs: map[string]uint16{},
		backends: make([]*backendEntry, 1), lastGen: make([]uint16, 1),
		deliveries: map[[2]uint64]Delivery{}, drained: map[string]bool{},
		announced: map[string]bool{}, ready: map[string]bool{},
		cache: tableCache{tables: map[tableKey]*cachedTable{}},
	}
}

// Current is the last published snapshot, never nil.
func (b *Builder) Current() *Snapshot { return b.current.Load() }

// SetHealth records a verdict on a backend of a service in one family. It reports whether such a
// backend is configured.
func (b *Builder) SetHealth(service, backend string, f Family, h Health) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, e := b.backend(service, backend, f)
	if e == nil {
		return false
	}
	if e.health[f] != h {
		e.health[f] = h
		s.dirty, b.changed = true, true
	}
	return true
}

// backend finds a backend of a service that has an address in a family; nil if none is configured.
func (b *Builder) backend(service, name string, f Family) (*serviceEntry, *backendEntry) {
	s := b.byName[service]
	if s == nil {
		return nil, nil
	}
	e := s.named[name]
	if e == nil || !e.present(f) {
		return nil, nil
	}
	return s, e
}

// SetDelivery records how to reach an address; it applies to every backend that has it, also to
// those configured later.
func (b *Builder) SetDelivery(addr netip.Addr, d Delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := words(addr)
	if old, known := b.deliveries[w]; known && old == d {
		return
	}
	b.deliveries[w] = d
	for _, e := range b.byAddress[w] {
		e.service.dirty, b.changed = true, true
	}
}

// SetPorts records the state of interfaces, matched by name; those that are not among
// Options.Ports are ignored.
func (b *Builder) SetPorts(ports []Port) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := emptyPorts(b.options.Ports)
	for i := range next {
		for _, p := range ports {
			if p.Name == next[i].Name {
				next[i] = p
			}
		}
	}
	b.setPorts(next)
}

// setPorts installs ports and what depends on the host's own addresses.
func (b *Builder) setPorts(ports []Port) {
	b.ports = ports
	var own []netip.Prefix
	for _, p := range ports {
		own = append(own, p.Addrs...)
	}
	b.routes = newRouteTable(b.frame.routes, own)
	b.changed = true
}

func emptyPorts(names []string) []Port {
	ports := make([]Port, len(names))
	for i, name := range names {
		ports[i].Name = name
	}
	return ports
}

// SetDrain starts or ends the operator's drain of every backend with this name, in all services. It
// returns how many there are; of none, nothing is recorded. A drain survives reloads.
func (b *Builder) SetDrain(backend string, on bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, s := range b.services {
		if s.named[backend] != nil {
			n++
			s.dirty = true
		}
	}
	if n > 0 && b.drained[backend] != on {
		b.changed = true
		if on {
			b.drained[backend] = true
		} else {
			delete(b.drained, backend)
		}
	}
	return n
}

// SetAnnounce switches answering for addresses of rules and routes with AnnounceStandby; "" means
// all of them. It returns how many it applied to.
func (b *Builder) SetAnnounce(rule string, on bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for i := range b.frame.rules {
		r := &b.frame.rules[i]
		if r.Announce == AnnounceStandby && (rule == "" || rule == r.Name) {
			b.announced[r.Name] = on
			n++
		}
	}
	b.changed = b.changed || n > 0
	return n
}

// SetReady ends waiting for first verdicts: the addresses of a rule ("" = of all) are answered for,
// and its service chooses backends, from now on. A rule becomes ready by itself when every backend of its service has a verdict. It
// reports whether the rule exists.
func (b *Builder) SetReady(rule string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := false
	for i := range b.frame.rules {
		r := &b.frame.rules[i]
		if rule != "" && rule != r.Name {
			continue
		}
		found = true
		s := b.services[r.Service.index]
		if !b.ready[r.Name] || !s.ready {
			b.ready[r.Name] = true
			s.ready, s.dirty, b.changed = true, true, true
		}
	}
	return found
}

// Forget ends the draining of a removed backend early, when the flow table has none of its flows. It
// reports whether ref was one.
func (b *Builder) Forget(ref Ref) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := ref >> refGenerationBits
	if id >= uint32(len(b.backends)) || b.backends[id] == nil {
		return false
	}
	e := b.backends[id]
	if e.ref != ref || !e.removed {
		return false
	}
	e.drainUntil = math.MinInt64
	b.changed = true
	return true
}

// NextExpiry is when the next draining backend expires: publish again after that. ok is false if
// none is draining.
func (b *Builder) NextExpiry() (nanos int64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.services {
		for _, e := range s.leaving {
			if !ok || e.drainUntil < nanos {
				nanos, ok = e.drainUntil, true
			}
		}
	}
	return nanos, ok
}

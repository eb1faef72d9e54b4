package selector

import (
	"slices"
	"time"
)

// failoverDrain is how long TCP flows may stay on backends of the role that stopped serving.
const failoverDrain = 10 * time.Minute

// Publish makes a snapshot of everything recorded and puts it in force. Without a change it returns
// the current one. nowNanos is the time that draining is counted from.
func (b *Builder) Publish(nowNanos int64) *Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	start := time.Now()
	b.expire(nowNanos)
	previous := b.current.Load()
	if !b.changed && previous != nil {
		return previous
	}
	b.cache.round++
	b.generation++
	s := &Snapshot{
		Generation: b.generation, Layout: b.frame.layout, Rules: b.frame.rules, Ports: b.ports,
		DestRanges: b.frame.ranges, Zones: b.frame.zones, Regions: b.frame.regions,
		OwnZone: b.frame.ownZone, routes: b.routes, clients: b.frame.clients,
		Services: make([]*Service, len(b.services)), states: make([]*serviceState, len(b.services)),
		Backends: make([]Backend, len(b.backends)),
	}
	if previous != nil {
		copy(s.Backends, previous.Backends)
	}
	for id, e := range b.backends {
		if e == nil {
			s.Backends[id] = Backend{}
		}
	}
	for i, e := range b.services {
		if e.dirty {
			e.state = b.judge(e, nowNanos)
			for _, m := range e.listed {
				s.Backends[m.id()] = b.freeze(m)
			}
			for _, m := range e.leaving {
				s.Backends[m.id()] = b.freeze(m)
			}
			e.dirty = false
		}
		s.Services[i], s.states[i] = e.config, e.state
	}
	b.answer(s)
	b.cache.trim(tablesIn(s))
	b.changed = false
	s.Took = time.Since(start)
	b.current.Store(s)
	return s
}

// expire forgets backends whose draining is over.
func (b *Builder) expire(nowNanos int64) {
	any := false
	for _, s := range b.services {
		kept := s.leaving[:0]
		for _, e := range s.leaving {
			if e.drainUntil <= nowNanos {
				b.free(e)
				any = true
			} else {
				kept = append(kept, e)
			}
		}
		clear(s.leaving[len(kept):])
		s.leaving = kept
	}
	if !any {
		return
	}
	zones := map[string]uint16{}
	for i, z := range b.options.Zones {
		zones[z.Name] = uint16(i + 1)
	}
	for _, s := range b.services {
		// Snapshots in use hold the old configuration: number a copy.
		config := *s.config
		s.config = &config
		s.number()
		s.dirty = true
	}
	b.rebuildFrame(zones)
}

// judge decides who is eligible in a service, for clients of every zone.
func (b *Builder) judge(s *serviceEntry, nowNanos int64) *serviceState {
	state := &serviceState{}
	for _, f := range []Family{V4, V6} {
		members, entries, order := b.members(s, f)
		policy := &s.config.Policy
		e := Identify(policy, members)
		fs := &state.families[f]
		fs.kind, fs.eligible = e.Kind, len(e.Eligible) > 0
		fs.draws = make([]*draw, len(b.frame.zones)+1)
		whole := b.newDraw(members, entries, order, e.Eligible)
		for zone := range fs.draws {
			if a := e.Restrict(policy, members, uint16(zone)); slices.Equal(a.Modified, e.Eligible) {
				fs.draws[zone] = whole
			} else {
				fs.draws[zone] = b.newDraw(members, entries, order, a.Modified)
			}
		}
		s.followRole(f, e.Kind, members, nowNanos)
	}
	return state
}

// members are the listed backends of a family as the set arithmetic sees them, with their entries,
// and the order of their names.
func (b *Builder) members(s *serviceEntry, f Family) (members []Member, entries []*backendEntry, order []int) {
	index := make([]int, len(s.listed))
	for i, e := range s.listed {
		if !e.present(f) {
			index[i] = -1
			continue
		}
		index[i] = len(members)
		members = append(members, Member{
			Zone: e.zone, Failover: e.failover, Drained: b.drained[e.name],
			Deliverable: b.deliveries[words(e.addresses[f])].State == Deliverable,
			Health:      e.health[f],
		})
		entries = append(entries, e)
	}
	for _, i := range s.sorted {
		if index[i] >= 0 {
			order = append(order, index[i])
		}
	}
	return members, entries, order
}

// newDraw prepares the choice among a set; nil for the empty set.
func (b *Builder) newDraw(members []Member, entries []*backendEntry, order, set []int) *draw {
	set = candidates(members, set)
	if len(set) == 0 {
		return nil
	}
	in := make([]bool, len(members))
	weighed := false
	for _, i := range set {
		in[i] = true
		weighed = weighed || entries[i].weight > 0
	}
	d := &draw{}
	var cs []candidate
	for _, i := range order {
		if e := entries[i]; in[i] && (e.weight > 0 || !weighed) {
			cs = append(cs, candidate{e.seed, max(e.weight, 1)})
			d.refs = append(d.refs, e.ref)
		}
	}
	d.table = b.cache.get(cs)
	return d
}

// followRole notes when a role starts and stops serving. Until the service has settled, flows that
// an earlier run of the appliance left behind are not touched; Drop changes no role.
func (s *serviceEntry) followRole(f Family, kind Kind, members []Member, nowNanos int64) {
	settled := s.ready || !slices.ContainsFunc(members, func(m Member) bool { return m.Health == Unknown })
	switch {
	case kind == Drop || !settled && s.role[f] == roleUndecided:
	case kind == HealthyFailovers:
		s.role[f] = roleFailover
	default:
		s.role[f] = rolePrimary
	}
	for _, e := range s.listed {
		serves := s.role[f] == roleUndecided || e.failover == (s.role[f] == roleFailover)
		switch {
		case serves:
			e.inactiveSince[f] = 0
		case e.inactiveSince[f] == 0:
			e.inactiveSince[f] = max(nowNanos, 1)
		}
	}
}

// freeze is the immutable form of a backend.
func (b *Builder) freeze(e *backendEntry) Backend {
	out := Backend{
		Ref: e.ref, Service: e.service.config.ID, Zone: e.zone, Pos: e.pos, Weight: e.weight, Name: e.name,
	}
	for _, f := range []Family{V4, V6} {
		out.Delivery[f].Port = -1
		if !e.present(f) {
			continue
		}
		w := words(e.addresses[f])
		out.Addr[f] = w
		if d, known := b.deliveries[w]; known {
			out.Delivery[f] = d
		}
		out.Flags[f] = e.flags(f, out.Delivery[f].State, b.drained[e.name])
		for class := range numClasses {
			out.keepUntil[f][class] = e.keepUntil(f, class, out.Flags[f])
		}
	}
	return out
}

func (e *backendEntry) flags(f Family, state DeliveryState, drained bool) BackendFlags {
	flags := FlagPresent
	for _, c := range []struct {
		on   bool
		flag BackendFlags
	}{
		{e.health[f] == Healthy, FlagHealthy},
		{e.health[f] == Unhealthy, FlagUnhealthy},
		{state == Deliverable, FlagDeliverable},
		{drained, FlagDrained},
		{e.removed, FlagRemoved},
		{e.failover, FlagFailover},
	} {
		if c.on {
			flags |= c.flag
		}
	}
	return flags
}

// keepUntil is the time limit of tracked flows; see Backend.Keeps.
func (e *backendEntry) keepUntil(f Family, class flowClass, flags BackendFlags) int64 {
	s := e.service.config
	if flags&FlagUnhealthy != 0 && !s.persists(class) {
		return keepNever
	}
	switch {
	case flags&(FlagRemoved|FlagDrained) != 0 && class == classSYN:
		return keepNever
	case flags&FlagRemoved != 0:
		return e.drainUntil
	case flags&FlagDrained != 0, e.inactiveSince[f] == 0:
		return keepForever
	case s.NoFailoverDrain, class == classDatagram:
		return keepNever
	}
	return e.inactiveSince[f] + int64(failoverDrain)
}

// answer fills in what is said about addresses now.
func (b *Builder) answer(s *Snapshot) {
	all := ^uint64(0)
	if n := len(s.Ports); n < maxPorts {
		all = 1<<n - 1
	}
	for i := range s.Rules {
		r := &s.Rules[i]
		if !b.ready[r.Name] && b.services[r.Service.index].judged(r.Family) {
			b.ready[r.Name] = true
		}
	}
	fill := func(frames []vipFrame) []*VIP {
		vips := make([]VIP, len(frames))
		out := make([]*VIP, len(frames))
		for i, fr := range frames {
			v := &vips[i]
			v.Addr, v.matcher, v.L3Default = fr.addr, fr.matcher, fr.matcher.any != nil
			for _, r := range fr.matcher.rules {
				v.PingOK = v.PingOK || r.VIPPing && s.states[r.Service.index].families[r.Family].eligible
				announced := r.Announce == AnnounceAlways || r.Announce == AnnounceStandby && b.announced[r.Name]
				if announced && b.ready[r.Name] {
					v.AnswerPorts |= r.Ports & all
				}
			}
			out[i] = v
		}
		return out
	}
	s.VIPs, s.NextHops = fill(b.frame.vips), fill(b.frame.hops)
	s.vips, s.hops = newVIPIndex(s.VIPs), newVIPIndex(s.NextHops)
}

// judged reports whether every listed backend of a family has a verdict.
func (s *serviceEntry) judged(f Family) bool {
	return !slices.ContainsFunc(s.listed, func(e *backendEntry) bool {
		return e.present(f) && e.health[f] == Unknown
	})
}

// tablesIn is the set of tables a snapshot uses.
func tablesIn(s *Snapshot) map[*table]bool {
	live := map[*table]bool{}
	for _, state := range s.states {
		for f := range state.families {
			for _, d := range state.families[f].draws {
				if d != nil {
					live[d.table] = true
				}
			}
		}
	}
	return live
}

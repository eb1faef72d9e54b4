package selector

import "slices"

// judge decides who is eligible in a service, for clients of every zone. The tables it needs are
// ordered from the cache, and there after delivery.
func (b *Builder) judge(s *serviceEntry, nowNanos int64) *serviceState {
	state := &serviceState{}
	for _, f := range []Family{V4, V6} {
		members, entries, order := b.members(s, f)
		weights := s.weights(f, members, entries)
		policy := &s.config.Policy
		e := Identify(policy, members)
		fs := &state.families[f]
		fs.kind, fs.eligible = e.Kind, len(e.Eligible) > 0
		fs.draws = make([]*draw, len(b.frame.zones)+1)
		whole := b.newDraw(members, entries, weights, order, e.Eligible)
		for zone := range fs.draws {
			if a := e.Restrict(policy, members, uint16(zone)); slices.Equal(a.Modified, e.Eligible) {
				fs.draws[zone] = whole
			} else {
				fs.draws[zone] = b.newDraw(members, entries, weights, order, a.Modified)
			}
		}
		pending := slices.ContainsFunc(entries, func(m *backendEntry) bool {
			// A verdict may come before the news of the neighbour it was had from.
			state := b.deliveries[words(m.addresses[f])].State
			return m.health[f] == Unknown || state == Pending || state == NoNeighbour && m.health[f] == Healthy
		})
		s.followRole(f, e.Kind, s.ready || !pending, nowNanos)
		fs.present = len(members) > 0
		fs.unsettled = !s.settled[f] && fs.present
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
func (b *Builder) newDraw(members []Member, entries []*backendEntry, weights []uint32, order, set []int) *draw {
	set = candidates(members, set)
	if len(set) == 0 {
		return nil
	}
	in := make([]bool, len(members))
	weighed := false
	for _, i := range set {
		in[i] = true
		weighed = weighed || weights[i] > 0
	}
	d := &draw{}
	var cs []candidate
	for _, i := range order {
		if e := entries[i]; in[i] && (weights[i] > 0 || !weighed) {
			cs = append(cs, candidate{e.seed, max(weights[i], 1)})
			d.refs = append(d.refs, e.ref)
		}
	}
	b.cache.order(d, cs)
	return d
}

// followRole notes when a role starts and stops serving. Until the service has settled, that is every
// backend has a verdict and a delivery or it was waited for long enough, flows that an earlier run of
// the appliance left behind are not touched; Drop changes no role.
func (s *serviceEntry) followRole(f Family, kind Kind, settled bool, nowNanos int64) {
	s.settled[f] = s.settled[f] || settled
	switch {
	case kind == Drop || !s.settled[f]:
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

package selector

import "time"

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
	b.cache.deliver()
	b.answer(s)
	b.cache.trim(tablesIn(s))
	b.changed = false
	s.Took = time.Since(start)
	b.current.Store(s)
	return s
}

// expire forgets backends whose draining is over.
func (b *Builder) expire(nowNanos int64) {
	expired := false
	for _, s := range b.services {
		kept := s.leaving[:0]
		for _, e := range s.leaving {
			if e.drainUntil <= nowNanos {
				b.free(e)
				expired = true
			} else {
				kept = append(kept, e)
			}
		}
		clear(s.leaving[len(kept):])
		s.leaving = kept
	}
	if !expired {
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

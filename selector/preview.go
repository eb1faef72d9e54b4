package selector

import (
	"maps"
	"slices"
)

// Preview makes the snapshot that a configuration would lead to, on top of everything known now, and
// puts nothing in force. nil takes the configuration in force. Backends that are new are taken as
// healthy and deliverable. change, if not nil, may record more in the builder it is given, which is
// the preview's own. References mean the same as in the current snapshot.
func (b *Builder) Preview(o *Options, nowNanos int64, change func(*Builder)) (*Snapshot, error) {
	p := newBuilder()
	b.mu.Lock()
	saved := b.save()
	p.deliveries, p.announced, p.ready = maps.Clone(b.deliveries), maps.Clone(b.announced), maps.Clone(b.ready)
	p.ports = slices.Clone(b.ports)
	for key, e := range b.cache.tables {
		if e.table != nil {
			p.cache.tables[key] = &cachedTable{table: e.table}
		}
	}
	if o == nil {
		o = &b.options
	}
	options := *o
	err := p.restore(&saved)
	if err == nil {
		for name, s := range b.byName {
			p.byName[name].ready, p.byName[name].settled = s.ready, s.settled
		}
	}
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := p.Apply(options, nowNanos); err != nil {
		return nil, err
	}
	for id, e := range p.backends {
		if e == nil || id < len(saved.Generations) && uint32(saved.Generations[id])&refGenerationMask == e.ref&refGenerationMask {
			continue
		}
		for f := range e.addresses {
			if !e.present(Family(f)) {
				continue
			}
			e.health[f] = Healthy
			if w := words(e.addresses[f]); p.deliveries[w].State == Pending {
				p.deliveries[w] = Delivery{State: Deliverable, Port: -1}
			}
		}
	}
	if change != nil {
		change(p)
	}
	return p.Publish(nowNanos), nil
}

// Movement is the part of a service's new connections, from clients of one zone, that get another
// backend in one snapshot than in another.
type Movement struct {
	Family Family  `json:"family"`
	Zone   string  `json:"zone"` // "" = clients without one
	Share  float64 `json:"share"`
}

// Movements compares the selection of a service in two snapshots, for the client zones of the first;
// it is empty if either does not have the service. Each client is taken to stay in its zone. Where
// the two do not hash alike (another hash key, symmetry group or session affinity), connections are
// taken to be spread independently.
func (s *Snapshot) Movements(next *Snapshot, service string) []Movement {
	var out []Movement
	a, b := s.service(service), next.service(service)
	if a == nil || b == nil {
		return nil
	}
	alike := a.secret == b.secret && hashShapes(a.Affinity) == hashShapes(b.Affinity)
	for f := range 2 {
		from, to := s.states[a.index].families[f].draws, next.states[b.index].families[f].draws
		for zone, name := range append([]string{""}, s.Zones...) {
			there := slices.Index(next.Zones, name) + 1 // a zone that is gone is none
			x, y := from[zone], to[there]
			if x == nil && y == nil {
				continue
			}
			m := Movement{Family: Family(f), Zone: name, Share: 1}
			if x != nil && y != nil {
				m.Share = moved(s, next, x, y, alike)
			}
			out = append(out, m)
		}
	}
	return out
}

// moved is the share of slots that lead to a backend of another name.
func moved(s, next *Snapshot, from, to *draw, alike bool) float64 {
	names := func(s *Snapshot, d *draw) []string {
		out := make([]string, len(d.refs))
		for i, ref := range d.refs {
			if b := s.Backend(ref); b != nil {
				out[i] = b.Name
			}
		}
		return out
	}
	x, y := names(s, from), names(next, to)
	same := 0.0
	if alike {
		for slot := range from.table {
			if x[from.table[slot]] == y[to.table[slot]] {
				same++
			}
		}
		return 1 - same/slots
	}
	shares := map[string]float64{}
	for _, i := range from.table {
		shares[x[i]]++
	}
	for _, i := range to.table {
		same += shares[y[i]]
	}
	return 1 - same/slots/slots
}

// service is the service with a name, nil if there is none.
func (s *Snapshot) service(name string) *Service {
	for _, v := range s.Services {
		if v.Name == name {
			return v
		}
	}
	return nil
}

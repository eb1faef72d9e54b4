package selector

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Saved is what the references and service IDs of a builder mean, and what is known of the backends,
// as plain data: enough for a later process of the same boot to go on with the flows of this one.
// Times are those of the builder's clock.
type Saved struct {
	Services []SavedService `json:"services"`
	// Generations are those last used, by backend id, also of ids that are free.
	Generations []uint16 `json:"generations"`
	Free        []uint32 `json:"free,omitempty"`    // ids, the one freed longest ago first
	Drained     []string `json:"drained,omitempty"` // by the operator
}

// SavedService is one service; one that is gone has no backends and only keeps its ID reserved.
type SavedService struct {
	Name     string         `json:"name"`
	ID       uint16         `json:"id"`
	Role     [2]uint8       `json:"role"` // that serves, by family
	Backends []SavedBackend `json:"backends,omitempty"`
}

// SavedBackend is one backend, listed or draining after its removal.
type SavedBackend struct {
	Name          string     `json:"name"`
	Ref           Ref        `json:"ref"`
	Address       netip.Addr `json:"address"`
	Address6      netip.Addr `json:"address6"`
	Health        [2]Health  `json:"health"` // last verdicts
	InactiveSince [2]int64   `json:"inactiveSince"`
	Removed       bool       `json:"removed,omitempty"`
	DrainUntil    int64      `json:"drainUntil,omitempty"`
}

// ErrSaved is what Restore returns for data that no builder has saved.
var ErrSaved = errors.New("saved backends contradict each other")

// Save returns what Restore needs. References given out by an Apply that was not published yet are
// part of it, so it can be stored before any flow has them.
func (b *Builder) Save() Saved {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.save()
}

func (b *Builder) save() Saved {
	out := Saved{Generations: slices.Clone(b.lastGen), Free: slices.Clone(b.freeIDs), Drained: slices.Sorted(maps.Keys(b.drained))}
	for name, id := range b.serviceIDs {
		s := SavedService{Name: name, ID: id}
		if e := b.byName[name]; e != nil {
			s.Role = [2]uint8{uint8(e.role[V4]), uint8(e.role[V6])}
			for _, m := range append(slices.Clone(e.listed), e.leaving...) {
				s.Backends = append(s.Backends, SavedBackend{
					Name: m.name, Ref: m.ref, Address: m.addresses[V4], Address6: m.addresses[V6],
					Health: m.health, InactiveSince: m.inactiveSince, Removed: m.removed, DrainUntil: m.drainUntil,
				})
			}
		}
		out.Services = append(out.Services, s)
	}
	slices.SortFunc(out.Services, func(x, y SavedService) int { return int(x.ID) - int(y.ID) })
	return out
}

// Restore makes a builder that goes on where another one was saved, with a configuration that may be
// another: services and backends keep their IDs, references, verdicts and drains as in a reload, and
// what is not configured any more drains or is forgotten as there. Until deliveries are known, no
// role of a service counts as having stopped serving. Errors: ErrSaved, and those of New.
func Restore(o Options, saved Saved, nowNanos int64) (*Builder, error) {
	b := newBuilder()
	if err := b.restore(&saved); err != nil {
		return nil, err
	}
	if err := b.Apply(o, nowNanos); err != nil {
		return nil, err
	}
	b.Publish(nowNanos)
	return b, nil
}

// restore makes the state that an Apply can be a difference to.
func (b *Builder) restore(saved *Saved) error {
	if len(saved.Generations) == 0 || len(saved.Generations)-1 > maxBackendID {
		return fmt.Errorf("%w: %d ids", ErrSaved, len(saved.Generations))
	}
	b.lastGen = slices.Clone(saved.Generations)
	b.backends = make([]*backendEntry, len(b.lastGen))
	ids := map[uint16]bool{0: true}
	for i := range saved.Services {
		from := &saved.Services[i]
		if ids[from.ID] || b.byName[from.Name] != nil || from.Role[V4] > uint8(roleFailover) || from.Role[V6] > uint8(roleFailover) {
			return fmt.Errorf("%w: service %q has ID %d and roles %v", ErrSaved, from.Name, from.ID, from.Role)
		}
		ids[from.ID] = true
		s := &serviceEntry{role: [2]activeRole{activeRole(from.Role[V4]), activeRole(from.Role[V6])}}
		for j := range from.Backends {
			e, err := b.restoreBackend(s, &from.Backends[j])
			if err != nil {
				return err
			}
			if e.removed {
				s.leaving = append(s.leaving, e)
			} else {
				s.listed = append(s.listed, e)
			}
		}
		b.serviceIDs[from.Name], b.byName[from.Name] = from.ID, s
	}
	free := map[uint32]bool{}
	for _, id := range saved.Free {
		if id == 0 || id >= uint32(len(b.backends)) || b.backends[id] != nil || free[id] {
			return fmt.Errorf("%w: id %d is free", ErrSaved, id)
		}
		free[id] = true
	}
	b.freeIDs = slices.Clone(saved.Free)
	for _, name := range saved.Drained {
		b.drained[name] = true
	}
	return nil
}

func (b *Builder) restoreBackend(s *serviceEntry, from *SavedBackend) (*backendEntry, error) {
	e := &backendEntry{
		ref: from.Ref, service: s, name: from.Name, addresses: [2]netip.Addr{from.Address, from.Address6},
		health: from.Health, inactiveSince: from.InactiveSince, removed: from.Removed, drainUntil: from.DrainUntil,
	}
	id := e.id()
	switch {
	case id == 0 || id >= uint32(len(b.backends)) || b.backends[id] != nil || uint32(b.lastGen[id])&refGenerationMask != e.ref&refGenerationMask:
		return nil, fmt.Errorf("%w: backend %q has reference %#x", ErrSaved, e.name, e.ref)
	case e.health[V4] < Unknown || e.health[V4] > Healthy || e.health[V6] < Unknown || e.health[V6] > Healthy:
		return nil, fmt.Errorf("%w: backend %q has health %v", ErrSaved, e.name, e.health)
	}
	b.backends[id] = e
	return e, nil
}

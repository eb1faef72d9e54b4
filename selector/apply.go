package selector

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Apply replaces the configuration, as a difference: what is named the same goes on. A service keeps
// its ID; a backend with the same service, name and addresses keeps its reference, health and flows.
// A backend that is gone, or has other addresses now, drains for its service's DrainTimeout and then
// loses its id. On an error nothing changes. The next Publish puts it in force.
func (b *Builder) Apply(o Options, nowNanos int64) error {
	if err := Validate(&o); err != nil {
		return err
	}
	if err := b.roomFor(&o); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()

	zones := map[string]uint16{}
	for i, z := range o.Zones {
		zones[z.Name] = uint16(i + 1)
	}
	previous := b.byName
	b.byName = map[string]*serviceEntry{}
	b.services = b.services[:0:0]
	for i := range o.Services {
		so := &o.Services[i]
		s := previous[so.Name]
		if s == nil {
			s = &serviceEntry{}
		}
		delete(previous, so.Name)
		s.config = newService(so, b.serviceID(so.Name, o.Services), i, o.HashKey)
		b.applyBackends(s, so, zones, o.HashKey, nowNanos)
		s.dirty = true
		b.services = append(b.services, s)
		b.byName[so.Name] = s
	}
	for _, s := range previous { // nothing leads to the flows of a service that is gone
		for _, e := range append(s.listed, s.leaving...) {
			b.free(e)
		}
	}
	b.forgetNames(&o)
	b.movePorts(o.Ports)
	b.options = o
	b.rebuildFrame(zones)
	b.forgetDeliveries()
	return nil
}

// serviceID is the ID a name has, or a new one: the first never used, else one whose name is not
// configured any more.
func (b *Builder) serviceID(name string, configured []ServiceOptions) uint16 {
	if id := b.serviceIDs[name]; id != 0 {
		return id
	}
	id := uint16(len(b.serviceIDs) + 1)
	if len(b.serviceIDs) >= maxServices {
		for old, oldID := range b.serviceIDs {
			if !slices.ContainsFunc(configured, func(s ServiceOptions) bool { return s.Name == old }) {
				delete(b.serviceIDs, old)
				id = oldID
				break
			}
		}
	}
	b.serviceIDs[name] = id
	return id
}

// applyBackends makes the listed and leaving backends of a service.
func (b *Builder) applyBackends(s *serviceEntry, o *ServiceOptions, zones map[string]uint16, hashKey string, nowNanos int64) {
	type identity struct {
		name      string
		addresses [2]netip.Addr
	}
	old := append(slices.Clone(s.listed), s.leaving...)
	known := make(map[identity]*backendEntry, len(old))
	for _, e := range old {
		known[identity{e.name, e.addresses}] = e
	}
	s.listed, s.leaving, s.sorted = nil, nil, nil
	s.named = make(map[string]*backendEntry, len(o.Backends))
	for i := range o.Backends {
		bo := &o.Backends[i]
		id := identity{bo.Name, [2]netip.Addr{bo.Address.Unmap(), bo.Address6}}
		e := known[id]
		if e == nil {
			e = &backendEntry{
				ref: b.allocate(), service: s, name: bo.Name, addresses: id.addresses,
				health: [2]Health{Unknown, Unknown},
			}
			b.backends[e.id()] = e
		} else if e.removed {
			e.removed, e.health, e.reported = false, [2]Health{Unknown, Unknown}, [2]reported{}
		}
		delete(known, id)
		e.zone, e.failover, e.weight = zones[bo.Zone], bo.Failover, 1
		if o.Weighted {
			e.weight = bo.Weight
		}
		e.seed = newSeed(hashKey, s.config.SymmetryGroup, bo.Name)
		s.listed = append(s.listed, e)
		s.named[e.name] = e
		s.sorted = append(s.sorted, i)
	}
	slices.SortFunc(s.sorted, func(x, y int) int { return strings.Compare(s.listed[x].name, s.listed[y].name) })
	for _, e := range old {
		if known[identity{e.name, e.addresses}] != e {
			continue
		}
		if !e.removed {
			e.removed, e.drainUntil = true, nowNanos+int64(o.DrainTimeout)
		}
		if e.drainUntil <= nowNanos {
			b.free(e)
		} else {
			s.leaving = append(s.leaving, e)
		}
	}
	s.number()
}

// number gives positions: listed backends in configuration order, then the leaving ones.
func (s *serviceEntry) number() {
	for i, e := range s.listed {
		e.pos = uint16(i)
	}
	for i, e := range s.leaving {
		e.pos = uint16(len(s.listed) + i)
	}
	s.config.size = len(s.listed) + len(s.leaving)
	s.config.ids = s.config.ids[:0:0]
	for _, e := range s.listed {
		s.config.ids = append(s.config.ids, e.id())
	}
}

// allocate takes an id: the one freed longest ago, with the next generation, else a new one.
func (b *Builder) allocate() Ref {
	var id uint32
	if len(b.freeIDs) > 0 {
		id, b.freeIDs = b.freeIDs[0], b.freeIDs[1:]
	} else {
		id = uint32(len(b.backends))
		b.backends = append(b.backends, nil)
		b.lastGen = append(b.lastGen, 0)
	}
	b.lastGen[id] = b.lastGen[id]&refGenerationMask + 1
	return id<<refGenerationBits | uint32(b.lastGen[id])&refGenerationMask
}

// free returns an id.
func (b *Builder) free(e *backendEntry) {
	b.backends[e.id()] = nil
	b.freeIDs = append(b.freeIDs, e.id())
}

// roomFor refuses a configuration that needs more ids than a reference can name. Draining backends
// count, so it can only fail where a million backends are configured at once.
func (b *Builder) roomFor(o *Options) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for i := range o.Services {
		n += len(o.Services[i].Backends)
	}
	for _, s := range b.services {
		n += len(s.listed) + len(s.leaving)
	}
	if n > maxBackendID {
		return fmt.Errorf("%d backends, configured and draining: at most %d", n, maxBackendID)
	}
	return nil
}

// forgetNames drops the drains of backends and the switches of rules that are not configured.
func (b *Builder) forgetNames(o *Options) {
	backends, rules := map[string]bool{}, map[string]bool{}
	for _, s := range o.Services {
		for _, e := range s.Backends {
			backends[e.Name] = true
		}
	}
	for _, r := range o.Rules {
		rules[r.Name] = true
	}
	for _, r := range o.Routes {
		rules[r.Name] = true
	}
	for name := range b.drained {
		if !backends[name] {
			delete(b.drained, name)
		}
	}
	for _, m := range []map[string]bool{b.announced, b.ready} {
		for name := range m {
			if !rules[name] {
				delete(m, name)
			}
		}
	}
}

// forgetDeliveries drops what is known of addresses that no backend has any more.
func (b *Builder) forgetDeliveries() {
	for addr := range b.deliveries {
		if b.byAddress[addr] == nil {
			delete(b.deliveries, addr)
		}
	}
}

// movePorts carries ports and the deliveries through them to new indices. A delivery through a port
// that is gone waits for a new one.
func (b *Builder) movePorts(names []string) {
	next := emptyPorts(names)
	moved := make([]int16, len(b.ports))
	for i, p := range b.ports {
		moved[i] = int16(slices.Index(names, p.Name))
		if moved[i] >= 0 {
			next[moved[i]] = p
		}
	}
	for addr, d := range b.deliveries {
		if d.Port < 0 || int(d.Port) >= len(moved) {
			continue
		}
		if d.Port = moved[d.Port]; d.Port < 0 {
			d = Delivery{Port: -1}
		}
		b.deliveries[addr] = d
	}
	b.ports = next
}

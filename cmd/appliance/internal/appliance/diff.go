package appliance

import (
	"fmt"
	"math"
	"slices"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/config"
	"zonehop/conntrack"
	"zonehop/selector"
)

// Diff implements admin.Appliance: what a reload with another file would do,
// with the flows and the health of this moment. New backends are taken to be
// healthy.
func (a *Appliance) Diff(q admin.DiffRequest) (admin.Diff, error) {
	next, problems := config.Load(q.Path)
	if errs := problems.Errors(); len(errs) > 0 {
		return admin.Diff{}, fmt.Errorf("%w: %w", admin.ErrRefused, errs.Err())
	}
	var file zoneMapFile
	zoneMap, err := file.load(next)
	if err != nil {
		return admin.Diff{}, fmt.Errorf("%w: %w", admin.ErrRefused, err)
	}
	o, err := SelectorOptions(next, zoneMap)
	if err != nil {
		return admin.Diff{}, fmt.Errorf("%w: %w", admin.ErrRefused, err)
	}
	a.mu.Lock()
	old := a.config.Load()
	o.Ports = a.slots.next(next.Interfaces)
	now := a.clock()
	before := a.builder.Current()
	after, err := a.builder.Preview(&o, now, nil)
	a.mu.Unlock()
	if err != nil {
		return admin.Diff{}, fmt.Errorf("%w: %w", admin.ErrRefused, err)
	}
	d := Compare(old, next)
	d.Live = true
	if err := unchangeable(old, next); err != nil {
		d.Refused = err.Error()
	}
	d.Effects = Effects(old, next, before, after)
	a.countAffected(d.Effects, before, after, now)
	return d, nil
}

// Effects says for each service of both configurations what part of its new
// connections would move between two snapshots.
func Effects(old, next *config.Config, before, after *selector.Snapshot) []admin.DiffService {
	out := []admin.DiffService{}
	for i := range old.BackendServices {
		name := old.BackendServices[i].Name
		if !slices.ContainsFunc(next.BackendServices, func(s config.BackendService) bool { return s.Name == name }) {
			continue
		}
		e := admin.DiffService{BackendService: name, Movements: []admin.Movement{}}
		for _, m := range before.Movements(after, name) {
			share := math.Round(1e6*m.Share) / 1e6
			version := 4
			if m.Family == selector.V6 {
				version = 6
			}
			e.Movements = append(e.Movements, admin.Movement{IPVersion: version, ClientZone: m.Zone, Share: share})
			e.NewConnections = max(e.NewConnections, share)
		}
		out = append(out, e)
	}
	return out
}

// countAffected counts the tracked flows of each service, and those that would
// not stay where they are. Flows of services that are gone are counted under
// their names too.
func (a *Appliance) countAffected(effects []admin.DiffService, before, after *selector.Snapshot, now int64) {
	byID := make(map[uint16]*admin.DiffService)
	for _, s := range before.Services {
		for i := range effects {
			if effects[i].BackendService == s.Name {
				effects[i].Flows, effects[i].Affected = new(int), new(int)
				byID[s.ID] = &effects[i]
			}
		}
	}
	for e := range a.flows() {
		s := byID[e.Service()]
		if s == nil {
			continue
		}
		*s.Flows++
		if !stays(after, &e, now) {
			*s.Affected++
		}
	}
}

// stays reports whether packets of a tracked flow would go on to its backend
// in a snapshot for good: a draining backend's will move.
func stays(snap *selector.Snapshot, e *conntrack.Entry, now int64) bool {
	b := snap.Backend(selector.Ref(e.Backend))
	family := familyOfWords(e.Src)
	return b != nil && b.Flags[family]&selector.FlagRemoved == 0 && b.Keeps(family, e.Proto(), false, now) && served(snap, e)
}

// served reports whether a rule or route of a flow's service takes its packets.
func served(snap *selector.Snapshot, e *conntrack.Entry) bool {
	for i := range snap.Rules {
		if r := &snap.Rules[i]; r.Service.ID == e.Service() && takes(snap, r, e) {
			return true
		}
	}
	return false
}

func familyOfWords(addr [2]uint64) selector.Family {
	if addr[0] == 0 && addr[1]>>32 == 0xffff { // IPv4-mapped
		return selector.V4
	}
	return selector.V6
}

package selector

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Explanation is every step of a selection, for people and for scripts. Lists hold backend names in
// configuration order and are never nil.
type Explanation struct {
	Rule               string   `json:"rule"`
	BackendService     string   `json:"backendService"`
	Client             string   `json:"client"`
	ClientZone         string   `json:"clientZone,omitempty"`
	ClientRegion       string   `json:"clientRegion,omitempty"` // another region's client
	Destination        string   `json:"destination"`
	Compatible         bool     `json:"compatible"`
	Kind               string   `json:"kind"`
	Configured         []string `json:"configured"`
	OriginalEligible   []string `json:"originalEligible"`
	ZonalMatchTest     []string `json:"zonalMatchTest"`
	ZonalMatched       []string `json:"zonalMatched"`
	Intersection       []string `json:"intersection"`
	Ratio              string   `json:"ratio,omitempty"`          // intersection/zonal matched, as counts
	SpilloverRatio     string   `json:"spilloverRatio,omitempty"` // under SPILL_CROSS_ZONE
	ZonalMatch         bool     `json:"zonalMatch"`
	ModifiedEligible   []string `json:"modifiedEligible"`
	Undeliverable      []string `json:"undeliverable"` // members of the modified set no frame can reach
	Reason             string   `json:"reason"`
	Result             string   `json:"result"` // selected, or why not
	Backend            string   `json:"backend,omitempty"`
	Slot               *int     `json:"slot,omitempty"` // of the selection table
	Shares             []Share  `json:"shares"`
	SnapshotGeneration uint64   `json:"snapshotGeneration"`
}

// Share is the part of new connections a backend is expected to get.
type Share struct {
	Backend string  `json:"backend"`
	Share   float64 `json:"share"` // 0 to 1
}

// Errors of Explain.
var (
	ErrNoRule   = errors.New("no such rule or route")
	ErrFamilies = errors.New("addresses and rule are of different IP versions")
	ErrNotTaken = errors.New("the packet is not for it")
)

// Explain says which backend a new connection of a rule or route would get, and why. The tuple's
// destination may be left zero: it is then the rule's address, or the first one of the route's range.
func (s *Snapshot) Explain(rule string, t Tuple) (Explanation, error) {
	r := s.Rule(rule)
	if r == nil {
		return Explanation{}, fmt.Errorf("rule or route %q: %w", rule, ErrNoRule)
	}
	switch {
	case t.Dst != [2]uint64{}:
	case r.Route:
		t.Dst = words(r.DestRange.Addr())
	default:
		t.Dst = r.addr
	}
	for _, a := range [][2]uint64{t.Src, t.Dst} {
		if familyOf(netipOf(a)) != r.Family {
			return Explanation{}, fmt.Errorf("rule or route %q: %v: %w", rule, netipOf(a), ErrFamilies)
		}
	}
	if other := s.taker(r, &t); other != r {
		return Explanation{}, fmt.Errorf("rule or route %q: %w: %s", rule, ErrNotTaken, elsewhere(other, s.VIP(t.Dst) != nil))
	}
	zone, region := s.clients.lookup(t.Src)
	set := s.members(r.Service, r.Family)
	policy := &r.Service.Policy
	e := Identify(policy, set.members)
	a := e.Restrict(policy, set.members, zone)
	c := s.Select(r, &t)

	x := Explanation{
		Rule: r.Name, BackendService: r.Service.Name,
		Client: netipOf(t.Src).String(), Destination: netipOf(t.Dst).String(),
		Compatible: zone != 0, Kind: e.Kind.String(),
		Configured: set.names(e.Configured), OriginalEligible: set.names(e.Eligible),
		ZonalMatchTest: set.names(a.Test), ZonalMatched: set.names(a.Matched),
		Intersection: set.names(a.Intersection), ZonalMatch: a.Match,
		ModifiedEligible: set.names(a.Modified), Reason: a.Reason.String(),
		Result: c.Result.String(), Shares: s.Shares(r, zone), SnapshotGeneration: s.Generation,
	}
	x.Undeliverable = set.names(choose(set.members, a.Modified, func(m *Member) bool { return !m.Deliverable }))
	if zone != 0 {
		x.ClientZone = s.Zones[zone-1]
	}
	if region != 0 {
		x.ClientRegion = s.Regions[region-1]
	}
	if a.Match {
		x.Ratio = fmt.Sprintf("%d/%d", len(a.Intersection), len(a.Matched))
	}
	if policy.Spillover == SpillCrossZone {
		x.SpilloverRatio = policy.SpilloverRatio.String()
	}
	if b := s.Backend(c.Backend); b != nil {
		slot := int(slotOf(r.selectionHash(&t)))
		x.Backend, x.Slot = b.Name, &slot
	}
	return x, nil
}

// taker is the rule or route that takes a packet, nil if none does: r if it is so on any of the ports.
func (s *Snapshot) taker(r *Rule, t *Tuple) (taker *Rule) {
	if v := s.VIP(t.Dst); v != nil {
		return v.Rule(t.Proto, t.DstPort, t.HasPorts)
	}
	for port := range max(1, len(s.Ports)) {
		if found := s.Route(t.Src, t.Dst, t.Proto, port); found == r {
			return r
		} else if taker == nil {
			taker = found
		}
	}
	return taker
}

// elsewhere says what becomes of a packet that is for another rule, or for none.
func elsewhere(other *Rule, vip bool) string {
	switch {
	case other != nil && other.Route:
		return "route " + other.Name + " takes it"
	case other != nil:
		return "forwarding rule " + other.Name + " takes it"
	case vip:
		return "no rule of that address takes it, and it is dropped"
	}
	return "neither a rule nor a route takes it, and it is left to the host"
}

// Shares is the expected share of every backend that new connections of a rule from a client zone (0
// = none) can reach, in configuration order.
func (s *Snapshot) Shares(r *Rule, zone uint16) []Share {
	out := []Share{}
	d := s.states[r.Service.index].families[r.Family].draws[zone]
	if d == nil {
		return out
	}
	counts := make([]int, len(d.refs))
	for _, i := range d.table {
		counts[i]++
	}
	for _, id := range r.Service.ids {
		b := &s.Backends[id]
		if i := slices.Index(d.refs, b.Ref); i >= 0 {
			share := math.Round(1e6*float64(counts[i])/slots) / 1e6
			out = append(out, Share{b.Name, share})
		}
	}
	return out
}

// memberSet is the listed backends of one family, as the set arithmetic saw them at publish time.
type memberSet struct {
	members []Member
	list    []*Backend
}

func (s *Snapshot) members(v *Service, f Family) memberSet {
	var set memberSet
	for _, id := range v.ids {
		b := &s.Backends[id]
		flags := b.Flags[f]
		if flags&FlagPresent == 0 {
			continue
		}
		set.members = append(set.members, Member{
			Zone: b.Zone, Failover: flags&FlagFailover != 0, Drained: flags&FlagDrained != 0,
			Deliverable: flags&FlagDeliverable != 0, Health: b.Health(f),
		})
		set.list = append(set.list, b)
	}
	return set
}

func (m *memberSet) names(set []int) []string {
	out := make([]string, len(set))
	for i, k := range set {
		out[i] = m.list[k].Name
	}
	return out
}

// Offline makes a snapshot from a configuration alone, as it would be when every backend is
// deliverable and healthy except those named. A name that no service has is an error.
func Offline(o Options, down, unknown []string) (*Snapshot, error) {
	b, err := New(o, 0)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for i := range o.Services {
		s := &o.Services[i]
		for j := range s.Backends {
			e := &s.Backends[j]
			seen[e.Name] = true
			h := Healthy
			if slices.Contains(unknown, e.Name) {
				h = Unknown
			}
			if slices.Contains(down, e.Name) {
				h = Unhealthy
			}
			if e.Address.IsValid() {
				b.SetHealth(s.Name, e.Name, V4, h)
				b.SetDelivery(e.Address, Delivery{State: Deliverable, Port: -1})
			}
			if e.Address6.IsValid() {
				b.SetHealth(s.Name, e.Name, V6, h)
				b.SetDelivery(e.Address6, Delivery{State: Deliverable, Port: -1})
			}
		}
	}
	for _, name := range append(slices.Clone(down), unknown...) {
		if !seen[name] {
			return nil, fmt.Errorf("backend %q is in no service", name)
		}
	}
	b.SetReady("")
	return b.Publish(0), nil
}

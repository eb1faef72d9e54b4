package selector

import (
	"net/netip"
	"time"
)

// Snapshot is everything the forwarding path needs to decide, as of one publish. It is immutable and
// safe for any number of readers; load it once per batch. Pointers into it stay valid as long as
// they are held, but describe that generation only.
type Snapshot struct {
	Generation uint64
	Took       time.Duration // what building and publishing it cost
	Layout     *Layout
	Rules      []Rule
	Services   []*Service
	Backends   []Backend // by id; Ref 0 = unused id
	Ports      []Port    // by index in Options.Ports
	VIPs       []*VIP    // one for each address of forwarding rules
	NextHops   []*VIP    // one for each nextHopAddress of routes
	DestRanges []netip.Prefix
	Zones      []string // zone number n is Zones[n-1]
	Regions    []string
	OwnZone    uint16 // the appliance's own zone, 0 = none

	vips, hops vipIndex
	routes     *routeTable
	clients    *clientTable
	states     []*serviceState // by Service.index
}

// serviceState is who is eligible in one service. It is shared by snapshots while nothing about the
// service changes.
type serviceState struct{ families [2]familyState }

type familyState struct {
	kind      Kind
	eligible  bool    // the original eligible set is not empty
	present   bool    // the service has backends in this family
	unsettled bool    // nothing is chosen yet: see followRole
	draws     []*draw // by client zone; nil = nothing to choose from
}

// draw chooses among the candidates of one modified eligible set.
type draw struct {
	table *table
	refs  []Ref // by the table's candidate index
}

// Result says how a selection ended.
type Result uint8

// Results of Select. Only Selected has a backend.
const (
	Selected         Result = iota
	DroppedUnhealthy        // nothing is healthy and the service drops then
	RegionDenied            // client of another region, and the rule has no global access
	NoBackend               // the service has no backend in this family
	NotReady                // the service has not settled: see Builder.SetReady
)

// String is selected, dropped_unhealthy, region_denied, no_backend or not_ready.
func (r Result) String() string {
	return [...]string{"selected", "dropped_unhealthy", "region_denied", "no_backend", "not_ready"}[r]
}

// Choice is the outcome of a selection.
type Choice struct {
	Backend    Ref
	ClientZone uint16 // 0 = none
	Result     Result
}

// VIP is everything known about a forwarding rule's address, nil if no rule has it.
func (s *Snapshot) VIP(dst [2]uint64) *VIP { return s.vips.find(&dst) }

// VIPOf is VIP for an address that was written a moment ago: it reads it word by word. The copy that
// a call of VIP makes is a load of both words at once, which has to wait until their two stores have
// left the processor's store buffer (20 ns of a packet's 70).
func (s *Snapshot) VIPOf(dst *[2]uint64) *VIP { return s.vips.find(dst) }

// Route is the route of a packet that arrived on the port with the given index, nil if there is
// none: the most specific destination wins, then the most specific source.
func (s *Snapshot) Route(src, dst [2]uint64, proto uint8, port int) *Rule {
	return s.routes.find(src, dst, proto, port)
}

// Answers reports whether ARP or neighbour discovery for addr is answered on a port now.
func (s *Snapshot) Answers(addr [2]uint64, port int) bool {
	var mask uint64
	if v := s.vips.find(&addr); v != nil {
		mask = v.AnswerPorts
	}
	if v := s.hops.find(&addr); v != nil {
		mask |= v.AnswerPorts
	}
	return mask>>(uint(port)&63)&1 != 0
}

// Select chooses the backend of a new connection: a deterministic, keyed function of the tuple and
// the names of the backends its client may use. It costs the same for any number of backends.
func (s *Snapshot) Select(r *Rule, t *Tuple) Choice {
	zone, region := s.clients.lookup(t.Src)
	c := Choice{ClientZone: zone}
	if region != 0 && !r.AllowGlobal {
		c.Result = RegionDenied
		return c
	}
	family := &s.states[r.Service.index].families[r.Family]
	if family.unsettled {
		c.Result = NotReady
		return c
	}
	d := family.draws[zone]
	if d == nil {
		c.Result = NoBackend
		if family.kind == Drop {
			c.Result = DroppedUnhealthy
		}
		return c
	}
	c.Backend = d.refs[d.table[slotOf(r.selectionHash(t))]]
	return c
}

// ClientZone is the number of the zone a client is in, 0 for none.
func (s *Snapshot) ClientZone(src [2]uint64) uint16 {
	zone, _ := s.clients.lookup(src)
	return zone
}

// Backend is the backend a reference means, nil if it is gone or its id has a new life.
func (s *Snapshot) Backend(ref Ref) *Backend {
	if id := ref >> refGenerationBits; id < uint32(len(s.Backends)) {
		if b := &s.Backends[id]; b.Ref == ref && ref != 0 {
			return b
		}
	}
	return nil
}

// Kind is the kind of a service's eligible set in a family.
func (s *Snapshot) Kind(v *Service, f Family) Kind { return s.states[v.index].families[f].kind }

// Serving is the same where it means something: the service has backends in the family, and has settled
// (see Builder.SetReady).
func (s *Snapshot) Serving(v *Service, f Family) (kind Kind, ok bool) {
	family := &s.states[v.index].families[f]
	return family.kind, family.present && !family.unsettled
}

// Rule is the rule or route with a name, nil if there is none. It is linear, for operators.
func (s *Snapshot) Rule(name string) *Rule {
	for i := range s.Rules {
		if s.Rules[i].Name == name {
			return &s.Rules[i]
		}
	}
	return nil
}

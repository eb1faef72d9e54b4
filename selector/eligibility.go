package selector

// Family indexes everything that exists once per IP version.
type Family uint8

// The IP versions.
const (
	V4 Family = 0
	V6 Family = 1
)

// String is "IPv4" or "IPv6".
func (f Family) String() string {
	if f == V6 {
		return "IPv6"
	}
	return "IPv4"
}

// Health is the last verdict of a backend's health check in one family.
type Health int8

// Unknown is a backend without a first verdict; it is not healthy, and it has not "turned
// unhealthy" either.
const (
	Unknown   Health = -1
	Unhealthy Health = 0
	Healthy   Health = 1
)

// String is UNKNOWN, UNHEALTHY or HEALTHY.
func (h Health) String() string {
	switch h {
	case Healthy:
		return "HEALTHY"
	case Unhealthy:
		return "UNHEALTHY"
	}
	return "UNKNOWN"
}

// Kind says which kind of backends the eligible set is made of.
type Kind uint8

// Kinds of eligible set. AllPrimaries is the last resort: nothing is healthy, so every primary is
// tried. Drop is an empty set by choice (dropTrafficIfUnhealthy).
const (
	HealthyPrimaries Kind = iota
	HealthyFailovers
	AllPrimaries
	Drop
)

// String is the name used by explain: HEALTHY_PRIMARIES, HEALTHY_FAILOVERS, ALL_PRIMARIES, DROP.
func (k Kind) String() string {
	return [...]string{"HEALTHY_PRIMARIES", "HEALTHY_FAILOVERS", "ALL_PRIMARIES", "DROP"}[k]
}

// Policy is what a service says about who is eligible.
type Policy struct {
	FailoverRatio   Ratio // 0 = fail over only when no primary is healthy
	DropIfUnhealthy bool  // nothing healthy: drop instead of trying every primary
	Spillover       Spillover
	SpilloverRatio  Ratio // read only under SpillCrossZone
}

// Member is one listed backend as the set arithmetic sees it, in one family. Sets are lists of
// indices into a slice of members, in the order of that slice (configuration order).
type Member struct {
	Zone        uint16 // 0 = none
	Failover    bool   // role; false = primary
	Drained     bool   // by the operator
	Deliverable bool   // a frame can reach it
	Health      Health
}

// usable reports whether the member counts as healthy: a verdict of HEALTHY alone is worth nothing
// when no frame can be delivered to it.
func (m *Member) usable() bool { return m.Health == Healthy && m.Deliverable }

// Eligibility is the outcome for one service and family before zonal affinity.
type Eligibility struct {
	Kind       Kind
	Configured []int // who counts at all
	Eligible   []int // "original eligible backends" (A); empty only for Drop or without members
	test       []int // "zonal match test backends" (B): the configured backends of A's role
}

// Identify decides which backends may take a new connection. Ratios count heads. A drained member
// is not configured, nor is one without a first verdict once any member has one; when that would
// leave the last resort without anything to use, every member counts.
func Identify(p *Policy, members []Member) Eligibility {
	judged := false
	for i := range members {
		judged = judged || members[i].Health != Unknown
	}
	configured := pick(members, func(m *Member) bool {
		return !m.Drained && (m.Health != Unknown || !judged)
	})
	e := identify(p, members, configured)
	starved := len(configured) == 0 || e.Kind == AllPrimaries && e.Eligible == nil
	if starved && len(configured) < len(members) {
		e = identify(p, members, pick(members, func(*Member) bool { return true }))
	}
	if e.Kind == AllPrimaries && e.Eligible == nil {
		// Only failovers exist here (a family in which no primary has an address): they are all
		// there is to try.
		e.Eligible, e.test = e.Configured, e.Configured
	}
	return e
}

// identify applies the ordered rules to the configured members; the first that holds decides.
func identify(p *Policy, members []Member, configured []int) Eligibility {
	e := Eligibility{Configured: configured}
	primaries := choose(members, configured, func(m *Member) bool { return !m.Failover })
	failovers := choose(members, configured, func(m *Member) bool { return m.Failover })
	healthyPrimaries := choose(members, primaries, (*Member).usable)
	healthyFailovers := choose(members, failovers, (*Member).usable)

	switch {
	case len(healthyPrimaries) == 0 && len(healthyFailovers) == 0:
		if p.DropIfUnhealthy {
			e.Kind = Drop
			return e
		}
		e.Kind, e.Eligible = AllPrimaries, primaries
	case len(healthyPrimaries) == 0:
		e.Kind, e.Eligible = HealthyFailovers, healthyFailovers
	case len(healthyFailovers) == 0, p.FailoverRatio.Met(len(healthyPrimaries), len(primaries)):
		// A ratio of 0 is always met here, since some primary is healthy.
		e.Kind, e.Eligible = HealthyPrimaries, healthyPrimaries
	default:
		e.Kind, e.Eligible = HealthyFailovers, healthyFailovers
	}
	e.test = primaries
	if e.Kind == HealthyFailovers {
		e.test = failovers
	}
	return e
}

// pick lists the members that satisfy keep.
func pick(members []Member, keep func(*Member) bool) []int {
	var out []int
	for i := range members {
		if keep(&members[i]) {
			out = append(out, i)
		}
	}
	return out
}

// choose is pick within a set.
func choose(members []Member, set []int, keep func(*Member) bool) []int {
	var out []int
	for _, i := range set {
		if keep(&members[i]) {
			out = append(out, i)
		}
	}
	return out
}

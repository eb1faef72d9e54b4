package selector

// Spillover is a service's zonal affinity.
type Spillover uint8

// Zonal affinity options.
const (
	AffinityDisabled Spillover = iota
	StayWithinZone
	SpillCrossZone
)

// String is DISABLED, STAY_WITHIN_ZONE or SPILL_CROSS_ZONE.
func (s Spillover) String() string {
	return [...]string{"DISABLED", "STAY_WITHIN_ZONE", "SPILL_CROSS_ZONE"}[s]
}

// Reason names the step that made the modified eligible set.
type Reason uint8

// Reasons, in the order in which they are looked for.
const (
	ReasonNoBackends Reason = iota
	ReasonDropped
	ReasonAffinityDisabled
	ReasonClientNotCompatible
	ReasonNoZonalMatch
	ReasonStayIntersection
	ReasonStayZonalMatchedUnhealthy
	ReasonSpill0Intersection
	ReasonSpill0EmptyIntersection
	ReasonSpillRatioMet
	ReasonSpillRatioNotMet
)

var reasonNames = [...]string{
	"NO_BACKENDS", "DROPPED", "AFFINITY_DISABLED", "CLIENT_NOT_COMPATIBLE", "NO_ZONAL_MATCH",
	"STAY_INTERSECTION", "STAY_ZONAL_MATCHED_UNHEALTHY", "SPILL0_INTERSECTION",
	"SPILL0_EMPTY_INTERSECTION", "SPILL_RATIO_MET", "SPILL_RATIO_NOT_MET",
}

// String is the name used by explain, for example SPILL_RATIO_NOT_MET.
func (r Reason) String() string { return reasonNames[r] }

// Affinity is the outcome of zonal affinity for clients of one zone. Sets that a step was not
// reached for are empty.
type Affinity struct {
	Test         []int // B: configured backends of the eligible kind's role, any health
	Matched      []int // C: B in the client's zone
	Intersection []int // I: the eligible ones of C
	Modified     []int // M: what selection uses; empty only for Drop or without members
	Match        bool  // C is not empty
	Reason       Reason
}

// Restrict applies zonal affinity for a client in zone; 0 is a client without one, or one that is
// not compatible, and is served as if affinity were disabled. In the last resort the eligible set
// holds every primary, so a client's zone with primaries keeps its clients whatever the ratio.
func (e *Eligibility) Restrict(p *Policy, members []Member, zone uint16) Affinity {
	a := Affinity{Modified: e.Eligible}
	switch {
	case len(members) == 0:
		a.Reason = ReasonNoBackends
		return a
	case e.Kind == Drop:
		a.Reason = ReasonDropped
		return a
	case p.Spillover == AffinityDisabled:
		a.Reason = ReasonAffinityDisabled
		return a
	case zone == 0:
		a.Reason = ReasonClientNotCompatible
		return a
	}
	inZone := func(m *Member) bool { return m.Zone == zone }
	a.Test = e.test
	a.Matched = choose(members, e.test, inZone)
	a.Intersection = choose(members, e.Eligible, inZone)
	a.Match = len(a.Matched) > 0
	empty := len(a.Intersection) == 0
	switch {
	case !a.Match:
		a.Reason = ReasonNoZonalMatch
	case p.Spillover == StayWithinZone && empty:
		a.Modified, a.Reason = a.Matched, ReasonStayZonalMatchedUnhealthy
	case p.Spillover == StayWithinZone:
		a.Modified, a.Reason = a.Intersection, ReasonStayIntersection
	case p.SpilloverRatio.IsZero() && empty:
		a.Reason = ReasonSpill0EmptyIntersection
	case p.SpilloverRatio.IsZero():
		a.Modified, a.Reason = a.Intersection, ReasonSpill0Intersection
	case p.SpilloverRatio.Met(len(a.Intersection), len(a.Matched)):
		a.Modified, a.Reason = a.Intersection, ReasonSpillRatioMet
	default:
		a.Reason = ReasonSpillRatioNotMet
	}
	return a
}

// candidates narrows M to the members a frame can reach. Healthy members are deliverable by
// definition; this matters when M is made of unhealthy ones (last resort, or staying in a dead
// zone). With none deliverable it is M, so that the packet is dropped with the delivery's reason.
func candidates(members []Member, modified []int) []int {
	deliverable := choose(members, modified, func(m *Member) bool { return m.Deliverable })
	if len(deliverable) == 0 || len(deliverable) == len(modified) {
		return modified
	}
	return deliverable
}

package selector

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// parseMembers reads one letter per member: h healthy, u unhealthy, n never judged, x healthy without
// a delivery, d healthy and drained, D never judged and drained; upper case H, U, N, X are failovers.
func parseMembers(text string) []Member {
	var out []Member
	for _, c := range text {
		m := Member{Zone: 1, Deliverable: true, Health: Healthy}
		switch c {
		case 'u', 'U':
			m.Health = Unhealthy
		case 'n', 'N':
			m.Health = Unknown
		case 'x', 'X':
			m.Deliverable = false
		case 'd':
			m.Drained = true
		case 'D':
			m.Drained, m.Health = true, Unknown
		}
		m.Failover = c == 'H' || c == 'U' || c == 'N' || c == 'X'
		out = append(out, m)
	}
	return out
}

func TestIdentify(t *testing.T) {
	for _, c := range []struct {
		name, members, ratio string
		drop                 bool
		kind                 Kind
		eligible             []int
	}{
		{"no failover, some healthy", "hu", "0", false, HealthyPrimaries, []int{0}},
		{"no failover, none healthy", "uu", "0", false, AllPrimaries, []int{0, 1}},
		{"no failover, drop", "uu", "0", true, Drop, nil},
		{"no primary healthy", "uH", "0", false, HealthyFailovers, []int{1}},
		{"no failover healthy", "huuuU", "1", false, HealthyPrimaries, []int{0}},
		{"ratio 0", "huuuH", "0", false, HealthyPrimaries, []int{0}},
		{"ratio equal", "hhhhuH", "0.8", false, HealthyPrimaries, []int{0, 1, 2, 3}},
		{"ratio not met", "hhhuH", "0.8", false, HealthyFailovers, []int{4}},
		{"last resort leaves failovers out", "uUu", "0", false, AllPrimaries, []int{0, 2}},

		{"healthy without a delivery is not healthy", "xH", "0", false, HealthyFailovers, []int{1}},
		{"new ones do not count", "hhnnnnnH", "0.8", false, HealthyPrimaries, []int{0, 1}},
		{"unjudged service", "nnN", "0", false, AllPrimaries, []int{0, 1}},
		{"drained one of two", "hdH", "1", false, HealthyPrimaries, []int{0}},
		{"drained and unhealthy", "dudu", "0", false, AllPrimaries, []int{1, 3}},
		{"all drained", "dd", "0", false, HealthyPrimaries, []int{0, 1}},
		{"all drained, unjudged", "DD", "0", false, AllPrimaries, []int{0, 1}},
		{"primaries drained, failovers dead", "dU", "0", false, HealthyPrimaries, []int{0}},
		{"primaries drained, failovers alive", "dH", "0", false, HealthyFailovers, []int{1}},
		{"failovers only", "UU", "0", false, AllPrimaries, []int{0, 1}},
		{"nothing", "", "0", false, AllPrimaries, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Policy{FailoverRatio: MustRatio(c.ratio), DropIfUnhealthy: c.drop}
			e := Identify(&p, parseMembers(c.members))
			if e.Kind != c.kind || cmp.Diff(c.eligible, e.Eligible) != "" {
				t.Errorf("Identify(%s) = %v %v, want %v %v", c.members, e.Kind, e.Eligible, c.kind, c.eligible)
			}
		})
	}
}

// TestDrainDoesNotSpill: a drained backend leaves the ratio of its zone alone.
func TestDrainDoesNotSpill(t *testing.T) {
	p := Policy{Spillover: SpillCrossZone, SpilloverRatio: MustRatio("0.8")}
	members := parseMembers("hdhh")
	members[2].Zone, members[3].Zone = 2, 2
	e := Identify(&p, members)
	if a := e.Restrict(&p, members, 1); a.Reason != ReasonSpillRatioMet || !slices.Equal(a.Modified, []int{0}) {
		t.Errorf("Restrict = %v %v, want SPILL_RATIO_MET [0]", a.Reason, a.Modified)
	}
}

func TestCandidates(t *testing.T) {
	members := parseMembers("uxu")
	members[0].Deliverable = false
	if got := candidates(members, []int{0, 1, 2}); !slices.Equal(got, []int{2}) {
		t.Errorf("candidates = %v, want the deliverable [2]", got)
	}
	if got := candidates(members, []int{0, 1}); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("candidates without a delivery = %v, want all [0 1]", got)
	}
}

// drawMembers draws any mix of members in up to four zones.
func drawMembers(t *rapid.T) []Member {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Member {
		return Member{
			Zone:        rapid.Uint16Range(0, 4).Draw(t, "zone"),
			Failover:    rapid.Bool().Draw(t, "failover"),
			Drained:     rapid.IntRange(0, 4).Draw(t, "drained") == 0,
			Deliverable: rapid.IntRange(0, 4).Draw(t, "deliverable") > 0,
			Health:      Health(rapid.IntRange(-1, 1).Draw(t, "health")),
		}
	}), 1, 12).Draw(t, "members")
}

func drawPolicy(t *rapid.T) Policy {
	ratio := rapid.SampledFrom([]string{"0", "0.3", "0.5", "0.8", "1"})
	return Policy{
		FailoverRatio:   MustRatio(ratio.Draw(t, "failover ratio")),
		DropIfUnhealthy: rapid.Bool().Draw(t, "drop"),
		Spillover:       Spillover(rapid.IntRange(0, 2).Draw(t, "spillover")),
		SpilloverRatio:  MustRatio(ratio.Draw(t, "spillover ratio")),
	}
}

// TestSetProperties: the modified set is empty only for DROP, holds no mix of roles unless it is the
// original one, and zonal affinity looks at nothing but its own zone's members and the original set.
func TestSetProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members, policy := drawMembers(t), drawPolicy(t)
		zone := rapid.Uint16Range(0, 4).Draw(t, "client zone")
		e := Identify(&policy, members)
		a := e.Restrict(&policy, members, zone)
		if (len(a.Modified) == 0) != (e.Kind == Drop) {
			t.Fatalf("kind %v with modified set %v", e.Kind, a.Modified)
		}
		if len(candidates(members, a.Modified)) == 0 && e.Kind != Drop {
			t.Fatal("nothing to select from")
		}
		if e.Kind == Drop && !policy.DropIfUnhealthy {
			t.Fatal("DROP without being asked for")
		}
		for _, i := range a.Modified {
			if !slices.Contains(e.Eligible, i) && (a.Reason != ReasonStayZonalMatchedUnhealthy || members[i].Zone != zone) {
				t.Fatalf("%d is in M but not in A, for %v", i, a.Reason)
			}
		}
		if policy.Spillover == AffinityDisabled && !slices.Equal(a.Modified, e.Eligible) {
			t.Fatal("disabled affinity changed the set")
		}
	})
}

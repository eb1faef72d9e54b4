package selector

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type vectorBackend struct {
	ID      string `json:"id"`
	Zone    string `json:"zone"`
	Healthy bool   `json:"healthy"`
}

type vector struct {
	ID          string `json:"id"`
	Description string `json:"description"`
	Source      string `json:"source"`
	Note        string `json:"note"`
	Inferred    bool   `json:"inferred"`
	Relation    string `json:"relation"`
	Input       struct {
		Primaries      []vectorBackend `json:"primaries"`
		Failovers      []vectorBackend `json:"failovers"`
		FailoverPolicy *struct {
			FailoverRatio          *json.Number `json:"failoverRatio"`
			DropTrafficIfUnhealthy *bool        `json:"dropTrafficIfUnhealthy"`
		} `json:"failoverPolicy"`
		Affinity       *string      `json:"affinity"`
		SpilloverRatio *json.Number `json:"spilloverRatio"`
		ClientZone     *string      `json:"clientZone"`
	} `json:"input"`
	Expected struct {
		OriginalEligible []string `json:"originalEligible"`
		ZonalMatch       bool     `json:"zonalMatch"`
		ModifiedEligible []string `json:"modifiedEligible"`
		Reason           string   `json:"reason"`
	} `json:"expected"`
}

// readVectors decodes strictly: a field this file does not know is a failure, so nothing in a
// vector can go unchecked by accident.
func readVectors(t *testing.T) []vector {
	t.Helper()
	raw, err := os.ReadFile("testdata/eligibility.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Meta    json.RawMessage `json:"meta"`
		Vectors []vector        `json:"vectors"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	if len(file.Vectors) == 0 {
		t.Fatal("testdata/eligibility.json holds no vectors")
	}
	return file.Vectors
}

var spilloverNames = map[string]Spillover{
	"ZONAL_AFFINITY_DISABLED":         AffinityDisabled,
	"ZONAL_AFFINITY_STAY_WITHIN_ZONE": StayWithinZone,
	"ZONAL_AFFINITY_SPILL_CROSS_ZONE": SpillCrossZone,
}

func ratioOf(t *testing.T, n *json.Number) Ratio {
	t.Helper()
	if n == nil {
		return Ratio{}
	}
	r, err := ParseRatio(n.String())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func policyOf(t *testing.T, v *vector) Policy {
	t.Helper()
	p := Policy{SpilloverRatio: ratioOf(t, v.Input.SpilloverRatio)}
	if v.Input.Affinity != nil {
		s, ok := spilloverNames[*v.Input.Affinity]
		if !ok {
			t.Fatalf("unknown affinity %q", *v.Input.Affinity)
		}
		p.Spillover = s
	}
	if f := v.Input.FailoverPolicy; f != nil {
		p.FailoverRatio = ratioOf(t, f.FailoverRatio)
		p.DropIfUnhealthy = f.DropTrafficIfUnhealthy != nil && *f.DropTrafficIfUnhealthy
	}
	return p
}

func TestEligibilityVectors(t *testing.T) {
	for _, v := range readVectors(t) {
		t.Run(v.ID, func(t *testing.T) {
			policy := policyOf(t, &v)
			zones := map[string]uint16{}
			zoneOf := func(name string) uint16 {
				if zones[name] == 0 {
					zones[name] = uint16(len(zones) + 1)
				}
				return zones[name]
			}
			var members []Member
			var names []string
			for role, list := range [][]vectorBackend{v.Input.Primaries, v.Input.Failovers} {
				for _, b := range list {
					h := Unhealthy
					if b.Healthy {
						h = Healthy
					}
					members = append(members, Member{
						Zone: zoneOf(b.Zone), Failover: role == 1, Deliverable: true, Health: h,
					})
					names = append(names, b.ID)
				}
			}
			client := uint16(0)
			if v.Input.ClientZone != nil {
				client = zoneOf(*v.Input.ClientZone)
			}
			nameAll := func(set []int) []string {
				out := []string{}
				for _, i := range set {
					out = append(out, names[i])
				}
				return out
			}

			e := Identify(&policy, members)
			if d := cmp.Diff(v.Expected.OriginalEligible, nameAll(e.Eligible)); d != "" {
				t.Errorf("original eligible (-want +got):\n%s", d)
			}
			a := e.Restrict(&policy, members, client)
			if d := cmp.Diff(v.Expected.ModifiedEligible, nameAll(a.Modified)); d != "" {
				t.Errorf("modified eligible (-want +got):\n%s", d)
			}
			if a.Match != v.Expected.ZonalMatch {
				t.Errorf("zonal match = %v, want %v", a.Match, v.Expected.ZonalMatch)
			}
			if a.Reason.String() != v.Expected.Reason {
				t.Errorf("reason = %v, want %v", a.Reason, v.Expected.Reason)
			}
			if got := relation(e.Eligible, a.Modified); got != v.Relation {
				t.Errorf("relation = %s, want %s", got, v.Relation)
			}
		})
	}
}

// relation compares the modified set with the original one the way the vectors word it.
func relation(original, modified []int) string {
	in := map[int]bool{}
	for _, i := range original {
		in[i] = true
	}
	for _, i := range modified {
		if !in[i] {
			return "different"
		}
	}
	if len(modified) == len(original) {
		return "same"
	}
	return "subset"
}

package forwarder

import (
	"fmt"
	"testing"
)

// TestNamesAreForgotten: counters of names that come and go stay bounded, and
// the sums exact, by rule too.
func TestNamesAreForgotten(t *testing.T) {
	r := newRig(t, rigOptions{backends: 2})
	const churned = 3 * pastLabels
	c := &r.counters
	c.folded.Pairs, c.folded.Conns, c.folded.Zones = map[PairLabel]PairTotals{}, map[ConnLabel]uint64{}, map[ZoneLabel]uint64{}
	for i := range churned {
		gone := fmt.Sprint("gone-", i)
		c.folded.Pairs[PairLabel{"tcp", gone}] = PairTotals{1, 10}
		c.folded.Pairs[PairLabel{gone, "b0"}] = PairTotals{2, 20}
		c.folded.Conns[ConnLabel{"tcp", gone, ""}] = 1
		c.folded.Conns[ConnLabel{gone, "", ""}] = 2
		c.folded.Zones[ZoneLabel{gone, ""}] = 3
	}
	c.folded.Pairs[PairLabel{"tcp", "b1"}] = PairTotals{5, 50}
	for range 2 { // what was merged is not merged again
		c.relayout(r.snap.Layout)
	}
	n := len(c.folded.Pairs) + len(c.folded.Conns) + len(c.folded.Zones)
	if n > 3*pastLabels {
		t.Errorf("%d labels are left", n)
	}
	got := r.totals()
	for label, want := range map[PairLabel]PairTotals{
		{"tcp", "b1"}: {5, 50}, {"tcp", ""}: {churned, 10 * churned}, {"", ""}: {2 * churned, 20 * churned},
	} {
		if got.Pairs[label] != want {
			t.Errorf("pair %v: %v, want %v", label, got.Pairs[label], want)
		}
	}
	if a, b := got.Conns[ConnLabel{Rule: "tcp"}], got.Conns[ConnLabel{}]; a != churned || b != 2*churned {
		t.Errorf("connections: %d of the rule that is there, %d of others; want %d and %d", a, b, churned, 2*churned)
	}
	if z := got.Zones[ZoneLabel{}]; z != 3*churned {
		t.Errorf("bytes of zones: %d, want %d", z, 3*churned)
	}
}

package composite

import (
	"fmt"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"zonehop/selector"
)

// drawPolicy makes a policy whose percentage has up to three digits after the point, and the same
// percentage as a fraction of 100 000.
func drawPolicy(t *rapid.T, most int) (Policy, int64) {
	percent := rapid.OneOf(rapid.Int64Range(0, 100000), rapid.SampledFrom([]int64{0, 50000, 59900, 60000, 100000})).Draw(t, "percent")
	text := fmt.Sprintf("0.%05d", percent)
	if percent == 100000 {
		text = "1"
	}
	return Policy{Percent: selector.MustRatio(text), Min: rapid.IntRange(1, most+2).Draw(t, "min")}, percent
}

// enough is the rule on fully known endpoints, in rational numbers and by the letter: the share is at
// least the threshold, and the number is.
func enough(percent int64, least, healthy, total int) bool {
	if total == 0 {
		return false
	}
	return big.NewRat(int64(healthy), int64(total)).Cmp(big.NewRat(percent, 100000)) >= 0 && healthy >= least
}

// TestJudgeAgreesWithEveryCompletion fills in the unknown endpoints in every possible way: the source
// is what all of them lead to, and UNKNOWN if they disagree.
func TestJudgeAgreesWithEveryCompletion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Count{
			rapid.IntRange(0, 12).Draw(t, "healthy"), rapid.IntRange(0, 12).Draw(t, "unhealthy"), rapid.IntRange(0, 10).Draw(t, "unknown"),
		}
		p, percent := drawPolicy(t, c.Total())
		met, missed := 0, 0
		for fill := range 1 << c.Unknown {
			healthy := c.Healthy
			for bit := range c.Unknown {
				healthy += fill >> bit & 1
			}
			if enough(percent, p.Min, healthy, c.Total()) {
				met++
			} else {
				missed++
			}
		}
		want := selector.Unknown
		switch {
		case missed == 0:
			want = selector.Healthy
		case met == 0:
			want = selector.Unhealthy
		}
		if got := p.Judge(c); got != want {
			t.Fatalf("%s and %d: Judge(%+v) = %v, want %v (%d ways meet the policy, %d do not)", p.Percent, p.Min, c, got, want, met, missed)
		}
	})
}

// TestRequired: one fewer healthy endpoint is not enough, and that many are, if there are that many.
func TestRequired(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(0, 60000).Draw(t, "total")
		p, percent := drawPolicy(t, min(total, 50))
		need := p.Required(total)
		if need <= total && !enough(percent, p.Min, need, total) {
			t.Fatalf("%d of %d do not meet %s and %d", need, total, p.Percent, p.Min)
		}
		if enough(percent, p.Min, min(need-1, total), total) {
			t.Fatalf("%d of %d meet %s and %d already, but Required is %d", need-1, total, p.Percent, p.Min, need)
		}
	})
}

// TestCombineAgreesWithEveryCompletion does the same for composites, where a known source is met or
// missed and every one has to be met.
func TestCombineAgreesWithEveryCompletion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		states := rapid.SliceOfN(rapid.SampledFrom([]selector.Health{selector.Healthy, selector.Unhealthy, selector.Unknown}), 1, maxSources).Draw(t, "sources")
		met, missed := 0, 0
		for fill := range 1 << len(states) {
			all, possible := true, true
			for i, s := range states {
				healthy := fill>>i&1 == 1
				possible = possible && (s == selector.Unknown || healthy == (s == selector.Healthy))
				all = all && healthy
			}
			switch {
			case possible && all:
				met++
			case possible:
				missed++
			}
		}
		want := selector.Unknown
		switch {
		case missed == 0:
			want = selector.Healthy
		case met == 0:
			want = selector.Unhealthy
		}
		if got := Combine(states); got != want {
			t.Fatalf("Combine(%v) = %v, want %v", states, got, want)
		}
	})
}

// TestMissing: what is said to be missing is what changes the state, and less does not.
func TestMissing(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		count  Count
		want   string
	}{
		{Policy{Percent: selector.MustRatio("0.6"), Min: 1}, Count{4, 1, 0}, "UNHEALTHY after 2 more failures: 4 of 5 backends healthy, 3 needed"},
		{Policy{Percent: selector.MustRatio("0.6"), Min: 1}, Count{3, 2, 0}, "UNHEALTHY after 1 more failure: 3 of 5 backends healthy, 3 needed"},
		{Policy{Percent: selector.MustRatio("0.6"), Min: 1}, Count{1, 4, 0}, "HEALTHY after 2 more recoveries: 1 of 5 backends healthy, 3 needed"},
		{Policy{Percent: selector.MustRatio("0.6"), Min: 6}, Count{5, 0, 0}, "never HEALTHY as configured: the policy needs 6 healthy backends and 5 count"},
		{Policy{Percent: selector.MustRatio("0.6"), Min: 1}, Count{2, 0, 3}, "HEALTHY if 1 of the 3 without a verdict turn healthy, UNHEALTHY after 3 failures: 2 of 5 backends healthy, 3 needed"},
		{Policy{Percent: selector.MustRatio("0.6"), Min: 1}, Count{4, 0, 1}, "UNKNOWN after 2 more failures, UNHEALTHY after 3, counting the 1 without a verdict as healthy: 4 of 5 backends healthy, 3 needed"},
	} {
		if got := missingOf(&c.policy, c.count); got != c.want {
			t.Errorf("%+v:\n got %s\nwant %s", c.count, got, c.want)
		}
	}
}

func TestPercentText(t *testing.T) {
	for ratio, want := range map[string]string{
		"0": "0", "1": "100", "0.6": "60", "0.599": "59.9", "0.05": "5", "0.005": "0.5", "0.000000000000000001": "0.0000000000000001",
	} {
		p := Policy{Percent: selector.MustRatio(ratio)}
		if got := p.PercentText(); got != want {
			t.Errorf("%s is %q percent, want %q", ratio, got, want)
		}
	}
}

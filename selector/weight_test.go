package selector

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// weightedGrid is n healthy backends whose service follows reported weights.
func weightedGrid(t *testing.T, n int) *Builder {
	t.Helper()
	o := grid(n, 1)
	o.Services[0].Weighted, o.Services[0].ReportedWeights = true, true
	for i := range o.Services[0].Backends {
		o.Services[0].Backends[i].Weight = uint32(1 + 7*i) // of no effect here
	}
	b := mustNew(t, o)
	healthy(b, 1)
	return b
}

func report(b *Builder, backend int, state WeightState, value float32) {
	b.SetWeight("web", fmt.Sprintf("b%04d", backend), V4, ReportedWeight{state, value})
}

// slotsOf counts the slots of every backend in the table of clients in the only zone.
func slotsOf(s *Snapshot) map[string]int {
	out := make(map[string]int)
	for _, share := range s.Shares(&s.Rules[0], 1) {
		out[share.Backend] = int(math.Round(share.Share * slots))
	}
	return out
}

// owners lists the backend of every slot of the table of clients in the only zone.
func owners(s *Snapshot) []Ref {
	d := s.states[0].families[V4].draws[1]
	out := make([]Ref, slots)
	for i := range out {
		out[i] = d.refs[d.table[i]]
	}
	return out
}

// TestReportedShares: shares follow the weights reported, whatever their magnitude, within 2 % or two
// slots.
func TestReportedShares(t *testing.T) {
	for name, weight := range map[string]func(i int) float32{
		"0 to 1000":     func(i int) float32 { return float32(i * 37 % 1001) },
		"fractions":     func(i int) float32 { return 0.001 * float32(1+i) },
		"powers of two": func(i int) float32 { return float32(math.Ldexp(1, i)) },
		"huge":          func(i int) float32 { return math.MaxFloat32 / float32(1+i) },
		"equal":         func(int) float32 { return 0.3 },
	} {
		const n = 20
		b := weightedGrid(t, n)
		total := 0.0
		for i := range n {
			report(b, i, ValidWeight, weight(i))
			total += float64(weight(i))
		}
		got := slotsOf(b.Publish(2))
		for i := range n {
			fair := slots * float64(weight(i)) / total
			if diff := math.Abs(float64(got[fmt.Sprintf("b%04d", i)]) - fair); diff > max(0.02*fair, slotTolerance+1) {
				t.Errorf("%s: backend %d of weight %v has %d slots, want %.1f within 2 %%", name, i, weight(i), got[fmt.Sprintf("b%04d", i)], fair)
			}
		}
	}
}

// TestWeightsAreAllOrNothing: weights are in use if every backend that counts reported a valid one or
// did not answer; else all weigh the same.
func TestWeightsAreAllOrNothing(t *testing.T) {
	for _, c := range []struct {
		name    string
		arrange func(b *Builder)
		used    bool
		first   float64 // share of b0000, which reported 300 where the others reported 100
	}{
		{"all valid", func(*Builder) {}, true, 0.5},
		{"one missing", func(b *Builder) { report(b, 3, MissingWeight, 0) }, false, 0.25},
		{"one invalid", func(b *Builder) { report(b, 3, InvalidWeight, 0) }, false, 0.25},
		{"not a number", func(b *Builder) { report(b, 3, ValidWeight, float32(math.NaN())) }, false, 0.25},
		{"infinite", func(b *Builder) { report(b, 3, ValidWeight, float32(math.Inf(1))) }, false, 0.25},
		{"negative", func(b *Builder) { report(b, 3, ValidWeight, -1) }, false, 0.25},
		{"one without a report", func(b *Builder) { report(b, 3, NoWeight, 0) }, false, 0.25},
		{"one does not answer: its last weight goes on", func(b *Builder) { report(b, 0, UnavailableWeight, 0) }, true, 0.5},
		{"valid again", func(b *Builder) { report(b, 0, MissingWeight, 0); report(b, 0, ValidWeight, 300) }, true, 0.5},
		{"the one without a weight is drained", func(b *Builder) { report(b, 3, MissingWeight, 0); b.SetDrain("b0003", true) }, true, 0.6},
		{"the one without a weight has no verdict yet", func(b *Builder) { report(b, 3, NoWeight, 0); b.SetHealth("web", "b0003", V4, Unknown) }, true, 0.6},
		{"the one without a weight is unhealthy", func(b *Builder) { report(b, 3, MissingWeight, 0); b.SetHealth("web", "b0003", V4, Unhealthy) }, false, 1.0 / 3},
		{"one of weight 0", func(b *Builder) { report(b, 3, ValidWeight, 0) }, true, 0.6},
		{"all of weight 0 share alike", func(b *Builder) {
			for i := range 4 {
				report(b, i, ValidWeight, 0)
			}
		}, true, 0.25},
	} {
		b := weightedGrid(t, 4)
		for i, w := range []float32{300, 100, 100, 100} {
			report(b, i, ValidWeight, w)
		}
		b.Publish(2)
		c.arrange(b)
		got := float64(slotsOf(b.Publish(3))["b0000"]) / slots
		if math.Abs(got-c.first) > 0.02*c.first {
			t.Errorf("%s: b0000 has a share of %.3f, want %.3f", c.name, got, c.first)
		}
		if list, used := b.Weights("web", V4); used != c.used || len(list) != 4 {
			t.Errorf("%s: Weights = %v, %v, want used %v", c.name, list, used, c.used)
		}
	}
}

// TestNeverAnswered: a backend that never answered weighs as much as the others on average.
func TestNeverAnswered(t *testing.T) {
	b := weightedGrid(t, 3)
	report(b, 0, ValidWeight, 10)
	report(b, 1, ValidWeight, 30)
	report(b, 2, UnavailableWeight, 0)
	got := slotsOf(b.Publish(2))
	if share := float64(got["b0002"]) / slots; math.Abs(share-1.0/3) > 0.01 {
		t.Errorf("b0002 has a share of %.3f, want a third: %v", share, got)
	}
}

// TestEqualWeightsChangeNothing: reporting the same weight everywhere leads to the very table that
// there is without reports.
func TestEqualWeightsChangeNothing(t *testing.T) {
	b := weightedGrid(t, 7)
	before := choices(b.Current(), "10.1.0.1")
	for i := range 7 {
		report(b, i, ValidWeight, 12.5)
	}
	s := b.Publish(2)
	if _, used := b.Weights("web", V4); !used {
		t.Fatal("the weights are not in use")
	}
	if !slices.Equal(before, choices(s, "10.1.0.1")) {
		t.Error("equal weights moved connections")
	}
}

// TestWeightChangeMovesLittle: one weight that changes moves hardly more slots than the difference in
// shares, and no tracked flow at all.
func TestWeightChangeMovesLittle(t *testing.T) {
	const n = 20
	b := weightedGrid(t, n)
	for i := range n {
		report(b, i, ValidWeight, 100)
	}
	before := b.Publish(2)
	for _, weight := range []float32{110, 200, 50, 0} {
		report(b, 4, ValidWeight, weight)
		after := b.Publish(3)
		x, y := owners(before), owners(after)
		moved := 0
		for i := range x {
			if x[i] != y[i] {
				moved++
			}
		}
		least := math.Abs(float64(weight)/(100*(n-1)+float64(weight)) - 1.0/n)
		got := float64(moved) / float64(len(x))
		t.Logf("100 to %v: %.2f %% of slots moved, %.2f %% had to", weight, 100*got, 100*least)
		if got > 1.25*least+0.01 {
			t.Errorf("100 to %v moved %.2f %% of slots, and %.2f %% had to", weight, 100*got, 100*least)
		}
		for i := range before.Backends {
			old := &before.Backends[i]
			if old.Ref == 0 {
				continue
			}
			now := after.Backend(old.Ref)
			if now == nil || now.keepUntil != old.keepUntil {
				t.Errorf("100 to %v touches tracked flows of %s", weight, old.Name)
			}
		}
		report(b, 4, ValidWeight, 100)
		b.Publish(4)
	}
}

// TestReportedWeightsNeedTheOption: other services do not listen to reports.
func TestReportedWeightsNeedTheOption(t *testing.T) {
	b := mustNew(t, grid(4, 1))
	healthy(b, 1)
	for i := range 4 {
		report(b, i, ValidWeight, float32(i))
	}
	if list, used := b.Weights("web", V4); list != nil || used {
		t.Errorf("Weights = %v, %v", list, used)
	}
	for name, n := range slotsOf(b.Publish(2)) {
		if math.Abs(float64(n)-slots/4.0) > 0.02*slots/4 {
			t.Errorf("%s has %d slots, want a quarter", name, n)
		}
	}
	if b.SetWeight("web", "b0009", V4, ReportedWeight{}) || b.SetWeight("gone", "b0000", V4, ReportedWeight{}) || b.SetWeight("web", "b0000", V6, ReportedWeight{}) {
		t.Error("a weight of what is not configured was taken")
	}
}

// TestScaleWeights: the integers are in the proportions reported, to the precision of the numbers, or
// 1 where that is too small; and have no common divisor.
func TestScaleWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float32Range(0, math.MaxFloat32), 1, 30).Draw(t, "weights")
		entries, weights := make([]*backendEntry, len(values)), make([]uint32, len(values))
		greatest := slices.Max(values)
		for i, v := range values {
			entries[i] = &backendEntry{reported: [2]reported{{ValidWeight, true, v}}}
		}
		scaleWeights(weights, V4, entries)
		most, divisor := slices.Max(weights), uint32(0)
		for i, w := range weights {
			divisor = commonDivisor(divisor, w)
			want := float64(values[i]) / float64(max(greatest, math.SmallestNonzeroFloat32)) * float64(most)
			if (w == 0) != (values[i] == 0) || w > 1 && math.Abs(float64(w)-want) > 1 {
				t.Fatalf("%v becomes %d beside %d for %v, want %v", values[i], w, most, greatest, want)
			}
		}
		if divisor > 1 {
			t.Fatalf("%v have the common divisor %d", weights, divisor)
		}
	})
}

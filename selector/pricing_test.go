package selector

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomCandidates are n equal candidates.
func randomCandidates(r *rand.Rand, n int) []candidate {
	cs := make([]candidate, n)
	for i := range cs {
		cs[i] = candidate{seed{r.Uint64(), r.Uint64()}, 1}
	}
	return cs
}

// sharesOf counts the slots of each candidate.
func sharesOf(t *table, n int) []int {
	share := make([]int, n)
	for _, i := range t {
		share[i]++
	}
	return share
}

// disruption is what removing candidate x changes: the part of the survivors' slots that move, and
// the lowest and highest share after it, as multiples of fair.
func disruption(build func([]candidate) *table, cs []candidate, full *table, x int) (moved, low, high float64) {
	less := build(slices.Delete(slices.Clone(cs), x, x+1))
	kept, changed := 0, 0
	for s, before := range full {
		if int(before) == x {
			continue
		}
		kept++
		after := int(less[s])
		if after >= x {
			after++
		}
		if after != int(before) {
			changed++
		}
	}
	fair := float64(slots) / float64(len(cs)-1)
	share := sharesOf(less, len(cs)-1)
	return float64(changed) / float64(kept), float64(slices.Min(share)) / fair, float64(slices.Max(share)) / fair
}

// TestWeightedShares: shares follow static weights within 2 %, or two slots.
func TestWeightedShares(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for name, weight := range map[string]func(i int) uint32{
		"one heavy":    func(i int) uint32 { return []uint32{1, 50}[min(1, i/99)] },
		"1 to 4":       func(i int) uint32 { return uint32(1 + i%4) },
		"1 to 1000":    func(i int) uint32 { return uint32(1 + i*10) },
		"large equals": func(int) uint32 { return 1 << 31 },
	} {
		cs := randomCandidates(r, 100)
		total := 0.0
		for i := range cs {
			cs[i].weight = weight(i)
			total += float64(cs[i].weight)
		}
		for i, n := range sharesOf(new(pricing).build(cs), len(cs)) {
			fair := slots * float64(cs[i].weight) / total
			if diff := float64(n) - fair; max(diff, -diff) > max(0.02*fair, slotTolerance+1) {
				t.Errorf("%s: candidate %d of weight %d has %d slots, want %.1f within 2 %%", name, i, cs[i].weight, n, fair)
			}
		}
	}
}

// TestBuildIsPure: a reused workspace leaves no trace in later tables.
func TestBuildIsPure(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	a, b := randomCandidates(r, 40), randomCandidates(r, 700)
	p := new(pricing)
	first := p.build(a)
	p.build(b)
	if *p.build(a) != *first {
		t.Error("the same candidates gave another table after a table of others")
	}
}

// TestManyCandidates: more candidates than a slot each can be shared by still make a table.
func TestManyCandidates(t *testing.T) {
	cs := randomCandidates(rand.New(rand.NewPCG(9, 1)), maxBackendsPerService)
	share := sharesOf(new(pricing).build(cs), len(cs))
	if most := slices.Max(share); most > 1+slotTolerance+1 {
		t.Errorf("a candidate has %d slots, want at most 4", most)
	}
}

func BenchmarkBuildTable(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10000} {
		for _, weighted := range []bool{false, true} {
			b.Run(fmt.Sprintf("backends=%d/weighted=%v", n, weighted), func(b *testing.B) {
				cs := randomCandidates(rand.New(rand.NewPCG(1, 1)), n)
				if weighted {
					for i := range cs {
						cs[i].weight = uint32(1 + i%7)
					}
				}
				b.ReportAllocs()
				p := new(pricing)
				for b.Loop() {
					p.build(cs)
				}
			})
		}
	}
}

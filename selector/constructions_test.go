package selector

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// maglev is the construction of Eisenbud et al., "Maglev", NSDI 2016, 3.4: candidates take turns,
// each taking the next free slot of its own permutation.
func maglev(cs []candidate) *table {
	t := new(table)
	taken := make([]bool, slots)
	next, step := make([]uint64, len(cs)), make([]uint64, len(cs))
	for i, c := range cs {
		next[i] = slotOf(c.seed[0])
		step[i], _ = bits.Mul64(c.seed[1], slots-1)
		step[i]++
	}
	for filled := 0; ; {
		for i := range cs {
			for taken[next[i]] {
				next[i] = (next[i] + step[i]) % slots
			}
			taken[next[i]] = true
			t[next[i]] = uint16(i)
			if filled++; filled == slots {
				return t
			}
		}
	}
}

// capped is rendezvous hashing in which no candidate takes more than its fair share: of all pairs of
// slot and candidate the best score goes first.
func capped(cs []candidate) *table {
	type pair struct {
		score uint64
		slot  uint32
		index uint16
	}
	var pairs []pair
	for s := range uint64(slots) {
		for i, c := range cs {
			// The best 16 of a slot, on average, are enough to fill every share.
			if score := fold(s^c.seed[0], c.seed[1]|1); score < 1<<63/uint64(len(cs))*32 {
				pairs = append(pairs, pair{score, uint32(s), uint16(i)})
			}
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int { return cmp.Compare(a.score, b.score) })
	limit := slots/len(cs) + 1
	t := new(table)
	taken := make([]bool, slots)
	share := make([]int, len(cs))
	for _, p := range pairs {
		if !taken[p.slot] && share[p.index] < limit {
			taken[p.slot], t[p.slot] = true, p.index
			share[p.index]++
		}
	}
	return t
}

// TestConstructions holds the construction in use to its limits, and measures the ones it was chosen
// over: with -v the log has the numbers the choice rests on.
func TestConstructions(t *testing.T) {
	const n = 100
	for _, c := range []struct {
		name        string
		build       func([]candidate) *table
		seeds, runs int
		moved       float64 // limit of the mean; 0 = measured only
	}{
		{"priced rendezvous", new(pricing).build, 12, 8, 0.003},
		{"maglev", maglev, 4, 4, 0},
		{"capped rendezvous", capped, 1, 2, 0},
	} {
		var sum, worst, high float64
		low := 9.0
		if raceEnabled { // the detector makes this twenty times as slow and has nothing to find here
			c.seeds = 1
		}
		for seed := range c.seeds {
			r := rand.New(rand.NewPCG(uint64(seed), 1))
			cs := randomCandidates(r, n)
			full := c.build(cs)
			for range c.runs {
				m, l, h := disruption(c.build, cs, full, r.IntN(n))
				sum += m
				worst, low, high = max(worst, m), min(low, l), max(high, h)
			}
		}
		mean := sum / float64(c.seeds*c.runs)
		t.Logf("%s: moved %.3f %% (at worst %.3f %%), shares %.4f to %.4f", c.name, 100*mean, 100*worst, low, high)
		if c.moved == 0 {
			continue
		}
		if mean > c.moved || worst > 0.006 {
			t.Errorf("%s: removing one of %d moves %.3f %% (worst %.3f %%) of the survivors' slots, want at most %.1f %% (0.6 %%)",
				c.name, n, 100*mean, 100*worst, 100*c.moved)
		}
		if low < 0.99 || high > 1.01 {
			t.Errorf("%s: shares %.4f to %.4f of fair, want 0.99 to 1.01", c.name, low, high)
		}
	}
}

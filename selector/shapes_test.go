// One goroutine: nothing for the race detector, at twenty times the cost.

//go:build !race

package selector

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestShapesOfTables: every slot has a valid candidate and shares are in reach of fair, for any
// number of candidates.
func TestShapesOfTables(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "candidates")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		cs := randomCandidates(r, n)
		share := sharesOf(new(pricing).build(cs), n)
		fair := float64(slots) / float64(n)
		for i, got := range share {
			if diff := float64(got) - fair; max(diff, -diff) > max(0.01*fair, slotTolerance+1) {
				t.Fatalf("candidate %d of %d has %d slots, want %.1f within 1 %%", i, n, got, fair)
			}
		}
	})
}

// TestRemovalMovesLittle: whatever the number of backends, flows of survivors hardly move.
func TestRemovalMovesLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 400).Draw(t, "backends")
		cs := randomCandidates(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)), n)
		p := new(pricing)
		moved, _, _ := disruption(p.build, cs, p.build(cs), rapid.IntRange(0, n-1).Draw(t, "removed"))
		if moved > 0.006 {
			t.Fatalf("removing one of %d moves %.2f %% of the survivors' slots", n, 100*moved)
		}
	})
}

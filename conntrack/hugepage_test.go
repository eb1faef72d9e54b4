package conntrack

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestJoinPages fills a table beyond the point at which its pages are joined:
// not before, each block once, and no entry is lost by it.
func TestJoinPages(t *testing.T) {
	const lines = 1 << 17
	const blocks = lines * lineLen / hugePageLen
	table := newTable(t, Options{Lines: lines, Seed: 3})
	calls := map[int]int{}
	join := table.join
	table.join = func(offset int) {
		calls[offset]++
		join(offset)
	}
	w := table.NewWriter()
	fill(t, w, 32, 0)
	table.JoinPages()
	if len(calls) != 0 {
		t.Fatalf("pages were joined for 32 flows: %v", calls)
	}
	const flows = 2000
	fill(t, w, flows, 0)
	for range 3 {
		table.JoinPages()
	}
	for n := range blocks {
		if got := calls[n*hugePageLen]; got != 1 {
			t.Errorf("block %d of %d was joined %d times, want 1", n, blocks, got)
		}
	}
	if len(calls) != blocks {
		t.Errorf("%d blocks were joined, want %d", len(calls), blocks)
	}
	for n := range uint64(flows) {
		k := flowKey(n)
		if _, _, _, ok := w.Lookup(&k, k.Hash(3), 0); !ok {
			t.Fatalf("flow %d is lost", n)
		}
	}
	checkSound(t, table)
	if !raceEnabled {
		t.Logf("%d KiB of the process are on huge pages; the table has %d", hugeKiB(t), lines*lineLen>>10)
	}
}

// hugeKiB is how much memory of the process is on huge pages.
func hugeKiB(t *testing.T) (sum int) {
	rollup, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(rollup)) {
		if _, after, ok := strings.Cut(line, "AnonHugePages:"); ok {
			if _, err := fmt.Sscan(after, &sum); err != nil {
				t.Fatal(err)
			}
		}
	}
	return sum
}

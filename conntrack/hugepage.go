package conntrack

import "math/bits"

// The memory of a table in process memory is taken in ordinary pages, as flows
// come to them: few flows take little, though hashing spreads them all over it.
// Once an eighth of a block is in use its pages are joined to one huge page. That
// takes up to eight times the memory in use, and spares the rest of the page
// faults and most translations of addresses: in a nested virtual machine
// (2026-11) 512 faults take 10 ms, joining them 0.4 ms, and a fault of a huge page
// would take 0.1 ms but 512 times the memory of a lone flow.
const (
	hugePageLen   = 2 << 20 // bytes: amd64, and arm64 with pages of 4 KiB
	hugeRegions   = hugePageLen / (lineLen * regionLines)
	joinThreshold = hugeRegions / 8
)

// JoinPages makes huge pages of those parts of the table that are enough in use.
// A look at all of them takes microseconds, a part the system half a millisecond,
// once: so better not a goroutine that handles packets calls it. A system that
// has no huge page to give, or none at all, is not asked again.
func (t *Table) JoinPages() {
	for block := range uint64(len(t.joined)) {
		if t.joined[block].Load() {
			continue
		}
		used := 0
		for region := block * hugeRegions; region < (block+1)*hugeRegions; region += 64 {
			used += bits.OnesCount64(t.touched[region/64&uint64(len(t.touched)-1)].Load())
		}
		if used >= joinThreshold && !t.joined[block].Swap(true) {
			t.join(int(block) * hugePageLen)
		}
	}
}

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

// joinPages joins the pages of the block that begins with a region, if enough of
// it is in use. Whoever is first does it, for once: a system that has no huge
// page to give, or none at all, is not asked again.
func (t *Table) joinPages(region uint64) {
	block := region / hugeRegions
	word, bit := block/64, uint64(1)<<(block%64)
	if word >= uint64(len(t.joined)) || t.joined[word].Load()&bit != 0 {
		return
	}
	used := 0
	for n := uint64(0); n < hugeRegions; n += 64 {
		used += bits.OnesCount64(t.touched[(region+n)/64&uint64(len(t.touched)-1)].Load())
	}
	if used < joinThreshold || t.joined[word].Or(bit)&bit != 0 {
		return
	}
	t.join(int(block) * hugePageLen)
}

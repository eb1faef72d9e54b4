//go:build race

package selector

// raceEnabled: the race detector allocates on its own, so allocations are not counted under it.
const raceEnabled = true

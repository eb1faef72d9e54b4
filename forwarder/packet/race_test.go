//go:build race

package packet

// raceEnabled: the race detector allocates, so allocation tests mean nothing under it.
const raceEnabled = true

//go:build !race

package selector

// raceEnabled: see race_test.go.
const raceEnabled = false

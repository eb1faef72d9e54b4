//go:build race

package conntrack

// newStore makes n lines on the Go heap: the race detector does not see mapped
// memory, so a mapped table would pass it whatever the code did.
func newStore(n int) (s store, release func() error, err error) {
	return storeOf(make([]line, n)), func() error { return nil }, nil
}

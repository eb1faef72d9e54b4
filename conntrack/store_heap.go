//go:build race

package conntrack

import "sync/atomic"

// newLines makes n lines on the Go heap: the race detector does not see mapped
// memory, so a mapped table would pass it whatever the code did.
func newLines(n int) (lines []line, release func() error, err error) {
	return make([]line, n), func() error { return nil }, nil
}

// joiner leaves the Go heap alone.
func joiner([]line) func(offset int) { return func(int) {} }

// newTags makes the tags of n lines, likewise.
func newTags(n int) (tags []atomic.Uint64, release func() error, err error) {
	return make([]atomic.Uint64, n/bucketLines), func() error { return nil }, nil
}

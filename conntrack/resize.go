package conntrack

import (
	"errors"
	"fmt"
	"os"
)

// resize moves a table to a new file of n lines, which takes the place of its
// own when it is complete: whoever dies on the way leaves one of the two. The
// old table is closed. lost entries found no room.
func (t *Table) resize(n int, o Options, boot [36]byte, section []byte) (next *Table, lost int, err error) {
	if next, err = create(t.file.path, n, o, boot); err != nil {
		return nil, 0, errors.Join(fmt.Errorf("change the flow table from %d to %d entries, which takes room for both: %w", t.Lines(), n, err), t.Close())
	}
	lost = next.adopt(t)
	if err = next.SaveApplication(section); err != nil {
		os.Remove(asideName(next.file.path))
		return nil, lost, errors.Join(err, next.Close(), t.Close())
	}
	return next, lost, errors.Join(next.install(), t.Close())
}

// adopt inserts the entries of a sound table with the same seed into an empty
// one. Neither is in use. Whether entries have expired is not asked: which
// service has which timeout is not known yet.
func (t *Table) adopt(from *Table) (lost int) {
	idle, state := t.limits.idle, t.limits.state
	t.limits.idle, t.limits.state = maxTimeout, [4]uint32{maxTimeout, maxTimeout, maxTimeout, maxTimeout}
	w := t.NewWriter()
	var inState [stateEnd]uint64
	from.eachTouched(func(_ uint32, l *line) {
		ident, seen := l.ident.Load(), l.seen.Load()
		if !holdsEntry(ident) {
			return
		}
		k := l.key()
		hash := k.Hash(t.seed)
		i, free, found := w.place(&k, hash, lastOf(seen))
		if found || free == noLine {
			lost++
			return
		}
		t.touch(i)
		to := t.at(i)
		to.setKey(&k)
		to.seen.Store(seen)
		to.volume.Store(l.volume.Load())
		t.setTag(i, tagOf(hash))
		to.ident.Store(freeIdent(free) | uint64(backendOf(ident)))
		inState[stateOf(seen)]++
	})
	w.Close()
	t.limits.idle, t.limits.state = idle, state
	t.correct(inState)
	return lost
}

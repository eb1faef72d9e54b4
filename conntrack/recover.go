package conntrack

// Recover repairs what a writer left that ended in the middle of a change, and
// returns how many lines it emptied: those half written or half freed, entries
// that are not where their key belongs, the second entry of a key, and entries
// that say they were seen after now, which would not end for years. No writer
// or reader may run meanwhile; writers may be used again afterwards.
//
// Until then such lines do no harm but take room: they match no key, and nobody
// waits for them.
func (t *Table) Recover(now Tick) (emptied int) {
	var inState [stateEnd]uint64
	t.eachTouched(func(i uint32, l *line) {
		t.clearTag(i)
		ident := l.ident.Load()
		if holdsEntry(ident) && t.sound(i, l, now) {
			k := l.key()
			t.setTag(i, tagOf(k.Hash(t.seed)))
			l.ident.Store(ident &^ tentative)
			inState[stateOf(l.seen.Load())]++
			return
		}
		l.seen.Store(0)
		if !isFree(ident) {
			l.ident.Store(freeIdent(ident))
			emptied++
		}
	})
	t.correct(inState)
	return emptied
}

// clockSlack is by how many ticks the clocks of writers may differ: one second.
const clockSlack = 16

// sound reports whether the entry in line i is live, in one of its buckets, and
// the one of its key that stays: a settled one before a tentative one, then the
// lower line.
func (t *Table) sound(i uint32, l *line, now Tick) bool {
	seen := l.seen.Load()
	if seen&3 == 0 || int32(lastOf(seen)-now) > clockSlack {
		return false
	}
	k := l.key()
	h1, h2 := t.homes(k.Hash(t.seed))
	belongs := false
	for n := range uint32(bucketLines) {
		for _, j := range [2]uint32{h1 ^ n, h2 ^ n} {
			if j == i {
				belongs = true
				continue
			}
			other, _, ok := t.at(j).match(&k)
			if !ok {
				continue
			}
			mine := l.ident.Load()
			if isTentative(mine) != isTentative(other) {
				if isTentative(mine) {
					return false
				}
			} else if j < i {
				return false
			}
		}
	}
	return belongs
}

// correct sets the sums that follow from all writers' counters, and the quota,
// to the given numbers of entries.
func (t *Table) correct(inState [stateEnd]uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum, leased := t.retired, int64(0)
	for _, w := range t.writers {
		sum.add(&w.counters)
		leased += w.lease
	}
	for s := Unconfirmed; s < stateEnd; s++ {
		gone := int64(sum.balance(s) - inState[s])
		switch {
		case gone >= 0:
			t.retired[freedUnconfirmed+int(s)] += uint64(gone)
		case s == Closing: // taken over from a file
			t.retired[madeConfirmed] += uint64(-gone)
			t.retired[closedConfirmed] += uint64(-gone)
		default:
			t.retired[madeUnconfirmed+int(s)] += uint64(-gone)
		}
	}
	t.unused.Store(t.quota - leased - int64(inState[Unconfirmed]))
}

// eachTouched calls f for each line of the regions that were used.
func (t *Table) eachTouched(f func(i uint32, l *line)) {
	for region := range uint64(t.mask>>regionShift) + 1 {
		if !t.isTouched(region) {
			continue
		}
		for n := range uint32(regionLines) {
			i := uint32(region)<<regionShift + n
			f(i, t.at(i))
		}
	}
}

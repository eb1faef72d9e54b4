package conntrack

// failer is what *testing.T and *rapid.T have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkSound checks what must hold whenever no writer is in the middle of
// something: one live entry per key, free lines empty, tags that lead to the
// entries, and counters, states and quota that add up.
func checkSound(t failer, table *Table) {
	t.Helper()
	var inState [stateEnd]uint64
	keys := map[Key]uint32{}
	table.eachTouched(func(i uint32, l *line) {
		ident, seen := l.ident.Load(), l.seen.Load()
		if beingWritten(ident) {
			return // of a writer that a test has killed
		}
		if isTentative(ident) {
			t.Fatalf("line %d is still tentative", i)
		}
		if holdsEntry(ident) != (seen != 0) {
			t.Fatalf("line %d is half freed: ident %x, seen %x", i, ident, seen)
		}
		k, tag := l.key(), table.tags(i).Load()>>tagShift(i)&0xff
		if want := tagOf(k.Hash(table.seed)); seen == 0 && tag != 0 || seen != 0 && tag != want {
			t.Fatalf("line %d has tag %x, seen %x, want %x", i, tag, seen, want)
		}
		if seen == 0 {
			return
		}
		inState[stateOf(seen)]++
		if other, ok := keys[l.key()]; ok {
			t.Fatalf("lines %d and %d both hold %v", other, i, l.key())
		}
		keys[l.key()] = i
	})
	s := table.Stats()
	if got := [stateEnd]uint64{s.Unconfirmed, s.Confirmed, s.Closing}; got != inState {
		t.Fatalf("counters say %v entries by state, the lines %v", got, inState)
	}
	leased := table.unused.Load() + int64(inState[Unconfirmed])
	for _, w := range table.writers {
		leased += w.lease
	}
	if leased != table.quota {
		t.Fatalf("quota in use, leased and unused is %d, want %d", leased, table.quota)
	}
}

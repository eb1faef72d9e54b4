package conntrack

// Ref names a line and the identity it had when it was looked up. A Ref stays
// harmless for ever: once the line has another identity, methods given the Ref
// do nothing. (The sequence has 16 bits, so 2^15 new entries in one line would
// have to pass between look-up and use to confuse it.)
type Ref struct {
	line uint32
	seq  uint16
}

// Touch loads the line where an entry of this hash most likely is, so that it
// is in cache when [Writer.Lookup] needs it. Called for a whole batch before the
// first look-up, the loads overlap. The result has no meaning but must be used,
// or the compiler may drop the loads.
func (w *Writer) Touch(hash uint64) uint64 { return w.at(uint32(hash)).ident.Load() }

// TouchRest is called likewise, between the two: if the line that Touch loaded
// holds another key, it loads the line where the entry is instead, or where a new
// one will be.
func (w *Writer) TouchRest(k *Key, hash uint64) uint64 {
	if w.at(uint32(hash)).meta.Load() == k.Meta {
		return 0 // of all keys with these ports and this service hardly ever another one
	}
	return w.touchRest(hash)
}

func (w *Writer) touchRest(hash uint64) uint64 {
	h1, h2 := w.homes(hash)
	tag := tagOf(hash)
	if marks := tagged(w.tags(h1).Load(), tag); marks != 0 {
		return w.at(marked(h1, marks)).ident.Load()
	}
	if marks := tagged(w.tags(h2).Load(), tag); marks != 0 {
		return w.at(marked(h2, marks)).ident.Load()
	}
	i, _ := w.vacancy(hash)
	return w.at(i).ident.Load()
}

// Lookup returns the backend and state of the live entry of a key, and a Ref
// for [Writer.Hit], [Writer.Reselect] or [Writer.Remove]. hash is the key's
// hash under the table's seed. Expired entries are not found.
func (w *Writer) Lookup(k *Key, hash uint64, now Tick) (b Backend, s State, ref Ref, ok bool) {
	// Most entries are in the first home line, and nobody writes there now:
	// then this spares two calls, a third of the time.
	i := uint32(hash) & w.mask
	l := w.at(i)
	ident, same, seen := l.ident.Load(), l.hasKey(k), l.seen.Load()
	if !same || !holdsEntry(ident) || seen == 0 || l.ident.Load() != ident {
		i, ident, seen = w.find(k, hash)
	}
	if ident == 0 || w.limits.expired(seen, k.Meta, now) {
		return 0, 0, Ref{}, false
	}
	return backendOf(ident), stateOf(seen), Ref{line: i, seq: seqOf(ident)}, true
}

// Entry returns a copy of the live entry of a key.
func (t *Table) Entry(k *Key, now Tick) (e Entry, ok bool) {
	i, ident, _ := t.find(k, k.Hash(t.seed))
	if ident == 0 {
		return Entry{}, false
	}
	e, ok = t.entry(t.at(i), now)
	return e, ok && e.Key == *k
}

// find returns the line of a key's entry and its words; ident 0 is none.
func (s *store) find(k *Key, hash uint64) (i uint32, ident, seen uint64) {
	i = uint32(hash) & s.mask
	if ident, seen, ok := s.at(i).match(k); ok {
		return i, ident, seen
	}
	return s.search(k, hash)
}

// search is find without a look at the first home line beforehand.
func (s *store) search(k *Key, hash uint64) (i uint32, ident, seen uint64) {
	h1, h2 := s.homes(hash)
	for _, home := range [2]uint32{h1, h2} {
		for marks := tagged(s.tags(home).Load(), tagOf(hash)); marks != 0; marks &= marks - 1 {
			i := marked(home, marks)
			if ident, seen, ok := s.at(i).match(k); ok {
				return i, ident, seen
			}
		}
	}
	return 0, 0, 0
}

// Hit records a packet of lenBytes for the entry that was looked up: last seen,
// packets, bytes; an Unconfirmed entry becomes Confirmed; with closing (a RST,
// or a FIN from the client; only for [KeyConnection]) it becomes Closing and
// stays so. If the line has another identity by now, nothing happens.
func (w *Writer) Hit(ref Ref, now Tick, lenBytes uint32, closing bool) {
	l := w.at(ref.line)
	for range 8 { // it fails only if others hit the same entry at this moment
		// seen is read first: if the identity is still the one looked up
		// after that, the value is of this entry, and the swap fails if
		// the line is given to another in between.
		old := l.seen.Load()
		if seqOf(l.ident.Load()) != ref.seq || old == 0 {
			return
		}
		next := refreshed(old, now, closing)
		if next == old {
			break
		}
		if l.seen.CompareAndSwap(old, next) {
			if (old^next)&3 != 0 {
				w.accountMoved(stateOf(old), stateOf(next))
			}
			break
		}
	}
	l.addVolume(lenBytes)
}

// refreshed is the seen word after one more packet. Time never runs back: the
// clocks of workers differ by up to a batch.
func refreshed(seen uint64, now Tick, closing bool) uint64 {
	state := seen & 3
	if closing {
		state = uint64(Closing + 1)
	} else if state == uint64(Unconfirmed+1) {
		state = uint64(Confirmed + 1)
	}
	last := lastOf(seen)
	if int32(now-last) > 0 {
		last = now
	}
	return uint64(last)<<32 | seen&0xfffffffc | state
}

func (w *Writer) accountMoved(from, to State) {
	switch {
	case from == Unconfirmed && to == Confirmed:
		w.count(confirmedUnconfirmed)
	case from == Unconfirmed && to == Closing:
		w.count(closedUnconfirmed)
	case to == Closing:
		w.count(closedConfirmed)
	}
	if from == Unconfirmed {
		w.giveBack()
	}
}

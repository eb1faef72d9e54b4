package conntrack

// Reselect replaces the backend of the entry that was looked up, with the
// packet at hand, of lenBytes, as its first: created and last seen are now,
// packets and bytes start again, and an entry of a [KeyConnection] becomes
// Unconfirmed; keys that several connections share keep their state. It
// returns false, having done nothing, if the entry is not the one looked up
// any more: another writer has selected, or it is gone.
//
// The new backend and the next sequence are one compare-and-swap, so the entry
// is never out of sight, and the swap that resets seen cannot miss: hits that
// hold the old Ref do nothing from then on.
func (w *Writer) Reselect(k *Key, hash uint64, ref Ref, b Backend, now Tick, lenBytes uint32) bool {
	l := w.at(ref.line)
	ident := l.ident.Load()
	if seqOf(ident) != ref.seq || !holdsEntry(ident) || isTentative(ident) || l.seen.Load() == 0 {
		return false
	}
	next := freeIdent(ident) | uint64(b)
	if !l.ident.CompareAndSwap(ident, next) {
		return false
	}
	w.count(reselectedEvent)
	for {
		seen := l.seen.Load()
		if seen == 0 || l.ident.Load() != next {
			return false
		}
		state := stateOf(seen)
		if k.Kind() == KeyConnection {
			state = Unconfirmed
		}
		if l.seen.CompareAndSwap(seen, makeSeen(now, now, state)) {
			w.accountReopened(stateOf(seen), state)
			break
		}
	}
	for range 8 {
		volume := l.volume.Load()
		if l.ident.Load() != next || l.volume.CompareAndSwap(volume, firstVolume(lenBytes)) {
			break
		}
	}
	return true
}

func (w *Writer) accountReopened(from, to State) {
	if from == to {
		return
	}
	w.count(reopenedConfirmed + int(from-Confirmed))
	w.reopen()
}

// Remove ends the entry that was looked up. It returns false if that is not
// there any more.
func (w *Writer) Remove(ref Ref) bool {
	l := w.at(ref.line)
	for {
		seen := l.seen.Load()
		if seen == 0 || seqOf(l.ident.Load()) != ref.seq {
			return false
		}
		if w.end(ref.line, seen) {
			return true
		}
	}
}

package conntrack

// InsertResult says what became of an insertion.
type InsertResult uint8

const (
	// Inserted: the key has a new entry with the given backend.
	Inserted InsertResult = iota
	// Existed: the key has an entry already, another writer was faster. Its
	// backend is the one to use; the packet is recorded there as a hit.
	Existed
	// RejectedQuota: Unconfirmed entries have used up their share.
	RejectedQuota
	// RejectedFull: both buckets of the key are full of live entries.
	RejectedFull
)

// String returns the result in lower case with underscores.
func (r InsertResult) String() string {
	switch r {
	case Inserted:
		return "inserted"
	case Existed:
		return "existed"
	case RejectedQuota:
		return "rejected_quota"
	case RejectedFull:
		return "rejected_full"
	}
	return "invalid"
}

// Insert makes an entry for a key that was not found, with the packet that is
// at hand, of lenBytes, counted: Unconfirmed, or Confirmed at once. b must not
// be 0. Live entries are never displaced; a rejected packet is forwarded
// without an entry, which works because selection gives the same backend
// again. The returned backend is the one to use, also after a rejection.
//
// Two writers may insert one key at the same time, into different lines. Each
// publishes its entry as tentative, then looks for others: it withdraws for
// one that is settled or has a lower line, and ends tentative ones above its
// own; then it settles its own. As every writer publishes before it looks, of
// two at least one sees the other, so one entry remains, and both return its
// backend.
func (w *Writer) Insert(k *Key, hash uint64, b Backend, now Tick, lenBytes uint32, confirmed bool) (got Backend, res InsertResult) {
	state := Unconfirmed
	if confirmed {
		state = Confirmed
	}
	for range 4 { // again only if another writer took the line, or ended the new entry
		i, free, found := w.place(k, hash, now)
		if found {
			return w.join(i, free, now, lenBytes)
		}
		if free == noLine {
			break
		}
		if !confirmed && !w.acquireHere(hash, now) {
			w.count(rejectedQuota)
			return b, RejectedQuota
		}
		ident := w.publish(i, free, k, hash, b, makeSeen(now, now, state), lenBytes)
		if ident == noLine {
			if !confirmed {
				w.giveBack()
			}
			continue
		}
		i, ident, won := w.settle(i, ident, k, hash, now)
		if won {
			return b, Inserted
		}
		w.count(withdrawnEvent)
		if ident != noLine {
			return w.join(i, ident, now, lenBytes)
		}
	}
	w.count(rejectedFull)
	return b, RejectedFull
}

// acquireHere takes one of the quota of Unconfirmed entries, if need be from
// those in the buckets of a hash whose time is over.
func (w *Writer) acquireHere(hash uint64, now Tick) bool {
	if w.acquire() {
		return true
	}
	h1, h2 := w.homes(hash)
	w.survey(h1, now)
	w.survey(h2, now)
	return w.acquire()
}

// publish claims the free line i, whose ident is free, and makes a tentative
// entry in it. It returns the ident of that, or noLine if another writer took
// the line.
func (w *Writer) publish(i uint32, free uint64, k *Key, hash uint64, b Backend, seen uint64, lenBytes uint32) (ident uint64) {
	l := w.at(i)
	w.t.touch(i) // before the line changes, so that Recover looks at it even if this writer dies
	if !l.ident.CompareAndSwap(free, claimIdent(free)) {
		return noLine
	}
	w.count(madeUnconfirmed + int(stateOf(seen)))
	l.setKey(k)
	l.seen.Store(seen)
	l.volume.Store(firstVolume(lenBytes))
	w.setTag(i, tagOf(hash))
	ident = freeIdent(free) | tentative | uint64(b)
	l.ident.Store(ident)
	return ident
}

// join records a packet for the entry that was there before.
func (w *Writer) join(i uint32, ident uint64, now Tick, lenBytes uint32) (Backend, InsertResult) {
	w.count(existedEvent)
	w.Hit(Ref{line: i, seq: seqOf(ident)}, now, lenBytes, false)
	return backendOf(ident), Existed
}

// noLine is the ident of no line to insert into.
const noLine = seqOne

// place finds the live entry of a key, or else the line to insert into and its
// ident, or noLine. Expired entries on the way are ended, so that none can come
// back to life beside a new one.
func (w *Writer) place(k *Key, hash uint64, now Tick) (i uint32, ident uint64, found bool) {
	h1, h2 := w.homes(hash)
	for _, home := range [2]uint32{h1, h2} {
		for marks := tagged(w.tags(home).Load(), tagOf(hash)); marks != 0; marks &= marks - 1 {
			i = marked(home, marks)
			ident, seen, ok := w.at(i).match(k)
			switch {
			case !ok:
			case w.limits.expired(seen, k.Meta, now):
				w.expire(i, seen)
			default:
				return i, ident, true
			}
		}
	}
	if i, ok := w.vacancy(hash); ok {
		if ident = w.at(i).ident.Load(); isFree(ident) {
			return i, ident, false
		}
	}
	// Full, or another writer is about to take that line: look at each.
	a, b := w.survey(h1, now), w.survey(h2, now)
	if b.room > a.room && a.room < bucketLines-firstBucketLines {
		a = b
	}
	return a.line, a.ident, false
}

// spot is what a survey found: the first free line of a bucket (ident noLine:
// none) and how many are free.
type spot struct {
	line  uint32
	ident uint64
	room  int
}

// survey looks at each line of the bucket of a home line, that one first, and
// ends the entries whose time is over.
func (w *Writer) survey(home uint32, now Tick) (s spot) {
	s.ident = noLine
	for n := uint32(0); n < bucketLines; n++ {
		l := w.at(home ^ n)
		w.sweepLine(home^n, now)
		if ident := l.ident.Load(); isFree(ident) {
			if s.room == 0 {
				s.line, s.ident = home^n, ident
			}
			s.room++
		}
	}
	return s
}

// settle makes the tentative entry in line i the only one of its key. If that
// fails, the entry in line i is gone and settle returns line and ident of the
// one that won, or noLine: somebody ended the new entry and there is none.
func (w *Writer) settle(i uint32, ident uint64, k *Key, hash uint64, now Tick) (winner uint32, other uint64, won bool) {
	h1, h2 := w.homes(hash)
	other = noLine
	for _, home := range [2]uint32{h1, h2} {
		for marks := tagged(w.tags(home).Load(), tagOf(hash)); marks != 0; {
			j := marked(home, marks)
			rival, seen, ok := w.at(j).match(k)
			switch {
			case !ok || j == i:
			case w.limits.expired(seen, k.Meta, now):
				w.expire(j, seen)
				continue // unless it was hit by now
			case isTentative(rival) && j > i:
				w.evict(j, rival)
				continue // unless it has settled by now
			case other == noLine || !isTentative(rival):
				winner, other = j, rival
			}
			marks &= marks - 1
		}
	}
	if other != noLine {
		w.withdraw(i, ident)
		return winner, other, false
	}
	if w.at(i).ident.CompareAndSwap(ident, ident&^tentative) {
		return i, ident, true
	}
	// Evicted, or selected anew, or removed.
	if j, other, _ := w.find(k, hash); other != 0 {
		return j, other, false
	}
	return 0, noLine, false
}

// evict ends the tentative entry of another writer, unless that has settled it
// by now. That writer finds out when it tries to.
func (w *Writer) evict(i uint32, ident uint64) {
	l := w.at(i)
	if !l.ident.CompareAndSwap(ident, claimIdent(ident)) {
		return
	}
	if seen := l.seen.Swap(0); seen != 0 {
		w.accountFreed(seen)
	}
	w.clearTag(i)
	l.ident.Store(freeIdent(ident))
}

// withdraw ends an own entry, unless somebody else has.
func (w *Writer) withdraw(i uint32, ident uint64) {
	l := w.at(i)
	for {
		seen := l.seen.Load()
		if seen == 0 || seqOf(l.ident.Load()) != seqOf(ident) || w.end(i, seen) {
			return
		}
	}
}

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
		if !confirmed && !w.acquire() {
			w.count(rejectedQuota)
			return b, RejectedQuota
		}
		ident := w.publish(i, free, k, b, makeSeen(now, now, state), lenBytes)
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

// publish claims the free line i, whose ident is free, and makes a tentative
// entry in it. It returns the ident of that, or noLine if another writer took
// the line.
func (w *Writer) publish(i uint32, free uint64, k *Key, b Backend, seen uint64, lenBytes uint32) (ident uint64) {
	l := w.at(i)
	w.t.touch(i) // before the line changes, so that Recover looks at it even if this writer dies
	if !l.ident.CompareAndSwap(free, claimIdent(free)) {
		return noLine
	}
	w.count(madeUnconfirmed + int(stateOf(seen)))
	l.setKey(k)
	l.seen.Store(seen)
	l.volume.Store(firstVolume(lenBytes))
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

// firstBucketLines is up to how many entries the first bucket of a key is taken
// without looking which one is emptier: so most look-ups end in the first line
// of the first bucket. Simulated with 2^24 lines and 10 M entries: 0 refuses
// none and has 51 % of the entries there, 3 refuses none and has 62 % (86 % of
// 4 M), 5 refuses 3, 6 refuses 517.
const firstBucketLines = 3

// place looks through both buckets of a key. If it has a live entry, that is
// returned as found. Otherwise the line to insert into and its ident, or
// noLine: the first bucket while that is nearly empty, then the emptier one; in
// it the home line if that is free. Expired entries
// on the way are ended, so that none can come back to life beside a new one.
func (w *Writer) place(k *Key, hash uint64, now Tick) (i uint32, ident uint64, found bool) {
	h1, h2 := w.homes(hash)
	a, found := w.survey(h1, k, now)
	if found {
		return a.line, a.ident, true
	}
	b, found := w.survey(h2, k, now)
	if found || (b.room > a.room && a.room < bucketLines-firstBucketLines) {
		return b.line, b.ident, found
	}
	return a.line, a.ident, false
}

// spot is what a survey found: the line of the key's entry, or the first free
// line of the bucket (ident noLine: none) and how many are free.
type spot struct {
	line  uint32
	ident uint64
	room  int
}

// survey looks through the bucket of a home line, the home line first.
func (w *Writer) survey(home uint32, k *Key, now Tick) (s spot, found bool) {
	s.ident = noLine
	for n := uint32(0); n < bucketLines; n++ {
		l := w.at(home ^ n)
		ident := l.ident.Load()
		if holdsEntry(ident) {
			seen, meta := l.seen.Load(), l.meta.Load()
			same := meta == k.Meta && l.hasKey(k)
			if seen == 0 || l.ident.Load() != ident {
				continue // at its end, or changed while it was read
			}
			if !w.limits.expired(seen, meta, now) {
				if same {
					return spot{line: home ^ n, ident: ident}, true
				}
				continue
			}
			w.expire(l, seen)
			ident = l.ident.Load()
		}
		if isFree(ident) {
			if s.room == 0 {
				s.line, s.ident = home^n, ident
			}
			s.room++
		}
	}
	return s, false
}

// settle makes the tentative entry in line i the only one of its key. If that
// fails, the entry in line i is gone and settle returns line and ident of the
// one that won, or noLine: somebody ended the new entry and there is none.
func (w *Writer) settle(i uint32, ident uint64, k *Key, hash uint64, now Tick) (winner uint32, other uint64, won bool) {
	h1, h2 := w.homes(hash)
	other = noLine
	for n := range uint32(2 * bucketLines) {
		j := h1 ^ n
		if n >= bucketLines {
			j = h2 ^ (n - bucketLines)
		}
		if j == i {
			continue
		}
		for l := w.at(j); l.meta.Load() == k.Meta; {
			rival, seen, ok := l.match(k)
			if !ok {
				break
			}
			if w.limits.expired(seen, k.Meta, now) {
				w.expire(l, seen)
				continue
			}
			if isTentative(rival) && j > i {
				w.evict(l, rival)
				continue
			}
			if other == noLine || !isTentative(rival) {
				winner, other = j, rival
			}
			break
		}
	}
	if other != noLine {
		w.withdraw(w.at(i), ident)
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
func (w *Writer) evict(l *line, ident uint64) {
	if !l.ident.CompareAndSwap(ident, claimIdent(ident)) {
		return
	}
	if seen := l.seen.Swap(0); seen != 0 {
		w.accountFreed(seen)
	}
	l.ident.Store(freeIdent(ident))
}

// withdraw ends an own entry, unless somebody else has.
func (w *Writer) withdraw(l *line, ident uint64) {
	for {
		seen := l.seen.Load()
		if seen == 0 || seqOf(l.ident.Load()) != seqOf(ident) || w.end(l, seen) {
			return
		}
	}
}

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
	state, made := Unconfirmed, madeUnconfirmed
	if confirmed {
		state, made = Confirmed, madeConfirmed
	}
	for range 4 { // again only if another writer took the line, or ended the new entry
		i, ident, found := w.place(k, hash, now)
		if found {
			return w.join(i, ident, now, lenBytes)
		}
		if ident == noLine {
			break
		}
		if !confirmed && !w.acquire() {
			w.count(rejectedQuota)
			return b, RejectedQuota
		}
		l := w.at(i)
		if !l.ident.CompareAndSwap(ident, claimIdent(ident)) {
			if !confirmed {
				w.giveBack()
			}
			continue
		}
		w.count(made)
		w.t.touch(i)
		l.setKey(k)
		l.seen.Store(makeSeen(now, now, state))
		l.volume.Store(firstVolume(lenBytes))
		ident = freeIdent(ident) | tentative | uint64(b)
		l.ident.Store(ident)
		winner, other := w.settle(i, ident, k, hash, now)
		if winner == i {
			return b, Inserted
		}
		w.count(withdrawnEvent)
		if other != 0 {
			return w.join(winner, other, now, lenBytes)
		}
	}
	w.count(rejectedFull)
	return b, RejectedFull
}

// join records a packet for the entry that was there before.
func (w *Writer) join(i uint32, ident uint64, now Tick, lenBytes uint32) (Backend, InsertResult) {
	w.count(existedEvent)
	w.Hit(Ref{line: i, seq: seqOf(ident)}, now, lenBytes, false)
	return backendOf(ident), Existed
}

// noLine is the ident of no line to insert into.
const noLine = seqOne

// place looks through both buckets of a key. If it has a live entry, that is
// returned as found. Otherwise the line to insert into and its ident, or
// noLine: the home line of the emptier bucket if that is free. Expired entries
// on the way are ended, so that none can come back to life beside a new one.
func (w *Writer) place(k *Key, hash uint64, now Tick) (i uint32, ident uint64, found bool) {
	h1, h2 := w.homes(hash)
	a, found := w.survey(h1, k, now)
	if found {
		return a.line, a.ident, true
	}
	b, found := w.survey(h2, k, now)
	if found || b.room > a.room {
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

// settle makes the tentative entry in line i the only one of its key and
// returns i. If another one wins, settle returns that one's line and ident, and
// the entry in line i is gone; ident 0: somebody ended it and there is none.
func (w *Writer) settle(i uint32, ident uint64, k *Key, hash uint64, now Tick) (winner uint32, other uint64) {
	h1, h2 := w.homes(hash)
	for n := range uint32(2 * bucketLines) {
		j := h1 ^ n
		if n >= bucketLines {
			j = h2 ^ (n - bucketLines)
		}
		if j == i {
			continue
		}
		for l := w.at(j); l.meta.Load() == k.Meta; {
			other, seen, ok := l.match(k)
			if !ok {
				break
			}
			switch {
			case w.limits.expired(seen, k.Meta, now):
				w.expire(l, seen)
			case isTentative(other) && j > i:
				w.evict(l, other)
			default:
				w.withdraw(w.at(i), ident)
				return j, other
			}
		}
	}
	if w.at(i).ident.CompareAndSwap(ident, ident&^tentative) {
		return i, ident
	}
	j, other, _ := w.find(k, hash)
	return j, other
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

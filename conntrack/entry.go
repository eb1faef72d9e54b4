package conntrack

// Entry is a copy of one entry of the table.
type Entry struct {
	Key
	Backend
	State
	Created, LastSeen Tick   // Created in steps of a quarter of a second
	Packets           uint64 // saturates at 2^26-1025
	Bytes             uint64 // saturates at 2^38-2^30-1, 255 GiB; IP or frame bytes, as the hits were given them
}

// All calls yield for each live entry until it returns false. It may run
// beside writers: each entry is consistent in itself, but entries that come
// and go meanwhile may be yielded or not.
func (t *Table) All(now Tick, yield func(Entry) bool) {
	for region := range uint64(t.mask>>regionShift) + 1 {
		if !t.isTouched(region) {
			continue
		}
		for n := range uint32(regionLines) {
			if e, ok := t.entry(t.at(uint32(region)<<regionShift+n), now); ok && !yield(e) {
				return
			}
		}
	}
}

// entry copies the live entry of a line.
func (t *Table) entry(l *line, now Tick) (e Entry, ok bool) {
	for {
		ident := l.ident.Load()
		if !holdsEntry(ident) {
			return Entry{}, false
		}
		key, seen, volume := l.key(), l.seen.Load(), l.volume.Load()
		if l.ident.Load() != ident {
			continue
		}
		if seen == 0 || t.limits.expired(seen, key.Meta, now) {
			return Entry{}, false
		}
		e = Entry{Key: key, Backend: backendOf(ident), State: stateOf(seen), Created: createdOf(seen), LastSeen: lastOf(seen)}
		e.Packets, e.Bytes = volumeOf(volume)
		return e, true
	}
}

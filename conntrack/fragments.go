package conntrack

import "sync/atomic"

// Fragments remembers, for a few seconds, which backend the fragments of each
// datagram go to. It is shared by all workers, since the fragments of one
// datagram may arrive on different queues: the later ones carry no ports.
//
// It is a cache of a fixed number of lines in buckets of four. A new record
// takes a free line of its bucket or the oldest one's, so a flood of fragments
// displaces the oldest records and never stops recording. Lines are written
// under a sequence number like those of [Table]; nobody waits. Safe for
// concurrent use.
type Fragments struct {
	lines []fragmentLine // a power of two
	seed  uint64
	puts  atomic.Uint64
}

const (
	fragmentWays = 4
	// fragmentLife is how long a record is followed. Fragments of one datagram
	// arrive within milliseconds; a much longer life would let an IPv4
	// identification, which has 16 bits, be used again meanwhile.
	fragmentLife = 5 * 16 // ticks
)

// fragmentLine is one record: 64 bytes, one cache line.
type fragmentLine struct {
	ident atomic.Uint64 // sequence 32, odd while being written | backend 32, 0 = free
	key   [5]atomic.Uint64
	seen  atomic.Uint64 // tick of recording 32 | guessed 1
	_     uint64
}

// FragmentKey names a datagram: of IPv4 by addresses, protocol and
// identification (RFC 791), of IPv6 by addresses and identification (RFC 8200
// section 4.5), with proto 0.
type FragmentKey struct {
	Src, Dst [2]uint64
	ID       uint32
	Proto    uint8
}

func (k *FragmentKey) words() [5]uint64 {
	return [5]uint64{k.Src[0], k.Src[1], k.Dst[0], k.Dst[1], uint64(k.ID)<<8 | uint64(k.Proto)}
}

// NewFragments makes room for lines records, rounded up to a power of two.
func NewFragments(lines int, seed uint64) *Fragments {
	n := fragmentWays
	for n < lines {
		n *= 2
	}
	return &Fragments{lines: make([]fragmentLine, n), seed: seed}
}

func (f *Fragments) bucket(k *FragmentKey) []fragmentLine {
	key := Key{Src: k.Src, Dst: k.Dst, Meta: uint64(k.ID)<<8 | uint64(k.Proto)}
	i := key.Hash(f.seed) & uint64(len(f.lines)-1) &^ (fragmentWays - 1)
	return f.lines[i : i+fragmentWays]
}

// Get returns the backend recorded for a datagram. guessed: it was recorded
// without knowing the ports.
func (f *Fragments) Get(k *FragmentKey, now Tick) (b Backend, guessed, ok bool) {
	bucket, words := f.bucket(k), k.words()
	for i := range bucket {
		if b, guessed, ok = bucket[i].read(&words, now); ok {
			return b, guessed, true
		}
	}
	return 0, false, false
}

// read returns the record of a line if it is the one with these key words.
func (l *fragmentLine) read(words *[5]uint64, now Tick) (b Backend, guessed, ok bool) {
	ident := l.ident.Load()
	if uint32(ident) == 0 || ident>>32&1 != 0 {
		return 0, false, false
	}
	for i := range words {
		if l.key[i].Load() != words[i] {
			return 0, false, false
		}
	}
	seen := l.seen.Load()
	if l.ident.Load() != ident || now-Tick(seen>>32) > fragmentLife {
		return 0, false, false
	}
	return Backend(uint32(ident)), seen&1 != 0, true
}

// Puts counts records made: as long as it stays the same, so does what Get
// finds, except for records that grow too old. It is never 0.
func (f *Fragments) Puts() uint64 { return f.puts.Load() + 1 }

// Put records the backend of a datagram, in place of what was recorded before.
// If another worker records the same datagram at the same moment, or is just
// writing to the line chosen, either record may stay.
func (f *Fragments) Put(k *FragmentKey, b Backend, guessed bool, now Tick) {
	defer f.puts.Add(1)
	bucket, words := f.bucket(k), k.words()
	victim, oldest := &bucket[0], Tick(0)
	for i := range bucket {
		l := &bucket[i]
		if _, _, same := l.read(&words, now); same {
			victim = l
			break
		}
		age := now - Tick(l.seen.Load()>>32)
		if uint32(l.ident.Load()) == 0 {
			age = 1<<32 - 1
		}
		if age > oldest {
			victim, oldest = l, age
		}
	}
	ident := victim.ident.Load()
	seq := ident >> 32
	if seq&1 != 0 || !victim.ident.CompareAndSwap(ident, (seq+1)<<32) {
		return
	}
	for i := range words {
		victim.key[i].Store(words[i])
	}
	seen := uint64(now) << 32
	if guessed {
		seen |= 1
	}
	victim.seen.Store(seen)
	victim.ident.Store(uint64(uint32(seq+2))<<32 | uint64(b))
}

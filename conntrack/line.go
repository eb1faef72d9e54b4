package conntrack

import "sync/atomic"

// Backend names the backend of an entry: an id of 20 bits above a generation
// of 12 bits. 0 means none and is not stored.
type Backend uint32

// MakeBackend packs an id (1 to 2^20-1) and the generation of that id.
func MakeBackend(id uint32, generation uint16) Backend {
	return Backend(id<<12 | uint32(generation&0xfff))
}

// ID returns the id of the backend.
func (b Backend) ID() uint32 { return uint32(b) >> 12 }

// Generation returns which of the backends that had this id in turn is meant.
func (b Backend) Generation() uint16 { return uint16(b & 0xfff) }

// line is one cache line of the table: an entry or room for one.
//
// ident and the key are the identity. The key changes only while ident is
// odd; ident becomes odd, and changes at all, only by compare-and-swap, or by
// a store of the one who made it odd. Hits write seen and count alone, so no
// hit, however late, can change which backend an entry has.
//
// An entry is live while ident is even with a backend and seen is not 0.
// Whoever swaps seen from its value to 0 has ended the entry, and frees the
// line; so each entry is accounted for exactly once.
type line struct {
	ident  atomic.Uint64 // sequence 16 | flags 16 | backend 32
	src    [2]atomic.Uint64
	dst    [2]atomic.Uint64
	meta   atomic.Uint64
	seen   atomic.Uint64 // last seen (ticks) 32 | created (quarter seconds) 30 | 1+state 2; 0 = no entry
	volume atomic.Uint64 // packets 26 | bytes 38, both saturating
}

const (
	seqShift = 48
	seqOne   = 1 << seqShift // an odd sequence: being written

	// tentative marks a published entry whose writer still looks for another
	// entry of the same key. See Writer.Insert.
	tentative = 1 << 32
)

func seqOf(ident uint64) uint16      { return uint16(ident >> seqShift) }
func backendOf(ident uint64) Backend { return Backend(uint32(ident)) }
func beingWritten(ident uint64) bool { return ident&seqOne != 0 }
func isTentative(ident uint64) bool  { return ident&tentative != 0 }
func isFree(ident uint64) bool       { return ident&(seqOne|0xffffffff) == 0 }
func holdsEntry(ident uint64) bool   { return ident&seqOne == 0 && uint32(ident) != 0 }

// claimIdent is the ident that takes an even one: odd, holding nothing.
func claimIdent(ident uint64) uint64 { return (ident>>seqShift + 1) << seqShift }

// freeIdent is the ident of the line when it is free again: the next even
// sequence, holding nothing.
func freeIdent(ident uint64) uint64 { return ((ident>>seqShift | 1) + 1) << seqShift }

func makeSeen(last, created Tick, s State) uint64 {
	return uint64(last)<<32 | uint64(created>>2)<<2 | uint64(s+1)
}

func lastOf(seen uint64) Tick    { return Tick(seen >> 32) }
func createdOf(seen uint64) Tick { return Tick(uint32(seen) &^ 3) }
func stateOf(seen uint64) State  { return State(seen&3) - 1 }

const (
	bytesBits = 38
	bytesMask = 1<<bytesBits - 1
	onePacket = 1 << bytesBits

	// A volume field is left alone from its limit on. The room above is for
	// the additions that other writers have begun: 1024 of maxLen bytes.
	maxLen     = 1 << 20
	maxBytes   = bytesMask - 1024*maxLen
	maxPackets = 1<<26 - 1 - 1024
)

// match reports whether l holds a live entry with key k, and the words of it.
// It starts again if the entry changes while it is read: each turn means that
// some writer got something done, so it does not wait for one.
func (l *line) match(k *Key) (ident, seen uint64, ok bool) {
	for {
		ident = l.ident.Load()
		if !l.hasKey(k) || !holdsEntry(ident) {
			return 0, 0, false
		}
		seen = l.seen.Load()
		if l.ident.Load() == ident {
			return ident, seen, seen != 0
		}
	}
}

func (l *line) hasKey(k *Key) bool {
	return (l.meta.Load()^k.Meta)|
		(l.src[0].Load()^k.Src[0])|(l.src[1].Load()^k.Src[1])|
		(l.dst[0].Load()^k.Dst[0])|(l.dst[1].Load()^k.Dst[1]) == 0
}

// setKey writes the key words. The caller has made ident odd. Words that do
// not change, such as the zero halves of IPv4 addresses, are not stored: an
// atomic store costs several times a load.
func (l *line) setKey(k *Key) {
	set(&l.src[0], k.Src[0])
	set(&l.src[1], k.Src[1])
	set(&l.dst[0], k.Dst[0])
	set(&l.dst[1], k.Dst[1])
	set(&l.meta, k.Meta)
}

func set(word *atomic.Uint64, v uint64) {
	if word.Load() != v {
		word.Store(v)
	}
}

func (l *line) key() Key {
	return Key{
		Src:  [2]uint64{l.src[0].Load(), l.src[1].Load()},
		Dst:  [2]uint64{l.dst[0].Load(), l.dst[1].Load()},
		Meta: l.meta.Load(),
	}
}

// addVolume counts one packet of lenBytes.
func (l *line) addVolume(lenBytes uint32) {
	v := l.volume.Load()
	delta := onePacket | uint64(min(lenBytes, maxLen))
	if v>>bytesBits >= maxPackets {
		delta &= bytesMask
	}
	if v&bytesMask >= maxBytes {
		delta &^= bytesMask
	}
	l.volume.Add(delta)
}

func firstVolume(lenBytes uint32) uint64 { return onePacket | uint64(min(lenBytes, maxLen)) }

// volumeOf returns packets and bytes; a saturated one is exactly its limit.
func volumeOf(v uint64) (packets, lenBytes uint64) {
	return min(v>>bytesBits, maxPackets), min(v&bytesMask, maxBytes)
}

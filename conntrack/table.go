package conntrack

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

const (
	lineLen     = 64   // bytes, one cache line of amd64 and arm64
	bucketLines = 8    // lines of a bucket
	minLines    = 1024 // at least one page of regions per word of touched
	maxLines    = 1 << 31
	regionShift = 6 // 64 lines, one page of 4 KiB, are one region
	regionLines = 1 << regionShift
)

// Options are the sizes and times of a [Table]. Zero values take the defaults.
type Options struct {
	// Lines is how many entries there is room for, 1024 to 2^31, rounded up to
	// a power of two; 64 bytes each. Default 2^20.
	Lines int
	// HalfOpenShare is the share of the lines that Unconfirmed entries may
	// use, above 0 and at most 1. Default 0.5.
	HalfOpenShare float64
	// HalfOpen is the life of an Unconfirmed entry. Default 30 s.
	HalfOpen time.Duration
	// Closing is the idle timeout of a Closing entry. Default 60 s.
	Closing time.Duration
	// Idle is the idle timeout of services without one of their own, see
	// [Table.SetIdle]. Default 600 s.
	Idle time.Duration
	// Seed keys the hash. Take it from a random source, so that nobody can aim
	// flows at one bucket.
	Seed uint64
}

// Table is a flow table. Its methods are safe for concurrent use, also beside
// any number of writers.
type Table struct {
	store
	limits     *limits
	touched    []atomic.Uint64 // one bit per region that ever held an entry; a power of two of words
	seed       uint64
	quota      int64 // entries that may be Unconfirmed
	leaseLen   int64 // how much of the quota a writer takes at once
	releaseMem func() error
	joined     []atomic.Bool    // blocks of hugePageLen that are, or cannot be, a huge page; may be empty
	join       func(offset int) // makes a huge page of the memory from an offset, if it can
	file       *file            // nil: in memory of this process alone

	mu      sync.Mutex // guards the rest of this block
	writers []*Writer
	retired totals // of closed writers, and corrections by Recover

	_ [64]byte // what follows is written while workers run

	cursor atomic.Uint64 // region that is swept next, modulo their number
	_      [120]byte
	unused atomic.Int64 // quota that no writer has leased
	_      [120]byte
}

// limits are the idle timeouts in ticks.
type limits struct {
	idle    uint32                 // of services without their own
	state   [4]uint32              // upper bound in a state, by the last two bits of the seen word
	service [1 << 16]atomic.Uint32 // what to add to idle, modulo 2^32: zeroed memory is right
}

// New makes an empty table in memory of this process. Errors: an option out of
// range, or no memory.
func New(o Options) (*Table, error) {
	n, err := o.complete()
	if err != nil {
		return nil, err
	}
	mem, release, err := newLines(n)
	if err != nil {
		return nil, err
	}
	t, err := tableOf(mem, make([]atomic.Uint64, touchedWords(n)), release, o)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	t.joined, t.join = make([]atomic.Bool, n*lineLen/hugePageLen), joiner(mem)
	return t, nil
}

// complete checks the options, fills in defaults and returns the number of
// lines.
func (o *Options) complete() (n int, err error) {
	if o.Lines == 0 {
		o.Lines = 1 << 20
	}
	if o.HalfOpenShare == 0 {
		o.HalfOpenShare = 0.5
	}
	if o.Lines < 0 || o.Lines > maxLines {
		return 0, fmt.Errorf("flow table of %d lines; use %d to %d", o.Lines, minLines, maxLines)
	}
	if !(o.HalfOpenShare > 0 && o.HalfOpenShare <= 1) {
		return 0, fmt.Errorf("half-open share %v is out of range; use more than 0, at most 1", o.HalfOpenShare)
	}
	for _, d := range []*struct {
		value *time.Duration
		name  string
		def   time.Duration
	}{{&o.HalfOpen, "half-open", 30 * time.Second}, {&o.Closing, "closing", 60 * time.Second}, {&o.Idle, "idle", 600 * time.Second}} {
		if *d.value < 0 {
			return 0, fmt.Errorf("%s timeout %v is negative", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	return 1 << bits.Len(uint(max(o.Lines, minLines)-1)), nil
}

// touchedWords is how many words have one bit for each region of n lines.
func touchedWords(n int) int { return max(1, n/regionLines/64) }

// tableOf makes a table of memory that has room for its lines and one bit for
// each of their regions. The options are complete. Its Close releases that
// memory; on an error it is still the caller's.
func tableOf[T byte | line](lines []T, touched []atomic.Uint64, release func() error, o Options) (*Table, error) {
	tags, releaseTags, err := newTags(linesIn(lines))
	if err != nil {
		return nil, err
	}
	s := storeOf(lines, tags)
	quota := max(int64(o.HalfOpenShare*float64(s.mask+1)), 1)
	t := &Table{
		store:      s,
		limits:     newLimits(&o),
		touched:    touched,
		seed:       o.Seed,
		quota:      quota,
		leaseLen:   min(max(quota/1024, 1), 64),
		releaseMem: func() error { return errors.Join(release(), releaseTags()) },
	}
	t.unused.Store(quota)
	return t, nil
}

func newLimits(o *Options) *limits {
	return &limits{idle: ticks(o.Idle), state: [4]uint32{Unconfirmed + 1: ticks(o.HalfOpen), Confirmed + 1: maxTimeout, Closing + 1: ticks(o.Closing)}}
}

// Close gives the memory back; a file keeps what is in it. No writer or reader may be used after it, nor
// be running when it is called: they would fault.
func (t *Table) Close() error {
	if err := t.releaseMem(); err != nil {
		return fmt.Errorf("unmap the flow table: %w", err)
	}
	return nil
}

// Seed returns what keys of this table are to be hashed with.
func (t *Table) Seed() uint64 { return t.seed }

// Lines returns how many lines the table has.
func (t *Table) Lines() int { return int(t.mask) + 1 }

// SetIdle sets the idle timeout of a service's entries, those that exist
// included; 0 or less takes the table's default again. Changes are seen by the
// next look-up of each writer.
func (t *Table) SetIdle(service uint16, d time.Duration) {
	delta := uint32(0)
	if d > 0 {
		delta = ticks(d) - t.limits.idle
	}
	t.limits.service[service].Store(delta)
}

// expired reports whether an entry of the given meta and seen words is over.
func (l *limits) expired(seen, meta uint64, now Tick) bool {
	limit := min(l.idle+l.service[uint16(meta)].Load(), l.state[seen&3])
	age := int32(now - lastOf(seen)) // negative: another writer's clock is ahead
	return age >= 0 && uint32(age) >= limit
}

// homes returns the home lines of a hash, one in each of its two buckets. The
// two buckets always differ.
func (s *store) homes(hash uint64) (i, j uint32) {
	i, j = uint32(hash)&s.mask, uint32(hash>>32)&s.mask
	if (i^j)&^(bucketLines-1) == 0 {
		j ^= bucketLines
	}
	return i, j
}

// touch notes that the region of line i has been used.
func (t *Table) touch(i uint32) {
	region := (i & t.mask) >> regionShift
	word := &t.touched[region/64&uint32(len(t.touched)-1)]
	if bit := uint64(1) << (region % 64); word.Load()&bit == 0 {
		word.Or(bit)
	}
}

func (t *Table) isTouched(region uint64) bool {
	return t.touched[region/64&uint64(len(t.touched)-1)].Load()>>(region%64)&1 != 0
}

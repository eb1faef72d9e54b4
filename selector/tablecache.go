package selector

import (
	"crypto/sha256"
	"encoding/binary"
)

// spareTables is how many tables are kept beyond those in use, 128 KiB each: a failback, or a
// backend that flaps, finds the table it had before.
const spareTables = 32

// tableKey identifies what a table was built from.
type tableKey [sha256.Size]byte

// tableCache hands out tables so that identical sets share one, within a snapshot and across
// snapshots. It is guarded by the builder's mutex.
type tableCache struct {
	tables  map[tableKey]*cachedTable
	round   uint64 // of publishing
	pricing pricing
	buf     []byte
}

type cachedTable struct {
	table *table
	used  uint64 // last round
}

// get returns the table of a list of candidates, which must be in the order of names.
func (c *tableCache) get(cs []candidate) *table {
	c.buf = c.buf[:0]
	for i := range cs {
		c.buf = binary.LittleEndian.AppendUint64(c.buf, cs[i].seed[0])
		c.buf = binary.LittleEndian.AppendUint64(c.buf, cs[i].seed[1])
		c.buf = binary.LittleEndian.AppendUint32(c.buf, cs[i].weight)
	}
	key := tableKey(sha256.Sum256(c.buf))
	e := c.tables[key]
	if e == nil {
		e = &cachedTable{table: c.pricing.build(cs)}
		c.tables[key] = e
	}
	e.used = c.round
	return e.table
}

// trim forgets the tables that were not used for longest, beyond the spare ones. live says which are
// part of the current snapshot.
func (c *tableCache) trim(live map[*table]bool) {
	for len(c.tables)-len(live) > spareTables {
		var oldest tableKey
		var found *cachedTable
		for k, e := range c.tables {
			if !live[e.table] && (found == nil || e.used < found.used) {
				oldest, found = k, e
			}
		}
		if found == nil {
			return
		}
		delete(c.tables, oldest)
	}
}

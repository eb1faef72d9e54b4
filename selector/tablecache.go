package selector

import (
	"crypto/sha256"
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"
)

// spareTables is how many tables are kept beyond those in use, 128 KiB each: a failback, or a
// backend that flaps, finds the table it had before.
const spareTables = 32

// maxBuilders bounds the goroutines that build tables at once, and their buffers of 0.8 MiB each. A
// failover with ten zones needs eleven tables.
const maxBuilders = 1

// tableKey identifies what a table was built from.
type tableKey [sha256.Size]byte

// tableCache makes tables so that identical sets share one, within a snapshot and across snapshots:
// order what is needed, then deliver. It is guarded by the builder's mutex.
type tableCache struct {
	tables   map[tableKey]*cachedTable
	round    uint64 // of publishing
	buf      []byte
	orders   []tableOrder
	missing  []*cachedTable // to be built
	pricings [maxBuilders]*pricing
}

type cachedTable struct {
	table      *table      // nil until delivery
	candidates []candidate // until delivery
	used       uint64      // last round
}

type tableOrder struct {
	draw  *draw
	entry *cachedTable
}

// order asks for the table of a list of candidates, which must be in the order of names; d gets it
// at delivery. The list belongs to the cache from now on.
func (c *tableCache) order(d *draw, cs []candidate) {
	c.buf = c.buf[:0]
	for i := range cs {
		c.buf = binary.LittleEndian.AppendUint64(c.buf, cs[i].seed[0])
		c.buf = binary.LittleEndian.AppendUint64(c.buf, cs[i].seed[1])
		c.buf = binary.LittleEndian.AppendUint32(c.buf, cs[i].weight)
	}
	key := tableKey(sha256.Sum256(c.buf))
	e := c.tables[key]
	if e == nil {
		e = &cachedTable{candidates: cs}
		c.tables[key] = e
		c.missing = append(c.missing, e)
	}
	e.used = c.round
	c.orders = append(c.orders, tableOrder{d, e})
}

// deliver builds the tables that are missing, on several processors, and hands out what was ordered.
func (c *tableCache) deliver() {
	var next atomic.Int64
	var builders sync.WaitGroup
	for i := range min(len(c.missing), maxBuilders, runtime.GOMAXPROCS(0)) {
		if c.pricings[i] == nil {
			c.pricings[i] = new(pricing)
		}
		builders.Go(func() {
			for k := next.Add(1) - 1; k < int64(len(c.missing)); k = next.Add(1) - 1 {
				e := c.missing[k]
				e.table, e.candidates = c.pricings[i].build(e.candidates), nil
			}
		})
	}
	builders.Wait()
	for _, o := range c.orders {
		o.draw.table = o.entry.table
	}
	clear(c.missing)
	clear(c.orders)
	c.missing, c.orders = c.missing[:0], c.orders[:0]
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

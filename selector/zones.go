package selector

import (
	"net/netip"

	"github.com/gaissmai/bart"
)

// Values of the client table that are no zone number. Zone numbers start at 1.
const (
	maxZones       = 0x7ffe
	regionBase     = 0x8000 // + index of the region
	incompatible   = 0xffff
	maxRegions     = incompatible - regionBase
	unlistedClient = 0
)

// clientTable maps a client's address to what its longest prefix says: a zone, not compatible, or
// another region.
type clientTable struct {
	table bart.Fast[uint16]
	any   bool
}

// newClientTable enters the ranges in rising priority: of equal prefixes the last one stays.
func newClientTable(o *Options, zoneNumber map[string]uint16) *clientTable {
	t := &clientTable{}
	put := func(p netip.Prefix, v uint16) {
		t.table.Insert(unmapped(p), v)
		t.any = true
	}
	for i, r := range o.Regions {
		for _, p := range r.ClientRanges {
			put(p, regionBase+uint16(i))
		}
	}
	for _, z := range o.Zones {
		for _, p := range z.ClientRanges {
			put(p, zoneNumber[z.Name])
		}
	}
	for _, e := range o.ZoneMap {
		put(e.Prefix, zoneNumber[e.Zone])
	}
	for _, p := range o.Incompatible {
		put(p, incompatible)
	}
	return t
}

// lookup is the zone number of a client (0 = served as if affinity were disabled) and, for a client
// of another region, the region's index plus one.
func (t *clientTable) lookup(client [2]uint64) (zone uint16, region int) {
	if !t.any {
		return 0, 0
	}
	v, _ := t.table.Lookup(netipOf(client))
	switch {
	case v == incompatible:
		return 0, 0
	case v >= regionBase:
		return 0, int(v-regionBase) + 1
	}
	return v, 0
}

// unmapped turns a prefix of IPv4-mapped addresses into the IPv4 prefix it stands for.
func unmapped(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked()
}

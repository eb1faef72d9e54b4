package selector

import (
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
)

// neverRouted are destinations that a router does not forward, whatever the routes say: this network
// and loopback (RFC 1122 3.2.1.3, RFC 4291 2.5.3), link-local, multicast, limited broadcast.
var neverRouted = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("::/128"),
	netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("ff00::/8"),
}

// routeTable maps a destination to every route that covers it, best first: a longest-prefix match
// finds the list of one prefix, which already includes the routes of the shorter prefixes around it.
// Destinations that are never routed have an empty list.
type routeTable struct {
	lists bart.Fast[*routeList]
	any   bool // there are routes at all
}

type routeList struct{ entries []routeEntry }

type routeEntry struct {
	rule   *Rule
	src    [2]uint64 // masked
	mask   [2]uint64
	dest   netip.Prefix
	source netip.Prefix
}

// newRouteTable builds the table; own addresses of the host are never routed.
func newRouteTable(routes []routeEntry, own []netip.Prefix) *routeTable {
	t := &routeTable{any: len(routes) > 0}
	if !t.any {
		return t
	}
	for i := range routes {
		dest := routes[i].dest
		if _, done := t.lists.Get(dest); done {
			continue
		}
		list := &routeList{}
		for _, other := range routes {
			if other.dest.Bits() <= dest.Bits() && other.dest.Overlaps(dest) {
				list.entries = append(list.entries, other)
			}
		}
		slices.SortStableFunc(list.entries, func(a, b routeEntry) int {
			if a.dest.Bits() != b.dest.Bits() {
				return b.dest.Bits() - a.dest.Bits()
			}
			if a.sourceBits() != b.sourceBits() {
				return b.sourceBits() - a.sourceBits()
			}
			// The narrower protocol, then the narrower set of interfaces.
			return narrower(a.rule, b.rule)
		})
		t.lists.Insert(dest, list)
	}
	never := &routeList{}
	for _, p := range neverRouted {
		t.lists.Insert(p, never)
	}
	for _, p := range own {
		addr := p.Addr().Unmap().WithZone("")
		t.lists.Insert(netip.PrefixFrom(addr, addr.BitLen()), never)
		if last, ok := broadcast(p); ok {
			t.lists.Insert(netip.PrefixFrom(last, 32), never)
		}
	}
	return t
}

func (e *routeEntry) sourceBits() int {
	if !e.source.IsValid() {
		return -1
	}
	return e.source.Bits()
}

// narrower orders routes that say the same about addresses.
func narrower(a, b *Rule) int {
	rank := func(r *Rule) int {
		n := 0
		if r.Protocol != 0 {
			n -= 2
		}
		if r.Ports != ^uint64(0) {
			n--
		}
		return n
	}
	return rank(a) - rank(b)
}

// broadcast is the directed broadcast address of an IPv4 subnet (RFC 919); /31 and /32 have none.
func broadcast(p netip.Prefix) (netip.Addr, bool) {
	if !p.Addr().Is4() || p.Bits() > 30 {
		return netip.Addr{}, false
	}
	w := words(p.Addr())
	w[1] |= 1<<(32-p.Bits()) - 1
	return netipOf(w), true
}

// maskOf is the mask of a prefix length over an address in words.
func maskOf(p netip.Prefix) [2]uint64 {
	if !p.IsValid() {
		return [2]uint64{}
	}
	n := p.Bits()
	if p.Addr().Is4() {
		n += 96
	}
	if n <= 64 {
		return [2]uint64{^uint64(0) << (64 - n), 0}
	}
	return [2]uint64{^uint64(0), ^uint64(0) << (128 - n)}
}

func (t *routeTable) find(src, dst [2]uint64, proto uint8, port int) *Rule {
	if !t.any {
		return nil
	}
	list, ok := t.lists.Lookup(netipOf(dst))
	if !ok {
		return nil
	}
	for i := range list.entries {
		e := &list.entries[i]
		r := e.rule
		if src[0]&e.mask[0] == e.src[0] && src[1]&e.mask[1] == e.src[1] &&
			(r.Protocol == 0 || r.Protocol == proto) && r.Ports>>(uint(port)&63)&1 != 0 {
			return r
		}
	}
	return nil
}

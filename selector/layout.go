package selector

import "slices"

// Layout says what the cells of per-worker counter arrays mean. Its pointer is the same in two
// snapshots exactly if the arrays have the same shape and labels.
type Layout struct {
	Pairs int // (rule, backend): index Rule.PairBase + Backend.Pos
	Conns int // (rule, client zone, backend zone): index Rule.ConnBase + client*Stride + backend
	// Stride is the number of zones plus one, for "no zone".
	Stride int

	rules    []layoutRule
	zones    []string
	backends [][]layoutBackend // by service index, by Pos
}

type layoutRule struct {
	name    string
	service int
}

type layoutBackend struct {
	name string
	ref  Ref
}

// PairLabel names the cell i of the pairs, 0 <= i < Pairs. While a backend whose address changed
// drains, its name occurs twice, with different refs: sum by name.
func (l *Layout) PairLabel(i int) (rule, backend string, ref Ref) {
	for _, r := range l.rules {
		members := l.backends[r.service]
		if i < len(members) {
			return r.name, members[i].name, members[i].ref
		}
		i -= len(members)
	}
	panic("selector: pair index out of range")
}

// ConnLabel names the cell i of the conns, 0 <= i < Conns; "" is no zone.
func (l *Layout) ConnLabel(i int) (rule, clientZone, backendZone string) {
	cells := l.Stride * l.Stride
	return l.rules[i/cells].name, l.ZoneLabel(i % cells / l.Stride), l.ZoneLabel(i % l.Stride)
}

// ZoneLabel names a zone number, 0 <= i < Stride; "" is no zone.
func (l *Layout) ZoneLabel(i int) string {
	if i == 0 {
		return ""
	}
	return l.zones[i-1]
}

// equal reports whether the cells mean the same.
func (l *Layout) equal(o *Layout) bool {
	return o != nil && slices.Equal(l.rules, o.rules) && slices.Equal(l.zones, o.zones) &&
		slices.EqualFunc(l.backends, o.backends, slices.Equal[[]layoutBackend])
}

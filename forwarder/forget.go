package forwarder

import "zonehop/selector"

// pastLabels is how many labels of each kind a worker keeps beside those that
// its layout has. Names come and go with every reload, in some places with
// every deployment, and each would stay for the life of the process.
const pastLabels = 4096

// forget merges what was counted under names that the layout does not have any
// more, once they are too many: by rule if that is still there, without any
// name else. Sums stay what they are.
func (t *Totals) forget(l *selector.Layout) {
	rules := make(map[string]bool)
	if len(t.Pairs) > l.Pairs+pastLabels {
		present := make(map[PairLabel]bool, l.Pairs)
		for i := range l.Pairs {
			label := pairLabel(l, i)
			present[label], rules[label.Rule] = true, true
		}
		t.Pairs = merged(t.Pairs, present, func(p PairLabel) PairLabel { return PairLabel{Rule: known(p.Rule, rules)} },
			func(a, b PairTotals) PairTotals { return PairTotals{a.Packets + b.Packets, a.Bytes + b.Bytes} })
	}
	sum := func(a, b uint64) uint64 { return a + b }
	if len(t.Conns) > l.Conns+pastLabels {
		present := make(map[ConnLabel]bool, l.Conns)
		for i := range l.Conns {
			rule, client, backend := l.ConnLabel(i)
			present[ConnLabel{rule, client, backend}], rules[rule] = true, true
		}
		t.Conns = merged(t.Conns, present, func(c ConnLabel) ConnLabel { return ConnLabel{Rule: known(c.Rule, rules)} }, sum)
	}
	if n := l.Stride * l.Stride; len(t.Zones) > n+pastLabels {
		present := make(map[ZoneLabel]bool, n)
		for i := range n {
			present[ZoneLabel{l.ZoneLabel(i / l.Stride), l.ZoneLabel(i % l.Stride)}] = true
		}
		t.Zones = merged(t.Zones, present, func(ZoneLabel) ZoneLabel { return ZoneLabel{} }, sum)
	}
}

func known(name string, names map[string]bool) string {
	if names[name] {
		return name
	}
	return ""
}

// merged is a map whose entries without a present key are added to those under
// another.
func merged[K comparable, V any](m map[K]V, present map[K]bool, into func(K) K, add func(V, V) V) map[K]V {
	out := make(map[K]V, len(present))
	for k, v := range m {
		if !present[k] {
			k = into(k)
		}
		out[k] = add(out[k], v)
	}
	return out
}

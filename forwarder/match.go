package forwarder

import (
	"zonehop/conntrack"
	"zonehop/forwarder/packet"
	"zonehop/forwarder/xsk"
	"zonehop/selector"
)

// item is one frame of a batch on its way through the steps. Items are reused.
type item struct {
	packet.Parsed
	desc  xsk.Desc
	frame []byte // capacity to the end of its chunk

	// Set by match for a frame that is to be forwarded; rule is nil else.
	rule  *selector.Rule
	tuple selector.Tuple
	key   conntrack.Key
	hash  uint64
}

// process takes one batch through all steps. Afterwards each of its frames is
// staged on a port or freed, and counted.
func (w *Worker) process(b *binding, descs []xsk.Desc) {
	items := w.items[:len(descs)]
	// Independent loads in a loop of their own: by the time the first frame is
	// parsed, the others' first lines are on their way from memory.
	var touched byte
	for i := range items {
		it := &items[i]
		it.desc = descs[i]
		it.frame = b.umem.Frame(descs[i])
		if len(it.frame) > 0 {
			touched ^= it.frame[0]
		}
	}
	var lines uint64
	for i := range items {
		it := &items[i]
		it.rule = nil
		lines ^= w.match(b, it)
	}
	w.touched ^= lines ^ uint64(touched)
	for i := range items {
		if it := &items[i]; it.rule != nil {
			w.forward(b, it)
		}
	}
}

// match finds the rule or route of a frame and asks for its flow line, or
// answers or drops the frame. It returns what it read of the flow table, so
// that the compiler keeps the read.
func (w *Worker) match(b *binding, it *item) uint64 {
	if p := it.Parse(it.frame); p != 0 {
		w.drop(b, it, malformed(p))
		return 0
	}
	switch it.Kind {
	case packet.KindIPv4, packet.KindIPv6:
	case packet.KindARP:
		w.answerARP(b, it)
		return 0
	default:
		w.drop(b, it, ReasonUnexpected)
		return 0
	}
	if it.Flags&packet.NeighborSolicit != 0 && w.answerNeighbour(b, it) {
		return 0
	}
	var r *selector.Rule
	if vip := w.snap.VIP(it.Dst); vip != nil {
		if it.Flags&packet.EchoRequest != 0 && !vip.L3Default {
			w.answerPing(b, it, vip)
			return 0
		}
		if r = vip.Rule(it.Proto, it.DstPort, it.Flags&packet.HasPorts != 0); r == nil {
			reason := ReasonNoRule
			if it.Flags&packet.Fragment != 0 && it.Flags&packet.HasPorts == 0 {
				reason = ReasonFragmentUnmatched
			}
			w.drop(b, it, reason)
			return 0
		}
	} else if r = w.snap.Route(it.Src, it.Dst, it.Proto, b.iface); r == nil {
		w.drop(b, it, ReasonNoRoute)
		return 0
	}
	if r.DecrementTTL && it.TTL <= 1 {
		w.expire(b, it)
		return 0
	}
	it.rule = r
	it.tuple = selector.Tuple{
		Src: it.Src, Dst: it.Dst, SrcPort: it.SrcPort, DstPort: it.DstPort,
		Proto: it.Proto, HasPorts: it.Flags&packet.HasPorts != 0,
	}
	// All fragments of a datagram make the same choice, the first one included.
	if it.Flags&packet.Fragment != 0 {
		it.tuple.SrcPort, it.tuple.DstPort, it.tuple.HasPorts = 0, 0, false
	}
	src, dst, sport, dport, proto, kind := r.TrackingKey(&it.tuple)
	it.key = conntrack.Key{
		Src: src, Dst: dst,
		Meta: conntrack.MakeMeta(sport, dport, proto, keyKind(kind), r.Service.ID),
	}
	it.hash = it.key.Hash(w.seed)
	return w.flows.Touch(it.hash)
}

// keyKind is the flow table's name for the shape of a tracking key. Both list
// the 5-, 3-, 2- and 1-tuple in this order.
func keyKind(shape uint8) conntrack.Kind {
	return conntrack.Kind(shape-selector.Shape5) + conntrack.KeyConnection
}

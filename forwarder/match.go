package forwarder

import (
	"encoding/binary"

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
	key   conntrack.Key
	hash  uint64
	kind  itemKind
	tuple selector.Tuple    // from kindFragment on; else it follows from Parsed
	owner conntrack.Backend // recorded for the datagram; kindFragment only
}

// itemKind says how a frame relates to its flow.
type itemKind uint8

const (
	kindPacket   itemKind = iota // the packet is its flow's: it makes and refreshes the entry
	kindFirst                    // so does a first fragment, and the later ones follow it
	kindLater                    // a later fragment, until its datagram's record is looked for
	kindFragment                 // follows what is recorded for its datagram
	kindError                    // an ICMP error: goes where the packet it is about came from
)

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
	for i := range items {
		it := &items[i]
		it.rule, it.kind = nil, kindPacket
		w.match(b, it)
	}
	// The same for the flow lines. With as little as possible between two
	// loads, more of them are under way at a time than if match did this.
	var lines uint64
	for i := range items {
		if it := &items[i]; it.rule != nil {
			lines ^= w.flows.Touch(it.hash)
		}
	}
	for i := range items {
		if it := &items[i]; it.rule != nil {
			lines ^= w.flows.TouchRest(&it.key, it.hash)
		}
	}
	w.touched ^= lines ^ uint64(touched)
	for i := range items {
		switch it := &items[i]; {
		case it.rule != nil:
			w.forward(b, it)
		case it.kind == kindLater:
			w.later(b, it)
		}
	}
}

// match finds the rule or route of a frame and its flow, or answers or drops
// the frame.
func (w *Worker) match(b *binding, it *item) {
	if p := it.Parse(it.frame); p != 0 {
		w.drop(b, it, malformed(p))
		return
	}
	switch it.Kind {
	case packet.KindIPv4, packet.KindIPv6:
	case packet.KindARP:
		w.answerARP(b, it)
		return
	default:
		w.drop(b, it, ReasonUnexpected)
		return
	}
	// A frame for another station is here because a switch floods it. To forward
	// it would double it, and two appliances would do so to each other's for ever.
	if binary.BigEndian.Uint64(it.frame[:8])>>16 != w.ports[b.iface].station && it.Flags&packet.NeighborSolicit == 0 {
		w.drop(b, it, ReasonOtherStation)
		return
	}
	if it.Flags&special != 0 {
		w.matchSpecial(b, it)
		return
	}
	w.matchPacket(b, it)
}

// matchPacket matches a packet that is all of itself.
func (w *Worker) matchPacket(b *binding, it *item) {
	r, reason := w.ruleOf(b, &it.Parsed)
	if reason != ReasonNone {
		w.drop(b, it, reason)
		return
	}
	w.identify(b, it, r, &it.Parsed)
}

// special are the packets that are more than one packet of one flow.
const special = packet.NeighborSolicit | packet.EchoRequest | packet.Fragment | packet.ICMPError

// matchSpecial does what match does for them.
func (w *Worker) matchSpecial(b *binding, it *item) {
	switch {
	case it.Flags&packet.NeighborSolicit != 0:
		w.answerNeighbour(b, it)
		return
	case it.Flags&packet.Fragment != 0:
		w.matchFragment(b, it)
		return
	case it.Flags&packet.ICMPError != 0:
		w.matchError(b, it)
		return
	}
	if vip := w.snap.VIP(it.Dst); vip != nil && !vip.L3Default {
		w.answerPing(b, it, vip)
		return
	}
	w.matchPacket(b, it)
}

// ruleOf finds the rule or route of a packet.
func (w *Worker) ruleOf(b *binding, p *packet.Parsed) (*selector.Rule, Reason) {
	if vip := w.snap.VIPOf(&p.Dst); vip != nil {
		if r := vip.Rule(p.Proto, p.DstPort, p.Flags&packet.HasPorts != 0); r != nil {
			return r, ReasonNone
		}
		if p.Flags&packet.HasPorts == 0 && p.Flags&(packet.Fragment|packet.ExtensionHeaders) != 0 {
			return nil, ReasonFragmentUnmatched
		}
		return nil, ReasonNoRule
	}
	r := w.snap.Route(p.Src, p.Dst, p.Proto, b.iface)
	switch {
	case r == nil:
		return nil, ReasonNoRoute
	case packet.Martian(p.Src):
		return nil, ReasonBadSource
	}
	return r, ReasonNone
}

// identify makes the tuple and flow key of a frame whose rule is known, from p:
// the frame itself, or the packet that it is about.
func (w *Worker) identify(b *binding, it *item, r *selector.Rule, p *packet.Parsed) {
	if r.DecrementTTL && it.TTL <= 1 {
		w.expire(b, it)
		return
	}
	it.rule = r
	if it.kind >= kindFragment {
		it.tuple = tupleOf(p)
	}
	if p.Flags&packet.HasPorts != 0 && r.TracksConnections() {
		// Nearly every packet: the key is its tuple as it is. Word by word: see
		// Snapshot.VIPOf.
		k, src, dst := &it.key, &p.Src, &p.Dst
		k.Src[0], k.Src[1], k.Dst[0], k.Dst[1] = src[0], src[1], dst[0], dst[1]
		k.Meta = conntrack.MakeMeta(p.SrcPort, p.DstPort, p.Proto, conntrack.KeyConnection, r.Service.ID)
	} else {
		t := tupleOf(p)
		src, dst, sport, dport, proto, kind := r.TrackingKey(&t)
		it.key = conntrack.Key{
			Src: src, Dst: dst,
			Meta: conntrack.MakeMeta(sport, dport, proto, keyKind(kind), r.Service.ID),
		}
	}
	it.hash = it.key.Hash(w.seed)
}

// tupleOf is what a selection for a packet can depend on.
func tupleOf(p *packet.Parsed) selector.Tuple {
	return selector.Tuple{
		Src: p.Src, Dst: p.Dst, SrcPort: p.SrcPort, DstPort: p.DstPort,
		Proto: p.Proto, HasPorts: p.Flags&packet.HasPorts != 0,
	}
}

// client is the source address of the flow's packets.
func (it *item) client() [2]uint64 {
	if it.kind >= kindFragment {
		return it.tuple.Src
	}
	return it.Src
}

// keyKind is the flow table's name for the shape of a tracking key. Both list
// the 5-, 3-, 2- and 1-tuple in this order.
func keyKind(shape uint8) conntrack.Kind {
	return conntrack.Kind(shape-selector.Shape5) + conntrack.KeyConnection
}

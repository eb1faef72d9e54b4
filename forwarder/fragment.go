package forwarder

import (
	"time"

	"zonehop/conntrack"
	"zonehop/forwarder/packet"
	"zonehop/selector"
)

const (
	// holdTime is how long a fragment waits for the first one of its datagram.
	holdTime = int64(100 * time.Millisecond)
	// holdPoll is how often a sleeping worker looks whether another one has
	// seen the first fragment.
	holdPoll = time.Millisecond
	// At most 1/heldShare of a memory's frames wait, and maxHeld of a worker's.
	heldShare = 16
	maxHeld   = 512
)

// held is a fragment that waits for the first one of its datagram.
type held struct {
	binding  *binding
	item     item
	deadline int64
}

// holding is the queue of held fragments, oldest first, in a ring that never
// grows: a flood of fragments without a first one displaces the oldest.
type holding struct {
	ring  []held // a power of two
	limit int    // of count
	first uint32
	count uint32
	puts  uint64 // number of records when all were last looked for
}

func (h *holding) at(i uint32) *held { return &h.ring[(h.first+i)&uint32(len(h.ring)-1)] }

// matchFragment matches a fragment. The first one of a datagram has the ports:
// it is looked up like a whole packet, and recorded. Later ones follow the
// record, and wait for it if they come before.
func (w *Worker) matchFragment(b *binding, it *item) {
	if first, later := it.EchoFragment(); first || later {
		if vip := w.snap.VIPOf(&it.Dst); vip != nil && !vip.L3Default {
			w.matchEchoFragment(b, it, vip, first)
			return
		}
	}
	if it.Kind == packet.KindIPv4 && !hasPorts(it.Proto) {
		w.matchPacket(b, it) // every fragment says all there is to know
		return
	}
	if it.Flags&packet.LaterFragment != 0 || it.Flags&packet.HasPorts == 0 && hasPorts(it.Proto) {
		it.kind = kindLater // the first one may be in this very batch
		return
	}
	// A first fragment follows a guess, made when the others had waited too
	// long. Any other record is of an older datagram with this identification.
	k := fragmentKey(&it.Parsed)
	if owner, guessed, ok := w.shared.Fragments.Get(&k, w.tick); ok && guessed {
		w.matchRecorded(b, it, owner)
		return
	}
	r, reason := w.ruleOf(b, &it.Parsed)
	if reason != ReasonNone {
		w.drop(b, it, reason)
		return
	}
	it.kind = kindFirst
	w.identify(b, it, r, &it.Parsed)
}

// echoOwner is recorded for an echo request that is answered here, in place of
// a backend. Backends never have the id that it names, 0.
const echoOwner = conntrack.Backend(1)

// matchEchoFragment answers the first fragment of an echo request, and records
// that the later ones are to be.
func (w *Worker) matchEchoFragment(b *binding, it *item, vip *selector.VIP, first bool) {
	if !first {
		it.kind = kindLater
		return
	}
	if !vip.PingOK {
		w.drop(b, it, ReasonPingUnavailable)
		return
	}
	k := fragmentKey(&it.Parsed)
	if w.answerEchoFragment(b, it) {
		w.shared.Fragments.Put(&k, echoOwner, false, w.tick)
	}
}

// answerEchoFragment answers one fragment, or drops it.
func (w *Worker) answerEchoFragment(b *binding, it *item) bool {
	out, ok := packet.ReplyEchoFragment(it.frame, &it.Parsed)
	if !ok {
		w.drop(b, it, ReasonUnexpected)
		return false
	}
	w.reply(b, it, out, AnswerPing)
	return true
}

// later forwards a later fragment, or holds it.
func (w *Worker) later(b *binding, it *item) {
	k := fragmentKey(&it.Parsed)
	owner, _, recorded := w.shared.Fragments.Get(&k, w.tick)
	switch {
	case recorded:
		w.matchRecorded(b, it, owner)
		if it.rule != nil {
			w.forward(b, it)
		}
	case w.snap.VIP(it.Dst) == nil && w.snap.Route(it.Src, it.Dst, it.Proto, b.iface) == nil:
		w.drop(b, it, ReasonNoRoute)
	default:
		w.hold(b, it)
	}
}

// matchRecorded matches a fragment whose backend is recorded. Its rule is the
// one of the address that leads to the backend's service. A fragment of an echo
// request that is answered here is answered.
func (w *Worker) matchRecorded(b *binding, it *item, owner conntrack.Backend) {
	if owner == echoOwner {
		w.answerEchoFragment(b, it)
		return
	}
	var r *selector.Rule
	if be := w.snap.Backend(uint32(owner)); be != nil {
		r = w.ruleTo(b, it, be.Service)
	}
	if r == nil {
		w.drop(b, it, ReasonFragmentUnmatched)
		return
	}
	it.kind, it.owner = kindFragment, owner
	w.identify(b, it, r, &it.Parsed)
}

// ruleTo finds the rule or route that sends a fragment to a service.
func (w *Worker) ruleTo(b *binding, it *item, service uint16) *selector.Rule {
	if vip := w.snap.VIP(it.Dst); vip != nil {
		// Of an IPv6 datagram only the first fragment need show the protocol.
		return vip.RuleTo(it.Proto, service, it.Kind == packet.KindIPv6)
	}
	if r := w.snap.Route(it.Src, it.Dst, it.Proto, b.iface); r != nil && r.Service.ID == service {
		return r
	}
	return nil
}

// hold keeps a fragment until its datagram is recorded or its time is over.
func (w *Worker) hold(b *binding, it *item) {
	h := &w.holding
	if h.limit == 0 {
		w.drop(b, it, ReasonFragmentEvicted)
		return
	}
	if int(h.count) >= h.limit {
		oldest := h.at(0)
		w.counters.local[cHeld]--
		w.drop(oldest.binding, &oldest.item, ReasonFragmentEvicted)
		h.first++
		h.count--
	}
	*h.at(h.count) = held{binding: b, item: *it, deadline: w.now + holdTime}
	h.count++
	h.puts = 0 // look once more: the record may have been made meanwhile
	w.counters.local[cHeld]++
}

// release forwards the held fragments whose datagram is recorded by now, and
// those whose time is over, as the 3-tuple decides. It reports how many left.
func (w *Worker) release() (n int) {
	h := &w.holding
	puts := w.shared.Fragments.Puts()
	if puts == h.puts && w.now < h.at(0).deadline {
		return 0 // nothing can have changed for any of them
	}
	h.puts = puts
	kept := uint32(0)
	for i := range h.count {
		e := h.at(i)
		k := fragmentKey(&e.item.Parsed)
		owner, _, recorded := w.shared.Fragments.Get(&k, w.tick)
		if !recorded && w.now < e.deadline || e.binding.room == 0 {
			if kept != i {
				*h.at(kept) = *e
			}
			kept++
			continue
		}
		n++
		w.counters.local[cHeld]--
		it := &e.item
		it.rule, it.kind = nil, kindPacket
		if recorded {
			w.matchRecorded(e.binding, it, owner)
		} else {
			w.guess(e.binding, it)
		}
		if it.rule != nil {
			w.forward(e.binding, it)
		}
	}
	h.count = kept
	return n
}

// guess decides for a fragment whose first one did not come in time: by its
// 3-tuple, if a single rule takes all ports. The choice is recorded, so that
// the rest of the datagram follows, the first fragment included.
func (w *Worker) guess(b *binding, it *item) {
	whole := it.Parsed
	whole.Flags &^= packet.HasPorts
	whole.SrcPort, whole.DstPort = 0, 0
	r, reason := w.ruleOf(b, &whole)
	if reason != ReasonNone {
		w.drop(b, it, reason)
		return
	}
	it.kind = kindFragment
	w.identify(b, it, r, &whole)
	if it.rule == nil {
		return // expired
	}
	be, _, reason := w.choose(r, &it.tuple)
	if reason != ReasonNone {
		it.rule = nil
		w.drop(b, it, reason)
		return
	}
	it.owner = conntrack.Backend(be.Ref)
	w.record(it, be.Ref, true)
}

// abandon drops the held fragments of a port that goes away.
func (w *Worker) abandon(b *binding) {
	h := &w.holding
	kept := uint32(0)
	for i := range h.count {
		e := h.at(i)
		if e.binding != b {
			if kept != i {
				*h.at(kept) = *e
			}
			kept++
			continue
		}
		w.counters.local[cHeld]--
		w.drop(b, &e.item, ReasonNoPort)
	}
	h.count = kept
}

// hasPorts reports whether packets of a protocol have ports.
func hasPorts(proto uint8) bool {
	switch proto {
	case packet.ProtoTCP, packet.ProtoUDP, packet.ProtoSCTP, packet.ProtoUDPLite:
		return true
	}
	return false
}

func fragmentKey(p *packet.Parsed) conntrack.FragmentKey {
	k := conntrack.FragmentKey{Src: p.Src, Dst: p.Dst, ID: p.FragID, Proto: p.Proto}
	if p.Kind == packet.KindIPv6 {
		k.Proto = 0 // differs between the first fragment and the later ones
	}
	return k
}

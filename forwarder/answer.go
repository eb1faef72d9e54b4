package forwarder

import (
	"encoding/binary"

	"zonehop/forwarder/claim"
	"zonehop/forwarder/packet"
	"zonehop/selector"
)

// answerARP answers a request for an address of ours (RFC 826), but not one in
// the name of an address of ours: that is another host's claim to it, or our own
// announcement come back.
func (w *Worker) answerARP(b *binding, it *item) {
	if w.claimed(b, it) || w.flooded(b, it) {
		return
	}
	_, target, _, ok := packet.ARPRequestTarget(it.frame, &it.Parsed)
	switch {
	case !ok:
		w.drop(b, it, ReasonBadNeighbour)
	case !w.snap.Answers(target, b.iface):
		w.drop(b, it, ReasonNotAnnounced)
	default:
		w.reply(b, it, packet.ReplyARP(it.frame, &it.Parsed, &w.ports[b.iface].mac), AnswerARP)
	}
}

// answerNeighbour answers a solicitation for an address of ours (RFC 4861
// section 7.2.4), with the same exception.
func (w *Worker) answerNeighbour(b *binding, it *item) {
	if w.claimed(b, it) || w.flooded(b, it) {
		return
	}
	target, ok := packet.NeighborSolicitTarget(it.frame, &it.Parsed)
	switch {
	case !ok:
		w.drop(b, it, ReasonBadNeighbour)
	case !w.snap.Answers(target, b.iface):
		w.drop(b, it, ReasonNotAnnounced)
	default:
		w.reply(b, it, packet.ReplyNeighbor(it.frame, &it.Parsed, &w.ports[b.iface].mac), AnswerNeighbour)
	}
}

// flooded drops a request that was sent to another station alone, and is here
// because a switch does not know where that is.
func (w *Worker) flooded(b *binding, it *item) bool {
	if it.frame[0]&1 != 0 || binary.BigEndian.Uint64(it.frame[:8])>>16 == w.ports[b.iface].station {
		return false
	}
	w.drop(b, it, ReasonOtherStation)
	return true
}

// claimed passes on what another host says about an address of ours, and drops
// the frame if it was sent in the name of one. A probe whether the address is
// free is passed on too; it is to be answered like any request.
func (w *Worker) claimed(b *binding, it *item) bool {
	c, ok := claim.Of(it.frame, &it.Parsed, b.iface)
	if !ok || !w.snap.Answers(c.Addr, b.iface) {
		return false
	}
	if !w.own(c.MAC) {
		w.report(c)
	}
	if c.Kind == claim.Probe {
		return false
	}
	w.drop(b, it, ReasonAddressClaim)
	return true
}

// report passes a claim on to who decides about it. What comes faster than that
// is meant to go, or finds the channel full, is counted and left out.
func (w *Worker) report(c claim.Claim) {
	if w.claims.allow(w.now) {
		select {
		case w.shared.Claims <- c:
			return
		default:
		}
	}
	w.counters.local[cMissedClaims]++
}

// answerPing answers an echo request to a rule's address, as long as a service
// behind it has an eligible backend.
func (w *Worker) answerPing(b *binding, it *item, vip *selector.VIP) {
	if !vip.PingOK {
		w.drop(b, it, ReasonPingUnavailable)
		return
	}
	out, ok := packet.ReplyEcho(it.frame, &it.Parsed)
	if !ok {
		w.drop(b, it, ReasonUnexpected)
		return
	}
	w.reply(b, it, out, AnswerPing)
}

// reply sends an answer, written over the frame that asked, by the port it
// came from. out is nil where the chunk had no room for it.
func (w *Worker) reply(b *binding, it *item, out []byte, kind AnswerKind) {
	if out == nil {
		w.drop(b, it, ReasonUnexpected)
		return
	}
	it.frame = out
	if !w.stage(b, it) {
		w.drop(b, it, ReasonTXFull)
		return
	}
	w.counters.local[cAnswered+int(kind)]++
}

// own reports whether a MAC address is that of an interface of ours.
func (w *Worker) own(mac uint64) bool {
	for i := range w.snap.Ports {
		if w.ports[i].station == mac {
			return true
		}
	}
	return false
}

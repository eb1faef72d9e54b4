package forwarder

import (
	"time"

	"zonehop/forwarder/packet"
	"zonehop/selector"
)

// defendInterval is the least time between two defences of one address
// (RFC 5227 section 2.4, DEFEND_INTERVAL).
const defendInterval = int64(10 * time.Second)

// defence remembers when an address was last defended. A worker keeps the last
// few: more conflicts at a time than that are defended more often, not less.
type defence struct {
	iface int
	addr  [2]uint64
	until int64
}

// Conflict is another host's claim to an address this appliance answers for.
type Conflict struct {
	Addr [2]uint64
	MAC  uint64 // low 48 bits
	At   int64  // nanoseconds of the worker's clock
}

// answerARP answers a request for an address of ours (RFC 826) and defends it
// against a host that claims it (RFC 5227 section 2.4).
func (w *Worker) answerARP(b *binding, it *item) {
	mac := &w.ports[b.iface].mac
	if addr, by, _, claim := packet.ARPClaims(it.frame, &it.Parsed); claim && w.snap.Answers(addr, b.iface) {
		if w.own(by) { // another interface of ours on the same segment
			w.drop(b, it, ReasonNotAnnounced)
			return
		}
		w.conflict.Store(&Conflict{Addr: addr, MAC: by, At: w.now})
		if !w.defend(b.iface, addr) {
			w.drop(b, it, ReasonNotAnnounced)
			return
		}
		w.reply(b, it, packet.DefendARP(it.frame, &it.Parsed, addr, mac), AnswerARPDefence)
		return
	}
	_, target, _, ok := packet.ARPRequestTarget(it.frame, &it.Parsed)
	switch {
	case !ok:
		w.drop(b, it, ReasonUnexpected)
	case !w.snap.Answers(target, b.iface):
		w.drop(b, it, ReasonNotAnnounced)
	default:
		w.reply(b, it, packet.ReplyARP(it.frame, &it.Parsed, mac), AnswerARP)
	}
}

// answerNeighbour answers a solicitation for an address of ours (RFC 4861
// section 7.2.4).
func (w *Worker) answerNeighbour(b *binding, it *item) {
	target, ok := packet.NeighborSolicitTarget(it.frame, &it.Parsed)
	switch {
	case !ok:
		w.drop(b, it, ReasonUnexpected)
	case !w.snap.Answers(target, b.iface):
		w.drop(b, it, ReasonNotAnnounced)
	default:
		w.reply(b, it, packet.ReplyNeighbor(it.frame, &it.Parsed, &w.ports[b.iface].mac), AnswerNeighbour)
	}
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

// defend reports whether an address may be defended now.
func (w *Worker) defend(iface int, addr [2]uint64) bool {
	oldest := &w.defences[0]
	for i := range w.defences {
		d := &w.defences[i]
		if d.addr == addr && d.iface == iface {
			if w.now < d.until {
				return false
			}
			d.until = w.now + defendInterval
			return true
		}
		if d.until < oldest.until {
			oldest = d
		}
	}
	*oldest = defence{iface: iface, addr: addr, until: w.now + defendInterval}
	return true
}

package forwarder

import (
	"zonehop/forwarder/packet"
	"zonehop/selector"
)

// expire drops a frame whose TTL is used up.
func (w *Worker) expire(b *binding, it *item) {
	w.refuse(b, it, ReasonTTLExpired, OriginTimeExceeded, 0)
}

// tooBig drops a frame that is longer than the interface it would leave by
// takes, and has the sender make shorter packets. A router would cut an IPv4
// packet that allows it (RFC 1812, section 5.2.6). Here frames leave in the
// memory in which they came, so that such a sender is told as well: without a
// word it would go on for ever, and hosts that hear the path's MTU cut what
// they send from then on by themselves.
func (w *Worker) tooBig(b *binding, it *item, iface int) {
	mtu := w.ports[iface].maxFrame - ethernetLen
	if int(it.End-it.L3) <= mtu {
		w.drop(b, it, ReasonTooBig) // the packet would fit; what follows it in the frame does not
		return
	}
	w.refuse(b, it, ReasonTooBig, OriginTooBig, mtu)
}

// refuse drops a frame that goes no further and, within a rate limit, turns its
// memory into the ICMP error that tells the sender. Each kind of error has a
// limit of its own: a loop that uses up TTLs must not hide a narrow link.
func (w *Worker) refuse(b *binding, it *item, reason Reason, kind OriginKind, mtu int) {
	port := &w.ports[b.iface]
	family := selector.V4
	if it.Kind == packet.KindIPv6 {
		family = selector.V6
	}
	src := port.source[family]
	if src == ([2]uint64{}) || !w.limits[kind].allow(w.now) {
		w.drop(b, it, reason)
		return
	}
	var out []byte
	var ok bool
	if kind == OriginTooBig {
		out, ok = packet.TooBig(it.frame, &it.Parsed, src, &port.mac, mtu)
	} else {
		out, ok = packet.TimeExceeded(it.frame, &it.Parsed, src, &port.mac)
	}
	if !ok {
		w.limits[kind].giveBack() // packets that nobody is told of must not silence the others
		w.drop(b, it, reason)
		return
	}
	it.frame = out
	if !w.stage(b, it) {
		w.drop(b, it, reason)
		return
	}
	w.counters.local[cDropped+int(reason)]++
	w.counters.local[cOriginated+int(kind)]++
}

// limiter is a token bucket on the worker's clock.
type limiter struct {
	perSecond, burst int64
	tokens           int64 // in billionths
	last             int64
}

// allow takes a token.
func (l *limiter) allow(now int64) bool {
	full := l.burst * 1e9
	l.tokens = min(l.tokens+min(now-l.last, full/l.perSecond)*l.perSecond, full)
	l.last = now
	if l.tokens < 1e9 {
		return false
	}
	l.tokens -= 1e9
	return true
}

// giveBack returns a token that was taken and not used.
func (l *limiter) giveBack() { l.tokens += 1e9 }

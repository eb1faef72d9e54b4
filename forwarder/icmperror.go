package forwarder

import (
	"zonehop/conntrack"
	"zonehop/forwarder/packet"
	"zonehop/selector"
)

// matchError matches an ICMP error by the packet it quotes: one that a backend
// sent to a client, so its reverse is the client's flow. Path MTU discovery of
// every connection depends on it (RFC 1191, RFC 8201). The error itself is
// forwarded as it is.
func (w *Worker) matchError(b *binding, it *item) {
	var quote packet.Parsed
	if problem := quote.ParseQuote(it.frame, &it.Parsed); problem != packet.OK {
		w.drop(b, it, ReasonErrorUnmatched)
		return
	}
	quote.Src, quote.Dst = quote.Dst, quote.Src
	quote.SrcPort, quote.DstPort = quote.DstPort, quote.SrcPort
	if quote.Dst != it.Dst {
		// The party that sent the quoted packet is not who the error goes to:
		// no error about a flow of ours looks like that.
		w.drop(b, it, ReasonErrorUnmatched)
		return
	}
	r, reason := w.ruleOf(b, &quote)
	if reason != ReasonNone {
		w.drop(b, it, ReasonErrorUnmatched)
		return
	}
	it.kind = kindError
	w.identify(b, it, r, &quote)
}

// follow finds the backend of a frame that neither makes nor refreshes an
// entry: an ICMP error, or a fragment without ports.
func (w *Worker) follow(it *item) (*selector.Backend, Reason) {
	r := it.rule
	if it.kind == kindFragment {
		if be := w.snap.Backend(uint32(it.owner)); be != nil {
			return be, ReasonNone
		}
	} else if owner, _, _, hit := w.flows.Lookup(&it.key, it.hash, w.tick); hit {
		if be := w.snap.Backend(uint32(owner)); be != nil && be.Keeps(r.Family, it.tuple.Proto, false, w.now) {
			return be, ReasonNone
		}
	}
	be, _, reason := w.choose(r, &it.tuple)
	return be, reason
}

// choose asks the selector. The backend is nil if there is a reason.
func (w *Worker) choose(r *selector.Rule, t *selector.Tuple) (*selector.Backend, selector.Choice, Reason) {
	c := w.snap.Select(r, t)
	switch c.Result {
	case selector.Selected:
	case selector.DroppedUnhealthy:
		return nil, c, ReasonUnhealthy
	case selector.RegionDenied:
		return nil, c, ReasonRegionDenied
	case selector.NotReady:
		return nil, c, ReasonNotReady
	default:
		return nil, c, ReasonNoBackend
	}
	be := w.snap.Backend(c.Backend)
	if be == nil {
		return nil, c, ReasonNoBackend
	}
	if reason := undeliverable(&be.Delivery[r.Family]); reason != ReasonNone {
		return nil, c, reason
	}
	return be, c, ReasonNone
}

// record remembers the backend of a fragment's datagram for its other
// fragments.
func (w *Worker) record(it *item, b selector.Ref, guessed bool) {
	k := fragmentKey(&it.Parsed)
	w.shared.Fragments.Put(&k, conntrack.Backend(b), guessed, w.tick)
}

package forwarder

import (
	"zonehop/conntrack"
	"zonehop/forwarder/packet"
	"zonehop/selector"
)

// track finds the backend that owns the frame's flow, or selects one.
// Exactly one of its results is set.
func (w *Worker) track(it *item) (*selector.Backend, Reason) {
	if it.kind >= kindFragment {
		return w.follow(it)
	}
	r := it.rule
	owner, state, ref, hit := w.flows.Lookup(&it.key, it.hash, w.tick)
	syn := it.Proto == packet.ProtoTCP && it.Flags&(packet.SYN|packet.ACK) == packet.SYN
	if hit && !(syn && r.Service.SYNSelects) {
		if be := w.snap.Backend(uint32(owner)); be != nil && be.Keeps(r.Family, it.Proto, syn, w.now) {
			w.flows.Hit(ref, w.tick, uint32(len(it.frame)), closes(it))
			return be, ReasonNone
		}
	}
	t := tupleOf(&it.Parsed)
	be, c, reason := w.choose(r, &t)
	if reason != ReasonNone {
		return nil, reason // no entry: the next packet may do better
	}
	chosen := conntrack.Backend(c.Backend)
	switch {
	case hit && owner == chosen && state != conntrack.Closing:
		w.flows.Hit(ref, w.tick, uint32(len(it.frame)), closes(it))
		return be, ReasonNone
	case hit && w.flows.Reselect(&it.key, it.hash, ref, chosen, w.tick, uint32(len(it.frame))):
		w.count(it, c, be)
		return be, ReasonNone
	}
	if it.Proto == packet.ProtoTCP && !syn && !hit {
		w.counters.local[cMidFlow]++
	}
	got, res := w.flows.Insert(&it.key, it.hash, chosen, w.tick, uint32(len(it.frame)), false)
	switch res {
	case conntrack.Inserted:
		w.count(it, c, be)
	case conntrack.Existed:
		// Another worker was first with this flow: its choice holds.
		if theirs := w.snap.Backend(uint32(got)); theirs != nil {
			return theirs, ReasonNone
		}
	}
	// Rejected by quota or a full table: the hash alone decides, and decides
	// alike for the flow's next packet. The table counts it.
	return be, ReasonNone
}

// closes reports whether the packet ends its connection for the flow table: a
// RST, or a FIN from the client (the only side seen).
func closes(it *item) bool {
	return it.Proto == packet.ProtoTCP && it.Flags&(packet.FIN|packet.RST) != 0 &&
		it.key.Kind() == conntrack.KeyConnection
}

// count counts a connection that was given to a backend.
func (w *Worker) count(it *item, c selector.Choice, be *selector.Backend) {
	w.counters.local[w.counters.conns+int(it.rule.ConnBase)+int(c.ClientZone)*w.snap.Layout.Stride+int(be.Zone)]++
}

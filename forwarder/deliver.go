package forwarder

import (
	"encoding/binary"

	"zonehop/forwarder/packet"
	"zonehop/forwarder/xsk"
	"zonehop/selector"
)

// forward sends a matched frame to the backend of its flow.
func (w *Worker) forward(b *binding, it *item) {
	be, reason := w.track(it)
	if reason != ReasonNone {
		w.drop(b, it, reason)
		return
	}
	if it.kind == kindFirst {
		w.record(it, be.Ref, false)
	}
	d := &be.Delivery[it.rule.Family]
	if reason := undeliverable(d); reason != ReasonNone {
		w.drop(b, it, reason)
		return
	}
	if d.VLAN != 0 && d.VLAN != vlanOf(it) {
		w.drop(b, it, ReasonOtherVLAN)
		return
	}
	// A frame sent back to where it came from circles until its TTL ends,
	// unless that machine is both the client and the backend.
	if binary.BigEndian.Uint64(d.Header[:8])>>16 == it.SrcMAC && it.Src != be.Addr[it.rule.Family] {
		w.drop(b, it, ReasonLoop)
		return
	}
	if len(it.frame) > w.ports[d.Port].maxFrame+4*int(it.VLANs) {
		w.tooBig(b, it, int(d.Port))
		return
	}
	if it.rule.DecrementTTL {
		packet.DecrementTTL(it.frame, &it.Parsed)
	}
	if d.Len == 12 { // layer 2; spares a call for each frame
		*(*[12]byte)(it.frame) = *(*[12]byte)(d.Header[:])
	} else {
		copy(it.frame, d.Header[:d.Len])
	}
	if w.snap.OwnZone != 0 {
		zone := w.snap.ClientZone(it.client())
		w.counters.local[w.counters.zones+int(zone)*w.snap.Layout.Stride+int(be.Zone)] += uint64(len(it.frame))
	}
	w.leave(b, it, int(d.Port), it.rule.PairBase+uint32(be.Pos))
}

// undeliverable says why nothing can be sent to a backend, or ReasonNone.
func undeliverable(d *selector.Delivery) Reason {
	switch d.State {
	case selector.Deliverable:
		return ReasonNone
	case selector.NotOnLink:
		return ReasonNotOnLink
	default:
		return ReasonNoNeighbour
	}
}

// vlanOf is the VLAN that a frame came in on, 0 for none. One with two tags is in
// none that a VLAN device of the host could be on.
func vlanOf(it *item) uint16 {
	if it.VLANs != 1 {
		return 0
	}
	return binary.BigEndian.Uint16(it.frame[ethernetLen:]) & 0xfff // IEEE 802.1Q: the low 12 bits of the tag
}

// leave stages a rewritten frame on the interface it leaves by: in place where
// the interface shares the frame's memory, by copy else.
func (w *Worker) leave(b *binding, it *item, iface int, pair uint32) {
	n := uint32(len(it.frame))
	out := b
	if iface != b.iface {
		out = w.byIface[iface]
	}
	if out != nil && out.umem == b.umem {
		if !w.stage(out, it) {
			w.drop(b, it, ReasonTXFull)
			return
		}
		w.counters.pair(pair, n)
		return
	}
	m := w.mailbox // our own queue of that interface, in memory that cannot be shared
	if out == nil {
		m = w.shared.Route.owners[iface].Load()
	}
	switch {
	case m == nil:
		w.drop(b, it, ReasonNoPort)
		return
	case !m.put(it.frame, iface, w.snap.Layout, pair, 0):
		w.drop(b, it, ReasonMailboxFull)
		return
	}
	w.counters.local[cCopied]++
	b.umem.Free(it.desc.Addr)
}

// stage puts a frame among those the port sends at the end of this pass.
func (w *Worker) stage(out *binding, it *item) bool {
	if out.room == 0 {
		return false
	}
	out.room--
	out.out = append(out.out, xsk.Desc{Addr: it.desc.Addr, Len: uint32(len(it.frame))})
	return true
}

// drop counts a frame and gives its memory back.
func (w *Worker) drop(b *binding, it *item, reason Reason) {
	w.counters.local[cDropped+int(reason)]++
	b.umem.Free(it.desc.Addr)
}

// send stages a frame that came by mailbox. What cannot be sent is dropped
// under the reason it would have had without the copy.
func (w *Worker) send(l *letter) {
	w.counters.local[cHandedOn]++
	out := w.byIface[l.iface]
	if out == nil {
		w.counters.local[cDropped+int(ReasonNoPort)]++
		return
	}
	addr, ok := out.umem.Alloc()
	if !ok || out.room == 0 {
		if ok {
			out.umem.Free(addr)
		}
		w.counters.local[cDropped+int(ReasonTXFull)]++
		return
	}
	var it item
	it.desc.Addr, it.desc.Len = addr, l.length
	it.frame = out.umem.Frame(it.desc)
	copy(it.frame, l.data[:l.length])
	w.stage(out, &it)
	switch {
	case l.layout == nil:
		w.counters.local[cOriginated+int(l.origin)]++
	case l.layout == w.counters.layout:
		w.counters.pair(l.pair, l.length)
	default:
		w.counters.foreignPair(l.layout, l.pair, l.length)
	}
}

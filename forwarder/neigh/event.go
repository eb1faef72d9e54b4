package neigh

import (
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// manyPrefixes is the number of gathered route changes from which on every
// target is looked up again, which is then cheaper than matching.
const manyPrefixes = 64

// applyEvents takes a batch of events into the state. Neighbour events carry
// all there is to know and take effect at once. Link and address events only
// ask for a new reading, which is small and cannot be out of step; route
// events are gathered until it is time to look up the targets they cover.
func (t *tracker) applyEvents(u update, now time.Time) {
	if u.lost {
		t.w.overruns.Add(1)
		t.readDirty = true
	}
	for i := range u.messages {
		m := &u.messages[i]
		switch m.Header.Type {
		case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
			t.applyNeighbour(m, now)
		case unix.RTM_NEWLINK, unix.RTM_DELLINK, unix.RTM_NEWADDR, unix.RTM_DELADDR:
			t.linksDirty = true
		case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
			if p, ok := routePrefix(m.Data); ok {
				t.rerouted = append(t.rerouted, p)
			}
		case unix.RTM_NEWRULE, unix.RTM_DELRULE, unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
			t.markAll()
		}
	}
	if len(t.rerouted) >= manyPrefixes {
		t.rerouted = t.rerouted[:0]
		t.markAll()
	}
}

func (t *tracker) applyNeighbour(m *syscall.NetlinkMessage, now time.Time) {
	if len(m.Data) < unix.SizeofNdMsg {
		return
	}
	event, err := netlink.NeighDeserialize(m.Data)
	if err != nil {
		return
	}
	key, entry, ok := newNeighbour(event)
	if !ok {
		return
	}
	if m.Header.Type == unix.RTM_DELNEIGH {
		delete(t.neighbours, key)
	} else {
		t.neighbours[key] = entry
	}
	if target := t.targetOf(key); target != nil {
		t.judge(target, now)
	}
}

// targetOf returns the target whose neighbour entry has the given key.
func (t *tracker) targetOf(key neighbourKey) *target {
	if target := t.targets[key.addr]; target != nil {
		return target
	}
	if key.addr.Is6() && key.addr.IsLinkLocalUnicast() {
		return t.targets[key.addr.WithZone(t.links.devices[key.index].name)]
	}
	return nil
}

// routePrefix returns the destination of a route message; ok is false for
// messages that are of no interest (cached routes) or broken.
func routePrefix(data []byte) (p netip.Prefix, ok bool) {
	if len(data) < unix.SizeofRtMsg {
		return p, false
	}
	msg := nl.DeserializeRtMsg(data)
	if msg.Flags&unix.RTM_F_CLONED != 0 {
		return p, false
	}
	var addr netip.Addr
	switch msg.Family {
	case unix.AF_INET:
		addr = netip.IPv4Unspecified()
	case unix.AF_INET6:
		addr = netip.IPv6Unspecified()
	default:
		return p, false
	}
	attrs, err := nl.ParseRouteAttr(data[unix.SizeofRtMsg:])
	if err != nil {
		return p, false
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.RTA_DST {
			if addr, ok = netip.AddrFromSlice(a.Value); !ok {
				return p, false
			}
		}
	}
	p = netip.PrefixFrom(addr, int(msg.Dst_len))
	return p, p.IsValid()
}

package appliance

import (
	"fmt"
	"net/netip"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/conntrack"
	"zonehop/forwarder/packet"
	"zonehop/selector"
)

// flows iterates over the flow table.
func (a *Appliance) flows() func(func(conntrack.Entry) bool) {
	return func(yield func(conntrack.Entry) bool) { a.table.All(conntrack.TickOf(a.clock()), yield) }
}

// Flows implements admin.Appliance. It may take seconds, in which backends come
// and go: each flow is told in the terms of the snapshot of its moment.
func (a *Appliance) Flows(filter *admin.FlowFilter, each func(*admin.Flow) bool) error {
	client, err := a.checkFilter(filter)
	if err != nil {
		return err
	}
	now := conntrack.TickOf(a.clock())
	n := 0
	for e := range a.flows() {
		snap := a.builder.Current()
		// What costs least first: describing a flow takes ten times as long.
		if filter.Client != "" && e.Src != client || filter.State != "" && e.State.String() != filter.State {
			continue
		}
		if filter.Backend != "" {
			if b := snap.Backend(selector.Ref(e.Backend)); b == nil || b.Name != filter.Backend {
				continue
			}
		}
		f := describe(snap, &e, now)
		if filter.Rule != "" && f.Rule != filter.Rule {
			continue
		}
		if n++; !each(&f) || n == filter.Limit {
			break
		}
	}
	return nil
}

// checkFilter refuses names that do not exist: no flow would be the wrong
// answer to a typing error. It returns the client as the flow table has it.
func (a *Appliance) checkFilter(f *admin.FlowFilter) (client [2]uint64, err error) {
	if f.Client != "" {
		addr, err := netip.ParseAddr(f.Client)
		if err != nil {
			return client, fmt.Errorf("client %q is not an IP address", f.Client)
		}
		client = packet.Addr(addr.WithZone("").Unmap())
	}
	snap := a.builder.Current()
	if f.Rule != "" && snap.Rule(f.Rule) == nil {
		return client, fmt.Errorf("rule or route %q: %w; see appliance status", f.Rule, admin.ErrNotFound)
	}
	if f.Backend == "" {
		return client, nil
	}
	for i := range snap.Backends { // removed ones too, as long as they drain
		if b := &snap.Backends[i]; b.Ref != 0 && b.Name == f.Backend {
			return client, nil
		}
	}
	return client, fmt.Errorf("backend %q: %w; see appliance backends", f.Backend, admin.ErrNotFound)
}

// describe turns a flow table entry into the terms of the configuration. The
// table knows the service; the rule is the one of that service that the
// destination belongs to.
func describe(snap *selector.Snapshot, e *conntrack.Entry, now conntrack.Tick) admin.Flow {
	f := admin.Flow{
		State: e.State.String(), AgeSec: seconds(now - e.Created), IdleSec: seconds(now - e.LastSeen),
		Packets: e.Packets, Bytes: e.Bytes, Client: packet.Netip(e.Src).String(),
	}
	if b := snap.Backend(selector.Ref(e.Backend)); b != nil {
		f.Backend = b.Name
	}
	switch e.Key.Kind() {
	case conntrack.KeyConnection:
		f.Ports = fmt.Sprintf("%d→%d", e.SrcPort(), e.DstPort())
		fallthrough
	case conntrack.Key3:
		f.Protocol = protocolName(e.Proto())
		fallthrough
	case conntrack.Key2:
		f.Destination = packet.Netip(e.Dst).String()
	}
	if f.Protocol == "" {
		f.Protocol = "any"
	}
	for i := range snap.Rules {
		r := &snap.Rules[i]
		if r.Service.ID == e.Service() && takes(snap, r, e) {
			f.Rule = r.Name
			break
		}
	}
	return f
}

// takes reports whether a rule is the one that made a flow table entry. Of a
// symmetric route either end may be the destination.
func takes(snap *selector.Snapshot, r *selector.Rule, e *conntrack.Entry) bool {
	if e.Key.Kind() == conntrack.Key1 {
		return true // the key has no destination: any rule of the service
	}
	if v := snap.VIP(e.Dst); v != nil {
		return v.Rule(e.Proto(), e.DstPort(), e.Key.Kind() == conntrack.KeyConnection) == r
	}
	for port := range snap.Ports {
		if snap.Route(e.Src, e.Dst, e.Proto(), port) == r || r.Symmetric && snap.Route(e.Dst, e.Src, e.Proto(), port) == r {
			return true
		}
	}
	return false
}

// seconds never gives less than none: entries are written while the table is
// read, and later than the moment that ages are counted from.
func seconds(t conntrack.Tick) float64 {
	if int32(t) < 0 {
		return 0
	}
	return t.Span().Seconds()
}

func protocolName(p uint8) string {
	switch p {
	case packet.ProtoTCP:
		return "tcp"
	case packet.ProtoUDP:
		return "udp"
	case packet.ProtoICMP:
		return "icmp"
	case packet.ProtoICMPv6:
		return "icmpv6"
	case packet.ProtoSCTP:
		return "sctp"
	}
	return fmt.Sprint(p)
}

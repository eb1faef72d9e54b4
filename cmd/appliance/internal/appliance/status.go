package appliance

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/forwarder"
	"zonehop/forwarder/packet"
	"zonehop/selector"
)

// Status implements admin.Appliance.
func (a *Appliance) Status() admin.Status {
	snap := a.builder.Current()
	totals := a.supervisor.Totals()
	interfaces := a.supervisor.Status()
	t := a.table.Stats()
	s := admin.Status{
		Version: a.version, UptimeSec: time.Since(a.started).Seconds(),
		Generation: snap.Generation, PublishMicros: snap.Took.Microseconds(),
		FlowTable: admin.FlowTable{
			Capacity: t.Lines, Used: int(t.Used), Unconfirmed: int(t.Unconfirmed), Confirmed: int(t.Confirmed), Closing: int(t.Closing),
			RejectedQuota: t.RejectedQuota, RejectedFull: t.RejectedFull,
		},
		Accounting: accounts(totals, interfaces, a.supervisor.Retired()),
		Interfaces: make([]admin.Interface, 0, len(interfaces)),
	}
	for _, i := range interfaces {
		s.Interfaces = append(s.Interfaces, interfaceStatus(&i))
	}
	for i := range snap.Rules {
		s.Rules = append(s.Rules, a.ruleStatus(snap, &snap.Rules[i], totals.Pairs))
	}
	for l, n := range totals.Pairs {
		s.Pairs = append(s.Pairs, admin.PairCount{Rule: l.Rule, Backend: l.Backend, Packets: n.Packets, Bytes: n.Bytes})
	}
	slices.SortFunc(s.Pairs, func(x, y admin.PairCount) int {
		return cmp.Or(cmp.Compare(x.Rule, y.Rule), cmp.Compare(x.Backend, y.Backend))
	})
	for l, n := range totals.Conns {
		s.Conns = append(s.Conns, admin.NewConnection{Rule: l.Rule, ClientZone: l.ClientZone, BackendZone: l.BackendZone, Connections: n})
	}
	slices.SortFunc(s.Conns, func(x, y admin.NewConnection) int {
		return cmp.Or(cmp.Compare(x.Rule, y.Rule), cmp.Compare(x.ClientZone, y.ClientZone), cmp.Compare(x.BackendZone, y.BackendZone))
	})
	own := a.config.Load().Zone
	for l, n := range totals.Zones {
		s.Zones = append(s.Zones, admin.ZoneBytes{ClientZone: l.ClientZone, BackendZone: l.BackendZone, Bytes: n})
		// Between two machines of one zone, by way of another: the detour is
		// the appliance's doing.
		if l.ClientZone != "" && l.ClientZone == l.BackendZone && l.ClientZone != own {
			s.DetourBytes += n
		}
	}
	slices.SortFunc(s.Zones, func(x, y admin.ZoneBytes) int {
		return cmp.Or(cmp.Compare(x.ClientZone, y.ClientZone), cmp.Compare(x.BackendZone, y.BackendZone))
	})
	a.claims.status(&s, totals.MissedClaims)
	return s
}

func interfaceStatus(i *forwarder.InterfaceStatus) admin.Interface {
	out := admin.Interface{Name: i.Name, Mode: i.Mode, Why: i.Why, Up: i.Up, Problem: text(i.Problem), Queues: make([]admin.Queue, 0, len(i.Queues))}
	for _, q := range i.Queues {
		c := &q.Counters
		out.Queues = append(out.Queues, admin.Queue{
			Queue: q.Queue, Worker: q.Worker, Bound: q.Bound, Problem: text(q.Problem),
			Fill: q.Census.Fill, RX: q.Census.RX, TX: q.Census.TX, Free: q.Memory.Free, Frames: q.Memory.Total(),
			Received: c.Received, Redirected: q.Program.Redirected, NoSocket: q.Program.NoSocket,
			RXDropped: c.RXDropped, RXRingFull: c.RXRingFull, FillEmpty: c.FillEmpty, TXInvalid: c.TXInvalid,
			WakeupsSent: c.WakeupsSent, WakeupsSaved: c.WakeupsSaved,
			ProbesReturned: q.Program.Returned,
		})
	}
	return out
}

func (a *Appliance) ruleStatus(snap *selector.Snapshot, r *selector.Rule, pairs map[forwarder.PairLabel]forwarder.PairTotals) admin.Rule {
	out := admin.Rule{Name: r.Name, Kind: "forwardingRule", BackendService: r.Service.Name, Match: a.match(r)}
	if r.Route {
		out.Kind = "route"
	}
	if addr := r.Address(); addr.IsValid() {
		for i := range snap.Ports {
			out.Announced = out.Announced || snap.Answers(packet.Addr(addr), i)
		}
	}
	for l, n := range pairs {
		if l.Rule == r.Name {
			out.Packets += n.Packets
			out.Bytes += n.Bytes
		}
	}
	out.Problem = trouble(snap, r)
	return out
}

// match says in the configuration's words what a rule takes.
func (a *Appliance) match(r *selector.Rule) string {
	c := a.config.Load()
	for i := range c.ForwardingRules {
		if f := &c.ForwardingRules[i]; f.Name == r.Name {
			ports := "all ports"
			if len(f.Ports) > 0 {
				ports = fmt.Sprint(f.Ports)
			}
			return fmt.Sprintf("%s %s %s", f.IPAddress, f.IPProtocol, ports)
		}
	}
	for i := range c.Routes {
		if f := &c.Routes[i]; f.Name == r.Name {
			match := "to " + f.DestRange.String()
			if f.SrcRange.IsValid() {
				match += " from " + f.SrcRange.String()
			}
			return match
		}
	}
	return ""
}

// trouble says why a rule cannot do its work, or nothing.
func trouble(snap *selector.Snapshot, r *selector.Rule) string {
	listed, deliverable := 0, 0
	reason := ""
	for i := range snap.Backends {
		b := &snap.Backends[i]
		if b.Ref == 0 || b.Service != r.Service.ID || b.Flags[r.Family]&selector.FlagPresent == 0 || b.Flags[r.Family]&selector.FlagRemoved != 0 {
			continue
		}
		listed++
		if b.Delivery[r.Family].State == selector.Deliverable {
			deliverable++
		} else {
			reason = b.Delivery[r.Family].State.String()
		}
	}
	switch {
	case listed == 0:
		return "the service has no backend with an address of this family"
	case deliverable == 0:
		return "no backend is deliverable: " + reason
	}
	if kind, settled := snap.Serving(r.Service, r.Family); settled {
		return servingNews[kind].problem
	}
	return ""
}

// accounting adds up every frame.
func (a *Appliance) accounting() admin.Accounting {
	return accounts(a.supervisor.Totals(), a.supervisor.Status(), a.supervisor.Retired())
}

func accounts(t forwarder.Totals, interfaces []forwarder.InterfaceStatus, retired forwarder.QueueStatus) admin.Accounting {
	acc := admin.Accounting{
		Received: t.Received, Forwarded: t.Forwarded, Held: t.Held, Completed: t.Completed, Abandoned: t.Abandoned,
		Copied: t.Copied, MidFlow: t.MidFlowMisses,
		Answered: make(map[string]uint64), Dropped: make(map[string]uint64), Originated: make(map[string]uint64),
	}
	for k, n := range t.Answered {
		acc.Answered[forwarder.AnswerKind(k).String()] = n
	}
	for k, n := range t.Originated {
		acc.Originated[forwarder.OriginKind(k).String()] = n
	}
	for k, n := range t.Dropped {
		if r := forwarder.Reason(k); r.Used() {
			acc.Dropped[r.String()] = n
		}
	}
	var onRX uint64
	for _, i := range append(interfaces, forwarder.InterfaceStatus{Queues: []forwarder.QueueStatus{retired}}) {
		acc.Redirected += i.Unused.Redirected
		acc.NoSocket += i.Unused.NoSocket
		for _, q := range i.Queues {
			acc.Redirected += q.Program.Redirected
			acc.NoSocket += q.Program.NoSocket
			acc.RXDropped += q.Counters.RXDropped
			acc.RXRingFull += q.Counters.RXRingFull
			acc.Invalid += q.Counters.TXInvalid
			acc.InFlight += uint64(q.Census.TX)
			onRX += uint64(q.Census.RX)
		}
	}
	acc.Judge(onRX)
	return acc
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

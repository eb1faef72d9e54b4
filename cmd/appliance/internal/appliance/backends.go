package appliance

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/config"
	"zonehop/conntrack"
	"zonehop/forwarder/packet"
	"zonehop/probe"
	"zonehop/selector"
)

// Backends implements admin.Appliance. A backend with two addresses has one
// line for each.
func (a *Appliance) Backends() []admin.Backend {
	snap := a.builder.Current()
	view := a.view.Load()
	flows := make(map[selector.Ref]int)
	for e := range a.flows() {
		flows[selector.Ref(e.Backend)]++
	}
	type volume struct{ packets, bytes uint64 }
	sent := make(map[[2]string]volume) // by service and backend
	services := make(map[string]string)
	for i := range snap.Rules {
		services[snap.Rules[i].Name] = snap.Rules[i].Service.Name
	}
	for l, n := range a.supervisor.Totals().Pairs {
		k := [2]string{services[l.Rule], l.Backend}
		v := sent[k]
		sent[k] = volume{v.packets + n.Packets, v.bytes + n.Bytes}
	}
	names := make(map[uint16]string)
	for _, s := range snap.Services {
		names[s.ID] = s.Name
	}
	weights := a.weightTable()
	out := []admin.Backend{}
	for i := range snap.Backends {
		b := &snap.Backends[i]
		if b.Ref == 0 {
			continue
		}
		for f := range b.Flags {
			flags := b.Flags[f]
			if flags&selector.FlagPresent == 0 {
				continue
			}
			addr := packet.Netip(b.Addr[f])
			row := admin.Backend{
				Name: b.Name, Service: names[b.Service], Zone: zoneName(snap, b.Zone), Address: addr.String(),
				Failover: flags&selector.FlagFailover != 0, Weight: int(b.Weight),
				Health:      probe.State(b.Health(selector.Family(f))).String(),
				Deliverable: b.Delivery[f].State == selector.Deliverable,
				Drain:       flags&selector.FlagDrained != 0, Removed: flags&selector.FlagRemoved != 0,
				Flows: flows[b.Ref], Packets: sent[[2]string{names[b.Service], b.Name}].packets, Bytes: sent[[2]string{names[b.Service], b.Name}].bytes,
			}
			row.VLAN = int(b.Delivery[f].VLAN)
			weights.describe(&row, selector.Family(f))
			if until, draining := b.DrainsUntil(selector.Family(f)); draining {
				left := max(time.Duration(until-a.clock()).Seconds(), 0)
				row.DrainLeftSec = &left
			}
			if !row.Deliverable {
				row.Reason = b.Delivery[f].State.String()
				if t := view.Targets[addr]; t.Reason != "" {
					row.Reason += ": " + t.Reason
				}
			}
			out = append(out, row)
		}
	}
	return out
}

func zoneName(snap *selector.Snapshot, zone uint16) string {
	if zone == 0 {
		return ""
	}
	return snap.Zones[zone-1]
}

// Health implements admin.Appliance.
func (a *Appliance) Health() admin.Health {
	h := admin.Health{Backends: []admin.BackendHealth{}}
	h.Sources, h.Composites = a.aggregatedHealth()
	members := *a.members.Load()
	now := time.Now()
	for _, st := range a.pool.States() {
		var transitions []admin.Transition
		for _, t := range a.pool.History(st.Target.Key) {
			transitions = append(transitions, admin.Transition{
				At: stamp(t.At), From: t.From.String(), To: t.To.String(), Text: t.Cause, LatencyMs: millis(t.Latency),
			})
		}
		for _, m := range members[st.Target.Key] {
			h.Backends = append(h.Backends, admin.BackendHealth{
				Backend: m.backend, Service: m.service, Check: st.Target.Key.Check, Address: st.Target.Addr.String(), RuleAddress: ruleText(st.Target.Key),
				State: st.State.String(), Text: st.Last.Text, LatencyMs: float64(st.Last.Latency.Microseconds()) / 1000,
				InRow: max(st.Successes, st.Failures), Successes: st.Successes, Failures: st.Failures, NextSec: max(st.Next.Sub(now).Seconds(), 0), Transitions: transitions,
			})
		}
	}
	return h
}

// SetDrain implements admin.Appliance.
func (a *Appliance) SetDrain(backend string, on bool) error {
	name := backend
	if service, rest, ok := strings.Cut(backend, "/"); ok && a.hasService(service) {
		if _, err := netip.ParseAddr(rest); err != nil {
			name = rest
		}
	}
	if a.builder.SetDrain(name, on) == 0 {
		return fmt.Errorf("backend %q: %w; see appliance backends", backend, admin.ErrNotFound)
	}
	a.publish("drain")
	return a.settle()
}

func (a *Appliance) hasService(name string) bool {
	for _, s := range a.builder.Current().Services {
		if s.Name == name {
			return true
		}
	}
	return false
}

// SetAnnounce implements admin.Appliance.
func (a *Appliance) SetAnnounce(rule string, on bool) error {
	if a.builder.SetAnnounce(rule, on) == 0 {
		if rule == "" {
			return fmt.Errorf("no rule or route has announce: STANDBY: %w", admin.ErrNotFound)
		}
		return fmt.Errorf("rule or route %q with announce: STANDBY: %w; see appliance status", rule, admin.ErrNotFound)
	}
	a.publish("announce")
	return a.settle()
}

// Explain implements admin.Appliance.
func (a *Appliance) Explain(q admin.ExplainRequest) (admin.Explanation, error) {
	snap := a.builder.Current()
	r := snap.Rule(q.Rule)
	if r == nil {
		return admin.Explanation{}, fmt.Errorf("rule or route %q: %w; see appliance status", q.Rule, admin.ErrNotFound)
	}
	Complete(&q.Tuple, r, a.config.Load())
	tuple, err := ParseTuple(q.Tuple)
	if err != nil {
		return admin.Explanation{}, err
	}
	e, err := snap.Explain(q.Rule, tuple)
	if err != nil {
		return admin.Explanation{}, err
	}
	out := admin.Explanation{Explanation: e}
	src, dst, sport, dport, proto, kind := r.TrackingKey(&tuple)
	key := conntrack.Key{Src: src, Dst: dst, Meta: conntrack.MakeMeta(sport, dport, proto, conntrack.Kind(kind-selector.Shape5), r.Service.ID)}
	now := conntrack.TickOf(a.clock())
	if e, ok := a.table.Entry(&key, now); ok {
		f := describe(snap, &e, now)
		out.Tracked = &f
		out.IfBackendFails, err = a.foresee(r, &tuple, &e)
	}
	return out, err
}

// ParseTuple turns the text form of a tuple into the selector's. A destination
// left out stays zero.
func ParseTuple(t admin.Tuple) (selector.Tuple, error) {
	out := selector.Tuple{SrcPort: t.SrcPort, DstPort: t.DstPort, Proto: t.Protocol}
	out.HasPorts = t.Protocol == packet.ProtoTCP || t.Protocol == packet.ProtoUDP || t.Protocol == packet.ProtoSCTP
	client, err := netip.ParseAddr(t.Client)
	if err != nil {
		return out, fmt.Errorf("client %q is not an IP address", t.Client)
	}
	out.Src = packet.Addr(client)
	if t.Dst == "" {
		return out, nil
	}
	dst, err := netip.ParseAddr(t.Dst)
	if err != nil {
		return out, fmt.Errorf("destination %q is not an IP address", t.Dst)
	}
	out.Dst = packet.Addr(dst)
	return out, nil
}

// Complete fills in what a tuple leaves out with what the rule or route is for: its address, its
// protocol or TCP, its first port.
func Complete(t *admin.Tuple, r *selector.Rule, c *config.Config) {
	if t.Dst == "" && !r.Route {
		t.Dst = r.Address().String()
	}
	if t.Protocol == 0 {
		if t.Protocol = r.Protocol; t.Protocol == 0 {
			t.Protocol = packet.ProtoTCP
		}
	}
	for i := range c.ForwardingRules {
		if f := &c.ForwardingRules[i]; t.DstPort == 0 && f.Name == r.Name && len(f.Ports) > 0 {
			t.DstPort = f.Ports[0].First
		}
	}
}

package appliance

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"zonehop/config"
	"zonehop/forwarder"
	"zonehop/forwarder/neigh"
	"zonehop/forwarder/packet"
	"zonehop/probe"
	"zonehop/selector"
)

// linksChanged is why a snapshot is published after links or neighbours changed.
const linksChanged = "links or neighbours changed"

// publish makes everything recorded in the builder the snapshot in force, and
// brings the classifier, multicast memberships and announcements in line.
func (a *Appliance) publish(why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.publishLocked(why)
}

func (a *Appliance) publishLocked(why string) {
	before := a.builder.Current()
	snap := a.builder.Publish(a.clock())
	if snap == before {
		return
	}
	a.followDrainsLocked(snap)
	a.serving.follow(a.log, snap)
	a.events.PublishSeconds.Observe(snap.Took.Seconds())
	a.log.Debug("snapshot published", zap.Uint64("generation", snap.Generation), zap.Duration("took", snap.Took), zap.String("because", why))

	take := classification(snap, a.view.Load().Own)
	fresh := newlyAnswered(a.taken.Answers, take.Answers)
	moved := !slices.EqualFunc(a.taken.Answers, take.Answers, slices.Equal[[]netip.Addr])
	a.taken = take
	a.supervisor.SetClassification(take)
	if why == linksChanged || moved {
		a.groups.set(groupsOf(snap, take))
	}
	if moved {
		a.claims.look(take.Answers)
	}
	a.announcer.announce(snap, take.Answers, fresh)
}

// classification lists what a snapshot takes from the kernel.
func classification(snap *selector.Snapshot, own []netip.Addr) forwarder.Classification {
	c := forwarder.Classification{Own: own, Routes: snap.DestRanges, Answers: make([][]netip.Addr, len(snap.Ports))}
	for _, v := range snap.VIPs {
		c.Rules = append(c.Rules, packet.Netip(v.Addr))
	}
	for _, list := range [][]*selector.VIP{snap.VIPs, snap.NextHops} {
		for _, v := range list {
			addr := packet.Netip(v.Addr)
			for i := range snap.Ports {
				if snap.Answers(v.Addr, i) && !slices.Contains(c.Answers[i], addr) {
					c.Answers[i] = append(c.Answers[i], addr)
				}
			}
		}
	}
	return c
}

// newlyAnswered lists, by port, the addresses that are answered for now and
// were not before.
func newlyAnswered(before, now [][]netip.Addr) [][]netip.Addr {
	fresh := make([][]netip.Addr, len(now))
	for i := range now {
		for _, addr := range now[i] {
			if i >= len(before) || !slices.Contains(before[i], addr) {
				fresh[i] = append(fresh[i], addr)
			}
		}
	}
	return fresh
}

// groupsOf lists the addresses answered for by interface index.
func groupsOf(snap *selector.Snapshot, take forwarder.Classification) map[int][]netip.Addr {
	out := make(map[int][]netip.Addr)
	for i, p := range snap.Ports {
		if p.Index != 0 {
			out[p.Index] = take.Answers[i]
		}
	}
	return out
}

// onView takes what the kernel knows of links and neighbours into the snapshot.
func (a *Appliance) onView(v neigh.View) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.view.Swap(&v)
	ports := make([]selector.Port, len(v.Links))
	links := make([]forwarder.Link, len(a.slots))
	slot := make(map[int]int) // interface index to port
	for i, l := range v.Links {
		if i >= len(a.slots) || l.Name != a.slots[i] || isEmptySlot(l.Name) {
			continue // a reload has changed the interfaces: the next view has them
		}
		ports[i] = selector.Port{Name: l.Name, Index: l.Index, MAC: l.MAC, Addrs: l.Addrs, MTU: l.MTU, Up: l.Up}
		links[i] = forwarder.Link{Index: l.Index, Up: l.Up, MAC: l.MAC, Queues: l.RXQueues, MTU: l.MTU}
		if l.Present() {
			slot[l.Index] = i
		}
		if i < len(old.Links) && old.Links[i].Up != l.Up || i >= len(old.Links) && !l.Up {
			a.logLink(l)
		}
	}
	a.builder.SetPorts(ports)
	a.supervisor.SetLinks(links)
	for addr, t := range v.Targets {
		a.builder.SetDelivery(addr, deliveryOf(t, v.Links, slot))
		if was, known := old.Targets[addr]; !known || was.State != t.State {
			a.logTarget(addr, t)
		}
	}
	a.publishLocked(linksChanged)
	close(a.viewed)
	a.viewed = make(chan struct{})
}

// deliveryOf is how a frame reaches a target: layer 2, the target's MAC and
// the outgoing interface's own.
func deliveryOf(t neigh.Target, links []neigh.Link, slot map[int]int) selector.Delivery {
	d := selector.Delivery{Port: -1}
	switch t.State {
	case neigh.Deliverable:
		port, known := slot[t.Interface]
		if !known {
			d.State = selector.NoRoute
			return d
		}
		d.State, d.Port, d.Len, d.VLAN = selector.Deliverable, int16(port), 12, t.VLAN
		copy(d.Header[:6], t.MAC[:])
		copy(d.Header[6:12], links[port].MAC[:])
	case neigh.NoNeighbour:
		d.State = selector.NoNeighbour
	case neigh.NotOnLink:
		d.State = selector.NotOnLink
	default:
		d.State = selector.NoRoute
	}
	return d
}

func (a *Appliance) logLink(l neigh.Link) {
	switch {
	case !l.Present():
		a.log.Warn("interface is absent; it is used as soon as it appears", zap.String("interface", l.Name))
	case !l.AdminUp:
		a.log.Warn("interface is down; bring it up with: ip link set "+l.Name+" up", zap.String("interface", l.Name))
	case !l.Carrier:
		a.log.Warn("interface has no carrier", zap.String("interface", l.Name))
	default:
		a.log.Info("interface is up", zap.String("interface", l.Name))
	}
}

func (a *Appliance) logTarget(addr netip.Addr, t neigh.Target) {
	if t.State == neigh.Deliverable {
		vlan := zap.Skip()
		if t.VLAN != 0 {
			vlan = zap.Uint16("onlyInVLAN", t.VLAN)
		}
		a.log.Info("backend address is deliverable", zap.Stringer("address", addr), zap.String("mac", macString(t.MAC)), vlan)
		return
	}
	log := a.log.Warn
	if !a.ready {
		log = a.log.Debug // addresses are being resolved; see sayUndeliverable
	}
	log("backend address is not deliverable", zap.Stringer("address", addr), zap.Stringer("state", t.State), zap.String("reason", t.Reason))
}

// sayUndeliverable warns of what is not deliverable still, when there was time
// enough to resolve addresses.
func (a *Appliance) sayUndeliverable() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = true
	for addr, t := range a.view.Load().Targets {
		if t.State != neigh.Deliverable {
			a.logTarget(addr, t)
		}
	}
}

// onTransitions takes verdicts into the snapshot: one publish for all that the
// pool gathered.
func (a *Appliance) onTransitions(list []probe.Transition) {
	a.mu.Lock() // against a reload, which reads verdicts too: the later one has to win
	defer a.mu.Unlock()
	members := *a.members.Load()
	checks := a.config.Load().HealthChecks
	a.tellBackends(list, members)
	a.tracker.Update(a.transitionVerdicts(list, members))
	a.applyWeightsLocked()
	for _, t := range list {
		i := slices.IndexFunc(checks, func(h config.HealthCheck) bool { return h.Name == t.Key.Check })
		for _, m := range members[t.Key] {
			a.builder.SetHealth(m.service, m.backend, m.family, a.healthOf(&m, t.To))
			if i < 0 {
				continue
			}
			log := a.log.Debug
			if checks[i].LogTransitions {
				log = a.log.Info
			}
			log("backend health changed",
				zap.String("protocol", string(checks[i].Type)), zap.Uint16("port", checks[i].Port),
				zap.String("service", m.service), zap.String("backend", m.backend),
				zap.Stringer("address", t.Key.Backend), ruleField(t.Key), zap.String("check", t.Key.Check),
				zap.Stringer("healthState", t.To), zap.Stringer("previousHealthState", t.From),
				zap.String("cause", t.Cause), zap.Duration("latency", t.Latency))
		}
	}
	a.publishLocked("health changed")
}

func (a *Appliance) onOutage(o probe.Outage) {
	a.events.Outages.Inc()
	a.log.Error("all healthy backends turned unhealthy together: this host's own network may be the cause; last-resort rules keep traffic flowing",
		zap.Int("failed", o.Failed), zap.Int("probed", o.Targets), zap.Duration("within", o.Window))
}

// onForwarderEvent logs what the supervisor did.
func (a *Appliance) onForwarderEvent(e forwarder.Event) {
	fields := []zap.Field{zap.String("interface", e.Interface)}
	if e.Queue >= 0 {
		fields = append(fields, zap.Int("queue", e.Queue))
	}
	if e.Detail != "" {
		fields = append(fields, zap.String("detail", e.Detail))
	}
	switch e.Kind {
	case forwarder.EventAttached:
		a.log.Info("interface attached", fields...)
	case forwarder.EventBound:
		a.log.Info("queue bound", fields...)
		a.announcer.again()
	case forwarder.EventRecovered:
		a.log.Info("recovered", fields...)
		a.announcer.again()
	case forwarder.EventDetached:
		a.log.Warn("interface detached", fields...)
	case forwarder.EventStalled:
		a.log.Warn("queue stands still and is bound anew", fields...)
	case forwarder.EventRefused:
		a.log.Error("the kernel refused; trying again while everything else goes on", append(fields, zap.Error(e.Err))...)
	}
}

// logTotals leaves the final accounts in the log.
func (a *Appliance) logTotals() {
	acc := a.accounting()
	dropped := maps.Clone(acc.Dropped)
	maps.DeleteFunc(dropped, func(_ string, n uint64) bool { return n == 0 })
	a.log.Info("stopped forwarding", zap.Uint64("received", acc.Received), zap.Uint64("forwarded", acc.Forwarded),
		zap.Any("dropped", dropped), zap.Uint64("abandoned", acc.Abandoned), zap.Bool("balanced", acc.Balanced))
}

func macString(m [6]byte) string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

func macWord(m uint64) string {
	return macString([6]byte{byte(m >> 40), byte(m >> 32), byte(m >> 24), byte(m >> 16), byte(m >> 8), byte(m)})
}

package appliance

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"zonehop/config"
	"zonehop/forwarder/neigh"
	"zonehop/forwarder/xsk"
	"zonehop/probe"
	"zonehop/selector"
)

// probed is a backend of a service in one address family, as the selector
// names it.
type probed struct {
	service, backend string
	family           selector.Family
	// keys are all targets whose verdicts make the backend's: one, unless it is
	// probed as several rules' addresses.
	keys []probe.Key
}

// probeTargets maps services to what is probed. Backends that several services
// share with one check are probed once; members says who hears the verdict.
//
// With probeTarget RULE_ADDRESS a backend has one target for each address of the
// rules that use the service, in the backend's family. A family without such a
// rule, which only routes use, is probed at the backend's own address.
func probeTargets(c *config.Config) (targets []probe.Target, members map[probe.Key][]probed) {
	weighed := asksWeight(c)
	checks := make(map[string]*probe.Check, len(c.HealthChecks))
	asRule := make(map[string]bool)
	for i := range c.HealthChecks {
		h := &c.HealthChecks[i]
		asRule[h.Name] = h.ProbeTarget == config.ProbeRuleAddress
		checks[h.Name] = &probe.Check{
			Name: h.Name, Type: probe.Type(h.Type), Interval: h.CheckInterval, Timeout: h.Timeout,
			HealthyThreshold: h.HealthyThreshold, UnhealthyThreshold: h.UnhealthyThreshold,
			Port: h.Port, ProxyV1: h.ProxyHeader == config.ProxyV1, Request: h.Request, Response: h.Response,
			Host: h.Host, RequestPath: h.RequestPath, GRPCServiceName: h.GRPCServiceName, ReportWeight: weighed[h.Name],
		}
	}
	members = make(map[probe.Key][]probed)
	for i := range c.BackendServices {
		s := &c.BackendServices[i]
		var rules [2][]netip.Addr
		if asRule[s.HealthCheck] {
			rules = ruleAddresses(c, s.Name)
		}
		for j := range s.Backends {
			b := &s.Backends[j]
			for _, a := range b.Addresses() {
				m := probed{service: s.Name, backend: b.Name, family: familyOf(a)}
				list := targetsOf(a, rules[m.family], checks[s.HealthCheck])
				for _, t := range list {
					m.keys = append(m.keys, t.Key)
				}
				for _, t := range list {
					if members[t.Key] == nil {
						targets = append(targets, t)
					}
					members[t.Key] = append(members[t.Key], m)
				}
			}
		}
	}
	return targets, members
}

// follow says of each new target which one of before it comes after: the same backend of the same
// service at the same address, probed by another check or as another rule's address. So a reload that
// changes how backends are probed does not make them UNKNOWN, which would drop their traffic or send it
// elsewhere until the new probes have a verdict. Of several it is the one in the worst state.
func follow(targets []probe.Target, members, before map[probe.Key][]probed, state func(probe.Key) probe.State) {
	type member struct {
		service, backend string
		address          netip.Addr
	}
	was := make(map[member][]probe.Key)
	for key, list := range before {
		for _, m := range list {
			of := member{m.service, m.backend, key.Backend}
			was[of] = append(was[of], key)
		}
	}
	for i := range targets {
		t := &targets[i]
		if before[t.Key] != nil {
			continue
		}
		for _, m := range members[t.Key] {
			for _, key := range was[member{m.service, m.backend, t.Key.Backend}] {
				if t.After == (probe.Key{}) || state(key) == worst([]probe.Key{key, t.After}, state) {
					t.After = key
				}
			}
		}
	}
}

// targetsOf are the targets of a backend's address: itself, or it as each rule's.
func targetsOf(backend netip.Addr, rules []netip.Addr, c *probe.Check) []probe.Target {
	if len(rules) == 0 {
		return []probe.Target{probe.NewTarget(backend, c)}
	}
	var list []probe.Target
	for _, rule := range rules {
		list = append(list, probe.NewRuleTarget(backend, rule, c))
	}
	return list
}

// ruleAddresses lists the addresses of the forwarding rules that use a service, by
// family, each once.
func ruleAddresses(c *config.Config, service string) (out [2][]netip.Addr) {
	for i := range c.ForwardingRules {
		r := &c.ForwardingRules[i]
		f := familyOf(r.IPAddress)
		if r.BackendService == service && !slices.Contains(out[f], r.IPAddress) {
			out[f] = append(out[f], r.IPAddress)
		}
	}
	return out
}

// healthOf is the health of a backend of which one target has the state now: it is
// healthy if it is so as every address it is probed as, and unhealthy if it is so
// as one of them.
func (a *Appliance) healthOf(m *probed, now probe.State) selector.Health {
	if len(m.keys) > 1 {
		now = worst(m.keys, a.stateOf)
	}
	return selector.Health(now)
}

// stateOf is the state of a target; UNKNOWN if it left in a reload that is under way.
func (a *Appliance) stateOf(k probe.Key) probe.State {
	st, ok := a.pool.State(k)
	if !ok {
		return probe.Unknown
	}
	return st.State
}

// worst is UNHEALTHY if one is, else UNKNOWN if one is, else HEALTHY.
func worst(keys []probe.Key, state func(probe.Key) probe.State) probe.State {
	out := probe.Healthy
	for _, k := range keys {
		switch state(k) {
		case probe.Unhealthy:
			return probe.Unhealthy
		case probe.Unknown:
			out = probe.Unknown
		}
	}
	return out
}

// asRules reports whether backends are probed as rules' addresses.
func asRules(c *config.Config) bool {
	return slices.ContainsFunc(c.BackendServices, func(s config.BackendService) bool {
		return slices.ContainsFunc(c.HealthChecks, func(h config.HealthCheck) bool {
			return h.Name == s.HealthCheck && h.ProbeTarget == config.ProbeRuleAddress
		})
	})
}

// checkProbes refuses a configuration whose probes the kernel cannot rewrite.
func (a *Appliance) checkProbes(c *config.Config) error {
	if asRules(c) && a.probes == nil {
		return fmt.Errorf("probeTarget RULE_ADDRESS: %w; use BACKEND_ADDRESS", xsk.ErrNoTCX)
	}
	return nil
}

// ruleText is the rule's address of a target; empty where it has none.
func ruleText(k probe.Key) string {
	if !k.Rule.IsValid() {
		return ""
	}
	return k.Rule.String()
}

// ruleField is that for the log.
func ruleField(k probe.Key) zap.Field {
	if !k.Rule.IsValid() {
		return zap.Skip()
	}
	return zap.Stringer("ruleAddress", k.Rule)
}

const (
	// timeWait is how long the kernel answers for a connection that it closed
	// (TCP_TIMEWAIT_LEN in net/tcp.h).
	timeWait = time.Minute
	// stray is how long after a probe its last packets may come.
	stray = time.Second
)

// controlProbe prepares the socket of a probe that is to reach the backend as a
// rule's address. Until it is known that the backend is on a segment of the
// appliance's interfaces, and which, the probe says nothing.
func (a *Appliance) controlProbe(t probe.Target, fd int) error {
	if !t.Key.Rule.IsValid() {
		return nil
	}
	to, known := a.view.Load().Targets[t.Key.Backend]
	if !known {
		return fmt.Errorf("%w: the way to the backend is not known yet", probe.ErrInconclusive)
	}
	if to.State == neigh.NotOnLink || to.State == neigh.NoRoute {
		// Its gateway would bring a packet for the rule's address back here.
		return errors.New(to.Reason)
	}
	life := t.Check.Timeout + stray
	if t.Check.Lingers() {
		life += timeWait
	}
	err := a.probes.Add(fd, xsk.Probe{
		Interface: to.Interface, Backend: t.Key.Backend, Rule: t.Key.Rule, Port: t.Addr.Port(), Life: life,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", probe.ErrInconclusive, err)
	}
	return nil
}

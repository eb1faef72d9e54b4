package appliance

import (
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/config"
	"zonehop/probe"
	"zonehop/probe/composite"
	"zonehop/selector"
)

// CompositeOptions maps a configuration to what the health of services and of the region is made of.
// Backends are counted by zone.
func CompositeOptions(c *config.Config) (composite.Options, error) {
	var o composite.Options
	for i := range c.BackendServices {
		s := composite.Service{Name: c.BackendServices[i].Name}
		for _, b := range c.BackendServices[i].Backends {
			e := composite.Backend{Name: b.Name, Group: b.Zone, Failover: b.Failover}
			for _, a := range b.Addresses() {
				e.Addresses[familyOf(a)] = a
			}
			s.Backends = append(s.Backends, e)
		}
		o.Services = append(o.Services, s)
	}
	policies := make(map[string]composite.Policy, len(c.HealthAggregationPolicies))
	for _, p := range c.HealthAggregationPolicies {
		share, err := selector.ParseRatio(p.HealthyPercentThreshold.String())
		if err != nil {
			return o, fmt.Errorf("health aggregation policy %s: %w", p.Name, err)
		}
		policies[p.Name] = composite.Policy{Name: p.Name, Percent: share, Min: p.MinHealthyThreshold}
	}
	for _, s := range c.HealthSources {
		o.Sources = append(o.Sources, composite.Source{
			Name: s.Name, Service: s.BackendService, Policy: policies[s.HealthAggregationPolicy], DryRun: s.DryRun,
		})
	}
	for _, h := range c.CompositeHealthChecks {
		o.Composites = append(o.Composites, composite.Composite{
			Name: h.Name, Sources: h.HealthSources, Destination: h.HealthDestination, DryRun: h.DryRun,
		})
	}
	return o, nil
}

// verdictsOf is what the pool knows of the members of services.
func (a *Appliance) verdictsOf(states []probe.Status, members map[probe.Key][]probed) (out []composite.Verdict) {
	for _, st := range states {
		for _, m := range members[st.Target.Key] {
			out = append(out, composite.Verdict{
				Service: m.service, Backend: m.backend, Family: m.family, State: a.healthOf(&m, st.State), Cause: st.Last.Text, At: st.Since,
			})
		}
	}
	return out
}

// transitionVerdicts is what transitions of targets mean for the members of services.
func (a *Appliance) transitionVerdicts(list []probe.Transition, members map[probe.Key][]probed) (out []composite.Verdict) {
	for _, t := range list {
		for _, m := range members[t.Key] {
			out = append(out, composite.Verdict{
				Service: m.service, Backend: m.backend, Family: m.family, State: a.healthOf(&m, t.To), Cause: t.Cause, At: t.At,
			})
		}
	}
	return out
}

// aggregatedHealth is the present state of sources and composites with their histories.
func (a *Appliance) aggregatedHealth() ([]admin.HealthSource, []admin.CompositeHealth) {
	report, rules := a.tracker.Report(), rulesOf(a.config.Load())
	sources := make([]admin.HealthSource, len(report.Sources))
	for i := range report.Sources {
		s := &report.Sources[i]
		sources[i] = sourceHealth(s, rules)
		sources[i].Transitions = transitionsOf(a.tracker.SourceHistory(s.Name))
	}
	composites := make([]admin.CompositeHealth, len(report.Composites))
	for i := range report.Composites {
		c := &report.Composites[i]
		composites[i] = compositeHealth(c)
		composites[i].Transitions = transitionsOf(a.tracker.CompositeHistory(c.Name))
	}
	return sources, composites
}

// tellBackends hands transitions of backends to those who watch, before what follows from them.
func (a *Appliance) tellBackends(list []probe.Transition, members map[probe.Key][]probed) {
	var events []admin.HealthEvent
	for _, t := range list {
		for _, m := range members[t.Key] {
			events = append(events, admin.HealthEvent{
				At: stamp(t.At), Kind: admin.KindBackend, Name: m.backend, BackendService: m.service,
				Address: t.Key.Backend.String(), RuleAddress: ruleText(t.Key), Check: t.Key.Check, HealthState: t.To.String(), PreviousHealthState: t.From.String(),
				Cause: t.Cause, LatencyMs: millis(t.Latency),
			})
		}
	}
	a.feed.publish(events, nil)
}

// onHealthChange takes what the tracker found to the log and to those who watch. It is called with
// the tracker locked.
func (a *Appliance) onHealthChange(c composite.Change) {
	rules := rulesOf(a.config.Load())
	state := admin.HealthUpdate{Sources: []admin.HealthSource{}, Composites: []admin.CompositeHealth{}}
	for i := range c.Report.Sources {
		state.Sources = append(state.Sources, sourceHealth(&c.Report.Sources[i], rules))
	}
	for i := range c.Report.Composites {
		state.Composites = append(state.Composites, compositeHealth(&c.Report.Composites[i]))
	}
	events := make([]admin.HealthEvent, len(c.Transitions))
	for i := range c.Transitions {
		events[i] = a.transitionEvent(&c.Transitions[i], rules)
	}
	a.feed.publish(events, &state)
}

// transitionEvent makes the event of a transition and logs it, with the fields that logs of composite
// health have and the state before.
func (a *Appliance) transitionEvent(t *composite.Transition, rules map[string][]string) admin.HealthEvent {
	e := admin.HealthEvent{
		At: stamp(t.At), Name: t.Name(), HealthState: t.To.String(), PreviousHealthState: t.From.String(), Cause: t.Cause,
	}
	log := a.log.Info
	if t.To == selector.Unhealthy {
		log = a.log.Warn
	}
	fields := []zap.Field{
		zap.String("name", e.Name), zap.String("location", a.config.Load().Region),
		zap.String("healthState", e.HealthState), zap.String("previousHealthState", e.PreviousHealthState), zap.String("cause", e.Cause),
	}
	if s := t.Source; s != nil {
		full := sourceHealth(s, rules)
		e.Kind, e.BackendService, e.DryRun, e.Counts, e.Sources = admin.KindSource, s.Service, s.DryRun, &full.EndpointCounts, full.Sources
		log("health source changed", append(fields, zap.Bool("dryRun", s.DryRun), zap.Any("sources", full.Sources),
			zap.Int("healthyEndpointCount", full.Healthy), zap.Int("endpointCount", full.EndpointCounts.Endpoints), zap.Int("requiredEndpointCount", s.Required))...)
		return e
	}
	full := compositeHealth(t.Composite)
	e.Kind, e.DryRun, e.HealthDestination, e.HealthSources = admin.KindComposite, full.DryRun, full.HealthDestination, full.HealthSources
	log("composite health check changed", append(fields, zap.Bool("dryRun", full.DryRun),
		zap.String("healthDestination", full.HealthDestination), zap.Any("healthSources", full.HealthSources))...)
	return e
}

// followDrainsLocked tells the tracker which backends are drained, by whatever means they became it.
func (a *Appliance) followDrainsLocked(snap *selector.Snapshot) {
	drained := make(map[string]bool)
	for i := range snap.Backends {
		b := &snap.Backends[i]
		if b.Ref != 0 && (b.Flags[selector.V4]|b.Flags[selector.V6])&selector.FlagDrained != 0 {
			drained[b.Name] = true
			if !a.drained[b.Name] {
				a.tracker.SetDrain(b.Name, true, time.Now())
			}
		}
	}
	for name := range a.drained {
		if !drained[name] {
			a.tracker.SetDrain(name, false, time.Now())
		}
	}
	a.drained = drained
}

// WatchHealth implements admin.Appliance.
func (a *Appliance) WatchHealth() (<-chan admin.HealthUpdate, func(), error) { return a.feed.watch() }

// HealthState implements healthapi.Source.
func (a *Appliance) HealthState() admin.HealthUpdate { return a.feed.current() }

// ExplainHealth implements admin.Appliance.
func (a *Appliance) ExplainHealth(q admin.ExplainHealthRequest) (admin.HealthExplanation, error) {
	t, err := a.tracker.Suppose(q.Down, q.Unknown)
	if err != nil {
		return admin.HealthExplanation{}, fmt.Errorf("%w: %w; see appliance backends", admin.ErrNotFound, err)
	}
	return ExplainHealth(t, a.config.Load(), q.Name)
}

// ExplainHealth says what led to the state of a source or a composite: source/NAME, composite/NAME,
// or NAME, which is the composite where both have the name. The error wraps admin.ErrNotFound if
// there is neither.
func ExplainHealth(t *composite.Tracker, c *config.Config, name string) (admin.HealthExplanation, error) {
	report, rules := t.Report(), rulesOf(c)
	full := func(s *composite.SourceReport) admin.HealthSource {
		out := sourceHealth(s, rules)
		for _, e := range t.Endpoints(s.Service) {
			out.Endpoints = append(out.Endpoints, admin.Endpoint{
				Backend: e.Name, Group: e.Group, Failover: e.Failover, HealthState: e.State.String(), Drain: e.Drained, Counted: e.Counted,
			})
		}
		return out
	}
	asComposite, asSource := report.Composite(name), report.Source(name)
	if asComposite == nil && asSource == nil {
		if of, ok := strings.CutPrefix(name, admin.KindComposite+"/"); ok {
			asComposite = report.Composite(of)
		}
		if of, ok := strings.CutPrefix(name, admin.KindSource+"/"); ok {
			asSource = report.Source(of)
		}
	}
	switch {
	case asComposite != nil:
		h := compositeHealth(asComposite)
		e := admin.HealthExplanation{Name: h.Name, Kind: admin.KindComposite, HealthState: h.HealthState, Missing: h.Missing, Composite: &h}
		for _, s := range asComposite.Sources {
			e.Sources = append(e.Sources, full(report.Source(s.Name)))
		}
		return e, nil
	case asSource != nil:
		s := full(asSource)
		return admin.HealthExplanation{Name: s.Name, Kind: admin.KindSource, HealthState: s.HealthState, Missing: s.Missing, Sources: []admin.HealthSource{s}}, nil
	}
	return admin.HealthExplanation{}, fmt.Errorf("health source or composite health check %q: %w", name, admin.ErrNotFound)
}

// rulesOf lists the forwarding rules of each service.
func rulesOf(c *config.Config) map[string][]string {
	out := make(map[string][]string)
	for i := range c.ForwardingRules {
		r := &c.ForwardingRules[i]
		out[r.BackendService] = append(out[r.BackendService], r.Name)
	}
	return out
}

// stamp is a time as text, nothing where there is none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

package appliance

import (
	"encoding/json"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/probe/composite"
)

// sourceHealth is a source as the control interface and the health listener show it. A service
// without a forwarding rule, behind routes for example, has one entry without one.
func sourceHealth(s *composite.SourceReport, rules map[string][]string) admin.HealthSource {
	out := admin.HealthSource{
		Name: s.Name, HealthState: s.State.String(), State: s.State.String(), Since: stamp(s.Since), DryRun: s.DryRun,
		BackendService: s.Service, HealthAggregationPolicy: s.Policy.Name,
		HealthyPercentThreshold: json.Number(s.Policy.PercentText()), MinHealthyThreshold: s.Policy.Min,
		EndpointCounts: countsOf(s.Count), RequiredEndpointCount: s.Required, Missing: s.Missing,
	}
	groups := make([]admin.GroupHealth, len(s.Groups))
	for i, g := range s.Groups {
		groups[i] = admin.GroupHealth{Group: g.Name, Failover: g.Failover, Endpoints: g.Endpoints, Healthy: g.Healthy}
	}
	for _, r := range rules[s.Service] {
		out.Sources = append(out.Sources, admin.SourceHealth{Source: s.Service, ForwardingRule: r, Backends: groups})
	}
	if len(out.Sources) == 0 {
		out.Sources = []admin.SourceHealth{{Source: s.Service, Backends: groups}}
	}
	return out
}

func countsOf(c composite.Count) admin.EndpointCounts {
	return admin.EndpointCounts{Endpoints: c.Total(), Healthy: c.Healthy, Unhealthy: c.Unhealthy, Unknown: c.Unknown}
}

func compositeHealth(c *composite.CompositeReport) admin.CompositeHealth {
	out := admin.CompositeHealth{
		Name: c.Name, HealthState: c.State.String(), State: c.State.String(), Since: stamp(c.Since), DryRun: c.DryRun,
		HealthDestination: c.Destination, Missing: c.Missing,
	}
	for _, s := range c.Sources {
		out.HealthSources = append(out.HealthSources, admin.SourceState{Source: s.Name, HealthState: s.State.String(), Ignored: s.Ignored})
	}
	return out
}

// transitionsOf is a history, oldest first.
func transitionsOf(list []composite.Transition) (out []admin.Transition) {
	for i := range list {
		t := &list[i]
		row := admin.Transition{At: stamp(t.At), From: t.From.String(), To: t.To.String(), Text: t.Cause}
		if t.Source != nil {
			counts := countsOf(t.Source.Count)
			row.Counts = &counts
		}
		out = append(out, row)
	}
	return out
}

package config

import (
	"fmt"
)

// check is everything that concerns more than one object. It runs on data that may have gaps where a
// value was refused, and stays silent about those.
func (d *decoder) check(c *Config) {
	d.liftChecks(c)
	d.checkNames(c)
	d.checkReferences(c)
	d.checkProbeTargets(c)
	d.checkWeights(c)
	d.checkPlacement(c)
	d.checkMachines(c)
	d.checkRanges(c)
	d.checkRules(c)
	d.checkRoutes(c)
	d.checkAddresses(c)
	d.warn(c)
}

// liftChecks gives the checks written in place a name and moves them to the list of all checks.
func (d *decoder) liftChecks(c *Config) {
	for i := range c.HealthChecks {
		if h := &c.HealthChecks[i]; h.Name == "" && !d.given(&h.Name) {
			d.errorAt(&h.Name, "missing; backend services refer to a health check by its name")
		}
	}
	if len(d.inPlace) == 0 {
		return
	}
	d.record() // places are carried over below, those of absent values too
	all := make([]HealthCheck, len(c.HealthChecks)+len(d.inPlace))
	for i := range c.HealthChecks {
		all[i] = c.HealthChecks[i]
		healthCheckTable.move(d, &c.HealthChecks[i], &all[i])
	}
	for i, p := range d.inPlace {
		if p.check.Name == "" && !d.given(&p.check.Name) && p.service.Name != "" && p.check.Type != "" {
			p.check.Name = fmt.Sprintf("%s/%s:%d", p.service.Name, p.check.Type, p.check.Port)
		}
		p.service.HealthCheck = p.check.Name
		to := &all[len(c.HealthChecks)+i]
		*to = *p.check
		healthCheckTable.move(d, p.check, to)
	}
	c.HealthChecks = all
}

// unique reports the second of two equal names of one sort.
func unique[T any](d *decoder, noun string, all []T, at func(*T) *string) {
	first := make(map[string]*string, len(all))
	for i := range all {
		n := at(&all[i])
		if *n == "" {
			continue
		}
		if before, taken := first[*n]; taken {
			d.errorAt(n, "%s is already the name of the %s in line %d; use another", show(*n), noun, d.line(before))
			continue
		}
		first[*n] = n
	}
}

func (d *decoder) checkNames(c *Config) {
	unique(d, "interface", c.Interfaces, func(i *Interface) *string { return &i.Name })
	unique(d, "zone", c.Zones, func(z *Zone) *string { return &z.Name })
	unique(d, "region", c.Regions, func(z *Zone) *string { return &z.Name })
	unique(d, "health check", c.HealthChecks, func(h *HealthCheck) *string { return &h.Name })
	unique(d, "backend service", c.BackendServices, func(s *BackendService) *string { return &s.Name })
	unique(d, "health aggregation policy", c.HealthAggregationPolicies, func(p *HealthAggregationPolicy) *string { return &p.Name })
	unique(d, "health source", c.HealthSources, func(s *HealthSource) *string { return &s.Name })
	unique(d, "composite health check", c.CompositeHealthChecks, func(c *CompositeHealthCheck) *string { return &c.Name })

	// Rules and routes share their names, because commands take either. A made name that is taken is
	// reported as the overlap that it is.
	type named struct {
		name *string
		made bool
	}
	var rules []named
	for i := range c.ForwardingRules {
		rules = append(rules, named{&c.ForwardingRules[i].Name, !d.given(&c.ForwardingRules[i].Name)})
	}
	for i := range c.Routes {
		rules = append(rules, named{&c.Routes[i].Name, !d.given(&c.Routes[i].Name)})
	}
	first := make(map[string]named, len(rules))
	for _, r := range rules {
		before, taken := first[*r.name]
		switch {
		case *r.name == "" || taken && r.made && before.made:
		case taken:
			d.errorAt(r.name, "%s is already the name of the forwarding rule or route in line %d; use another", show(*r.name), d.line(before.name))
		default:
			first[*r.name] = r
		}
	}
	for i := range c.Regions {
		if r := &c.Regions[i]; r.Name != "" && r.Name == c.Region {
			d.errorAt(&r.Name, "%s is the region of this appliance; list other regions only", show(r.Name))
		}
	}
}

// known are the names of one sort, to check references against.
type known struct {
	noun, list string // "backend service", "backendServices"
	names      []string
	has        map[string]bool
	unread     bool // the list itself was refused: nothing is known
}

func knownNames[T any](d *decoder, noun, list string, all *[]T, name func(*T) string) *known {
	k := &known{noun: noun, list: list, has: make(map[string]bool, len(*all)), unread: d.refused(all)}
	for i := range *all {
		if n := name(&(*all)[i]); n != "" && !k.has[n] {
			k.names, k.has[n] = append(k.names, n), true
		}
	}
	return k
}

// refer reports a reference to a name that nothing has. An empty name was refused or is not given.
func (d *decoder) refer(field *string, k *known) {
	if *field == "" || k.has[*field] || k.unread {
		return
	}
	allowed := "add it to " + k.list
	if n := len(k.names); n > 0 && n <= 8 {
		allowed = "use " + either(k.names) + ", or " + allowed
	}
	d.errorAt(field, "%s is not the name of a %s; %s%s", show(*field), k.noun, allowed, didYouMean(*field, k.names))
}

func (d *decoder) checkReferences(c *Config) {
	interfaces := knownNames(d, "listed interface", "interfaces", &c.Interfaces, func(i *Interface) string { return i.Name })
	zones := knownNames(d, "zone", "zones", &c.Zones, func(z *Zone) string { return z.Name })
	checks := knownNames(d, "health check", "healthChecks", &c.HealthChecks, func(h *HealthCheck) string { return h.Name })
	services := knownNames(d, "backend service", "backendServices", &c.BackendServices, func(s *BackendService) string { return s.Name })
	rules := knownNames(d, "forwarding rule", "forwardingRules", &c.ForwardingRules, func(r *ForwardingRule) string { return r.Name })
	policies := knownNames(d, "health aggregation policy", "healthAggregationPolicies", &c.HealthAggregationPolicies,
		func(p *HealthAggregationPolicy) string { return p.Name })
	sources := knownNames(d, "health source", "healthSources", &c.HealthSources, func(s *HealthSource) string { return s.Name })

	d.refer(&c.Zone, zones)
	for i := range c.BackendServices {
		s := &c.BackendServices[i]
		d.refer(&s.HealthCheck, checks)
		for j := range s.Backends {
			d.refer(&s.Backends[j].Zone, zones)
		}
	}
	for i := range c.ForwardingRules {
		r := &c.ForwardingRules[i]
		d.refer(&r.BackendService, services)
		for j := range r.Interfaces {
			d.refer(&r.Interfaces[j], interfaces)
		}
	}
	for i := range c.Routes {
		r := &c.Routes[i]
		d.refer(&r.BackendService, services)
		for j := range r.Interfaces {
			d.refer(&r.Interfaces[j], interfaces)
		}
	}
	for i := range c.HealthSources {
		d.refer(&c.HealthSources[i].BackendService, services)
		d.refer(&c.HealthSources[i].HealthAggregationPolicy, policies)
	}
	destinations := make(map[string]*CompositeHealthCheck)
	for i := range c.CompositeHealthChecks {
		h := &c.CompositeHealthChecks[i]
		for j := range h.HealthSources {
			d.refer(&h.HealthSources[j], sources)
		}
		d.refer(&h.HealthDestination, rules)
		if before, taken := destinations[h.HealthDestination]; taken && h.HealthDestination != "" {
			d.errorAt(&h.HealthDestination, "%s already has the composite health check in line %d; use one for each forwarding rule",
				show(h.HealthDestination), d.line(&before.HealthDestination))
			continue
		}
		destinations[h.HealthDestination] = h
	}
}

// services are the services by name, the first of each.
func (c *Config) services() map[string]*BackendService {
	by := make(map[string]*BackendService, len(c.BackendServices))
	for i := range c.BackendServices {
		if s := &c.BackendServices[i]; s.Name != "" && by[s.Name] == nil {
			by[s.Name] = s
		}
	}
	return by
}

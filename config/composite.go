package config

// HealthAggregationPolicy says how much of a service has to be healthy.
type HealthAggregationPolicy struct {
	Name string
	// HealthyPercentThreshold is the least healthy share, as a ratio: 60 % is 0.6.
	HealthyPercentThreshold Ratio
	// MinHealthyThreshold is the least number of healthy backends, at least 1.
	MinHealthyThreshold int
}

// HealthSource aggregates the health of one backend service.
type HealthSource struct {
	Name string
	// BackendService is the name of the service.
	BackendService string
	// HealthAggregationPolicy is the name of the policy.
	HealthAggregationPolicy string
	// DryRun: evaluated, logged and shown, never acted on.
	DryRun bool
}

// CompositeHealthCheck is healthy when all of its sources are.
type CompositeHealthCheck struct {
	Name string
	// HealthSources are the names of 1 to 10 sources.
	HealthSources []string
	// HealthDestination is the name of the forwarding rule whose health this is; each has at most one.
	HealthDestination string
	// DryRun: evaluated, logged and shown, never acted on.
	DryRun bool
}

type policyType string

type sourceType string

var policyTable = object[HealthAggregationPolicy]{noun: "a health aggregation policy", fields: []*field[HealthAggregationPolicy]{
	key("name", label, func(p *HealthAggregationPolicy) *string { return &p.Name }, "what health sources call it").need(),
	key("policyType", enum("", map[string]string{"DNS_PUBLIC_IP_POLICY": "it is for global policies"}, policyType("BACKEND_SERVICE_POLICY")),
		func(*HealthAggregationPolicy) *policyType { return new(policyType) }, "BACKEND_SERVICE_POLICY is the only one").short(),
	key("healthyPercentThreshold", percent, func(p *HealthAggregationPolicy) *Ratio { return &p.HealthyPercentThreshold },
		"least share of healthy backends, in percent").def("60"),
	key("minHealthyThreshold", integer[int](1, maxList), func(p *HealthAggregationPolicy) *int { return &p.MinHealthyThreshold },
		"least number of healthy backends").def("1"),
	refuse[HealthAggregationPolicy]("description", "descriptions are not kept; write a comment"),
}}

var sourceTable = object[HealthSource]{noun: "a health source", fields: []*field[HealthSource]{
	key("name", label, func(s *HealthSource) *string { return &s.Name }, "what composite health checks call it").need(),
	key("sourceType", enum("", nil, sourceType("BACKEND_SERVICE")), func(*HealthSource) *sourceType { return new(sourceType) },
		"BACKEND_SERVICE is the only one").short(),
	key("sources", only(name(maxPartName), "backend services"), func(s *HealthSource) *string { return &s.BackendService },
		"exactly one backend service").need(),
	key("healthAggregationPolicy", label, func(s *HealthSource) *string { return &s.HealthAggregationPolicy },
		"one of the health aggregation policies").need(),
	key("dryRun", boolean, func(s *HealthSource) *bool { return &s.DryRun }, "evaluate, log and show, but never act").def("false"),
	refuse[HealthSource]("description", "descriptions are not kept; write a comment"),
}}

var compositeTable = object[CompositeHealthCheck]{noun: "a composite health check", fields: []*field[CompositeHealthCheck]{
	key("name", label, func(c *CompositeHealthCheck) *string { return &c.Name }, "its name").need(),
	key("healthSources", list(label, "health sources", 1, 10), func(c *CompositeHealthCheck) *[]string { return &c.HealthSources },
		"1 to 10 health sources, all of which have to be healthy").need(),
	key("healthDestination", name(maxName), func(c *CompositeHealthCheck) *string { return &c.HealthDestination },
		"the forwarding rule whose health this is").need(),
	key("dryRun", boolean, func(c *CompositeHealthCheck) *bool { return &c.DryRun }, "evaluate, log and show, but never act").def("false"),
	refuse[CompositeHealthCheck]("description", "descriptions are not kept; write a comment"),
}, finish: func(d *decoder, c *CompositeHealthCheck) { d.onceNamed(c.HealthSources) }}

package config

import "math/bits"

// Config is a whole configuration: validated, every default filled in, every name made. It holds no
// reference to the file it came from; two files that say the same give equal values. It is not changed
// after Load or Parse returned it, so it may be read by any number of goroutines.
type Config struct {
	// Region is the region this appliance is in.
	Region string
	// Zone is the zone this appliance itself is in; empty when it is not given.
	Zone string
	// Interfaces are those the appliance forwards on; it touches no other.
	Interfaces []Interface
	Zones      []Zone
	// ZoneMapFile is a file of further client ranges, as LoadZoneMap reads it; empty for none.
	ZoneMapFile string
	// IncompatibleClients are the ranges of clients that have no zone.
	IncompatibleClients ClientRanges
	// Regions are the other regions.
	Regions []Zone
	// HealthChecks are the checks of the list of that name, then those written in place in services.
	HealthChecks              []HealthCheck
	BackendServices           []BackendService
	ForwardingRules           []ForwardingRule
	Routes                    []Route
	HealthAggregationPolicies []HealthAggregationPolicy
	HealthSources             []HealthSource
	CompositeHealthChecks     []CompositeHealthCheck
	FlowTable                 FlowTable
	RouteOnCrash              RouteOnCrash
	// HashKey keys backend selection; BuiltinHashKey when the file gives neither this nor HashKeyFile.
	HashKey string
	// HashKeyFile is a file that holds the key instead; exactly one of the two is set.
	HashKeyFile string
	Tuning      Tuning
	Health      Health
	Admin       Admin
	Logging     Logging
}

// BuiltinHashKey keys backend selection where the file gives no key. It is a constant, not a random
// value: selection has to survive restarts. Being public, it does not stop aimed flows.
const BuiltinHashKey = "zonehop"

// maxRules is the number of forwarding rules and routes together: they are numbered with 16 bits.
const maxRules = 65535

var configTable = object[Config]{noun: "the configuration", fields: []*field[Config]{
	key("region", name(maxPartName), func(c *Config) *string { return &c.Region },
		"the region this appliance is in").def("local"),
	key("zone", name(maxPartName), func(c *Config) *string { return &c.Zone },
		"the zone this appliance itself is in, for reporting traffic that crosses zones only because of it").
		printed(func(c *Config) bool { return c.Zone != "" }),
	key("interfaces", list(interfaceKind, "interfaces", 1, 64), func(c *Config) *[]Interface { return &c.Interfaces },
		"the network interfaces to forward on, by name or with settings; any other is never touched").need(),
	key("zones", list(zoneTable.kind(), "zones", 0, 4096), func(c *Config) *[]Zone { return &c.Zones },
		"every zone a backend names, with the address ranges of its clients; longest prefix wins"),
	key("zoneMapFile", path(4095, false), func(c *Config) *string { return &c.ZoneMapFile },
		"a watched file of lines PREFIX ZONE, which wins over zones at equal length").
		printed(func(c *Config) bool { return c.ZoneMapFile != "" }),
	key("incompatibleClients", incompatibleTable.kind(), func(c *Config) *ClientRanges { return &c.IncompatibleClients },
		"clients without zonal affinity, such as those behind VPN tunnels"),
	key("regions", list(regionTable.kind(), "regions", 0, 4096), func(c *Config) *[]Zone { return &c.Regions },
		"other regions, with the address ranges of their clients"),
	key("healthChecks", list(healthCheckTable.kind(), "health checks", 0, maxList), func(c *Config) *[]HealthCheck { return &c.HealthChecks },
		"health checks that services refer to by name"),
	key("backendServices", list(serviceTable.kind(), "backend services", 0, 65535), func(c *Config) *[]BackendService { return &c.BackendServices },
		"sets of backends with their policies"),
	key("forwardingRules", list(ruleTable.kind(), "forwarding rules", 0, maxRules), func(c *Config) *[]ForwardingRule { return &c.ForwardingRules },
		"addresses this appliance answers for"),
	key("routes", list(routeTable.kind(), "routes", 0, maxRules), func(c *Config) *[]Route { return &c.Routes },
		"destinations for which this appliance is the next hop"),
	key("healthAggregationPolicies", list(policyTable.kind(), "health aggregation policies", 0, maxList),
		func(c *Config) *[]HealthAggregationPolicy { return &c.HealthAggregationPolicies },
		"how much of a service has to be healthy"),
	key("healthSources", list(sourceTable.kind(), "health sources", 0, maxList), func(c *Config) *[]HealthSource { return &c.HealthSources },
		"services whose health is aggregated"),
	key("compositeHealthChecks", list(compositeTable.kind(), "composite health checks", 0, maxList),
		func(c *Config) *[]CompositeHealthCheck { return &c.CompositeHealthChecks },
		"health of a whole region's service, from one or more sources"),
	key("flowTable", flowTableTable.kind(), func(c *Config) *FlowTable { return &c.FlowTable },
		"the table of tracked connections"),
	key("routeOnCrash", enum("", nil, RouteDrop, RouteKernel), func(c *Config) *RouteOnCrash { return &c.RouteOnCrash },
		"what happens to packets of routes while the appliance is not running").def("DROP"),
	key("hashKey", text(1, 256), func(c *Config) *string { return &c.HashKey },
		"keys backend selection, equal on all appliances of a group; without it or hashKeyFile a built-in constant").
		printed(func(c *Config) bool { return c.HashKey != "" }),
	key("hashKeyFile", path(4095, false), func(c *Config) *string { return &c.HashKeyFile },
		"a file that holds the key instead of hashKey").
		printed(func(c *Config) bool { return c.HashKeyFile != "" }),
	key("tuning", tuningTable.kind(), func(c *Config) *Tuning { return &c.Tuning }, "sizes of rings, frames and batches"),
	key("health", healthTable.kind(), func(c *Config) *Health { return &c.Health }, "the read-only HTTP view of composite health"),
	key("admin", adminTable.kind(), func(c *Config) *Admin { return &c.Admin }, "control and metrics"),
	key("logging", loggingTable.kind(), func(c *Config) *Logging { return &c.Logging }, "what is logged and how"),
}, finish: func(d *decoder, c *Config) {
	if c.HashKey != "" && c.HashKeyFile != "" {
		d.errorAt(&c.HashKeyFile, "cannot be given beside hashKey; keep one of the two")
	}
	if !d.given(&c.HashKey) && !d.given(&c.HashKeyFile) {
		c.HashKey = BuiltinHashKey
	}
	if n := len(c.ForwardingRules) + len(c.Routes); n > maxRules {
		d.errorAt(&c.Routes, "makes %d forwarding rules and routes together; use at most %d", n, maxRules)
	}
	// A worker has one block of frames for its queue of all interfaces, a power of two of them, addressed
	// with 32 bits.
	perQueue := uint64(c.Tuning.FramesPerQueue) * uint64(c.Tuning.FrameSize)
	if n := uint(len(c.Interfaces)); n > 0 && perQueue<<bits.Len(n-1) > 1<<32-1 {
		d.errorAt(&c.Tuning.FramesPerQueue, "%d frames of %d bytes for %d interfaces are 4 GiB or more; use fewer", c.Tuning.FramesPerQueue, c.Tuning.FrameSize, n)
	}
}}

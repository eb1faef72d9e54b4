package config

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"pgregory.net/rapid"
)

// draw is a shorthand for one value.
func draw[V any](t *rapid.T, label string, g *rapid.Generator[V]) V { return g.Draw(t, label) }

// words are names and texts that YAML readers take for something else unless they are quoted.
var words = []string{"web", "null", "true", "0x10", "1.5", "80", "08", "yes", "a:b", "x-1", "2001:db8::1", "1e3", "12:30:45", "n", "a.b/c,[d]"}

var odd = []string{"", " ", "~", "null", "PING\r\n", "a: b", "# no comment", "\ttab", "- x", "'", "\"", "%x", "multi\nline\n", "\r", "!!str", "{}", " lead", "trail "}

// generated is any valid configuration.
func generated(t *rapid.T) *Config {
	flag := func(label string) bool { return draw(t, label, rapid.Bool()) }
	number := func(label string, least, most int) int { return draw(t, label, rapid.IntRange(least, most)) }
	wholeSec := func(label string, least, most int) time.Duration {
		return time.Duration(number(label, least, most)) * time.Second
	}
	share := func(label string) Ratio {
		return draw(t, label, rapid.SampledFrom([]Ratio{0, 1, RatioOne / 3, RatioOne / 2, RatioOne / 5 * 4, RatioOne - 1, RatioOne}))
	}
	pick := func(label string, from []string) string { return draw(t, label, rapid.SampledFrom(from)) }

	c := &Config{Region: pick("region", words), RouteOnCrash: RouteDrop, HashKey: BuiltinHashKey}
	var interfaces []string
	for i := range number("interfaces", 1, 3) {
		e := Interface{
			Name: fmt.Sprintf("eth%d", i), Mode: draw(t, "mode", rapid.SampledFrom([]Mode{ModeAuto, ModeZeroCopy, ModeCopy, ModeGeneric})),
			CPUs: CPUs{Policy: draw(t, "cpus", rapid.SampledFrom([]CPUPolicy{CPUAuto, CPUNone, CPUList}))}, BusyPoll: flag("busyPoll"),
		}
		for q := range number("queues", 0, 3) {
			e.Queues = append(e.Queues, 2*q)
		}
		if e.CPUs.Policy == CPUList {
			for q := range max(1, len(e.Queues)) {
				e.CPUs.List = append(e.CPUs.List, q+4)
			}
		}
		c.Interfaces, interfaces = append(c.Interfaces, e), append(interfaces, e.Name)
	}
	zones := []string{""}
	for i := range number("zones", 0, 4) {
		z := Zone{Name: fmt.Sprintf("%s-%d", pick("zone", words), i)}
		for j := range number("ranges", 0, 2) {
			z.ClientRanges = append(z.ClientRanges, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), byte(j), 0}), 24),
				netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 5: byte(i), 7: byte(j)}), 64))
		}
		c.Zones, zones = append(c.Zones, z), append(zones, z.Name)
	}
	c.Zone = pick("own zone", zones)
	if flag("incompatible") {
		c.IncompatibleClients.Ranges = []netip.Prefix{netip.MustParsePrefix("10.99.0.0/16")}
	}
	for i := range number("regions", 0, 2) {
		c.Regions = append(c.Regions, Zone{Name: fmt.Sprintf("region-%d", i),
			ClientRanges: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i), 0}), 24)}})
	}
	if flag("zone map") {
		c.ZoneMapFile = "/etc/zonehop/zones"
	}
	switch number("key", 0, 2) {
	case 0:
		c.HashKey = "k" + pick("hashKey", words)
	case 1:
		c.HashKey, c.HashKeyFile = "", "/etc/zonehop/key"
	}

	var checks []string
	for i := range number("checks", 1, 4) {
		p := protocols[number("type", 0, len(protocols)-1)]
		h := HealthCheck{
			Name: fmt.Sprintf("%s-%d", pick("check", words), i), Type: p.kind, ProbeTarget: ProbeBackendAddress, LogTransitions: flag("log"),
			Port: uint16(number("port", 1, 65535)), HealthyThreshold: number("healthy", 1, 10), UnhealthyThreshold: number("unhealthy", 1, 10),
		}
		h.CheckInterval = time.Duration(number("interval", 100, 300000)) * time.Millisecond
		h.Timeout = time.Duration(number("timeout", 100, int(h.CheckInterval/time.Millisecond))) * time.Millisecond
		if flag("target") {
			h.ProbeTarget = ProbeRuleAddress
		}
		for _, f := range p.fields {
			switch f {
			case "proxyHeader":
				h.ProxyHeader = draw(t, f, rapid.SampledFrom([]ProxyHeader{ProxyNone, ProxyV1}))
			case "request":
				h.Request = pick(f, odd)
			case "response":
				h.Response = pick(f, odd)
			case "host":
				h.Host = pick(f, []string{"", "example.com", "10.0.0.1:80"})
			case "requestPath":
				h.RequestPath = pick(f, []string{"/", "/healthz?a=b&c", "/'\"%20"})
			case "grpcServiceName":
				h.GRPCServiceName = pick(f, words)
			}
		}
		c.HealthChecks, checks = append(c.HealthChecks, h), append(checks, h.Name)
	}

	var services []string
	for i := range number("services", 1, 3) {
		s := BackendService{
			Name: fmt.Sprintf("%s-%d", pick("service", words), i), Protocol: ProtocolUnspecified, HealthCheck: pick("its check", checks),
			SessionAffinity: draw(t, "affinity", rapid.SampledFrom([]SessionAffinity{AffinityNone, AffinityClientIP, AffinityClientIPProto, AffinityClientIPPortProto, AffinityClientIPNoDestination})),
			TrackingMode:    draw(t, "tracking", rapid.SampledFrom([]TrackingMode{TrackPerConnection, TrackPerSession})),
			Persistence:     draw(t, "persistence", rapid.SampledFrom([]Persistence{PersistDefault, PersistNever, PersistAlways})),
			IdleTimeout:     wholeSec("idle", 10, 57600), DrainingTimeout: wholeSec("drain", 0, 3600), DropTrafficIfUnhealthy: flag("drop"),
			ZonalAffinity: ZonalAffinity{
				Spillover: draw(t, "spillover", rapid.SampledFrom([]Spillover{SpillDisabled, SpillStayWithinZone, SpillCrossZone})), SpilloverRatio: share("spilloverRatio"),
			},
			LocalityLbPolicy: draw(t, "policy", rapid.SampledFrom([]LocalityLbPolicy{PolicyRendezvous, PolicyWeightedRendezvous})),
			Delivery:         draw(t, "delivery", rapid.SampledFrom([]Delivery{DeliveryL2, DeliveryIPIP, DeliveryGUE, DeliveryGENEVE})),
			SymmetryGroup:    pick("symmetry", words),
		}
		if s.TrackingMode == TrackPerSession && s.Persistence == PersistAlways {
			s.Persistence = PersistDefault
		}
		for _, h := range c.HealthChecks {
			if h.Name == s.HealthCheck && h.Type != CheckHTTP && h.Type != CheckHTTPS && h.Type != CheckHTTP2 {
				s.LocalityLbPolicy = PolicyRendezvous
			}
		}
		failovers := false
		for j := range number("backends", 1, 5) {
			b := Backend{
				Name: fmt.Sprintf("b%d.%d", i, j), Zone: pick("backend zone", zones), Weight: number("weight", 0, 1000), Failover: j > 0 && flag("failover"),
				Address: netip.AddrFrom4([4]byte{10, 200, byte(i), byte(j)}), IPv6Address: netip.AddrFrom16([16]byte{0: 0xfd, 1: 1, 13: byte(i), 15: byte(j)}),
			}
			failovers = failovers || b.Failover
			s.Backends = append(s.Backends, b)
		}
		if failovers {
			s.FailoverRatio, s.DisableConnectionDrainOnFailover = share("failoverRatio"), flag("cut")
		}
		c.BackendServices, services = append(c.BackendServices, s), append(services, s.Name)
	}
	announces := []Announce{AnnounceAlways, AnnounceStandby, AnnounceNever}
	var rules []string
	for i := range number("rules", 0, 4) {
		r := ForwardingRule{
			Name: fmt.Sprintf("rule%d", i), IPAddress: netip.AddrFrom4([4]byte{10, 201, 0, byte(i)}), BackendService: pick("to", services),
			IPProtocol: draw(t, "IPProtocol", rapid.SampledFrom([]RuleProtocol{RuleTCP, RuleUDP, RuleL3Default})), AllowGlobalAccess: flag("global"),
			Announce: draw(t, "announce", rapid.SampledFrom(announces)), VIPPing: flag("ping"),
		}
		if flag("v6") {
			r.IPAddress = netip.AddrFrom16([16]byte{0: 0xfd, 1: 2, 15: byte(i)})
		}
		if r.AllPorts = r.IPProtocol == RuleL3Default || flag("all"); !r.AllPorts {
			for p := range number("ports", 1, 9) {
				first := uint16(1000*p + 1)
				r.Ports = append(r.Ports, PortRange{first, first + uint16(number("more", 0, 999))})
			}
		}
		if flag("where") {
			r.Interfaces = []string{pick("rule interface", interfaces)}
		}
		c.ForwardingRules, rules = append(c.ForwardingRules, r), append(rules, r.Name)
	}
	for _, s := range c.BackendServices { // rules' addresses are probed where there are such, without tunnels
		ruled := slices.ContainsFunc(c.ForwardingRules, func(r ForwardingRule) bool { return r.BackendService == s.Name })
		for i := range c.HealthChecks {
			if h := &c.HealthChecks[i]; h.Name == s.HealthCheck && (!ruled || s.Delivery != DeliveryL2) {
				h.ProbeTarget = ProbeBackendAddress
			}
		}
	}
	for i := range number("routes", 0, 3) {
		r := Route{
			Name: fmt.Sprintf("route%d", i), DestRange: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(i), 0}), 24), BackendService: pick("via", services),
			IPProtocol: draw(t, "ipProtocol", rapid.SampledFrom([]RouteProtocol{RouteAll, RouteTCP, RouteUDP})), Announce: AnnounceAlways, DecrementTTL: flag("ttl"),
		}
		r.SymmetricHashing = c.services()[r.BackendService].SessionAffinity != AffinityClientIPNoDestination && flag("symmetric")
		if flag("source") {
			r.SrcRange = netip.MustParsePrefix("0.0.0.0/0")
		}
		if flag("next hop") {
			r.NextHopAddress, r.Announce = netip.AddrFrom4([4]byte{10, 202, 0, byte(i)}), draw(t, "announce", rapid.SampledFrom(announces))
		}
		c.Routes = append(c.Routes, r)
	}
	if flag("composite") && len(rules) > 0 {
		c.HealthAggregationPolicies = []HealthAggregationPolicy{{Name: "p", HealthyPercentThreshold: RatioOne / 1000 * Ratio(number("percent", 0, 1000)), MinHealthyThreshold: number("least", 1, 99)}}
		c.HealthSources = []HealthSource{{Name: "s", BackendService: pick("source", services), HealthAggregationPolicy: "p", DryRun: flag("dry")}}
		c.CompositeHealthChecks = []CompositeHealthCheck{{Name: "c", HealthSources: []string{"s"}, HealthDestination: pick("destination", rules), DryRun: flag("dry")}}
	}
	c.FlowTable = FlowTable{Entries: number("entries", 1024, 1<<28), Path: pick("path", []string{"", "/var/lib/flows"}), HalfOpenShare: max(share("half"), 1),
		TCPHalfOpen: wholeSec("half open", 1, 600), TCPClosing: wholeSec("closing", 1, 600), ExpectedConnectionsPerSec: number("rate", 0, 1<<20)}
	c.RouteOnCrash = draw(t, "crash", rapid.SampledFrom([]RouteOnCrash{RouteDrop, RouteKernel}))
	ring := 1 << number("ring", 6, 12)
	c.Tuning = Tuning{RxRing: ring, TxRing: ring, FramesPerQueue: 4 * ring, FrameSize: 2048 << number("frame", 0, 1), Batch: 32 << number("batch", 0, 1),
		HugePages: draw(t, "huge", rapid.SampledFrom([]HugePages{HugePagesAuto, HugePagesAlways, HugePagesNever}))}
	listens := []string{"", ":0", "127.0.0.1:9109", "[::1]:80"}
	c.Health.Listen = pick("health", listens)
	c.Admin = Admin{Socket: pick("socket", []string{"/run/a.sock", "/tmp/with space.sock"}), MetricsListen: pick("metrics", listens)}
	c.Logging = Logging{Level: draw(t, "level", rapid.SampledFrom([]LogLevel{LogDebug, LogInfo, LogWarn, LogError})),
		Format: draw(t, "format", rapid.SampledFrom([]LogFormat{LogAuto, LogConsole, LogJSON}))}
	return c
}

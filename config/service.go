package config

import (
	"time"

	"gopkg.in/yaml.v3"
)

// BackendService is a set of backends with the policies by which one of them is chosen.
type BackendService struct {
	Name     string
	Protocol Protocol
	// HealthCheck is the name of its one health check.
	HealthCheck     string
	SessionAffinity SessionAffinity
	TrackingMode    TrackingMode
	// Persistence says whether tracked connections stay on a backend that turns unhealthy.
	Persistence Persistence
	// IdleTimeout is how long a tracked connection outlives its last packet.
	IdleTimeout time.Duration
	// DrainingTimeout is how long connections of a removed backend go on; 0 ends them at once.
	DrainingTimeout time.Duration
	// FailoverRatio is the share of healthy primaries below which the failover backends take over; 0 means
	// when no primary is healthy.
	FailoverRatio Ratio
	// DropTrafficIfUnhealthy drops new connections when nothing is healthy, instead of using all primaries.
	DropTrafficIfUnhealthy           bool
	DisableConnectionDrainOnFailover bool
	ZonalAffinity                    ZonalAffinity
	LocalityLbPolicy                 LocalityLbPolicy
	Delivery                         Delivery
	// SymmetryGroup is shared by services that select alike; the service's own name when not given.
	SymmetryGroup string
	Backends      []Backend
}

// ZonalAffinity is the preference for backends in the client's zone.
type ZonalAffinity struct {
	Spillover Spillover
	// SpilloverRatio is the share of healthy backends in the client's zone below which connections spill
	// to other zones, with SpillCrossZone.
	SpilloverRatio Ratio
}

// Protocol is what a service carries.
type Protocol string

// The protocols of services. Unspecified goes with every rule.
const (
	ProtocolTCP         Protocol = "TCP"
	ProtocolUDP         Protocol = "UDP"
	ProtocolUnspecified Protocol = "UNSPECIFIED"
)

// SessionAffinity is what of a packet decides about the backend of a new connection.
type SessionAffinity string

// The session affinities. AffinityNone uses the same fields as AffinityClientIPPortProto.
const (
	AffinityNone                  SessionAffinity = "NONE"
	AffinityClientIP              SessionAffinity = "CLIENT_IP"
	AffinityClientIPProto         SessionAffinity = "CLIENT_IP_PROTO"
	AffinityClientIPPortProto     SessionAffinity = "CLIENT_IP_PORT_PROTO"
	AffinityClientIPNoDestination SessionAffinity = "CLIENT_IP_NO_DESTINATION"
)

// TrackingMode is what of a packet identifies a tracked connection.
type TrackingMode string

// The tracking modes: the connection's own key, or the fields of the session affinity.
const (
	TrackPerConnection TrackingMode = "PER_CONNECTION"
	TrackPerSession    TrackingMode = "PER_SESSION"
)

// Persistence says whether connections stay on a backend that turned unhealthy.
type Persistence string

// The persistences.
const (
	PersistDefault Persistence = "DEFAULT_FOR_PROTOCOL"
	PersistNever   Persistence = "NEVER_PERSIST"
	PersistAlways  Persistence = "ALWAYS_PERSIST"
)

// Spillover says when connections leave the client's zone.
type Spillover string

// The options of zonal affinity.
const (
	SpillDisabled       Spillover = "ZONAL_AFFINITY_DISABLED"
	SpillStayWithinZone Spillover = "ZONAL_AFFINITY_STAY_WITHIN_ZONE"
	SpillCrossZone      Spillover = "ZONAL_AFFINITY_SPILL_CROSS_ZONE"
)

// LocalityLbPolicy is the selection among eligible backends.
type LocalityLbPolicy string

// The policies: by the weights of the file, or by those that backends report to their health check.
const (
	PolicyRendezvous         LocalityLbPolicy = "GCP_RENDEZVOUS"
	PolicyWeightedRendezvous LocalityLbPolicy = "WEIGHTED_GCP_RENDEZVOUS"
)

// Delivery is how packets get to backends.
type Delivery string

// The deliveries: in place to the backend's MAC address, or in a tunnel.
const (
	DeliveryL2     Delivery = "L2"
	DeliveryIPIP   Delivery = "IPIP"
	DeliveryGUE    Delivery = "GUE"
	DeliveryGENEVE Delivery = "GENEVE"
)

var otherAffinity = map[string]string{
	"GENERATED_COOKIE":       "packets are forwarded without looking into them, so there are no cookies",
	"HTTP_COOKIE":            "packets are forwarded without looking into them, so there are no cookies",
	"HEADER_FIELD":           "packets are forwarded without looking into them, so there are no header fields",
	"STRONG_COOKIE_AFFINITY": "packets are forwarded without looking into them, so there are no cookies",
}

var serviceTable = object[BackendService]{noun: "a backend service", finish: finishService, fields: []*field[BackendService]{
	key("name", name(maxPartName), func(s *BackendService) *string { return &s.Name }, "what rules call it").need(),
	key("protocol", enum("", nil, ProtocolTCP, ProtocolUDP, ProtocolUnspecified), func(s *BackendService) *Protocol { return &s.Protocol },
		"UNSPECIFIED goes with every rule").def("UNSPECIFIED"),
	serviceChecks(),
	key("sessionAffinity", enum("", otherAffinity, AffinityNone, AffinityClientIP, AffinityClientIPProto, AffinityClientIPPortProto, AffinityClientIPNoDestination),
		func(s *BackendService) *SessionAffinity { return &s.SessionAffinity }, "what decides about the backend of a new connection").def("NONE"),
	group("connectionTrackingPolicy", "connectionTrackingPolicy", "how connections are tracked",
		key("trackingMode", enum("", nil, TrackPerConnection, TrackPerSession), func(s *BackendService) *TrackingMode { return &s.TrackingMode },
			"track connections, or sessions as sessionAffinity defines them").def("PER_CONNECTION"),
		key("connectionPersistenceOnUnhealthyBackends", enum("", nil, PersistDefault, PersistNever, PersistAlways),
			func(s *BackendService) *Persistence { return &s.Persistence }, "whether connections stay on a backend that turns unhealthy").def("DEFAULT_FOR_PROTOCOL"),
		key("idleTimeoutSec", seconds(10*time.Second, 57600*time.Second, 0), func(s *BackendService) *time.Duration { return &s.IdleTimeout },
			"how long a connection is remembered after its last packet").def("600"),
		refuse[BackendService]("enableStrongAffinity", "it is for external load balancers; remove it")),
	group("connectionDraining", "connectionDraining", "what happens to connections of a removed backend",
		key("drainingTimeoutSec", seconds(0, 3600*time.Second, 0), func(s *BackendService) *time.Duration { return &s.DrainingTimeout },
			"how long they go on; 0 ends them at once").def("0")),
	group("failoverPolicy", "failoverPolicy", "when failover backends take over",
		key("failoverRatio", ratio, func(s *BackendService) *Ratio { return &s.FailoverRatio },
			"share of healthy primaries below which they do; 0 when none is healthy").def("0"),
		key("dropTrafficIfUnhealthy", boolean, func(s *BackendService) *bool { return &s.DropTrafficIfUnhealthy },
			"drop new connections when nothing is healthy").def("false"),
		key("disableConnectionDrainOnFailover", boolean, func(s *BackendService) *bool { return &s.DisableConnectionDrainOnFailover },
			"end TCP connections at once on failover and failback").def("false")),
	group("networkPassThroughLbTrafficPolicy", "networkPassThroughLbTrafficPolicy", "traffic policy",
		key("zonalAffinity", zonalAffinityTable.kind(), func(s *BackendService) *ZonalAffinity { return &s.ZonalAffinity }, "preference for the client's zone")),
	key("zonalAffinity", zonalAffinityTable.kind(), func(s *BackendService) *ZonalAffinity { return &s.ZonalAffinity },
		"short form of networkPassThroughLbTrafficPolicy.zonalAffinity").short(),
	key("localityLbPolicy", enum("", nil, PolicyRendezvous, PolicyWeightedRendezvous), func(s *BackendService) *LocalityLbPolicy { return &s.LocalityLbPolicy },
		"selection among eligible backends").def("GCP_RENDEZVOUS"),
	key("delivery", enum("", nil, DeliveryL2, DeliveryIPIP, DeliveryGUE, DeliveryGENEVE), func(s *BackendService) *Delivery { return &s.Delivery },
		"how packets get to backends").def("L2"),
	key("symmetryGroup", text(1, maxName), func(s *BackendService) *string { return &s.SymmetryGroup },
		"services of one group with the same backend names select alike; the service's name when left out"),
	key("backends", list(backendTable.kind(), "backends", 1, maxBackends), func(s *BackendService) *[]Backend { return &s.Backends }, "its backends").need(),
	refuse[BackendService]("subsetting", "every backend is reached by every client; the limit of 250 backends that it lifts does not exist; remove it"),
	refuse[BackendService]("haPolicy", "it hands one address to one of two backends by its own protocol; use failover backends"),
	refuse[BackendService]("isMirroringCollector", "packets are forwarded, not mirrored; remove it"),
	refuse[BackendService]("enableStrongAffinity", "it is for external load balancers; remove it"),
	refuse[BackendService]("networkSecurityIntegration", "nothing intercepts packets on the way; use routes to an inspection service"),
	refuse[BackendService]("balancingMode", "connections are balanced by hash, which knows no balancing modes; remove it"),
	refuse[BackendService]("loadBalancingScheme", oneKind),
	refuse[BackendService]("timeoutSec", "it has no effect on packets that are passed through; see connectionTrackingPolicy.idleTimeoutSec"),
	refuse[BackendService]("port", "packets keep the port they were sent to; remove it"),
	refuse[BackendService]("portName", "packets keep the port they were sent to; remove it"),
	refuse[BackendService]("logConfig", "connections are not logged one by one; see the metrics"),
	refuse[BackendService]("network", "the interfaces decide about the network; remove it"),
	refuse[BackendService]("localityLbPolicies", "there is one policy for a service; use localityLbPolicy"),
	refuse[BackendService]("consistentHash", "the hash is always consistent; use sessionAffinity for what goes into it"),
	refuse[BackendService]("circuitBreakers", "it is for proxies; remove it"),
	refuse[BackendService]("outlierDetection", "it is for proxies; use healthChecks"),
	refuse[BackendService]("description", "descriptions are not kept; write a comment"),
}}

// maxBackends is what one service can have: fewer than a selection table has slots, so that each has one.
const maxBackends = 60000

var zonalAffinityTable = object[ZonalAffinity]{noun: "zonalAffinity", fields: []*field[ZonalAffinity]{
	key("spillover", enum("ZONAL_AFFINITY_", nil, SpillDisabled, SpillStayWithinZone, SpillCrossZone), func(z *ZonalAffinity) *Spillover { return &z.Spillover },
		"when connections leave the client's zone").def("ZONAL_AFFINITY_DISABLED"),
	key("spilloverRatio", ratio, func(z *ZonalAffinity) *Ratio { return &z.SpilloverRatio },
		"with SPILL_CROSS_ZONE, share of healthy backends in the zone below which they do").def("0"),
}}

// finishService makes the names that are left out and refuses what does not go together.
func finishService(d *decoder, s *BackendService) {
	if s.SymmetryGroup == "" {
		s.SymmetryGroup = s.Name
	}
	primaries, failovers := 0, 0
	for i := range s.Backends {
		b := &s.Backends[i]
		if a := b.Addresses(); b.Name == "" && !d.given(&b.Name) && len(a) > 0 && s.Name != "" {
			b.Name = s.Name + "/" + a[0].String()
		}
		if b.Failover {
			failovers++
		} else {
			primaries++
		}
	}
	if primaries == 0 && failovers > 0 {
		d.errorAt(&s.Backends, "has failover backends only; make at least one of them primary with failover: false")
	}
	if failovers == 0 && len(s.Backends) > 0 {
		if s.FailoverRatio > 0 {
			d.errorAt(&s.FailoverRatio, "%s has no meaning without a failover backend; use 0 or give a backend failover: true", s.FailoverRatio)
		}
		if s.DisableConnectionDrainOnFailover {
			d.errorAt(&s.DisableConnectionDrainOnFailover, "has no meaning without a failover backend; use false or give a backend failover: true")
		}
	}
	if s.Persistence == PersistAlways && s.TrackingMode == TrackPerSession {
		d.errorAt(&s.Persistence, "ALWAYS_PERSIST cannot go with trackingMode PER_SESSION; use DEFAULT_FOR_PROTOCOL or NEVER_PERSIST, or track PER_CONNECTION")
	}
}

// inPlaceCheck is a check written inside a service.
type inPlaceCheck struct {
	service *BackendService
	check   *HealthCheck
}

// serviceChecks is the list that has exactly one check, by name or written out in place.
func serviceChecks() *field[BackendService] {
	type reference struct{}
	byName := name(maxName)
	of := func(s *BackendService) kind[reference] {
		return kind[reference]{
			read: func(d *decoder, n *yaml.Node, path string, r *reference) bool {
				if resolve(n).Kind != yaml.MappingNode {
					d.places[&s.HealthCheck] = place{node: n, path: path}
					return byName.read(d, n, path, &s.HealthCheck)
				}
				h := new(HealthCheck)
				healthCheckTable.reset(h)
				d.places[h] = place{node: n, path: path}
				d.inPlace = append(d.inPlace, inPlaceCheck{service: s, check: h})
				return healthCheckTable.read(d, n, path, h)
			},
			schema: func() schema { return schema{"anyOf": []any{byName.schema(), healthCheckTable.schema()}} },
		}
	}
	many := func(s *BackendService) kind[[]reference] { return list(of(s), "health checks", 1, 1) }
	return &field[BackendService]{
		key: "healthChecks", doc: "exactly one check, by name or written out in place", required: true,
		read: func(d *decoder, n *yaml.Node, path string, s *BackendService) {
			var refs []reference
			many(s).read(d, n, path, &refs)
		},
		reset:   func(*field[BackendService], *BackendService) {},
		missing: func(*decoder, *yaml.Node, string, *BackendService) {},
		write: func(s *BackendService) *yaml.Node {
			return &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, Content: []*yaml.Node{word(s.HealthCheck)}}
		},
		schema: func() schema { return many(nil).schema() },
		move:   func(*decoder, *BackendService, *BackendService) {},
	}
}

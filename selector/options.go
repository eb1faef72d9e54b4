package selector

import (
	"net/netip"
	"time"
)

// Options is a complete configuration as plain data. It mirrors the configuration file, so that one
// function can map the two; the file's own rules are checked there, Validate repeats only what this
// package relies on.
type Options struct {
	HashKey      string   // shared by all appliances of a group; "" = a fixed built-in key
	Zone         string   // the appliance's own zone; "" = none
	Ports        []string // interface names; a port is known by its index here
	Zones        []ZoneOptions
	ZoneMap      []ZoneMapEntry // wins over Zones' ranges of equal length
	Incompatible []netip.Prefix // clients that never get zonal affinity
	Regions      []RegionOptions
	Services     []ServiceOptions
	Rules        []RuleOptions
	Routes       []RouteOptions
}

// ZoneOptions declares a zone and where its clients are.
type ZoneOptions struct {
	Name         string
	ClientRanges []netip.Prefix
}

// ZoneMapEntry is one line of a zone map file.
type ZoneMapEntry struct {
	Prefix netip.Prefix
	Zone   string
}

// RegionOptions declares another region's clients.
type RegionOptions struct {
	Name         string
	ClientRanges []netip.Prefix
}

// Persistence says what happens to tracked flows of a backend that turns unhealthy.
type Persistence uint8

// Persistence options.
const (
	PersistDefault Persistence = iota // by protocol: connection-oriented ones persist
	PersistNever
	PersistAlways
)

// String is DEFAULT_FOR_PROTOCOL, NEVER_PERSIST or ALWAYS_PERSIST.
func (p Persistence) String() string {
	return [...]string{"DEFAULT_FOR_PROTOCOL", "NEVER_PERSIST", "ALWAYS_PERSIST"}[p]
}

// Announce says when an address is answered for (ARP, neighbour discovery).
type Announce uint8

// Announce options. AnnounceStandby waits for Builder.SetAnnounce.
const (
	AnnounceAlways Announce = iota
	AnnounceStandby
	AnnounceNever
)

// String is ALWAYS, STANDBY or NEVER.
func (a Announce) String() string { return [...]string{"ALWAYS", "STANDBY", "NEVER"}[a] }

// ServiceOptions is one backend service.
type ServiceOptions struct {
	Name            string
	Affinity        SessionAffinity
	TrackingMode    TrackingMode
	Persistence     Persistence
	IdleTimeout     time.Duration // passed through to the flow table
	DrainTimeout    time.Duration // how long flows of a removed backend may stay; 0 = not at all
	Policy          Policy
	NoFailoverDrain bool   // disableConnectionDrainOnFailover
	Weighted        bool   // the backends' Weight counts; else every backend weighs the same
	ReportedWeights bool   // what backends report to their health check counts instead (WEIGHTED_GCP_RENDEZVOUS)
	SymmetryGroup   string // "" = the service's name
	Backends        []BackendOptions
}

// BackendOptions is one backend of a service. At least one address is valid.
type BackendOptions struct {
	Name     string
	Zone     string // "" = none
	Address  netip.Addr
	Address6 netip.Addr
	Failover bool
	Weight   uint32 // read only in weighted services; 0 takes traffic only when all candidates are 0
}

// PortRange is an inclusive range of destination ports.
type PortRange struct{ First, Last uint16 }

// RuleOptions is one forwarding rule.
type RuleOptions struct {
	Name              string
	Address           netip.Addr
	Protocol          uint8 // 6, 17, or 0 for L3_DEFAULT
	Ports             []PortRange
	AllPorts          bool // implied for L3_DEFAULT
	Service           string
	AllowGlobalAccess bool
	Announce          Announce
	Interfaces        []string // where the address is answered for; nil = every port
	VIPPing           bool
}

// RouteOptions is one route whose next hop is this appliance.
type RouteOptions struct {
	Name           string
	DestRange      netip.Prefix
	SrcRange       netip.Prefix // invalid = any
	Protocol       uint8        // 0 = any
	Interfaces     []string     // where packets must arrive, and where NextHopAddress is answered; nil = every port
	NextHopAddress netip.Addr   // invalid = none
	Announce       Announce
	Service        string
	Symmetric      bool
	DecrementTTL   bool
}

package appliance

import (
	"fmt"
	"net/netip"
	"strings"

	"zonehop/config"
	"zonehop/forwarder"
	"zonehop/forwarder/xsk"
	"zonehop/selector"
)

// hashKey returns the key of the selection hash, read from its file if the
// configuration names one.
func hashKey(c *config.Config) (string, error) {
	if c.HashKeyFile == "" {
		return c.HashKey, nil
	}
	b, err := config.ReadFile(c.HashKeyFile, 64<<10)
	if err != nil {
		return "", fmt.Errorf("read hashKeyFile: %w", err)
	}
	key := strings.TrimSpace(string(b))
	if key == "" {
		return "", fmt.Errorf("read hashKeyFile: %s is empty; put the group's key into it", c.HashKeyFile)
	}
	return key, nil
}

// SelectorOptions maps a configuration, with the entries of its zone map file,
// to the selector's options.
func SelectorOptions(c *config.Config, zoneMap []config.ZoneMapEntry) (selector.Options, error) {
	key, err := hashKey(c)
	if err != nil {
		return selector.Options{}, err
	}
	o := selector.Options{HashKey: key, Zone: c.Zone, Incompatible: c.IncompatibleClients.Ranges}
	for _, i := range c.Interfaces {
		o.Ports = append(o.Ports, i.Name)
	}
	for _, z := range c.Zones {
		o.Zones = append(o.Zones, selector.ZoneOptions(z))
	}
	for _, e := range zoneMap {
		o.ZoneMap = append(o.ZoneMap, selector.ZoneMapEntry(e))
	}
	for _, r := range c.Regions {
		o.Regions = append(o.Regions, selector.RegionOptions(r))
	}
	for i := range c.BackendServices {
		s, err := serviceOptions(&c.BackendServices[i])
		if err != nil {
			return selector.Options{}, err
		}
		o.Services = append(o.Services, s)
	}
	for i := range c.ForwardingRules {
		o.Rules = append(o.Rules, ruleOptions(&c.ForwardingRules[i]))
	}
	for i := range c.Routes {
		o.Routes = append(o.Routes, routeOptions(&c.Routes[i]))
	}
	return o, nil
}

func serviceOptions(s *config.BackendService) (selector.ServiceOptions, error) {
	failover, err := selector.ParseRatio(s.FailoverRatio.String())
	if err != nil {
		return selector.ServiceOptions{}, fmt.Errorf("backend service %s: failoverRatio: %w", s.Name, err)
	}
	spill, err := selector.ParseRatio(s.ZonalAffinity.SpilloverRatio.String())
	if err != nil {
		return selector.ServiceOptions{}, fmt.Errorf("backend service %s: spilloverRatio: %w", s.Name, err)
	}
	o := selector.ServiceOptions{
		Name:         s.Name,
		Affinity:     affinities[s.SessionAffinity],
		TrackingMode: trackingModes[s.TrackingMode],
		Persistence:  persistences[s.Persistence],
		IdleTimeout:  s.IdleTimeout, DrainTimeout: s.DrainingTimeout,
		Policy: selector.Policy{
			FailoverRatio: failover, DropIfUnhealthy: s.DropTrafficIfUnhealthy,
			Spillover: spillovers[s.ZonalAffinity.Spillover], SpilloverRatio: spill,
		},
		NoFailoverDrain: s.DisableConnectionDrainOnFailover,
		Weighted:        true, // the weights of the file; they are all 1 unless given
		ReportedWeights: s.LocalityLbPolicy == config.PolicyWeightedRendezvous,
		SymmetryGroup:   s.SymmetryGroup,
	}
	for _, b := range s.Backends {
		bo := selector.BackendOptions{Name: b.Name, Zone: b.Zone, Failover: b.Failover, Weight: uint32(b.Weight)}
		for _, a := range b.Addresses() {
			if a.Is4() {
				bo.Address = a
			} else {
				bo.Address6 = a
			}
		}
		o.Backends = append(o.Backends, bo)
	}
	return o, nil
}

func ruleOptions(r *config.ForwardingRule) selector.RuleOptions {
	o := selector.RuleOptions{
		Name: r.Name, Address: r.IPAddress, Protocol: ruleProtocols[r.IPProtocol], AllPorts: r.AllPorts,
		Service: r.BackendService, AllowGlobalAccess: r.AllowGlobalAccess,
		Announce: announces[r.Announce], Interfaces: r.Interfaces, VIPPing: r.VIPPing,
	}
	for _, p := range r.Ports {
		o.Ports = append(o.Ports, selector.PortRange(p))
	}
	return o
}

func routeOptions(r *config.Route) selector.RouteOptions {
	return selector.RouteOptions{
		Name: r.Name, DestRange: r.DestRange, SrcRange: r.SrcRange, Protocol: routeProtocols[r.IPProtocol],
		Interfaces: r.Interfaces, NextHopAddress: r.NextHopAddress, Announce: announces[r.Announce],
		Service: r.BackendService, Symmetric: r.SymmetricHashing, DecrementTTL: r.DecrementTTL,
	}
}

// The names of the configuration in the selector's terms.
var (
	affinities = map[config.SessionAffinity]selector.SessionAffinity{
		config.AffinityNone:                  selector.AffinityNone,
		config.AffinityClientIP:              selector.AffinityClientIP,
		config.AffinityClientIPProto:         selector.AffinityClientIPProto,
		config.AffinityClientIPPortProto:     selector.AffinityClientIPPortProto,
		config.AffinityClientIPNoDestination: selector.AffinityClientIPNoDestination,
	}
	trackingModes = map[config.TrackingMode]selector.TrackingMode{
		config.TrackPerConnection: selector.PerConnection,
		config.TrackPerSession:    selector.PerSession,
	}
	persistences = map[config.Persistence]selector.Persistence{
		config.PersistDefault: selector.PersistDefault,
		config.PersistNever:   selector.PersistNever,
		config.PersistAlways:  selector.PersistAlways,
	}
	spillovers = map[config.Spillover]selector.Spillover{
		config.SpillDisabled:       selector.AffinityDisabled,
		config.SpillStayWithinZone: selector.StayWithinZone,
		config.SpillCrossZone:      selector.SpillCrossZone,
	}
	announces = map[config.Announce]selector.Announce{
		config.AnnounceAlways:  selector.AnnounceAlways,
		config.AnnounceStandby: selector.AnnounceStandby,
		config.AnnounceNever:   selector.AnnounceNever,
	}
	ruleProtocols  = map[config.RuleProtocol]uint8{config.RuleTCP: 6, config.RuleUDP: 17, config.RuleL3Default: 0}
	routeProtocols = map[config.RouteProtocol]uint8{config.RouteTCP: 6, config.RouteUDP: 17, config.RouteAll: 0}
)

// interfaceConfigs maps the interfaces to the forwarder's terms. A UMEM serves
// one queue of every interface, so it has that many times the frames.
func interfaceConfigs(c *config.Config) []forwarder.InterfaceConfig {
	frames := c.Tuning.FramesPerQueue
	for frames < len(c.Interfaces)*c.Tuning.FramesPerQueue {
		frames *= 2
	}
	var out []forwarder.InterfaceConfig
	for _, i := range c.Interfaces {
		rings := xsk.Config{
			FrameSize: c.Tuning.FrameSize, Frames: frames,
			Fill: 2 * c.Tuning.RxRing, RX: c.Tuning.RxRing, TX: c.Tuning.TxRing,
			Batch: min(max(c.Tuning.Batch, 32), c.Tuning.TxRing),
			Mode:  modes[i.Mode], HugePages: hugePages[c.Tuning.HugePages],
		}
		out = append(out, forwarder.InterfaceConfig{
			Name: i.Name, Queues: i.Queues, Rings: rings, Generic: i.Mode == config.ModeGeneric,
		})
	}
	return out
}

var (
	modes = map[config.Mode]xsk.Mode{
		config.ModeAuto: xsk.ModeAuto, config.ModeZeroCopy: xsk.ModeZeroCopy,
		config.ModeCopy: xsk.ModeCopy, config.ModeGeneric: xsk.ModeCopy,
	}
	hugePages = map[config.HugePages]xsk.HugePages{
		config.HugePagesAuto: xsk.HugePagesAuto, config.HugePagesAlways: xsk.HugePagesOn, config.HugePagesNever: xsk.HugePagesOff,
	}
)

// cpuOf says where the worker of a queue runs: where the first interface that
// has an opinion puts it; -1 leaves it to the scheduler. "auto" pins workers
// only where at least one CPU stays free for everything else.
func cpuOf(c *config.Config, worker, workers, cpus int) int {
	for _, i := range c.Interfaces {
		switch i.CPUs.Policy {
		case config.CPUList:
			at := worker
			for n, q := range i.Queues {
				if q == worker {
					at = n
				}
			}
			if at < len(i.CPUs.List) {
				return i.CPUs.List[at]
			}
		case config.CPUAuto:
			if workers < cpus {
				return worker % cpus
			}
		}
	}
	return -1
}

func familyOf(a netip.Addr) selector.Family {
	if a.Is4() {
		return selector.V4
	}
	return selector.V6
}

package config

import (
	"slices"
	"strconv"
	"time"
)

// tableLoad is the share of a flow table's entries up to which hardly a connection is refused.
const tableLoad = 0.6

// warn reports what is accepted and probably not meant. It stays silent about
// values that were refused, and what depends on them.
func (d *decoder) warn(c *Config) {
	routed := make(map[string]*Route)
	for i := range c.Routes {
		if r := &c.Routes[i]; r.SymmetricHashing && routed[r.BackendService] == nil {
			routed[r.BackendService] = r
		}
	}
	for i := range c.BackendServices {
		s := &c.BackendServices[i]
		if s.DrainingTimeout == 0 && !d.refused(&s.DrainingTimeout) {
			d.warnAt(&s.DrainingTimeout, "0 cuts the connections of a backend when it is removed; use up to 3600 to let them end")
		}
		z := &s.ZonalAffinity
		if d.refused(z) || d.refused(&z.Spillover) {
			continue
		}
		if z.SpilloverRatio > 0 && z.Spillover != SpillCrossZone {
			d.warnAt(&z.SpilloverRatio, "%s has no effect with %s; use SPILL_CROSS_ZONE or leave it out", z.SpilloverRatio, z.Spillover)
		}
		if z.Spillover != SpillDisabled {
			if d.zonesKnown(c, s) {
				d.warnZones(c, s)
			}
			if r := routed[s.Name]; r != nil {
				d.warnAt(&z.Spillover, "with symmetricHashing of route %s the two directions of a connection may come from different zones and reach different backends; use DISABLED for stateful backends", r.Name)
			}
		}
	}
	d.warnGroup(c)
	d.warnFlowTable(c)
}

// zonesKnown reports whether the zones of a service's backends and clients are all readable.
func (d *decoder) zonesKnown(c *Config, s *BackendService) bool {
	known := !d.refused(&c.Zones) && !d.refused(&s.Backends)
	for i := range s.Backends {
		known = known && !d.refused(&s.Backends[i]) && !d.refused(&s.Backends[i].Zone)
	}
	for i := range c.Zones {
		known = known && !d.refused(&c.Zones[i]) && !d.refused(&c.Zones[i].Name) && !d.refused(&c.Zones[i].ClientRanges)
	}
	return known
}

// warnZones reports zones in which affinity does something else than its name says, or nothing.
func (d *decoder) warnZones(c *Config, s *BackendService) {
	z := &s.ZonalAffinity
	type group struct {
		zone     string
		failover bool
	}
	counts, inZone := make(map[group]int), make(map[string]int)
	for _, b := range s.Backends {
		counts[group{b.Zone, b.Failover}]++
		inZone[b.Zone]++
	}
	var single, many, empty []string
	clients := c.ZoneMapFile != ""
	for _, zone := range c.Zones {
		for _, n := range []int{counts[group{zone.Name, false}], counts[group{zone.Name, true}]} {
			if n == 1 && !slices.Contains(single, zone.Name) {
				single = append(single, zone.Name)
			}
			if n > 2 && !slices.Contains(many, zone.Name) {
				many = append(many, zone.Name)
			}
		}
		if len(zone.ClientRanges) > 0 {
			clients = true
			if inZone[zone.Name] == 0 {
				empty = append(empty, zone.Name)
			}
		}
	}
	if z.Spillover == SpillStayWithinZone && len(single) > 0 {
		d.warnAt(&z.Spillover, "STAY_WITHIN_ZONE sends to the only backend of zone %s even while it is unhealthy; add backends there or use SPILL_CROSS_ZONE", some(single))
	}
	if z.Spillover == SpillCrossZone && z.SpilloverRatio == 0 && !d.refused(&z.SpilloverRatio) && len(many) > 0 {
		d.warnAt(&z.SpilloverRatio, "with 0 one healthy backend keeps all traffic of zone %s; use a ratio such as 0.5", some(many))
	}
	if !clients {
		d.warnAt(&z.Spillover, "has no effect, because no client has a zone; give zones clientRanges, or use DISABLED")
	}
	if len(empty) > 0 {
		d.warnAt(&z.Spillover, "has no effect for the clients of zone %s, where backend service %s has no backend; add one there", some(empty), s.Name)
	}
}

// warnGroup reports the public hash key in a file that shows a second appliance: an address that is on
// standby, or left to routing, is one that another may answer for.
func (d *decoder) warnGroup(c *Config) {
	if c.HashKeyFile != "" || c.HashKey != BuiltinHashKey {
		return
	}
	say := func(a Announce, whose string) bool {
		if a == AnnounceAlways {
			return false
		}
		d.warnAt(&c.HashKey, "is the built-in one, while announce %s of %s shows another appliance; give all of them one secret hashKey", a, whose)
		return true
	}
	for i := range c.ForwardingRules {
		if r := &c.ForwardingRules[i]; say(r.Announce, "forwarding rule "+r.Name) {
			return
		}
	}
	for i := range c.Routes {
		if r := &c.Routes[i]; say(r.Announce, "route "+r.Name) {
			return
		}
	}
}

// warnFlowTable reports a table that the expected connections would fill before they go idle.
func (d *decoder) warnFlowTable(c *Config) {
	if d.refused(&c.FlowTable.Entries) {
		return
	}
	var idle time.Duration
	for _, s := range c.BackendServices {
		idle = max(idle, s.IdleTimeout)
	}
	f := &c.FlowTable
	need := float64(f.ExpectedConnectionsPerSec) * idle.Seconds() / tableLoad
	if need > float64(f.Entries) {
		d.warnAt(&f.Entries, "%d entries are too few for %d new connections a second that are kept %s seconds; use at least %s, or a shorter idleTimeoutSec",
			f.Entries, f.ExpectedConnectionsPerSec, formatSeconds(idle), strconv.FormatFloat(need, 'f', 0, 64))
	}
}

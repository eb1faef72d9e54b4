package selector

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Limits of the numbers in rules, services, flow keys and tables.
const (
	maxServices           = 65535
	maxRules              = 65535
	maxBackendsPerService = 60000 // fewer than slots, so that each could have one
)

// checker collects what is wrong with Options.
type checker struct {
	o        *Options
	zones    map[string]bool
	services map[string]*ServiceOptions
	errs     []error
}

// Validate reports everything in o that this package cannot work with, joined into one error.
func Validate(o *Options) error {
	c := &checker{o: o, zones: map[string]bool{}, services: map[string]*ServiceOptions{}}
	c.checkNetwork()
	for i := range o.Services {
		c.checkService(&o.Services[i])
	}
	names := map[string]bool{}
	c.checkRules(names)
	c.checkRoutes(names)
	return errors.Join(c.errs...)
}

func (c *checker) fail(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// checkNetwork covers ports, zones and client ranges.
func (c *checker) checkNetwork() {
	o := c.o
	if len(o.Ports) > maxPorts {
		c.fail("%d interfaces: at most %d", len(o.Ports), maxPorts)
	}
	if dup, found := duplicate(o.Ports); found {
		c.fail("interface %q is listed twice", dup)
	}
	if len(o.Zones) > maxZones || len(o.Regions) > maxRegions {
		c.fail("%d zones and %d regions: at most %d and %d", len(o.Zones), len(o.Regions), maxZones, maxRegions)
	}
	ranges := map[netip.Prefix]string{}
	for _, z := range o.Zones {
		if z.Name == "" || c.zones[z.Name] {
			c.fail("zone %q: empty or declared twice", z.Name)
		}
		c.zones[z.Name] = true
		for _, p := range z.ClientRanges {
			c.checkPrefix("zone "+z.Name, p)
			if other, taken := ranges[unmapped(p)]; taken && other != z.Name {
				c.fail("zone %q: clients %v belong to zone %q already", z.Name, p, other)
			}
			ranges[unmapped(p)] = z.Name
		}
	}
	if o.Zone != "" && !c.zones[o.Zone] {
		c.fail("own zone %q is not declared", o.Zone)
	}
	for _, e := range o.ZoneMap {
		c.checkPrefix("zone map", e.Prefix)
		if !c.zones[e.Zone] {
			c.fail("zone map: %v: zone %q is not declared", e.Prefix, e.Zone)
		}
	}
	for _, p := range o.Incompatible {
		c.checkPrefix("incompatible clients", p)
	}
	for _, r := range o.Regions {
		for _, p := range r.ClientRanges {
			c.checkPrefix("region "+r.Name, p)
		}
	}
}

func (c *checker) checkPrefix(where string, p netip.Prefix) {
	if !p.IsValid() {
		c.fail("%s: invalid address range", where)
	}
}

func (c *checker) checkService(s *ServiceOptions) {
	if s.Name == "" || c.services[s.Name] != nil {
		c.fail("service %q: empty name or declared twice", s.Name)
	}
	c.services[s.Name] = s
	if len(c.o.Services) > maxServices || len(s.Backends) > maxBackendsPerService {
		c.fail("service %q: at most %d services of %d backends", s.Name, maxServices, maxBackendsPerService)
	}
	primaries := 0
	var names []string
	for i := range s.Backends {
		b := &s.Backends[i]
		names = append(names, b.Name)
		if !b.Failover {
			primaries++
		}
		if b.Name == "" {
			c.fail("service %q: a backend has no name", s.Name)
		}
		if b.Zone != "" && !c.zones[b.Zone] {
			c.fail("service %q: backend %q: zone %q is not declared", s.Name, b.Name, b.Zone)
		}
		if !b.Address.IsValid() && !b.Address6.IsValid() {
			c.fail("service %q: backend %q has no address", s.Name, b.Name)
		}
		if b.Address.IsValid() && familyOf(b.Address) != V4 || b.Address6.IsValid() && familyOf(b.Address6) != V6 {
			c.fail("service %q: backend %q: address of the wrong family", s.Name, b.Name)
		}
	}
	if dup, found := duplicate(names); found {
		c.fail("service %q: backend %q is listed twice", s.Name, dup)
	}
	if primaries == 0 && len(s.Backends) > 0 {
		c.fail("service %q has failover backends only; make at least one a primary", s.Name)
	}
}

func (c *checker) checkRules(names map[string]bool) {
	if len(c.o.Rules)+len(c.o.Routes) > maxRules {
		c.fail("%d rules and routes: at most %d", len(c.o.Rules)+len(c.o.Routes), maxRules)
	}
	taken := map[ruleAddress]string{}
	ranges := map[ruleAddress][]PortRange{}
	for i := range c.o.Rules {
		r := &c.o.Rules[i]
		c.checkCommon("rule", r.Name, r.Service, r.Interfaces, names)
		all := r.AllPorts || r.Protocol == 0
		switch {
		case !r.Address.IsValid():
			c.fail("rule %q has no address", r.Name)
			continue
		case r.Protocol != 0 && r.Protocol != protoTCP && r.Protocol != protoUDP:
			c.fail("rule %q: protocol %d: use TCP, UDP or L3_DEFAULT", r.Name, r.Protocol)
		case all == (len(r.Ports) > 0):
			c.fail("rule %q: give ports or all ports, one of them", r.Name)
		}
		key := ruleAddress{words(r.Address), r.Protocol}
		if all {
			if other, both := taken[key]; both {
				c.fail("rules %q and %q both have every port of protocol %d on %v", other, r.Name, r.Protocol, r.Address)
			}
			taken[key] = r.Name
		}
		for _, p := range r.Ports {
			if p.First > p.Last {
				c.fail("rule %q: ports %d-%d are the wrong way round", r.Name, p.First, p.Last)
			}
			if slices.ContainsFunc(ranges[key], func(o PortRange) bool { return p.First <= o.Last && o.First <= p.Last }) {
				c.fail("rule %q: ports %d-%d on %v are taken", r.Name, p.First, p.Last, r.Address)
			}
			ranges[key] = append(ranges[key], p)
		}
	}
}

type ruleAddress struct {
	addr  [2]uint64
	proto uint8
}

func (c *checker) checkRoutes(names map[string]bool) {
	for i := range c.o.Routes {
		r := &c.o.Routes[i]
		c.checkCommon("route", r.Name, r.Service, r.Interfaces, names)
		if !r.DestRange.IsValid() {
			c.fail("route %q has no destination range", r.Name)
			continue
		}
		dest := unmapped(r.DestRange)
		for _, never := range neverRouted {
			if never.Bits() <= dest.Bits() && never.Contains(dest.Addr()) {
				c.fail("route %q: %v is within %v, which is never routed", r.Name, dest, never)
			}
		}
		family := familyOf(dest.Addr())
		if r.SrcRange.IsValid() && familyOf(unmapped(r.SrcRange).Addr()) != family ||
			r.NextHopAddress.IsValid() && familyOf(r.NextHopAddress) != family {
			c.fail("route %q: source range and next hop address must be %v like the destination", r.Name, family)
		}
		if s := c.services[r.Service]; s != nil && r.Symmetric && s.Affinity == AffinityClientIPNoDestination {
			c.fail("route %q: symmetric hashing does not work with CLIENT_IP_NO_DESTINATION", r.Name)
		}
	}
}

// checkCommon covers what rules and routes share.
func (c *checker) checkCommon(what, name, service string, interfaces []string, names map[string]bool) {
	if name == "" || names[name] {
		c.fail("%s %q: empty name, or the name of another rule or route", what, name)
	}
	names[name] = true
	if c.services[service] == nil {
		c.fail("%s %q: backend service %q is not declared", what, name, service)
	}
	for _, n := range interfaces {
		if !slices.Contains(c.o.Ports, n) {
			c.fail("%s %q: interface %q is not one of the appliance's", what, name, n)
		}
	}
}

// duplicate finds a string that occurs twice.
func duplicate(list []string) (string, bool) {
	seen := map[string]bool{}
	for _, s := range list {
		if seen[s] {
			return s, true
		}
		seen[s] = true
	}
	return "", false
}

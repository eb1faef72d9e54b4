package config

import (
	"cmp"
	"net/netip"
	"slices"
)

// checkRules holds rules against each other and against their services.
func (d *decoder) checkRules(c *Config) {
	d.overlappingRules(c)
	services := c.services()
	for i := range c.ForwardingRules {
		r := &c.ForwardingRules[i]
		s := services[r.BackendService]
		if s == nil {
			continue
		}
		if r.IPProtocol != "" && s.Protocol != "" && s.Protocol != ProtocolUnspecified && string(r.IPProtocol) != string(s.Protocol) {
			d.errorAt(&r.IPProtocol, "%s cannot go to backend service %s, whose protocol is %s; use %s here or UNSPECIFIED there",
				r.IPProtocol, s.Name, s.Protocol, s.Protocol)
		}
		d.checkFamily(&r.IPAddress, r.IPAddress, s)
	}
}

// checkFamily reports a rule or route of a family in which some backend has no address.
func (d *decoder) checkFamily(field any, a netip.Addr, s *BackendService) {
	if !a.IsValid() {
		return
	}
	var lacking []string
	missing := ""
	for i := range s.Backends {
		b := &s.Backends[i]
		own, key := &b.Address, "address"
		if a.Is6() {
			own, key = &b.IPv6Address, "ipv6Address"
		}
		if !own.IsValid() && !d.refused(own) && (b.Address.IsValid() || b.IPv6Address.IsValid()) {
			lacking = append(lacking, orNone(b.Name))
			missing = key
		}
	}
	noun, have := "backend", "has"
	if len(lacking) > 1 {
		noun, have = "backends", "have"
	}
	if len(lacking) > 0 {
		d.errorAt(field, "is %s, but %s %s of backend service %s %s no %s address; add %s there, or use another service",
			family(a), noun, some(lacking), s.Name, have, family(a), missing)
	}
}

// overlappingRules reports the second of two rules that claim one port of one address and protocol.
func (d *decoder) overlappingRules(c *Config) {
	type claim struct {
		rule  int
		ports PortRange
		field any
	}
	type front struct {
		address  netip.Addr
		protocol RuleProtocol
	}
	claims := make(map[front][]claim)
	var order []front
	for i := range c.ForwardingRules {
		r := &c.ForwardingRules[i]
		f := front{r.IPAddress, r.IPProtocol}
		if !f.address.IsValid() || f.protocol == "" {
			continue
		}
		if claims[f] == nil {
			order = append(order, f)
		}
		if r.AllPorts {
			claims[f] = append(claims[f], claim{i, PortRange{0, 65535}, &r.AllPorts})
			continue
		}
		for j := range r.Ports {
			if r.Ports[j].First > 0 {
				claims[f] = append(claims[f], claim{i, r.Ports[j], &r.Ports[j]})
			}
		}
	}
	for _, f := range order {
		of := claims[f]
		slices.SortStableFunc(of, func(a, b claim) int { return cmp.Compare(a.ports.First, b.ports.First) })
		type two struct{ first, second int }
		said := make(map[two]bool)
		var widest claim
		for i, now := range of {
			if i > 0 && now.rule != widest.rule && now.ports.overlaps(widest.ports) {
				first, second := widest, now
				if first.rule > second.rule {
					first, second = second, first
				}
				if pair := (two{first.rule, second.rule}); !said[pair] {
					said[pair] = true
					d.overlap(c, second.field, first.rule, second.rule, first.ports, second.ports)
				}
			}
			if i == 0 || now.ports.Last > widest.ports.Last {
				widest = now
			}
		}
	}
}

func (d *decoder) overlap(c *Config, field any, first, second int, firstPorts, ports PortRange) {
	a, b := &c.ForwardingRules[first], &c.ForwardingRules[second]
	what := ports.String() + " of"
	switch {
	case ports.First == 0 && firstPorts.First == 0:
		what = "every port of"
	case ports.First == 0:
		what = "every port includes " + firstPorts.String() + ", which for"
	case firstPorts.First != 0 && ports != firstPorts:
		what = ports.String() + " overlaps " + firstPorts.String() + ", which for"
	}
	d.errorAt(field, "%s %s %s already belongs to forwarding rule %s in line %d; use another port, protocol or address",
		what, b.IPAddress, b.IPProtocol, orNone(a.Name), d.line(a))
}

// checkRoutes holds routes against each other and against their services.
func (d *decoder) checkRoutes(c *Config) {
	type match struct{ dest, src netip.Prefix }
	seen := make(map[match][]*Route)
	services := c.services()
	for i := range c.Routes {
		r := &c.Routes[i]
		if r.DestRange.IsValid() && (r.SrcRange.IsValid() || !d.given(&r.SrcRange)) {
			m := match{r.DestRange, r.SrcRange}
			for _, before := range seen[m] {
				if r.sameTraffic(before) {
					d.errorAt(&r.DestRange, "%s from the same sources already belongs to route %s in line %d; use another destRange, srcRange, ipProtocol or interface",
						r.DestRange, orNone(before.Name), d.line(before))
					break
				}
			}
			seen[m] = append(seen[m], r)
		}
		s := services[r.BackendService]
		if s == nil {
			continue
		}
		if r.SymmetricHashing && s.SessionAffinity == AffinityClientIPNoDestination {
			d.errorAt(&r.SymmetricHashing, "true cannot go with sessionAffinity CLIENT_IP_NO_DESTINATION of backend service %s, which looks at one end only; use false, or another sessionAffinity", s.Name)
		}
		d.checkFamily(&r.DestRange, r.DestRange.Addr(), s)
	}
}

// sameTraffic reports whether two routes of the same ranges can match one packet with nothing to choose
// between them: of two that differ, the one with a protocol wins, then the one with interfaces.
func (r *Route) sameTraffic(o *Route) bool {
	if r.IPProtocol != o.IPProtocol || (len(r.Interfaces) == 0) != (len(o.Interfaces) == 0) {
		return false
	}
	return len(r.Interfaces) == 0 ||
		slices.ContainsFunc(r.Interfaces, func(i string) bool { return slices.Contains(o.Interfaces, i) })
}

// checkAddresses holds the addresses that the appliance answers for against each other and against those
// of the backends.
func (d *decoder) checkAddresses(c *Config) {
	backends := make(map[netip.Addr]*Backend)
	for i := range c.BackendServices {
		for j := range c.BackendServices[i].Backends {
			b := &c.BackendServices[i].Backends[j]
			for _, a := range b.Addresses() {
				backends[a] = b
			}
		}
	}
	type answer struct {
		announce Announce
		owner    any
	}
	answers := make(map[netip.Addr]answer)
	claim := func(field *netip.Addr, announce *Announce, owner any) {
		if !field.IsValid() {
			return
		}
		if b, taken := backends[*field]; taken {
			d.errorAt(field, "%s is the address of the backend in line %d; use one that no machine has", field, d.line(b))
		}
		before, again := answers[*field]
		if again && *announce != "" && before.announce != "" && *announce != before.announce {
			d.errorAt(announce, "is %s, but the same address is %s in line %d; use the same for one address", *announce, before.announce, d.line(before.owner))
		}
		if !again {
			answers[*field] = answer{*announce, owner}
		}
	}
	for i := range c.ForwardingRules {
		r := &c.ForwardingRules[i]
		claim(&r.IPAddress, &r.Announce, r)
	}
	for i := range c.Routes {
		r := &c.Routes[i]
		claim(&r.NextHopAddress, &r.Announce, r)
	}
}

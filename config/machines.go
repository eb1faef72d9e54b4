package config

import (
	"net/netip"
	"strings"
)

// checkMachines holds backends of one name against each other: they are one machine, in one zone, with
// the same addresses.
func (d *decoder) checkMachines(c *Config) {
	type machine struct {
		backend *Backend
		service string
	}
	machines := make(map[string]machine)
	for i := range c.BackendServices {
		s := &c.BackendServices[i]
		here := make(map[string]*Backend, len(s.Backends))
		addresses := make(map[netip.Addr]*Backend, len(s.Backends))
		for j := range s.Backends {
			b := &s.Backends[j]
			for _, a := range []*netip.Addr{&b.Address, &b.IPv6Address} {
				if before, taken := addresses[*a]; taken && a.IsValid() {
					d.errorAt(a, "%s is already the address of the backend in line %d of the same service; list a machine once", a, d.line(before))
				} else {
					addresses[*a] = b
				}
			}
			if b.Name == "" {
				continue
			}
			if before, taken := here[b.Name]; taken {
				if d.given(&b.Name) || d.given(&before.Name) {
					d.errorAt(&b.Name, "%s is already the name of the backend in line %d of the same service; use another", show(b.Name), d.line(before))
				}
				continue
			}
			here[b.Name] = b
			m, elsewhere := machines[b.Name]
			if !elsewhere {
				machines[b.Name] = machine{b, s.Name}
				continue
			}
			d.sameMachine(b, m.backend, m.service)
		}
	}
}

func (d *decoder) sameMachine(b, first *Backend, service string) {
	const rule = "one name is one machine: make them agree or use another name"
	where := "backend " + b.Name + " of service " + service
	if b.Zone != first.Zone && !d.refused(&b.Zone) && !d.refused(&first.Zone) {
		d.errorAt(&b.Zone, "is %s, but %s in line %d has %s; %s", orNone(b.Zone), where, d.line(first), orNone(first.Zone), rule)
	}
	for _, a := range []struct{ here, there *netip.Addr }{{&b.Address, &first.Address}, {&b.IPv6Address, &first.IPv6Address}} {
		if *a.here != *a.there && !d.refused(a.here) && !d.refused(a.there) {
			d.errorAt(a.here, "is %s, but %s in line %d has %s; %s", addrOrNone(*a.here), where, d.line(first), addrOrNone(*a.there), rule)
		}
	}
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return show(text)
}

func addrOrNone(a netip.Addr) string {
	if !a.IsValid() {
		return "none"
	}
	return a.String()
}

// checkRanges reports client ranges that are in two places. A range inside another is fine: the longer
// prefix wins.
func (d *decoder) checkRanges(c *Config) {
	type owner struct {
		prefix *netip.Prefix
		whose  string // "zone a"
	}
	first := make(map[netip.Prefix]owner)
	claim := func(ranges []netip.Prefix, whose string) {
		for i := range ranges {
			p := &ranges[i]
			if !p.IsValid() {
				continue
			}
			if before, taken := first[*p]; taken {
				d.errorAt(p, "%s already belongs to %s in line %d; give it to one, or use a longer prefix", p, before.whose, d.line(before.prefix))
				continue
			}
			first[*p] = owner{p, whose}
		}
	}
	for i := range c.Zones {
		claim(c.Zones[i].ClientRanges, strings.TrimSpace("zone "+c.Zones[i].Name))
	}
	claim(c.IncompatibleClients.Ranges, "incompatibleClients")
	for i := range c.Regions {
		claim(c.Regions[i].ClientRanges, strings.TrimSpace("region "+c.Regions[i].Name))
	}
}

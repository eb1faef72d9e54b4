package config

import "net/netip"

// Backend is one machine of a service. The same name in two services is the same machine.
type Backend struct {
	Name string
	// Zone is one of Config.Zones; empty when the file gives none.
	Zone string
	// Address is IPv4 and IPv6Address IPv6; at least one of them is valid.
	Address, IPv6Address netip.Addr
	// Failover makes it a failover backend, otherwise it is a primary one.
	Failover bool
	// Weight, 0 to 1000, is the backend's share of new connections beside the others'.
	Weight int
}

// Addresses are the one or two addresses of the backend, IPv4 first.
func (b *Backend) Addresses() []netip.Addr {
	var out []netip.Addr
	for _, a := range []netip.Addr{b.Address, b.IPv6Address} {
		if a.IsValid() {
			out = append(out, a)
		}
	}
	return out
}

const groupReason = "backends are listed one by one, not as groups; give each its address"

var backendTable = object[Backend]{noun: "a backend", fields: []*field[Backend]{
	key("name", name(maxName), func(b *Backend) *string { return &b.Name }, "its name; SERVICE/ADDRESS when left out"),
	key("zone", name(maxPartName), func(b *Backend) *string { return &b.Zone }, "one of the zones; without it no client is near").
		printed(func(b *Backend) bool { return b.Zone != "" }),
	key("address", address(0), func(b *Backend) *netip.Addr { return &b.Address }, "its IPv4 address, or IPv6 if it has no other").
		printed(func(b *Backend) bool { return b.Address.IsValid() }),
	key("ipv6Address", address(6), func(b *Backend) *netip.Addr { return &b.IPv6Address }, "its IPv6 address").
		printed(func(b *Backend) bool { return b.IPv6Address.IsValid() }),
	key("failover", boolean, func(b *Backend) *bool { return &b.Failover }, "a failover backend instead of a primary one").def("false"),
	key("weight", integer[int](0, 1000), func(b *Backend) *int { return &b.Weight }, "its share of new connections").def("1"),
	refuse[Backend]("group", groupReason),
	refuse[Backend]("balancingMode", "connections are balanced by hash, which knows no balancing modes; remove it"),
	refuse[Backend]("capacityScaler", "there are no balancing modes and no capacities; use weight"),
	refuse[Backend]("maxConnections", "there are no balancing modes and no capacities; use weight"),
	refuse[Backend]("maxConnectionsPerInstance", "there are no balancing modes and no capacities; use weight"),
	refuse[Backend]("maxConnectionsPerEndpoint", "there are no balancing modes and no capacities; use weight"),
	refuse[Backend]("maxRate", "there are no balancing modes and no capacities; use weight"),
	refuse[Backend]("maxRatePerInstance", "there are no balancing modes and no capacities; use weight"),
	refuse[Backend]("maxRatePerEndpoint", "there are no balancing modes and no capacities; use weight"),
	refuse[Backend]("maxUtilization", "there are no balancing modes and no capacities; use weight"),
	refuse[Backend]("port", "packets keep the port they were sent to; remove it"),
	refuse[Backend]("description", "descriptions are not kept; write a comment"),
}, finish: func(d *decoder, b *Backend) {
	if b.Address.Is6() {
		if d.given(&b.IPv6Address) {
			d.errorAt(&b.Address, "%s is an IPv6 address beside ipv6Address; use an IPv4 address", b.Address)
			return
		}
		b.IPv6Address, b.Address = b.Address, netip.Addr{}
		d.places[&b.IPv6Address] = d.places[&b.Address]
	}
	if !d.given(&b.Address) && !d.given(&b.IPv6Address) {
		d.errorAt(&b.Address, "missing; a backend needs an address, an ipv6Address or both")
	}
}}

package config

import "net/netip"

// Zone is a zone, or another region, with the address ranges of the clients in it.
type Zone struct {
	Name         string
	ClientRanges []netip.Prefix
}

// ClientRanges are address ranges of clients.
type ClientRanges struct {
	Ranges []netip.Prefix
}

var ranges = list(prefix, "address ranges", 0, maxList)

var (
	zoneTable   = namedRanges("a zone")
	regionTable = namedRanges("a region")
)

func namedRanges(noun string) *object[Zone] {
	return &object[Zone]{noun: noun, fields: []*field[Zone]{
		key("name", name(maxPartName), func(z *Zone) *string { return &z.Name }, "its name").need(),
		key("clientRanges", ranges, func(z *Zone) *[]netip.Prefix { return &z.ClientRanges },
			"the addresses of the clients in it"),
	}}
}

var incompatibleTable = object[ClientRanges]{noun: "incompatibleClients", fields: []*field[ClientRanges]{
	key("ranges", ranges, func(c *ClientRanges) *[]netip.Prefix { return &c.Ranges }, "their addresses"),
}}

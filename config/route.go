package config

import (
	"net/netip"
	"strings"
)

// Route is a range of destinations for which the appliance is the next hop.
type Route struct {
	Name      string
	DestRange netip.Prefix
	// SrcRange limits the route to packets from there; not valid for any source.
	SrcRange netip.Prefix
	// IPProtocol limits the route to one protocol; RouteAll for any.
	IPProtocol RouteProtocol
	// Interfaces limit the route to packets that come in there; nil for all.
	Interfaces []string
	// NextHopAddress is an address the appliance answers for; not valid when the interface's own is used.
	NextHopAddress netip.Addr
	Announce       Announce
	BackendService string
	// SymmetricHashing takes both directions of a connection to one backend.
	SymmetricHashing bool
	DecrementTTL     bool
}

// RouteProtocol is the protocol a route is limited to.
type RouteProtocol string

// The protocols of routes.
const (
	RouteAll RouteProtocol = "ALL"
	RouteTCP RouteProtocol = "TCP"
	RouteUDP RouteProtocol = "UDP"
)

// RouteOnCrash is what happens to packets of routes while the appliance is not running.
type RouteOnCrash string

// The options: the packets are dropped, or the host's own routing gets them.
const (
	RouteDrop   RouteOnCrash = "DROP"
	RouteKernel RouteOnCrash = "KERNEL"
)

var routeTable = object[Route]{noun: "a route", finish: finishRoute, fields: []*field[Route]{
	key("name", name(maxName), func(r *Route) *string { return &r.Name }, "its name; made of what it matches when left out"),
	key("destRange", prefix, func(r *Route) *netip.Prefix { return &r.DestRange }, "destinations of the packets").need(),
	key("srcRange", prefix, func(r *Route) *netip.Prefix { return &r.SrcRange }, "sources of the packets; any when left out").
		printed(func(r *Route) bool { return r.SrcRange.IsValid() }),
	key("ipProtocol", enum("", nil, RouteAll, RouteTCP, RouteUDP), func(r *Route) *RouteProtocol { return &r.IPProtocol },
		"protocol of the packets").def("ALL"),
	key("interfaces", list(interfaceName, "interface names", 1, 64), func(r *Route) *[]string { return &r.Interfaces },
		"where the packets come in; all when left out").printed(func(r *Route) bool { return len(r.Interfaces) > 0 }),
	key("nextHopAddress", address(0), func(r *Route) *netip.Addr { return &r.NextHopAddress },
		"an address this appliance answers for, to point static routes at").
		printed(func(r *Route) bool { return r.NextHopAddress.IsValid() }),
	key("announce", announce, func(r *Route) *Announce { return &r.Announce },
		"answer for nextHopAddress always, after \"appliance announce on\", or never").def("ALWAYS"),
	key("backendService", name(maxPartName), func(r *Route) *string { return &r.BackendService }, "one of the backend services").need(),
	key("symmetricHashing", boolean, func(r *Route) *bool { return &r.SymmetricHashing },
		"take both directions of a connection to one backend").def("true"),
	key("decrementTTL", boolean, func(r *Route) *bool { return &r.DecrementTTL }, "count as a hop, which bounds loops").def("true"),
	refuse[Route]("nextHopIlb", "this appliance is the next hop; use backendService for where it sends packets"),
	refuse[Route]("nextHopIp", "this appliance is the next hop; use nextHopAddress for the address it answers for"),
	refuse[Route]("nextHopGateway", "this appliance is the next hop; remove it"),
	refuse[Route]("nextHopInstance", "this appliance is the next hop; remove it"),
	refuse[Route]("priority", "the most specific destination wins, then the most specific source; remove it"),
	refuse[Route]("tags", "clients carry no tags; use srcRange"),
	refuse[Route]("network", "the interfaces decide about the network; use interfaces"),
	refuse[Route]("description", "descriptions are not kept; write a comment"),
}}

// neverRouted are the ranges whose packets no route ever gets.
var neverRouted = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network"},
	{netip.MustParsePrefix("::/128"), "the unspecified address"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
}

func finishRoute(d *decoder, r *Route) {
	d.onceNamed(r.Interfaces)
	if r.DestRange.IsValid() {
		for _, never := range neverRouted {
			if never.prefix.Bits() <= r.DestRange.Bits() && never.prefix.Contains(r.DestRange.Addr()) {
				d.errorAt(&r.DestRange, "%s is %s, which no route matches; use unicast destinations", r.DestRange, never.what)
			}
		}
		four := r.DestRange.Addr().Is4()
		if r.SrcRange.IsValid() && r.SrcRange.Addr().Is4() != four {
			d.errorAt(&r.SrcRange, "%s is %s, but destRange %s is %s; use one family", r.SrcRange, family(r.SrcRange.Addr()), r.DestRange, family(r.DestRange.Addr()))
		}
		if r.NextHopAddress.IsValid() && r.NextHopAddress.Is4() != four {
			d.errorAt(&r.NextHopAddress, "%s is %s, but destRange %s is %s; use one family", r.NextHopAddress, family(r.NextHopAddress), r.DestRange, family(r.DestRange.Addr()))
		}
		if r.Name == "" && !d.given(&r.Name) {
			r.Name = r.madeName()
		}
	}
	if !r.NextHopAddress.IsValid() && r.Announce != AnnounceAlways && !d.given(&r.NextHopAddress) {
		d.errorAt(&r.Announce, "%s has no meaning without nextHopAddress; give one, or ALWAYS", r.Announce)
	}
}

// madeName is the name of a route that has none.
func (r *Route) madeName() string {
	parts := []string{r.DestRange.String()}
	if r.SrcRange.IsValid() {
		parts = append(parts, r.SrcRange.String())
	}
	if r.IPProtocol != RouteAll {
		parts = append(parts, string(r.IPProtocol))
	}
	for _, i := range r.Interfaces {
		if clean(i) {
			parts = append(parts, i)
		}
	}
	made := strings.Join(parts, ",")
	return made[:min(len(made), maxName)]
}

// clean reports whether a made name may have the word in it.
func clean(word string) bool {
	_, err := name(maxName).parse("x" + word)
	return err == nil
}

// family is the name of an address's family.
func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

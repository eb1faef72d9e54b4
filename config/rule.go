package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// ForwardingRule is an address that the appliance answers for, and what is sent on from there.
type ForwardingRule struct {
	Name      string
	IPAddress netip.Addr
	// IPProtocol is RuleTCP, RuleUDP, or RuleL3Default for all protocols.
	IPProtocol RuleProtocol
	// Ports are in the order of the file and do not overlap; empty with AllPorts.
	Ports             []PortRange
	AllPorts          bool
	BackendService    string
	AllowGlobalAccess bool
	Announce          Announce
	// Interfaces are where the address is answered for; nil for all.
	Interfaces []string
	// VIPPing answers echo requests to the address while the rule has an eligible backend.
	VIPPing bool
}

// RuleProtocol is the protocol of a forwarding rule.
type RuleProtocol string

// The protocols of forwarding rules.
const (
	RuleTCP       RuleProtocol = "TCP"
	RuleUDP       RuleProtocol = "UDP"
	RuleL3Default RuleProtocol = "L3_DEFAULT"
)

// Announce says when ARP and neighbour discovery are answered for an address.
type Announce string

// The announcements: always, only after "appliance announce on", or never, which leaves it to routing.
const (
	AnnounceAlways  Announce = "ALWAYS"
	AnnounceStandby Announce = "STANDBY"
	AnnounceNever   Announce = "NEVER"
)

// PortRange is a range of ports, both ends included; a single port has First equal to Last.
type PortRange struct {
	First, Last uint16
}

// String is "80" or "8000-8100".
func (p PortRange) String() string {
	if p.First == p.Last {
		return strconv.Itoa(int(p.First))
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

func (p PortRange) overlaps(q PortRange) bool { return p.First <= q.Last && q.First <= p.Last }

const allowedPorts = "a port from 1 to 65535 or a range such as \"8000-8100\""

var portRange = leaf(allowedPorts, func(text string) (PortRange, error) {
	low, high, isRange := strings.Cut(text, "-")
	if !isRange || low == "" {
		high, low = text, text
	}
	first, err := parseInteger(low, allowedPorts)
	last, err2 := parseInteger(high, allowedPorts)
	switch {
	case err != nil || err2 != nil:
		return PortRange{}, fmt.Errorf("%s is not a port; use %s", show(text), allowedPorts)
	case first < 1 || last > 65535 || first > 65535 || last < 1:
		return PortRange{}, fmt.Errorf("%s is out of range; use %s", show(text), allowedPorts)
	case first > last:
		return PortRange{}, fmt.Errorf("%s ends before it starts; write \"%d-%d\"", show(text), last, first)
	}
	return PortRange{uint16(first), uint16(last)}, nil
}, func(v PortRange) *yaml.Node {
	if v.First == v.Last {
		return bare(v.String())
	}
	return word(v.String())
}, schema{"anyOf": []any{
	schema{"type": "integer", "minimum": 1, "maximum": 65535},
	schema{"type": "string", "pattern": "^[1-9][0-9]{0,4}(-[1-9][0-9]{0,4})?$"},
}})

var announce = enum("", nil, AnnounceAlways, AnnounceStandby, AnnounceNever)

const oneKind = "there is one kind of load balancing; remove it"

var ruleTable = object[ForwardingRule]{noun: "a forwarding rule", finish: finishRule, fields: []*field[ForwardingRule]{
	key("name", name(maxName), func(r *ForwardingRule) *string { return &r.Name }, "its name; ADDRESS:PORTS/PROTOCOL when left out"),
	key("IPAddress", address(0), func(r *ForwardingRule) *netip.Addr { return &r.IPAddress }, "the address to answer for").need(),
	key("IPProtocol", enum("", map[string]string{
		"ICMP": "L3_DEFAULT carries it, along with everything else", "SCTP": "L3_DEFAULT carries it, along with everything else",
		"ESP": "L3_DEFAULT carries it, along with everything else", "AH": "L3_DEFAULT carries it, along with everything else",
	}, RuleTCP, RuleUDP, RuleL3Default), func(r *ForwardingRule) *RuleProtocol { return &r.IPProtocol }, "what it carries; L3_DEFAULT is everything").def("TCP"),
	key("ports", list(portRange, "ports", 1, 65535), func(r *ForwardingRule) *[]PortRange { return &r.Ports },
		"ports and ranges of ports, such as [80, \"8000-8100\"]").printed(func(r *ForwardingRule) bool { return len(r.Ports) > 0 }),
	key("allPorts", boolean, func(r *ForwardingRule) *bool { return &r.AllPorts }, "every port, and packets without ports").def("false"),
	key("backendService", name(maxPartName), func(r *ForwardingRule) *string { return &r.BackendService }, "one of the backend services").need(),
	key("allowGlobalAccess", boolean, func(r *ForwardingRule) *bool { return &r.AllowGlobalAccess }, "serve clients of other regions").def("true"),
	key("announce", announce, func(r *ForwardingRule) *Announce { return &r.Announce },
		"answer for the address always, after \"appliance announce on\", or never").def("ALWAYS"),
	key("interfaces", list(interfaceName, "interface names", 1, 64), func(r *ForwardingRule) *[]string { return &r.Interfaces },
		"where to answer; all when left out").printed(func(r *ForwardingRule) bool { return len(r.Interfaces) > 0 }),
	key("vipPing", boolean, func(r *ForwardingRule) *bool { return &r.VIPPing }, "answer ping while a backend is eligible").def("true"),
	refuse[ForwardingRule]("portRange", "it is for other products; use ports: [\"8000-8100\"]"),
	refuse[ForwardingRule]("ipVersion", "the address says which it is; remove it"),
	refuse[ForwardingRule]("loadBalancingScheme", oneKind),
	refuse[ForwardingRule]("isMirroringCollector", "packets are forwarded, not mirrored; remove it"),
	refuse[ForwardingRule]("network", "the interfaces decide about the network; use interfaces"),
	refuse[ForwardingRule]("subnetwork", "the interfaces decide about the network; use interfaces"),
	refuse[ForwardingRule]("networkTier", oneKind),
	refuse[ForwardingRule]("target", "it is for proxies; use backendService"),
	refuse[ForwardingRule]("serviceLabel", "there is no DNS; remove it"),
	refuse[ForwardingRule]("serviceDirectoryRegistrations", "there is no service directory; remove it"),
	refuse[ForwardingRule]("sourceIpRanges", "rules match all sources; use a route with srcRange"),
	refuse[ForwardingRule]("allowPscGlobalAccess", "there are no published services; use allowGlobalAccess"),
	refuse[ForwardingRule]("description", "descriptions are not kept; write a comment"),
}}

func finishRule(d *decoder, r *ForwardingRule) {
	switch portsGiven := d.given(&r.Ports); {
	case r.IPProtocol == RuleL3Default && portsGiven:
		d.errorAt(&r.Ports, "cannot go with L3_DEFAULT, which carries protocols without ports too; use allPorts: true")
	case r.AllPorts && portsGiven:
		d.errorAt(&r.Ports, "cannot go with allPorts: true; keep one of the two")
	case r.IPProtocol == RuleL3Default && !r.AllPorts:
		d.errorAt(&r.AllPorts, "missing; L3_DEFAULT needs allPorts: true")
	case !r.AllPorts && !portsGiven:
		d.errorAt(&r.Ports, "missing; use ports: [80] or allPorts: true")
	}
	d.distinctPorts(r)
	if r.Name == "" && !d.given(&r.Name) && r.IPAddress.IsValid() {
		r.Name = r.madeName()
	}
	d.onceNamed(r.Interfaces)
}

// distinctPorts reports ports that the rule itself has twice.
func (d *decoder) distinctPorts(r *ForwardingRule) {
	order := make([]int, 0, len(r.Ports))
	for i := range r.Ports {
		if r.Ports[i].First > 0 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(r.Ports[i].First, r.Ports[j].First) })
	for n := 1; n < len(order); n++ {
		i, j := order[n-1], order[n]
		if r.Ports[i].overlaps(r.Ports[j]) {
			second, first := max(i, j), min(i, j)
			d.errorAt(&r.Ports[second], "%s overlaps %s of the same rule; list each port once", r.Ports[second], r.Ports[first])
		}
	}
}

// madeName is the name of a rule that has none: two rules that may stand side by side differ in it.
func (r *ForwardingRule) madeName() string {
	address := r.IPAddress.String()
	if r.IPAddress.Is6() {
		address = "[" + address + "]"
	}
	if r.AllPorts || len(r.Ports) == 0 {
		return address + "/" + string(r.IPProtocol)
	}
	const most = 6
	var ports []string
	for i, p := range r.Ports {
		if i == most {
			ports = append(ports, "and-more")
			break
		}
		ports = append(ports, p.String())
	}
	return address + ":" + strings.Join(ports, ",") + "/" + string(r.IPProtocol)
}

// onceNamed reports names that a list has twice.
func (d *decoder) onceNamed(names []string) {
	for i := range names {
		if names[i] != "" && slices.Contains(names[:i], names[i]) {
			d.errorAt(&names[i], "%s is listed twice; list it once", show(names[i]))
		}
	}
}

// Package blackhole makes the kernel drop what it would forward to some
// destinations, and nothing else: packets of routes, which must not go past
// their inspection when the appliance is not there to take them.
//
//	rule   from all iif eth0 lookup 31336     one per interface and family
//	table  31336: blackhole 192.168.0.0/16    one per range
//
// Rules with an incoming interface match forwarded packets only: what the host
// sends itself to these destinations, health probes for example, goes where it
// always went. The table of the host's own addresses comes before, so that
// those are reached as ever.
//
// Rules and routes are told from others by their table and protocol number, so
// they outlive the process that made them and any later one can find, change
// and remove them. Functions act on the network namespace of the process, and
// are not safe for concurrent use.
package blackhole

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// table and protocol mark what is ours: "zh" and "z". Neither is in
	// iproute2's lists of well-known numbers.
	table    = 0x7a68
	protocol = 'z'
	// priority is right after that of the table of own addresses, 0: before
	// the rules of the host that would forward.
	priority = 10
)

var families = []int{netlink.FAMILY_V4, netlink.FAMILY_V6}

// Set makes packets that come in by the interfaces and would be forwarded to
// one of the ranges die; what was set before and is not wanted any more is
// removed. Interfaces need not exist. A call that changes nothing only reads.
func Set(interfaces []string, ranges []netip.Prefix) error {
	_, err := set(interfaces, ranges)
	return err
}

// Remove undoes every Set, also of earlier processes, and returns how many
// rules and routes there were.
func Remove() (removed int, err error) { return set(nil, nil) }

func set(interfaces []string, ranges []netip.Prefix) (removed int, err error) {
	for _, family := range families {
		var wanted []netip.Prefix
		for _, r := range ranges {
			if r.Addr().Is4() == (family == netlink.FAMILY_V4) && !slices.Contains(wanted, r.Masked()) {
				wanted = append(wanted, r.Masked())
			}
		}
		from := interfaces
		if len(wanted) == 0 {
			from = nil
		}
		n, err := setFamily(family, from, wanted)
		removed += n
		if err != nil {
			return removed, fmt.Errorf("keep the kernel from forwarding packets of routes: %w", err)
		}
	}
	return removed, nil
}

// setFamily adds routes before rules and removes rules before routes.
func setFamily(family int, interfaces []string, ranges []netip.Prefix) (removed int, err error) {
	rules, routes, err := present(family)
	if err != nil {
		if len(ranges) == 0 && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)) {
			return 0, nil // the kernel does not know the family, or no rules
		}
		return 0, err
	}
	var errs []error
	for _, r := range ranges {
		if _, there := routes[r]; !there {
			errs = append(errs, note("add blackhole "+r.String(), netlink.RouteAdd(blackholeTo(family, r))))
		}
		delete(routes, r)
	}
	for _, name := range interfaces {
		if _, there := rules[name]; !there {
			errs = append(errs, note("add rule for "+name, netlink.RuleAdd(ruleFrom(family, name))))
		}
		delete(rules, name)
	}
	for name := range rules {
		err := netlink.RuleDel(ruleFrom(family, name))
		errs = append(errs, note("remove rule for "+name, err))
		removed++
	}
	for r := range routes {
		err := netlink.RouteDel(blackholeTo(family, r))
		errs = append(errs, note("remove blackhole "+r.String(), err))
		removed++
	}
	return removed, errors.Join(errs...)
}

func note(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// present reads what is there of ours: rules by interface and routes by range.
func present(family int) (rules map[string]struct{}, routes map[netip.Prefix]struct{}, err error) {
	list, err := dump(func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
	if err != nil {
		return nil, nil, fmt.Errorf("list rules: %w", err)
	}
	rules, routes = make(map[string]struct{}), make(map[netip.Prefix]struct{})
	for _, r := range list {
		if r.Table == table && r.Protocol == protocol && r.IifName != "" {
			rules[r.IifName] = struct{}{}
		}
	}
	found, err := dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list blackholes: %w", err)
	}
	for _, r := range found {
		if r.Protocol == protocol && r.Type == unix.RTN_BLACKHOLE {
			routes[prefixOf(family, r.Dst)] = struct{}{}
		}
	}
	return rules, routes, nil
}

// dump repeats a listing that others changed meanwhile.
func dump[T any](list func() ([]T, error)) (out []T, err error) {
	for range 10 {
		if out, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return out, err
}

func ruleFrom(family int, name string) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.IifName, r.Table, r.Protocol, r.Priority = family, name, table, protocol, priority
	return r
}

func blackholeTo(family int, p netip.Prefix) *netlink.Route {
	return &netlink.Route{
		Family: family, Table: table, Protocol: protocol, Type: unix.RTN_BLACKHOLE,
		Dst: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
	}
}

// prefixOf is a route's destination; none is the default route.
func prefixOf(family int, dst *net.IPNet) netip.Prefix {
	if dst == nil {
		if family == netlink.FAMILY_V4 {
			return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	addr, _ := netip.AddrFromSlice(dst.IP)
	bits, _ := dst.Mask.Size()
	if family == netlink.FAMILY_V4 {
		addr = addr.Unmap()
	}
	return netip.PrefixFrom(addr, bits)
}

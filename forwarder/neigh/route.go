package neigh

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// route is the kernel's answer for one target.
type route struct {
	kind    routeKind
	index   int        // interface, if kind is routeOnLink
	gateway netip.Addr // if kind is routeGateway
	reason  string     // in words, unless kind is routeOnLink
}

type routeKind uint8

const (
	routeNone routeKind = iota
	routeSelf
	routeGateway
	routeOnLink
)

// lookUpRoute asks the kernel for its route to addr. An error means that the
// question could not be asked; "there is no route" is an answer.
func lookUpRoute(h *netlink.Handle, addr netip.Addr) (route, error) {
	var options *netlink.RouteGetOptions
	if addr.IsLinkLocalUnicast() && addr.Is6() {
		if addr.Zone() == "" {
			return route{reason: "a link-local address needs a zone (fe80::1%eth0)"}, nil
		}
		options = &netlink.RouteGetOptions{Oif: addr.Zone()}
	}
	answers, err := h.RouteGetWithOptions(addr.AsSlice(), options)
	if err != nil {
		if refused, reason := refusal(err); refused {
			return route{reason: reason}, nil
		}
		return route{}, fmt.Errorf("look up the route to %v: %w", addr, err)
	}
	if len(answers) == 0 {
		return route{reason: "the kernel has no route"}, nil
	}
	return newRoute(&answers[0], addr), nil
}

// refusal tells a look-up's negative answers from its failures. The kernel
// answers an unreachable, prohibit or blackhole route, and none at all, with
// the error that sending would give.
func refusal(err error) (bool, string) {
	var notFound netlink.LinkNotFoundError
	switch {
	case errors.Is(err, unix.ENETUNREACH):
		return true, "the kernel has no route"
	case errors.Is(err, unix.EHOSTUNREACH):
		return true, "the kernel's route says unreachable"
	case errors.Is(err, unix.EACCES):
		return true, "the kernel's route says prohibited"
	case errors.Is(err, unix.EINVAL):
		return true, "the kernel's route is a blackhole"
	case errors.As(err, &notFound), errors.Is(err, unix.ENODEV):
		return true, "the interface of its zone does not exist"
	}
	return false, ""
}

func newRoute(r *netlink.Route, addr netip.Addr) route {
	switch r.Type {
	case unix.RTN_LOCAL:
		return route{kind: routeSelf, reason: "it is an address of this host"}
	case unix.RTN_UNICAST:
	default:
		return route{reason: "the kernel's route is not unicast"}
	}
	if r.Encap != nil || r.NewDst != nil {
		return route{kind: routeGateway, reason: "the kernel's route encapsulates"}
	}
	gateway, behind := gatewayOf(r)
	// A host route "via itself" is an on-link route in other words.
	if behind && gateway != addr.WithZone("") {
		return route{kind: routeGateway, gateway: gateway, reason: fmt.Sprintf("it is behind the gateway %v", gateway)}
	}
	return route{kind: routeOnLink, index: r.LinkIndex}
}

func gatewayOf(r *netlink.Route) (netip.Addr, bool) {
	if gateway, ok := netip.AddrFromSlice(r.Gw); ok {
		return gateway.Unmap(), true
	}
	// An IPv4 route through an IPv6 next hop (RFC 5549) has RTA_VIA instead.
	if via, ok := r.Via.(*netlink.Via); ok {
		gateway, _ := netip.AddrFromSlice(via.Addr)
		return gateway.Unmap(), true
	}
	return netip.Addr{}, false
}

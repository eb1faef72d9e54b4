package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Node is one namespace of a lab. Its methods change the live network; they
// are safe for concurrent use.
type Node struct {
	name    string
	ns      *namespace
	netlink *netlink.Handle
	sw      *segmentSwitch
	routes  []RouteSpec
	lab     *Lab // ends captures

	mu     sync.Mutex // guards what follows
	ifaces []*iface
}

// hostSysctls make a namespace a quiet host: addresses usable at once, nothing
// sent of its own accord that a test did not ask for, nothing learnt from
// others, and no filter on the asymmetric paths that direct return is made of.
var hostSysctls = []setting{
	{"net/ipv6/conf/all/disable_ipv6", "0"},
	{"net/ipv6/conf/default/disable_ipv6", "0"},
	{"net/ipv6/conf/all/accept_dad", "0"},
	{"net/ipv6/conf/default/accept_dad", "0"},
	{"net/ipv6/conf/default/router_solicitations", "0"},
	{"net/ipv6/conf/all/accept_ra", "0"},
	{"net/ipv6/conf/default/accept_ra", "0"},
	// A flow label would take the place of the ports in the kernel's hash, and
	// the kernel would make it anew for each socket.
	{"net/ipv6/auto_flowlabels", "0"},
	// New namespaces inherit the host's IPv4 settings unless told otherwise.
	{"net/ipv4/ip_forward", "0"}, // first: it changes others
	{"net/ipv4/conf/all/rp_filter", "0"},
	{"net/ipv4/conf/default/rp_filter", "0"},
	{"net/ipv4/conf/all/arp_ignore", "0"},
	{"net/ipv4/conf/all/arp_announce", "0"},
	{"net/ipv4/conf/all/arp_notify", "0"},
	{"net/ipv4/conf/default/arp_notify", "0"},
	{"net/ipv4/conf/all/accept_redirects", "0"},
	{"net/ipv4/conf/all/send_redirects", "0"},
	{"net/ipv4/conf/default/send_redirects", "0"},
}

// newNode sets a namespace up and plugs its interfaces in. number makes its
// MAC addresses unique in the lab. The node is returned with an error too, as
// far as it got, for closing.
func newNode(l *Lab, ns *namespace, spec NodeSpec, number, queues int, xdp bool, cables []Cable) (*Node, error) {
	n := &Node{name: spec.Name, ns: ns, sw: l.sw, routes: spec.Routes, lab: l}
	var err error
	if n.netlink, err = openNetlink(ns); err != nil {
		return n, err
	}
	if err := ns.sysctl(hostSysctls...); err != nil {
		return n, err
	}
	lo, err := n.netlink.LinkByName("lo")
	if err == nil {
		err = n.netlink.LinkSetUp(lo)
	}
	if err != nil {
		return n, fmt.Errorf("set loopback of %s up: %w", n.name, err)
	}
	cpus, err := cpuList("online")
	if err != nil {
		return n, err
	}
	for index, spec := range spec.Interfaces {
		if spec.MTU == 0 {
			spec.MTU = defaultMTU
		}
		i := &iface{
			spec: spec, port: portName(n.name, index), mac: macOf(number, index), queues: queues, xdp: xdp,
			cpu: cpus[(number+index)%len(cpus)],
		}
		if index < len(cables) {
			i.cable = &cables[index]
		}
		n.ifaces = append(n.ifaces, i)
		if err := l.sw.plug(i, ns); err != nil {
			return n, err
		}
		if err := n.bringUp(i); err != nil {
			return n, err
		}
	}
	return n, n.addRoutes()
}

// giveBack takes the cables of the node out of the lab.
func (n *Node) giveBack() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for _, i := range n.ifaces {
		errs = append(errs, n.sw.unplugCable(i, n.ns))
	}
	return errors.Join(errs...)
}

func (n *Node) close() {
	if n.netlink != nil {
		n.netlink.Close()
	}
}

// Name is the node's name inside the lab.
func (n *Node) Name() string { return n.name }

// Namespace is the name for `ip netns exec`.
func (n *Node) Namespace() string { return n.ns.name }

// Exec runs fn on a thread inside the node's namespace and waits for it.
// Sockets made by fn belong to the node for good; goroutines started by fn do
// not run inside. fn may call testing.T.FailNow.
func (n *Node) Exec(fn func() error) error { return n.ns.do(fn) }

// Sysctl sets a kernel parameter of the node, given as a path below /proc/sys.
func (n *Node) Sysctl(path, value string) error { return n.ns.sysctl(setting{path, value}) }

// find returns an interface by name. n.mu must be held.
func (n *Node) find(name string) (*iface, error) {
	for _, i := range n.ifaces {
		if i.spec.Name == name {
			return i, nil
		}
	}
	return nil, fmt.Errorf("node %s has no interface %s", n.name, name)
}

// MAC is the hardware address of an interface.
func (n *Node) MAC(name string) (net.HardwareAddr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, err := n.find(name)
	if err != nil {
		return nil, err
	}
	return append(net.HardwareAddr(nil), i.mac...), nil
}

// Addr is the first address of the node's first interface that is of the same
// family as like. It is the zero Addr if there is none.
func (n *Node) Addr(like netip.Addr) netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range n.ifaces {
		for _, p := range i.spec.Addresses {
			if p.Addr().Is4() == like.Unmap().Is4() {
				return p.Addr()
			}
		}
	}
	return netip.Addr{}
}

// IPv4 is the node's own IPv4 address, the zero Addr if it has none.
func (n *Node) IPv4() netip.Addr { return n.Addr(netip.IPv4Unspecified()) }

// IPv6 is the node's own global IPv6 address, the zero Addr if it has none.
func (n *Node) IPv6() netip.Addr { return n.Addr(netip.IPv6Unspecified()) }

// bringUp sets the node's end up and gives it its addresses. What is already
// there stays. IPv6 addresses skip duplicate address detection.
func (n *Node) bringUp(i *iface) error {
	link, err := n.netlink.LinkByName(i.spec.Name)
	if err == nil {
		err = n.netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set %s of %s up: %w", i.spec.Name, n.name, err)
	}
	if err := n.sw.connected(i, n.netlink); err != nil {
		return err
	}
	for _, p := range i.spec.Addresses {
		if err := n.netlink.AddrReplace(link, addrOf(p)); err != nil {
			return fmt.Errorf("add %s to %s of %s: %w", p, i.spec.Name, n.name, err)
		}
	}
	for _, p := range i.spec.Addresses {
		if err := n.settled(i.spec.Name, p.Addr()); err != nil {
			return err
		}
	}
	return nil
}

// settled waits until the kernel takes packets for an address that was added:
// for IPv6 it makes the route later, in a work queue. While the link is down
// or without carrier there is nothing to wait for.
func (n *Node) settled(name string, a netip.Addr) error {
	link, err := n.netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if need := uint32(unix.IFF_UP | unix.IFF_LOWER_UP); link.Attrs().RawFlags&need != need {
		return nil
	}
	return Wait(context.Background(), fmt.Sprintf("%s to be an address of %s", a, n.name), settleTime, func() (bool, error) {
		routes, err := n.netlink.RouteGet(a.AsSlice())
		return err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL, err
	})
}

func addrOf(p netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

func (n *Node) addRoutes() error {
	for _, r := range n.routes {
		if err := n.netlink.RouteReplace(&netlink.Route{Dst: ipNet(r.Destination), Gw: r.Via.AsSlice()}); err != nil {
			return fmt.Errorf("add route %s via %s to %s: %w", r.Destination, r.Via, n.name, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// defaultMTU is Ethernet's, in bytes of IP packet.
const defaultMTU = 1500

// iface is one interface of a node with its port on a bridge.
type iface struct {
	spec   InterfaceSpec
	port   string // name of the other end, in the switch's namespace
	mac    net.HardwareAddr
	queues int
	// xdp: the node may attach XDP programs and AF_XDP sockets to it.
	xdp bool
	cpu int // on which both ends receive, unless they poll
	// cable: cards to use instead of a veth pair; near and far while they are.
	cable     *Cable
	near, far *card
}

// macOf is a locally administered address that tells node and interface.
func macOf(node, iface int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0x7a, 0x68, byte(iface), byte(node >> 8), byte(node)}
}

// portName is the name of an interface's port on the switch: the node's, and
// from the second interface on with its number.
func portName(node string, index int) string {
	if index == 0 {
		return node
	}
	return node + "-" + strconv.Itoa(index)
}

// openNetlink opens a netlink connection inside the namespace.
func openNetlink(ns *namespace) (*netlink.Handle, error) {
	h, err := netlink.NewHandleAt(netns.NsHandle(ns.file.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink in %s: %w", ns.name, err)
	}
	return h, nil
}

// plug connects an interface to its bridge, by a veth pair that it makes or by
// a cable. The node's end is left down, without addresses.
func (s *segmentSwitch) plug(i *iface, node *namespace) error {
	connect := s.plugVeth
	if i.cable != nil {
		connect = s.plugCable
	}
	if err := connect(i, node); err != nil {
		return err
	}
	if err := node.do(func() error { return disableOffloads(i.spec.Name) }); err != nil {
		return err
	}
	if err := s.ns.do(func() error { return disableOffloads(i.port) }); err != nil {
		return err
	}
	if err := s.prepare(i, node); err != nil {
		return err
	}
	link, err := s.netlink.LinkByName(i.port)
	if err != nil {
		return fmt.Errorf("find port %s: %w", i.port, err)
	}
	if err := s.netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set port %s up: %w", i.port, err)
	}
	return nil
}

// plugVeth makes the pair, with the one end on the bridge.
func (s *segmentSwitch) plugVeth(i *iface, node *namespace) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = i.port
	attrs.MTU = i.spec.MTU
	attrs.NumTxQueues, attrs.NumRxQueues = i.queues, i.queues
	attrs.MasterIndex = s.bridges[i.spec.Segment].Attrs().Index
	veth := &netlink.Veth{
		LinkAttrs: attrs, PeerName: i.spec.Name, PeerHardwareAddr: i.mac, PeerMTU: uint32(i.spec.MTU), PeerTxQLen: -1,
		PeerNumTxQueues: uint32(i.queues), PeerNumRxQueues: uint32(i.queues),
		PeerNamespace: netlink.NsFd(node.file.Fd()),
	}
	if err := s.netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("create veth %s for %s of %s: %w; the kernel needs CONFIG_VETH", i.port, i.spec.Name, node.name, err)
	}
	return nil
}

// prepare makes a veth pair behave like the cable that it stands for.
func (s *segmentSwitch) prepare(i *iface, node *namespace) error {
	switch {
	case i.cable != nil:
		return nil
	case !i.xdp:
		return s.keepOrder(i, node)
	}
	if i.queues > 1 { // the kernel has the setting for devices with several only
		if err := s.spread(i); err != nil {
			return err
		}
	}
	return s.pass.attachXDP(s.ns, i.port)
}

// brStateForwarding is BR_STATE_FORWARDING of linux/if_bridge.h.
const brStateForwarding = "3"

// connected waits until frames pass between an interface that is up and its
// bridge. The kernel tells both ends of a carrier that came a moment later; a
// frame before that is lost. A port that is down has nothing to wait for.
func (s *segmentSwitch) connected(i *iface, node *netlink.Handle) error {
	port, err := s.netlink.LinkByName(i.port)
	if err != nil {
		return fmt.Errorf("find port %s: %w", i.port, err)
	}
	if port.Attrs().RawFlags&unix.IFF_UP == 0 {
		return nil
	}
	return Wait(context.Background(), "port "+i.port+" to forward", settleTime, func() (bool, error) {
		state, err := s.ns.readSysfs(path.Join(i.port, "brport", "state"))
		if err != nil || state != brStateForwarding {
			return false, err
		}
		link, err := node.LinkByName(i.spec.Name)
		return err == nil && link.Attrs().RawFlags&unix.IFF_RUNNING != 0, err
	})
}

// spread lets every CPU send on every queue of the port. The kernel then picks
// the queue by the hash of addresses and ports; veth delivers to the receive
// queue of the same number. Without it the queue is that of the port the frame
// came from.
func (s *segmentSwitch) spread(i *iface) error {
	cpus, err := cpuList("possible")
	if err != nil {
		return err
	}
	var settings []setting
	for q := range i.queues {
		settings = append(settings, setting{path.Join(i.port, "queues", "tx-"+strconv.Itoa(q), "xps_cpus"), cpuMask(cpus...)})
	}
	if err := s.ns.sysfs(settings...); err != nil {
		return fmt.Errorf("%w; the kernel needs CONFIG_XPS", err)
	}
	return s.rehash.attachEgress(s.ns, i.port)
}

// keepOrder has one CPU receive everything at each end of a link, as one
// interrupt does. Otherwise a frame waits at the CPU that sent it, and those
// sent by another one meanwhile overtake it. Ends with an XDP program need no
// such thing: they poll a ring that all CPUs send into.
func (s *segmentSwitch) keepOrder(i *iface, node *namespace) error {
	mask := cpuMask(i.cpu)
	err := s.ns.sysfs(setting{path.Join(i.port, "queues/rx-0/rps_cpus"), mask})
	if err == nil {
		err = node.sysfs(setting{path.Join(i.spec.Name, "queues/rx-0/rps_cpus"), mask})
	}
	if err != nil {
		return fmt.Errorf("%w; the kernel needs CONFIG_RPS", err)
	}
	return nil
}

// unplug deletes the pair, or gives the cable back. A pair that is already gone
// is no error.
func (s *segmentSwitch) unplug(i *iface, node *namespace) error {
	if i.cable != nil {
		return s.unplugCable(i, node)
	}
	link, err := s.netlink.LinkByName(i.port)
	var gone netlink.LinkNotFoundError
	if errors.As(err, &gone) {
		return nil
	}
	if err == nil {
		err = s.netlink.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("delete port %s: %w", i.port, err)
	}
	return nil
}

package neigh

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// dumpAttempts bounds how often a dump is repeated that the kernel marks as
// interrupted by a change (NLM_F_DUMP_INTR).
const dumpAttempts = 4

// device is any interface of the host, as far as delivery is concerned.
type device struct {
	name    string
	kind    string // IFLA_INFO_KIND: "vlan", "bond", …; empty for hardware
	up      bool
	parent  int    // VLAN devices: the interface below
	vlan    uint16 // VLAN devices: the tag
	master  int    // bond, team or bridge this interface is a port of
	standby bool   // bond ports: not the active one
}

// linkTable is one reading of all interfaces and addresses. It is never
// changed; a new reading replaces it.
type linkTable struct {
	devices map[int]device
	links   []Link
	own     []netip.Addr
}

func (t *linkTable) equal(o *linkTable) bool {
	if len(t.devices) != len(o.devices) || !slices.Equal(t.own, o.own) || !slices.EqualFunc(t.links, o.links, Link.equal) {
		return false
	}
	for index, d := range t.devices {
		if o.devices[index] != d {
			return false
		}
	}
	return true
}

// readLinks reads interfaces and addresses from the kernel. ioctlFD is a
// socket of the same network namespace as h.
func readLinks(h *netlink.Handle, ioctlFD int, names []string) (*linkTable, error) {
	devices, err := dump("interfaces", h.LinkList)
	if err != nil {
		return nil, err
	}
	addrs, err := dump("addresses", func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	t := &linkTable{devices: make(map[int]device, len(devices))}
	byName := make(map[string]*netlink.LinkAttrs, len(devices))
	for _, l := range devices {
		t.devices[l.Attrs().Index] = newDevice(l)
		byName[l.Attrs().Name] = l.Attrs()
	}
	prefixes := make(map[int][]netip.Prefix)
	for _, a := range addrs {
		if p, ok := toPrefix(a.IPNet); ok {
			prefixes[a.LinkIndex] = append(prefixes[a.LinkIndex], p)
			t.own = append(t.own, p.Addr())
		}
	}
	slices.SortFunc(t.own, netip.Addr.Compare)
	t.own = slices.Compact(t.own)
	for _, name := range names {
		l := Link{Name: name}
		if attrs := byName[name]; attrs != nil {
			l = newLink(attrs, prefixes[attrs.Index])
			l.RXQueues = attrs.NumRxQueues
			// IFLA_NUM_RX_QUEUES is what the driver allocated, the channels
			// are what it uses; a driver without the operation uses them all.
			if n, err := rxQueues(ioctlFD, name); err == nil && n > 0 {
				l.RXQueues = n
			}
		}
		t.links = append(t.links, l)
	}
	return t, nil
}

// dump calls list until it succeeds without having been interrupted. A last
// interrupted answer is used: it may miss a change, whose event is still to come.
func dump[T any](what string, list func() ([]T, error)) ([]T, error) {
	var items []T
	var err error
	for range dumpAttempts {
		if items, err = list(); err == nil {
			return items, nil
		}
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return items, nil
	}
	return nil, fmt.Errorf("read %s: %w", what, err)
}

func newDevice(l netlink.Link) device {
	attrs := l.Attrs()
	d := device{name: attrs.Name, kind: l.Type(), up: isUp(attrs), master: attrs.MasterIndex}
	// With a namespace id, the parent's index is one of another namespace.
	if vlan, ok := l.(*netlink.Vlan); ok && attrs.NetNsID < 0 {
		d.parent, d.vlan = attrs.ParentIndex, uint16(vlan.VlanId)
	}
	if port, ok := attrs.Slave.(*netlink.BondSlave); ok {
		d.standby = port.State == netlink.BondStateBackup
	}
	return d
}

func newLink(attrs *netlink.LinkAttrs, prefixes []netip.Prefix) Link {
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	l := Link{
		Name: attrs.Name, Index: attrs.Index, MTU: attrs.MTU, Addrs: prefixes,
		AdminUp: attrs.RawFlags&unix.IFF_UP != 0, Carrier: attrs.RawFlags&unix.IFF_LOWER_UP != 0,
	}
	l.Up = l.AdminUp && l.Carrier
	if len(attrs.HardwareAddr) == len(l.MAC) {
		l.MAC = [6]byte(attrs.HardwareAddr)
	}
	return l
}

func isUp(attrs *netlink.LinkAttrs) bool {
	const both = unix.IFF_UP | unix.IFF_LOWER_UP
	return attrs.RawFlags&both == both
}

func toPrefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), ones), ok
}

// port returns the named interface whose wire packets routed out of the
// interface with the given index take, and the VLAN tag they need there. That
// is the interface itself, the one below a VLAN device, or a port of a bond or
// team (which cannot run XDP, so that its ports are the ones named).
func (t *linkTable) port(index int) (l *Link, vlan uint16, ok bool) {
	for i := range t.links {
		if l = &t.links[i]; l.Index == index && index != 0 {
			return l, 0, true
		}
	}
	d := t.devices[index]
	switch d.kind {
	case "vlan":
		if below := t.devices[d.parent]; below.kind == "vlan" {
			return nil, 0, false // stacked tags are not offered
		}
		l, _, ok = t.port(d.parent)
		return l, d.vlan, ok
	case "bond", "team":
		return t.activePort(index)
	}
	return nil, 0, false
}

// activePort returns the first named port of the bond that carries traffic,
// or the first named one if none does.
func (t *linkTable) activePort(master int) (l *Link, vlan uint16, ok bool) {
	for i := range t.links {
		candidate := &t.links[i]
		d, exists := t.devices[candidate.Index]
		if !exists || d.master != master {
			continue
		}
		if candidate.Up && !d.standby {
			return candidate, 0, true
		}
		if l == nil {
			l = candidate
		}
	}
	return l, 0, l != nil
}

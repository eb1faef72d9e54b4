package lab

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// SetLink takes an interface of the node down or up, as `ip link set` does.
// The kernel drops IPv6 addresses and all routes with the link; going up puts
// back what the topology and later changes gave it.
func (n *Node) SetLink(name string, up bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, err := n.find(name)
	if err != nil {
		return err
	}
	if up {
		if err := n.bringUp(i); err != nil {
			return err
		}
		return n.addRoutes()
	}
	link, err := n.netlink.LinkByName(name)
	if err == nil {
		err = n.netlink.LinkSetDown(link)
	}
	if err != nil {
		return fmt.Errorf("set %s of %s down: %w", name, n.name, err)
	}
	return nil
}

// SetCarrier takes the switch's end of an interface down or up: the node
// keeps its addresses and routes and sees the carrier go, as when a cable is
// pulled.
func (n *Node) SetCarrier(name string, on bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, err := n.find(name)
	if err != nil {
		return err
	}
	if i.cable != nil {
		return fmt.Errorf("switch carrier of %s of %s: the card at the other end of the cable decides", name, n.name)
	}
	link, err := n.sw.netlink.LinkByName(i.port)
	if err == nil {
		if on {
			err = n.sw.netlink.LinkSetUp(link)
		} else {
			err = n.sw.netlink.LinkSetDown(link)
		}
	}
	if err != nil {
		return fmt.Errorf("switch carrier of %s of %s: %w", name, n.name, err)
	}
	if link, err := n.netlink.LinkByName(name); err != nil || link.Attrs().RawFlags&unix.IFF_UP == 0 {
		return err // the node's end is down: there will be no carrier
	}
	return n.sw.connected(i, n.netlink)
}

// DeleteLink removes an interface from the node, as when a device is
// unplugged. CreateLink brings it back.
func (n *Node) DeleteLink(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, err := n.find(name)
	if err != nil {
		return err
	}
	return n.sw.unplug(i, n.ns)
}

// CreateLink makes a deleted interface again, with the same name, hardware
// address, queues, addresses and routes, and a new interface index.
func (n *Node) CreateLink(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, err := n.find(name)
	if err != nil {
		return err
	}
	if err := n.sw.plug(i, n.ns); err != nil {
		return err
	}
	if err := n.bringUp(i); err != nil {
		return err
	}
	return n.addRoutes()
}

// SetMAC changes the hardware address of an interface. With announce the node
// then tells the segment, with a gratuitous ARP request and an unsolicited
// neighbour advertisement for each of its addresses there; without, the others
// find out as they do when a machine is replaced.
func (n *Node) SetMAC(name string, mac net.HardwareAddr, announce bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, err := n.find(name)
	if err != nil {
		return err
	}
	link, err := n.netlink.LinkByName(name)
	if err == nil {
		err = n.netlink.LinkSetHardwareAddr(link, mac)
	}
	if err != nil {
		return fmt.Errorf("set mac of %s of %s: %w", name, n.name, err)
	}
	i.mac = slices.Clone(mac)
	if !announce {
		return nil
	}
	for _, p := range i.spec.Addresses {
		announcement := gratuitousARP
		if p.Addr().Is6() {
			announcement = unsolicitedAdvertisement
		}
		frame := announcement(p.Addr(), mac)
		if err := n.SendFrame(name, frame); err != nil {
			return err
		}
	}
	return nil
}

// SetMTU changes the MTU of an interface and of its port, in bytes.
func (n *Node) SetMTU(name string, mtu int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, err := n.find(name)
	if err != nil {
		return err
	}
	for _, end := range []struct {
		h    *netlink.Handle
		name string
	}{{n.netlink, name}, {n.sw.netlink, i.port}} {
		link, err := end.h.LinkByName(end.name)
		if err == nil {
			err = end.h.LinkSetMTU(link, mtu)
		}
		if err != nil {
			return fmt.Errorf("set mtu of %s (%s of %s) to %d: %w", end.name, name, n.name, mtu, err)
		}
	}
	i.spec.MTU = mtu
	return nil
}

// AddAddress gives an interface one more address. The name "lo" stands for the
// loopback, whose addresses stay as they are across link changes.
func (n *Node) AddAddress(name string, p netip.Prefix) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	link, err := n.netlink.LinkByName(name)
	if err == nil {
		err = n.netlink.AddrReplace(link, addrOf(p))
	}
	if err == nil {
		err = n.settled(name, p.Addr())
	}
	if err != nil {
		return fmt.Errorf("add %s to %s of %s: %w", p, name, n.name, err)
	}
	if i, err := n.find(name); err == nil && !slices.Contains(i.spec.Addresses, p) {
		i.spec.Addresses = append(slices.Clone(i.spec.Addresses), p)
	}
	return nil
}

// RemoveAddress takes an address away from an interface or "lo".
func (n *Node) RemoveAddress(name string, p netip.Prefix) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	link, err := n.netlink.LinkByName(name)
	if err == nil {
		err = n.netlink.AddrDel(link, addrOf(p))
	}
	if err != nil {
		return fmt.Errorf("remove %s from %s of %s: %w", p, name, n.name, err)
	}
	if i, err := n.find(name); err == nil {
		i.spec.Addresses = slices.DeleteFunc(slices.Clone(i.spec.Addresses), func(have netip.Prefix) bool { return have == p })
	}
	return nil
}

// gratuitousARP is an ARP announcement (RFC 5227, section 3).
func gratuitousARP(addr netip.Addr, mac net.HardwareAddr) []byte {
	f := make([]byte, 60)
	copy(f[0:], net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	copy(f[6:], mac)
	copy(f[12:], []byte{0x08, 0x06, 0, 1, 0x08, 0x00, 6, 4, 0, 1}) // Ethernet, IPv4, request
	ip := addr.As4()
	copy(f[22:], mac)
	copy(f[28:], ip[:])
	copy(f[38:], ip[:])
	return f
}

// unsolicitedAdvertisement tells all nodes a new link-layer address
// (RFC 4861, section 7.2.6).
func unsolicitedAdvertisement(addr netip.Addr, mac net.HardwareAddr) []byte {
	f := make([]byte, 14+40+32)
	copy(f[0:], []byte{0x33, 0x33, 0, 0, 0, 1})
	copy(f[6:], mac)
	copy(f[12:], []byte{0x86, 0xdd})
	ip, all := addr.As16(), netip.IPv6LinkLocalAllNodes().As16()
	copy(f[14:], []byte{0x60, 0, 0, 0, 0, 32, 58, 255})
	copy(f[22:], ip[:])
	copy(f[38:], all[:])
	icmp := f[54:]
	icmp[0] = 136
	icmp[4] = 0x20 // override
	copy(icmp[8:], ip[:])
	icmp[24], icmp[25] = 2, 1 // target link-layer address, 8 bytes
	copy(icmp[26:], mac)
	sum := uint32(32 + 58) // pseudo header: length and protocol
	for i := 22; i < len(f); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(icmp[2:], ^uint16(sum))
	return f
}

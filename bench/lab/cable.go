package lab

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Cable is a pair of network cards of this machine that are connected to each
// other: what one sends the other receives. The appliance gets the one and the
// switch the other, in place of a veth pair, so that drivers can be tested that
// veth is not, and modes that it does not have. Both have to be in the caller's
// namespace, and are brought back there, with their names, by Lab.Close. While a
// lab has them nobody else can use them.
type Cable struct {
	Node, Port string // interface names
}

// card is one end of a cable while a lab has it.
type card struct {
	name string           // in the namespace it came from
	mac  net.HardwareAddr // as it was
}

// take moves a card into a namespace, under another name, down.
func take(name string, to *namespace, as string, mac net.HardwareAddr, mtu int) (*card, error) {
	wrap := func(err error) error { return fmt.Errorf("plug %s in as %s of %s: %w", name, as, to.name, err) }
	home, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, wrap(err)
	}
	defer home.Close()
	link, err := home.LinkByName(name)
	if err != nil {
		return nil, wrap(err)
	}
	c := &card{name: name, mac: link.Attrs().HardwareAddr}
	if err := errors.Join(home.LinkSetDown(link), home.LinkSetNsFd(link, int(to.file.Fd()))); err != nil {
		return nil, wrap(err)
	}
	inside, err := openNetlink(to)
	if err != nil {
		return c, wrap(err)
	}
	defer inside.Close()
	if link, err = inside.LinkByName(name); err != nil {
		return c, wrap(err)
	}
	err = errors.Join(inside.LinkSetName(link, as), inside.LinkSetMTU(link, mtu))
	if err == nil && mac != nil {
		err = inside.LinkSetHardwareAddr(link, mac)
	}
	if err != nil {
		return c, wrap(err)
	}
	return c, nil
}

// giveBack undoes take. A card that is not there any more is an error.
func (c *card) giveBack(from *namespace, as string) error {
	wrap := func(err error) error { return fmt.Errorf("give %s of %s back as %s: %w", as, from.name, c.name, err) }
	inside, err := openNetlink(from)
	if err != nil {
		return wrap(err)
	}
	defer inside.Close()
	link, err := inside.LinkByName(as)
	if err != nil { // take may have ended before it had its new name
		if link, err = inside.LinkByName(c.name); err != nil {
			return wrap(err)
		}
	}
	err = errors.Join(inside.LinkSetDown(link), inside.LinkSetNoMaster(link), inside.LinkSetName(link, c.name), inside.LinkSetHardwareAddr(link, c.mac))
	home, homeErr := os.Open("/proc/thread-self/ns/net")
	if homeErr != nil {
		return wrap(errors.Join(err, homeErr))
	}
	defer home.Close()
	if err := errors.Join(err, inside.LinkSetNsFd(link, int(home.Fd()))); err != nil {
		return wrap(err)
	}
	return nil
}

// plugCable connects an interface by its cable.
func (s *segmentSwitch) plugCable(i *iface, node *namespace) (err error) {
	if i.near, err = take(i.cable.Node, node, i.spec.Name, i.mac, i.spec.MTU); err != nil {
		return err
	}
	if i.far, err = take(i.cable.Port, s.ns, i.port, nil, i.spec.MTU); err != nil {
		return err
	}
	link, err := s.netlink.LinkByName(i.port)
	if err == nil {
		err = s.netlink.LinkSetMasterByIndex(link, s.bridges[i.spec.Segment].Attrs().Index)
	}
	if err != nil {
		return fmt.Errorf("connect port %s to its bridge: %w", i.port, err)
	}
	return nil
}

// unplugCable takes the cards out of the lab.
func (s *segmentSwitch) unplugCable(i *iface, node *namespace) error {
	var errs []error
	if i.near != nil {
		errs = append(errs, i.near.giveBack(node, i.spec.Name))
	}
	if i.far != nil {
		errs = append(errs, i.far.giveBack(s.ns, i.port))
	}
	i.near, i.far = nil, nil
	return errors.Join(errs...)
}

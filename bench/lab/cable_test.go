package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestCable builds a lab on a cable, made of veth here: the appliance is reached
// by it, it can be pulled out and plugged in again, and comes back as it was.
func TestCable(t *testing.T) {
	needRoot(t)
	name := fmt.Sprintf("zonehop-home-%d", os.Getpid())
	home, err := newNamespace(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := home.remove(); err != nil {
			t.Error(err)
		}
	})
	macs := map[string]net.HardwareAddr{"near0": {2, 0, 0, 0, 1, 1}, "far0": {2, 0, 0, 0, 1, 2}}
	at := func(name string) error { // whether it is at home, as it was
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if a := link.Attrs(); !slices.Equal(a.HardwareAddr, macs[name]) || a.Flags&net.FlagUp != 0 || a.MasterIndex != 0 {
			return fmt.Errorf("%s is %v, up %v, master %d", name, a.HardwareAddr, a.Flags&net.FlagUp != 0, a.MasterIndex)
		}
		return nil
	}
	err = home.do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr = "near0", macs["near0"]
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "far0", PeerHardwareAddr: macs["far0"]}); err != nil {
			return err
		}
		l, err := Build(t.Context(), Options{Cables: []Cable{{Node: "near0", Port: "far0"}}})
		if err != nil {
			return err
		}
		ping := func() error {
			_, err := l.Client("client-b").Ping(ctxFor(t, patience), ApplianceIPv4, netip.Addr{}, nil)
			return err
		}
		err = errors.Join(ping(), func() error {
			if at("near0") == nil || at("far0") == nil {
				return errors.New("the cards are at home still")
			}
			return nil
		}())
		if err == nil {
			err = errors.Join(l.Appliance().DeleteLink("eth0"), at("near0"), at("far0"))
		}
		if err == nil {
			err = errors.Join(l.Appliance().CreateLink("eth0"), ping())
		}
		return errors.Join(err, l.Close(), at("near0"), at("far0"))
	})
	if err != nil {
		t.Fatal(err)
	}
}

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
)

// switchName is the node name of the namespace that holds the bridges.
const switchName = "sw"

// Multicast timing of the bridges. The kernel's defaults (a query every 125 s,
// 10 s to answer) would leave snooping out of force for the length of a test.
const (
	queryInterval = 2 * time.Second
	queryResponse = 200 * time.Millisecond
)

// segmentSwitch is the namespace of the bridges, one per segment.
type segmentSwitch struct {
	ns      *namespace
	netlink *netlink.Handle
	bridges []netlink.Link
	pass    *program
	rehash  *program
}

func bridgeName(segment int) string { return "br" + strconv.Itoa(segment) }

// newSwitch makes the bridges, without a querier yet: a querier would put
// snooping in force before the nodes have reported their groups.
func newSwitch(ns *namespace, segments int) (*segmentSwitch, error) {
	s := &segmentSwitch{ns: ns, pass: newPass(), rehash: newRehash()}
	var err error
	if s.netlink, err = openNetlink(ns); err != nil {
		return nil, err
	}
	if err := ns.sysctl(hostSysctls...); err != nil {
		return s, err
	}
	if err := bypassNetfilter(ns); err != nil {
		return s, err
	}
	for i := range max(segments, 1) {
		name := bridgeName(i)
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		attrs.HardwareAddr = macOf(0xff, i)
		snooping := true
		// VLAN filtering stays off, its default: kernels without it refuse the attribute.
		bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}
		if err := s.netlink.LinkAdd(bridge); err != nil {
			return s, fmt.Errorf("create bridge %s: %w; the kernel needs CONFIG_BRIDGE with IGMP snooping", name, err)
		}
		if err := s.netlink.LinkSetUp(bridge); err != nil {
			return s, fmt.Errorf("set bridge %s up: %w", name, err)
		}
		s.bridges = append(s.bridges, bridge)
	}
	return s, nil
}

// bypassNetfilter keeps bridged packets out of the IP layer's packet filter,
// where the kernel has that detour: it drops malformed packets and may put
// fragments together.
func bypassNetfilter(ns *namespace) error {
	for _, family := range []string{"iptables", "ip6tables", "arptables"} {
		err := ns.sysctl(setting{"net/bridge/bridge-nf-call-" + family, "0"})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// startQuerier makes the bridges queriers (IGMP and MLD) and waits until they
// snoop: the kernel floods all multicast until the first answers are due.
func (s *segmentSwitch) startQuerier(ctx context.Context) error {
	centis := func(d time.Duration) string { return strconv.FormatInt(int64(d/(10*time.Millisecond)), 10) }
	var settings []setting
	for i := range s.bridges {
		dir := bridgeName(i) + "/bridge/"
		settings = append(settings,
			setting{dir + "multicast_query_interval", centis(queryInterval)},
			setting{dir + "multicast_startup_query_interval", centis(time.Second)}, // the kernel's minimum
			setting{dir + "multicast_query_response_interval", centis(queryResponse)},
			setting{dir + "multicast_querier", "1"},
		)
	}
	if err := s.ns.sysfs(settings...); err != nil {
		return err
	}
	// The kernel shows the wait nowhere; it is the response interval.
	select {
	case <-time.After(queryResponse + 50*time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *segmentSwitch) close() {
	if s.netlink != nil {
		s.netlink.Close()
	}
	s.pass.close()
	s.rehash.close()
}

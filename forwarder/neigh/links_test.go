package neigh

import (
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestPort(t *testing.T) {
	table := &linkTable{
		links: []Link{{Name: "eth0", Index: 2, Up: true}, {Name: "eth1", Index: 3, Up: true}, {Name: "absent"}, {Name: "eth4", Index: 4}, {Name: "eth5", Index: 5, Up: true}},
		devices: map[int]device{
			2:  {name: "eth0", up: true},
			3:  {name: "eth1", up: true, master: 20, standby: true},
			4:  {name: "eth4", master: 20},
			5:  {name: "eth5", up: true, master: 20},
			9:  {name: "eth9", up: true},
			10: {name: "eth0.7", kind: "vlan", parent: 2, vlan: 7},
			11: {name: "eth0.7.8", kind: "vlan", parent: 10, vlan: 8},
			12: {name: "eth9.7", kind: "vlan", parent: 9, vlan: 7},
			13: {name: "bond0.7", kind: "vlan", parent: 20, vlan: 7},
			20: {name: "bond0", kind: "bond", up: true},
			21: {name: "bond1", kind: "bond", up: true},
			30: {name: "br0", kind: "bridge", up: true},
		},
	}
	for _, row := range []struct {
		why   string
		index int
		port  string // empty: none
		vlan  uint16
	}{
		{"itself", 2, "eth0", 0},
		{"not named", 9, "", 0},
		{"no such interface", 99, "", 0},
		{"index 0 is no interface, though absent links have it", 0, "", 0},
		{"below a VLAN device", 10, "eth0", 7},
		{"stacked VLAN devices", 11, "", 0},
		{"VLAN device on one not named", 12, "", 0},
		{"bond: the port that is up and active", 20, "eth5", 0},
		{"VLAN device on a bond", 13, "eth5", 7},
		{"bond without a named port", 21, "", 0},
		{"bridge", 30, "", 0},
	} {
		l, vlan, ok := table.port(row.index)
		if ok != (row.port != "") || ok && (l.Name != row.port || vlan != row.vlan) {
			t.Errorf("%s: port(%d) = %+v, VLAN %d, %v; want %q, VLAN %d", row.why, row.index, l, vlan, ok, row.port, row.vlan)
		}
	}
}

func TestNewDevice(t *testing.T) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex, attrs.RawFlags = "eth0.7", 2, unix.IFF_UP|unix.IFF_LOWER_UP
	foreign := attrs
	foreign.NetNsID = 4
	port := netlink.NewLinkAttrs()
	port.Name, port.MasterIndex, port.RawFlags = "eth1", 20, unix.IFF_UP
	port.Slave = &netlink.BondSlave{State: netlink.BondStateBackup}
	for _, row := range []struct {
		why  string
		link netlink.Link
		want device
	}{
		{"VLAN device", &netlink.Vlan{LinkAttrs: attrs, VlanId: 7}, device{name: "eth0.7", kind: "vlan", up: true, parent: 2, vlan: 7}},
		{"its parent in another namespace", &netlink.Vlan{LinkAttrs: foreign, VlanId: 7}, device{name: "eth0.7", kind: "vlan", up: true}},
		{"standby bond port without carrier", &netlink.Device{LinkAttrs: port}, device{name: "eth1", kind: "device", master: 20, standby: true}},
	} {
		if got := newDevice(row.link); got != row.want {
			t.Errorf("%s: newDevice = %+v, want %+v", row.why, got, row.want)
		}
	}
}

package neigh

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

func TestAssess(t *testing.T) {
	links := &linkTable{
		links: []Link{{Name: "eth0", Index: 2, Up: true}, {Name: "eth1", Index: 3}},
		devices: map[int]device{
			2: {name: "eth0", up: true}, 3: {name: "eth1"},
			4: {name: "eth0.7", kind: "vlan", parent: 2, vlan: 7, up: true},
			5: {name: "eth0.8", kind: "vlan", parent: 2, vlan: 8},
		},
	}
	mac := [6]byte{2, 0, 0, 0, 0, 9}
	refused := errors.New("table full")
	for _, row := range []struct {
		why    string
		index  int
		entry  neighbour
		useErr error
		want   Target
		need   need
	}{
		{"reachable", 2, neighbour{netlink.NUD_REACHABLE, mac}, nil, Target{State: Deliverable, Interface: 2, MAC: mac}, needNothing},
		{"stale", 2, neighbour{netlink.NUD_STALE, mac}, nil, Target{State: Deliverable, Interface: 2, MAC: mac}, needRefresh},
		{"delay", 2, neighbour{netlink.NUD_DELAY, mac}, nil, Target{State: Deliverable, Interface: 2, MAC: mac}, needNothing},
		{"probe", 2, neighbour{netlink.NUD_PROBE, mac}, nil, Target{State: Deliverable, Interface: 2, MAC: mac}, needNothing},
		{"permanent", 2, neighbour{netlink.NUD_PERMANENT, mac}, nil, Target{State: Deliverable, Interface: 2, MAC: mac}, needNothing},
		{"over a VLAN device", 4, neighbour{netlink.NUD_REACHABLE, mac}, nil, Target{State: Deliverable, Interface: 2, VLAN: 7, MAC: mac}, needNothing},
		{"no entry", 2, neighbour{}, nil, Target{State: NoNeighbour, Interface: 2, Reason: "it has not answered address resolution"}, needAnswer},
		{"failed, with the old MAC left in it", 2, neighbour{netlink.NUD_FAILED, mac}, nil, Target{State: NoNeighbour, Interface: 2, Reason: "it has not answered address resolution"}, needAnswer},
		{"the kernel is at it", 2, neighbour{netlink.NUD_INCOMPLETE, [6]byte{}}, nil, Target{State: NoNeighbour, Interface: 2, Reason: "it has not answered address resolution"}, needNothing},
		{"the kernel refused", 2, neighbour{}, refused, Target{State: NoNeighbour, Interface: 2, Reason: "table full"}, needAnswer},
		{"noarp", 2, neighbour{netlink.NUD_NOARP, mac}, nil, Target{State: NoNeighbour, Interface: 2, Reason: "eth0 resolves no addresses (noarp)"}, needNothing},
		{"claims a group address", 2, neighbour{netlink.NUD_REACHABLE, [6]byte{1, 0, 0x5e, 0, 0, 1}}, nil, Target{State: NoNeighbour, Interface: 2, Reason: "it has not answered address resolution"}, needAnswer},
		{"claims the zero address", 2, neighbour{netlink.NUD_REACHABLE, [6]byte{}}, nil, Target{State: NoNeighbour, Interface: 2, Reason: "it has not answered address resolution"}, needAnswer},
		{"interface down", 3, neighbour{netlink.NUD_REACHABLE, mac}, nil, Target{State: NoNeighbour, Interface: 3, Reason: "eth1 is down"}, needNothing},
		{"VLAN device down", 5, neighbour{netlink.NUD_REACHABLE, mac}, nil, Target{State: NoNeighbour, Interface: 2, VLAN: 8, Reason: "eth0.8 is down"}, needNothing},
	} {
		addr := netip.MustParseAddr("10.0.0.9")
		target := &target{addr: addr, route: route{kind: routeOnLink, index: row.index}, useErr: row.useErr}
		got, need := target.assess(links, map[neighbourKey]neighbour{{row.index, addr}: row.entry})
		if got != row.want || need != row.need {
			t.Errorf("%s: %+v, need %d; want %+v, need %d", row.why, got, need, row.want, row.need)
		}
	}
}

// A target that answered is solicited at once when it falls silent; one that
// keeps silent waits longer each time.
func TestJudgeSchedules(t *testing.T) {
	links := &linkTable{links: []Link{{Name: "eth0", Index: 2, Up: true}}, devices: map[int]device{2: {name: "eth0", up: true}}}
	target := &target{addr: netip.MustParseAddr("10.0.0.9"), route: route{kind: routeOnLink, index: 2}}
	key := neighbourKey{2, target.addr}
	now := time.Unix(1000, 0)
	set := func(state int) {
		target.judge(links, map[neighbourKey]neighbour{key: {state, [6]byte{2, 0, 0, 0, 0, 9}}}, now)
	}
	wait := func() time.Duration { return target.due.Sub(now) }
	set(netlink.NUD_REACHABLE)
	set(netlink.NUD_FAILED)
	if wait() != 0 {
		t.Errorf("first round after %v, want at once", wait())
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		want *= time.Second
		target.acted(nil, now)
		now = now.Add(3 * time.Second)
		set(netlink.NUD_INCOMPLETE)
		set(netlink.NUD_FAILED)
		if wait() < want || wait() > want*5/4 {
			t.Errorf("next round after %v, want about %v", wait(), want)
		}
	}
	set(netlink.NUD_STALE)
	if wait() < 0 || wait() > refreshSpread {
		t.Errorf("a stale entry is verified after %v, want within %v", wait(), refreshSpread)
	}
	set(netlink.NUD_FAILED)
	if wait() != 0 {
		t.Errorf("round after it had answered: after %v, want at once", wait())
	}
}

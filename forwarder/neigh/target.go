package neigh

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	// firstBackoff and maxBackoff bound the pause between two rounds of
	// solicitations for a target that does not answer. A round is the
	// kernel's (mcast_solicit, 3 by default, one second apart).
	firstBackoff = time.Second
	maxBackoff   = 10 * time.Second
	// refreshSpread is the time over which entries that went stale together
	// are verified.
	refreshSpread = 2 * time.Second
	// refreshAgain is the pause before a stale entry is touched again. The
	// kernel needs delay_first_probe_time (5 s) to move on from the first.
	refreshAgain = 10 * time.Second
)

// need is what a target asks of the solicitor.
type need uint8

const (
	needNothing need = iota
	needAnswer       // no usable entry: solicit
	needRefresh      // stale entry: have it verified
)

// target is one followed address. Run's goroutine owns it.
type target struct {
	addr    netip.Addr
	route   route
	asked   bool // route is an answer of the kernel's
	recheck bool // the route is to be looked up again

	view Target

	need     need
	key      neighbourKey // the entry needed, valid unless need is needNothing
	due      time.Time    // when need is to be acted on
	attempts int          // rounds since the entry was last usable
	useErr   error        // of the last round, nil if the kernel accepted it
}

// judge derives what is reported about t, and what it needs, from its route,
// the links and the neighbour table. It reports whether the view changed.
func (t *target) judge(links *linkTable, neighbours map[neighbourKey]neighbour, now time.Time) bool {
	view, need := t.assess(links, neighbours)
	if need != t.need {
		t.need = need
		switch {
		case need == needRefresh:
			t.due = now.Add(rand.N(refreshSpread))
		case need == needAnswer && t.attempts == 0:
			t.due = now
		case need == needAnswer:
			t.due = now.Add(backoff(t.attempts))
		}
	}
	if view == t.view {
		return false
	}
	t.view = view
	return true
}

func (t *target) assess(links *linkTable, neighbours map[neighbourKey]neighbour) (Target, need) {
	switch t.route.kind {
	case routeNone:
		return Target{State: NoRoute, Reason: t.route.reason}, needNothing
	case routeSelf, routeGateway:
		return Target{State: NotOnLink, Gateway: t.route.gateway, Reason: t.route.reason}, needNothing
	}
	device := links.devices[t.route.index]
	port, vlan, ok := links.port(t.route.index)
	if !ok {
		return Target{State: NotOnLink, Reason: fmt.Sprintf("it is on the link of %s, which is not one of the interfaces", device.name)}, needNothing
	}
	view := Target{State: NoNeighbour, Interface: port.Index, VLAN: vlan}
	switch {
	case !port.Up:
		view.Reason = fmt.Sprintf("%s is down", port.Name)
		return view, needNothing
	case !device.up:
		view.Reason = fmt.Sprintf("%s is down", device.name)
		return view, needNothing
	}
	t.key = neighbourKey{t.route.index, t.addr.WithZone("")}
	entry := neighbours[t.key]
	if entry.usable() {
		t.attempts, t.useErr = 0, nil
		view.State, view.MAC = Deliverable, entry.mac
		if entry.state&netlink.NUD_STALE != 0 {
			return view, needRefresh
		}
		return view, needNothing
	}
	// The reason does not tell "soliciting" from "gave up": the two alternate
	// for as long as the target is silent, and each change would be a new View.
	switch {
	case entry.state&netlink.NUD_NOARP != 0:
		view.Reason = fmt.Sprintf("%s resolves no addresses (noarp)", device.name)
		return view, needNothing
	case t.useErr != nil:
		view.Reason = t.useErr.Error()
	default:
		view.Reason = "it has not answered address resolution"
	}
	if entry.state&netlink.NUD_INCOMPLETE != 0 {
		return view, needNothing // the kernel is at it, and will say how it ends
	}
	return view, needAnswer
}

// acted records that the kernel was told to act on t's need.
func (t *target) acted(err error, now time.Time) {
	t.useErr = err
	if t.need == needRefresh {
		t.due = now.Add(refreshAgain)
		return
	}
	t.attempts++
	t.due = now.Add(backoff(t.attempts))
}

// backoff is the pause after the given number of rounds: 1, 2, 4, 8, 10 s,
// each up to a quarter longer, so that targets that fell silent together do
// not stay in step.
func backoff(attempts int) time.Duration {
	pause := maxBackoff
	if shift := attempts - 1; shift < 4 {
		pause = firstBackoff << max(shift, 0)
	}
	return pause + rand.N(pause/4)
}

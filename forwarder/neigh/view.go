package neigh

import (
	"net/netip"
	"slices"
)

// State says whether frames can be handed to a target on layer 2.
type State uint8

const (
	// NoRoute: the kernel has no route to the target, or one that refuses.
	NoRoute State = iota
	// NotOnLink: the target is not a neighbour on an interface of ours. It is
	// behind a gateway, on another interface, or this host itself.
	NotOnLink
	// NoNeighbour: the target is on link, and its MAC address is not known.
	NoNeighbour
	// Deliverable: interface and MAC address are known.
	Deliverable
)

// String returns the label used in status output and metrics.
func (s State) String() string {
	switch s {
	case NoRoute:
		return "no_route"
	case NotOnLink:
		return "not_on_link"
	case NoNeighbour:
		return "no_neighbour"
	case Deliverable:
		return "deliverable"
	}
	return "invalid"
}

// Target is what is known about one address. It is comparable.
type Target struct {
	State State
	// Interface is the index of the named interface that leads to the target;
	// 0 unless State is Deliverable or NoNeighbour.
	Interface int
	// VLAN is the tag frames must carry on Interface to reach the target, 0
	// for none. It is set when the route leads over a VLAN device that lies on
	// top of a named interface.
	VLAN uint16
	// MAC is the target's, and valid only if State is Deliverable. The
	// interface's own is in Link.
	MAC [6]byte
	// Gateway is the next hop the kernel would use; valid only if the target
	// is behind one (State NotOnLink).
	Gateway netip.Addr
	// Reason says in words why the target is not Deliverable; empty if it is.
	Reason string
}

// Link is one of the interfaces named in Options or SetInterfaces.
type Link struct {
	Name string
	// Index is the interface index, 0 while no interface has this name. It
	// changes when the interface is deleted and made again.
	Index int
	MAC   [6]byte
	// Up is true when frames can pass: administratively up, with carrier.
	Up bool
	// AdminUp and Carrier are the two halves of Up.
	AdminUp, Carrier bool
	// MTU is in bytes, without the Ethernet header.
	MTU int
	// RXQueues is the number of receive queues in use, 0 if not known.
	RXQueues int
	// Addrs are the interface's own addresses, sorted. Not to be changed.
	Addrs []netip.Prefix
}

// Present reports whether an interface of this name exists.
func (l Link) Present() bool { return l.Index != 0 }

func (l Link) equal(o Link) bool {
	return l.Name == o.Name && l.Index == o.Index && l.MAC == o.MAC && l.Up == o.Up &&
		l.AdminUp == o.AdminUp && l.Carrier == o.Carrier && l.MTU == o.MTU &&
		l.RXQueues == o.RXQueues && slices.Equal(l.Addrs, o.Addrs)
}

// View is one consistent state of everything followed. It is immutable:
// neither the watcher nor its users change a View or anything in it.
type View struct {
	// Links are the named interfaces, present or not, in the order given.
	Links []Link
	// Own are all addresses of this host on any interface, loopback and
	// link-local included, sorted, without zones.
	Own []netip.Addr
	// Targets has every target that was looked at; one set a moment ago may
	// still be absent. Keys are unmapped (plain IPv4, never ::ffff:a.b.c.d).
	Targets map[netip.Addr]Target
}

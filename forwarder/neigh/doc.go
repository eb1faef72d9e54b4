// Package neigh follows what the kernel knows about this host's surroundings:
// links, addresses, routes and neighbours. It tells the forwarding path, as
// plain data, on which interface and to which MAC address each backend can be
// reached, or why it cannot.
//
//	kernel ──events──► reader ──► Run ──View──► onChange
//	   ▲                           │
//	   └──dumps, route look-ups, ──┘
//	      solicitations
//
// The kernel decides everything: a route look-up says whether a target is on
// the link, the neighbour table says its MAC. This package only asks, follows
// and keeps asking. It never speaks ARP or neighbour discovery itself.
//
// # Keeping neighbours alive
//
// Forwarded frames bypass the kernel, so the kernel sees no traffic towards a
// backend and would let its entry go stale, and the frames would follow a dead
// MAC. Every target therefore gets a neighbour request (RTM_NEWNEIGH with
// NTF_USE) when it has no usable entry and whenever its entry turns STALE;
// the kernel then solicits, and the answer arrives as an event. NTF_USE has had
// this meaning since 2009, and leaves nothing behind.
// NTF_MANAGED (5.16), which makes the kernel refresh an entry on its own, was
// not taken: it solicits all its entries in one burst, has no backoff for dead
// ones, and goes on after this process has died.
//
// # Concurrency and lifetime
//
// One goroutine, the one in Run, owns all state and calls onChange, with no
// lock held. A second one reads the event socket; Run starts it and waits for
// it. SetTargets and SetInterfaces may be called from anywhere at any time.
// A View is immutable and may be kept.
//
// An event socket can overrun: the kernel then drops events and says so, and
// everything is read again. A socket that fails is replaced the same way.
// What no event announces (the number of queues, a change of routing that the
// kernel did not notify) is looked at periodically.
//
// # Limits
//
// Route look-ups are those of locally sent, unmarked packets, so rules that
// match a firewall mark or an incoming interface are not seen, nor are VRF
// tables.
package neigh

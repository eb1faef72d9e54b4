// Package claim notices other hosts that use an address which the appliance
// answers for, or are about to, and decides what is done about it.
//
// A claim comes by one of two ways. What asks for an address of ours is taken
// from the kernel by the classifier, so a worker sees it: an ARP request or a
// neighbour solicitation, which may be sent in the name of one of our
// addresses, or be a probe whether one is free. Everything else, ARP replies,
// requests for other targets, neighbour advertisements, goes to the kernel, and
// a [Listener] sees a copy of it on a packet socket: it takes nothing away.
//
//	worker ───────────────┐
//	                      ├──► Guard ──► counters, records, one report, one defence
//	packet socket ──► Listener ┘
//
// Both end in the one [Guard], which counts, remembers who it was, has it told
// now and then, and defends an address at most once in ten seconds (RFC 5227
// section 2.4). What reaches the Guard is bounded in rate on both ways; what
// came faster is counted as missed by whoever left it out.
//
// A Guard may be used by any number of goroutines. A Listener belongs to the
// goroutine that calls Receive; its other methods may be called from anywhere.
package claim

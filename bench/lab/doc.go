// Package lab builds a network of namespaces on one machine: clients in
// several subnets, backends with real servers, and the appliance under test,
// all on one switch. The demo, the end-to-end tests and the measurements
// stand on it.
//
//	client-b ─┐                       ┌─ web-b1  (VIP on lo, servers)
//	client-c ─┤                       ├─ web-b2
//	   …      ├── br0 in PREFIX-sw ───┤    …
//	client-n ─┘   (IGMP and MLD       ├─ fw-b    (any address of a range)
//	               snooping, querier) └─ …
//	                     │
//	                 lb: eth0, N queues (and eth1 on br1, if wanted)
//
// Every node is a network namespace named PREFIX-NODE, bind-mounted below
// /run/netns as iproute2 does it, so that `ip netns exec PREFIX-lb …` works
// while a lab is up. The servers and the client helpers are goroutines of the
// building process whose sockets were created inside the namespaces; a socket
// stays in its namespace, so they may be used from any goroutine afterwards.
//
// # What makes it behave like a real segment
//
//   - The bridge snoops multicast and is a querier: a neighbour solicitation
//     for a group that nobody joined is dropped, as on a managed switch. Build
//     returns only once snooping is in force.
//   - The bridge port of the appliance spreads flows over all queues (XPS);
//     without it veth reuses the queue number of the sending port, and
//     everything lands on queue 0. The queue follows from addresses and ports,
//     as a network card chooses it: whoever uses a port again gets the same.
//   - Frames stay in order on a link: one CPU receives at each end of it (RPS).
//     veth by itself hands a frame over on the CPU that sent it, and two of
//     them overtake each other.
//   - Transmit checksum offload is off everywhere. veth hands a packet with an
//     unfinished checksum to its peer as it is; a forwarder that works on
//     bytes would pass it on, and TCP would die of it.
//   - The bridge port of the appliance has an XDP program that passes
//     everything. veth accepts redirected or transmitted XDP frames only if
//     the receiving end polls; a program does that without merging segments,
//     so that captures show frames as they were on the wire.
//
// # Concurrency and lifetime
//
// Methods are safe for concurrent use unless they say otherwise. Functions
// that enter a namespace lock their OS thread, and let the thread die if it
// cannot be brought back. The owner calls Close, once; everything the lab
// started (servers, captures, processes) ends there. If the owner dies
// instead, the next Build in any process removes what it left: the owner holds
// a file lock in /run/zonehop-lab for as long as it lives, and a record there
// lists the namespaces that are its own.
package lab

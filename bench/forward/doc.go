// Command forward measures the forwarder on a veth pair, beside two others that
// do next to nothing with a frame:
//
//	worker   the forwarder as the appliance runs it: classifier, rule, flow
//	         table, rewrite, counters; 100 backends in 4 zones
//	swap     swaps the MAC addresses, on the same kind of socket
//	library  the loop that the documentation of github.com/asavie/xdp shows
//
//	      CPU 0                                        CPU 1
//	generator ──frames──► veth ═══ veth ──► RX ring ─► application
//	sink ◄──────────────────────────────── TX ring ◄──────┘
//
// The application runs in a process of its own inside the lab's appliance
// namespace, started anew for each sample: the three take turns, in an order
// that rotates from round to round, so that what the machine does meanwhile
// meets all of them. Compare only numbers of one run; ratios are taken within
// a round, and their median is what counts. The application's CPU time is that
// of its one packet thread, as the scheduler accounts it, the kernel's part of
// sending included. A sample in which that thread had to wait for its CPU is
// taken again a few times, and marked if that does not help.
//
// Numbers from veth say what the software costs beside others on the same
// machine, not what a network card would reach: the kernel copies each frame
// twice here.
package main

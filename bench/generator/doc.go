// Package generator sends UDP datagrams and TCP segments of many flows out of an
// interface, far faster than a socket could, and counts what comes back to it. It measures
// forwarders that send frames back where they came from:
//
//	Generator ──frames──► interface ═══ veth ═══ interface of the forwarder
//	                                                     │
//	Sink ◄── XDP ◄────── interface ◄════════════════════─┘ MACs rewritten
//
// The generator is an XDP program that the kernel runs over and over on pages
// of its own (BPF_PROG_RUN with live frames, Linux 5.18) and whose verdict
// transmits them. On veth the other end must have an XDP program or GRO, and
// receives on the queue whose number is that of the sending CPU, modulo the
// number of queues; not by flow.
//
// A frame comes back from the forwarder in whatever state it was left, and its
// page is used again: so the program writes every header byte of every frame.
//
// Figures taken this way hold for the machine and the kernel they were taken
// on, in one run beside what they are compared with.
package generator

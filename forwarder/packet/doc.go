// Package packet reads and rewrites the bytes of one Ethernet frame.
//
// A frame is parsed once into a [Parsed], 64 bytes that the caller owns and
// reuses; everything that follows (look-up, rewrite, answer) works from its
// offsets and never from constants, because VLAN tags, IPv4 options and IPv6
// extension headers move the transport header:
//
//	0          12        L3              L4                End      len(frame)
//	| MACs     | tags    | IP header     | transport, data | padding |
//	           | 0..2    | options, extension headers     |
//
// Three kinds of functions work on a parsed frame: rewriting ([SetMACs],
// [DecrementTTL]) changes a frame that is passed on; questions
// ([ARPRequestTarget], [NeighborSolicitTarget], …) check a message in full
// before the appliance acts on it; answers ([ReplyARP], [ReplyEcho],
// [TimeExceeded], [TooBig], …) turn the received frame into its own answer, in
// place, so that an answer needs no second buffer. VLAN tags stay where they are.
//
// Every function is pure: no state, no clock, no allocation, no panic
// whatever the bytes. Calls on different frames are safe concurrently; a frame
// and its Parsed belong to one goroutine at a time. A slice returned by an
// answer shares the memory of its argument and lives as long as it does.
// A Parsed describes a frame until an answer overwrites that frame.
//
// Addresses are pairs of host-order words, IPv4 in its IPv4-mapped form
// (::ffff:a.b.c.d), so that one table serves both families. A packet that
// carries an IPv4-mapped address in an IPv6 header is refused by Parse, since
// it could otherwise pose as an IPv4 packet (RFC 4942, section 2.2).
package packet

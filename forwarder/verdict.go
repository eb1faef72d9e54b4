package forwarder

import "zonehop/forwarder/packet"

// Verdict is what became of a received frame. Each frame ends in exactly one.
type Verdict uint8

// The verdicts.
const (
	Drop    Verdict = iota // consumed; the Reason says why
	Forward                // accepted on a TX ring, addressed to a backend
	Answer                 // consumed and replied to in the same frame
)

// Reason says why a frame was dropped. Every drop has one, and each has its
// own counter, so that the sum of all verdicts is the number of frames received.
type Reason uint8

// The reasons, by the step that drops. Reasons from ReasonMalformed on are the
// parser's own: ReasonMalformed + packet.Problem.
const (
	ReasonNone Reason = iota

	// match
	ReasonOtherStation      // flooded by a switch: its destination MAC is not the interface's
	ReasonNoRule            // a rule's address, but no rule for this protocol and port
	ReasonFragmentUnmatched // a fragment without ports, and no single rule takes all ports
	ReasonNoRoute           // neither a rule's address nor in a route: a reload overtook the frame
	ReasonBadSource         // a route's packet from an address that no router forwards for
	ReasonNotAnnounced      // asked for the MAC of an address that is not answered for here, now
	ReasonAddressClaim      // asked for a MAC in the name of an address that is answered for here
	ReasonBadNeighbour      // an ARP request or solicitation that must not be answered (RFC 826, RFC 4861)
	ReasonUnexpected        // a kind of frame that the classifier does not take
	ReasonPingUnavailable   // echo request to an address whose services have no eligible backend
	ReasonErrorUnmatched    // an ICMP error that quotes no packet of ours
	ReasonFragmentEvicted   // a fragment whose first one did not come before memory for waiting ran out
	ReasonTTLExpired        // time to live, or hop limit, used up at this hop

	// track
	ReasonUnhealthy    // nothing is healthy and the service says drop
	ReasonRegionDenied // client of another region, rule without global access
	ReasonNoBackend    // the service has no backend for this address family
	ReasonNotReady     // the service's backends have no verdicts yet: any choice might be the wrong one

	// deliver
	ReasonNoNeighbour // the backend's MAC address is not known
	ReasonNotOnLink   // the backend is behind a gateway: layer 2 cannot reach it
	ReasonOtherVLAN   // the backend is in a VLAN, and the frame came in on another, or on none
	ReasonLoop        // the backend's MAC is the one the frame came from
	ReasonTooBig      // longer than the outgoing interface's MTU
	ReasonTXFull      // the outgoing ring of another interface is full
	ReasonMailboxFull // the worker that owns the outgoing queue is behind
	ReasonNoPort      // the outgoing interface has no usable queue

	ReasonMalformed
)

// NumReasons is the number of drop reasons, ReasonNone included.
const NumReasons = int(ReasonMalformed) + packet.NumProblems

var reasonNames = [ReasonMalformed]string{
	ReasonNone:              "none",
	ReasonOtherStation:      "other_station",
	ReasonNoRule:            "no_rule",
	ReasonFragmentUnmatched: "fragment_unmatched",
	ReasonNoRoute:           "no_route",
	ReasonBadSource:         "bad_source",
	ReasonNotAnnounced:      "not_announced",
	ReasonAddressClaim:      "address_claim",
	ReasonBadNeighbour:      "bad_neighbour",
	ReasonUnexpected:        "unexpected",
	ReasonPingUnavailable:   "vip_ping_unavailable",
	ReasonErrorUnmatched:    "icmp_unmatched",
	ReasonFragmentEvicted:   "fragment_evicted",
	ReasonTTLExpired:        "ttl_expired",
	ReasonUnhealthy:         "unhealthy",
	ReasonRegionDenied:      "region_denied",
	ReasonNoBackend:         "no_backend",
	ReasonNotReady:          "not_ready",
	ReasonNoNeighbour:       "no_neighbour",
	ReasonNotOnLink:         "not_on_link",
	ReasonOtherVLAN:         "other_vlan",
	ReasonLoop:              "loop",
	ReasonTooBig:            "too_big",
	ReasonTXFull:            "tx_full",
	ReasonMailboxFull:       "mailbox_full",
	ReasonNoPort:            "no_port",
}

// malformed maps the parser's verdict to a reason.
func malformed(p packet.Problem) Reason { return ReasonMalformed + Reason(p) }

// Used reports whether frames can be dropped under the reason: all but the two
// zero values, "none" and the parser's "ok".
func (r Reason) Used() bool { return r != ReasonNone && r != ReasonMalformed }

// String returns the reason's label in metrics.
func (r Reason) String() string {
	if r < ReasonMalformed {
		return reasonNames[r]
	}
	return packet.Problem(r - ReasonMalformed).String()
}

// AnswerKind is what a frame was answered with.
type AnswerKind uint8

// The answers.
const (
	AnswerARP AnswerKind = iota
	AnswerNeighbour
	AnswerPing
	numAnswers
)

var answerNames = [numAnswers]string{"arp", "neighbour", "vip_ping"}

// String returns the answer's label in metrics.
func (k AnswerKind) String() string { return answerNames[k] }

// OriginKind is a frame that the appliance sends of its own accord.
type OriginKind uint8

// The originated frames.
const (
	OriginAnnouncement OriginKind = iota // gratuitous ARP, unsolicited neighbour advertisement
	OriginTimeExceeded
	OriginTooBig  // ICMP fragmentation needed, ICMPv6 packet too big
	OriginDefence // the same as an announcement, against another host's claim
	numOrigins
)

var originNames = [numOrigins]string{"announcement", "time_exceeded", "packet_too_big", "address_defence"}

// String returns the kind's label in metrics.
func (k OriginKind) String() string { return originNames[k] }

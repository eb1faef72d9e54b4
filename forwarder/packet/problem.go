package packet

// Problem says why a frame cannot be forwarded. The zero value is OK.
type Problem uint8

// The problems that Parse finds, each a drop reason of its own.
const (
	OK              Problem = iota
	Truncated               // the frame ends before a header or before the length that the IP header claims
	TooManyTags             // more than two VLAN tags
	NotIP                   // neither IPv4, IPv6 nor ARP
	BadARP                  // ARP for anything but IPv4 over Ethernet
	BadVersion              // the version in the IP header contradicts the EtherType
	BadHeaderLength         // IHL below 5, or an extension header that runs past the packet
	BadLength               // total length below the header's, a jumbogram, or a frame above 65 535 bytes
	BadChecksum             // IPv4 header checksum
	BadAddress              // an IPv4-mapped address in an IPv6 header
	BadFragment             // empty, not a multiple of 8 bytes, or reaching past 65 535 bytes
	TinyFragment            // a fragment that hides or overwrites TCP flags (RFC 1858, RFC 3128)
	ShortTransport          // an unfragmented packet that is too short for its transport header
	NumProblems     int     = iota
)

var problemLabels = [NumProblems]string{
	OK:              "ok",
	Truncated:       "truncated",
	TooManyTags:     "too_many_tags",
	NotIP:           "not_ip",
	BadARP:          "bad_arp",
	BadVersion:      "bad_version",
	BadHeaderLength: "bad_header_length",
	BadLength:       "bad_length",
	BadChecksum:     "bad_checksum",
	BadAddress:      "bad_address",
	BadFragment:     "bad_fragment",
	TinyFragment:    "tiny_fragment",
	ShortTransport:  "short_transport",
}

// String returns the label of the problem in metrics and status output.
func (p Problem) String() string {
	if int(p) >= NumProblems {
		return "unknown"
	}
	return problemLabels[p]
}

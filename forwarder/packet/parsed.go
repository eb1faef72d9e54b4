package packet

// Kind is the network protocol of a frame.
type Kind uint8

// The kinds of frames; KindNone is a frame that was not read that far.
const (
	KindNone Kind = iota
	KindIPv4
	KindIPv6
	KindARP
	KindOther // Parse returned NotIP
)

// Flags are facts about a packet that decide how it is treated.
type Flags uint16

// The flags of a parsed packet. Those of TCP are where the TCP header has them
// (RFC 9293, section 3.1), so that reading them is one mask.
const (
	FIN              Flags = 1 << iota // TCP
	SYN                                // TCP
	RST                                // TCP
	HasPorts                           // SrcPort and DstPort were read
	ACK                                // TCP
	HasTransport                       // the transport header at L4 is complete (of a protocol known here)
	Fragment                           // any fragment, the first included
	LaterFragment                      // a fragment with an offset other than 0
	AtomicFragment                     // whole, but with an IPv6 fragment header (RFC 6946)
	NeighborSolicit                    // ICMPv6 type 135, not yet validated
	NeighborAdvert                     // ICMPv6 type 136, not yet validated
	EchoRequest                        // ICMP or ICMPv6
	ICMPError                          // ICMP or ICMPv6 message that quotes a packet
	IPOptions                          // the IPv4 header has options
	ExtensionHeaders                   // the IPv6 header is followed by extension headers
)

// Parsed is what Parse found in a frame. It fills one cache line. All fields
// are valid after Parse returned OK; after a problem those that were not
// reached are zero.
type Parsed struct {
	Src, Dst [2]uint64 // network addresses; of ARP, those of sender and target

	SrcMAC uint64 // low 48 bits, first byte highest

	// FragID is the identification of a fragment, 0 for other packets. An IPv4
	// datagram is named by (Src, Dst, Proto, FragID), an IPv6 one by (Src, Dst,
	// FragID): behind an IPv6 fragment header Proto may differ between its
	// first fragment and the later ones.
	FragID uint32

	// The order of fields from here on lets Parse write several with one store.

	DstPort, SrcPort uint16 // 0 unless HasPorts
	L3, L4           uint16 // offsets of network and transport header in the frame
	End              uint16 // end of the packet by its own length field, without Ethernet padding
	Flags            Flags

	Proto    uint8 // transport protocol, or the extension header at which the walk ended; 0 for ARP
	TTL      uint8 // or hop limit
	Kind     Kind
	VLANs    uint8 // number of 802.1Q and 802.1ad tags, 0..2
	ICMPType uint8 // of ICMP in IPv4 and ICMPv6 in IPv6, if the packet holds it
	ICMPCode uint8
}

// Has reports whether all of the flags f are set.
func (p *Parsed) Has(f Flags) bool { return p.Flags&f == f }

// Transport protocols and extension headers (IANA protocol numbers).
const (
	ProtoHopByHop = 0
	ProtoICMP     = 1
	ProtoTCP      = 6
	ProtoUDP      = 17
	ProtoRouting  = 43
	ProtoFragment = 44
	ProtoAH       = 51
	ProtoICMPv6   = 58
	ProtoDstOpts  = 60
	ProtoSCTP     = 132
	ProtoUDPLite  = 136
)

const (
	ethernetLen = 14
	tagLen      = 4
	maxTags     = 2
	minFrameLen = 60     // IEEE 802.3, section 3.2.8, without the frame check sequence
	maxFrameLen = 0xffff // offsets in Parsed are 16 bits

	etherTypeIPv4 = 0x0800
	etherTypeARP  = 0x0806
	etherTypeVLAN = 0x8100 // IEEE 802.1Q
	etherTypeIPv6 = 0x86dd
	etherTypeQinQ = 0x88a8 // IEEE 802.1ad
)

package packet

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// goldenTCP is a SYN in 802.1Q.
var goldenTCP = []byte{
	0x02, 0x00, 0x00, 0x00, 0x00, 0x02, // destination MAC
	0x02, 0x00, 0x00, 0x00, 0x00, 0x01, // source MAC
	0x81, 0x00, 0x00, 0x64, // 802.1Q, VLAN 100
	0x08, 0x00, // IPv4
	0x45, 0x00, 0x00, 0x28, // version, IHL, TOS, total length 40
	0x12, 0x34, 0x40, 0x00, // identification, don't fragment
	0x3d, 0x06, 0x3f, 0x5d, // TTL 61, TCP, header checksum
	0xc0, 0x00, 0x02, 0x0a, // source 192.0.2.10
	0xc6, 0x33, 0x64, 0x01, // destination 198.51.100.1
	0x10, 0x92, 0x01, 0xbb, // ports 4242, 443
	0x00, 0x00, 0x00, 0x07, // sequence number
	0x00, 0x00, 0x00, 0x00, // acknowledgement number
	0x50, 0x02, 0xff, 0xff, // data offset 5, SYN, window
	0x00, 0x00, 0x00, 0x00, // checksum (left to the NIC), urgent pointer
	0x00, 0x00, // padding
}

// goldenUDP6 is a datagram behind a hop-by-hop header.
var goldenUDP6 = []byte{
	0x02, 0x00, 0x00, 0x00, 0x00, 0x02, // destination MAC
	0x02, 0x00, 0x00, 0x00, 0x00, 0x01, // source MAC
	0x86, 0xdd, // IPv6
	0x60, 0x00, 0x00, 0x00, // version, traffic class, flow label
	0x00, 0x12, 0x00, 0x02, // payload length 18, hop-by-hop, hop limit 2
	0x20, 0x01, 0x0d, 0xb8, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, // source
	0x20, 0x01, 0x0d, 0xb8, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, // destination
	0x11, 0x00, 0x01, 0x04, 0x00, 0x00, 0x00, 0x00, // UDP follows, 8 bytes, PadN
	0x10, 0x92, 0x00, 0x35, // ports 4242, 53
	0x00, 0x0a, 0x00, 0x00, // length 10, no checksum
	0x68, 0x69, // data
}

func TestParseGolden(t *testing.T) {
	tests := []struct {
		name  string
		frame []byte
		want  Parsed
	}{
		{"tcp", goldenTCP, Parsed{
			Src: words(client4), Dst: words(vip4), SrcMAC: 0x020000000001, SrcPort: 4242, DstPort: 443,
			L3: 18, L4: 38, End: 58, Flags: HasPorts | HasTransport | SYN, Kind: KindIPv4, Proto: 6, VLANs: 1, TTL: 61}},
		{"udp6", goldenUDP6, Parsed{
			Src: words(client6), Dst: words(vip6), SrcMAC: 0x020000000001, SrcPort: 4242, DstPort: 53,
			L3: 14, L4: 62, End: 72, Flags: HasPorts | HasTransport | ExtensionHeaders, Kind: KindIPv6, Proto: 17, TTL: 2}},
	}
	for _, test := range tests {
		p := dirtyParsed()
		if got := p.Parse(test.frame); got != OK || p != test.want {
			t.Errorf("Parse(%s) = %v, %+v, want ok, %+v", test.name, got, p, test.want)
		}
	}
}

func TestParseRefusesWhatOffsetsCannotReach(t *testing.T) {
	frame := append(udp4Frame(t, 10), make([]byte, 0x10000)...)
	var p Parsed
	if got := p.Parse(frame[:0xffff]); got != OK {
		t.Errorf("Parse(65535 bytes) = %v, want ok", got)
	}
	if got := p.Parse(frame[:0x10000]); got != BadLength {
		t.Errorf("Parse(65536 bytes) = %v, want %v", got, BadLength)
	}
}

func TestProblemLabels(t *testing.T) {
	seen := make(map[string]bool)
	for problem := range Problem(NumProblems) {
		label := problem.String()
		if label == "" || label == "unknown" || seen[label] {
			t.Errorf("Problem(%d) has the label %q: missing or not its own", problem, label)
		}
		seen[label] = true
	}
	if got := Problem(NumProblems).String(); got != "unknown" {
		t.Errorf("Problem(%d) = %q, want unknown", NumProblems, got)
	}
}

func TestAddr(t *testing.T) {
	tests := []struct {
		text string
		want [2]uint64
	}{
		{"192.0.2.10", [2]uint64{0, 0xffff_c000020a}},
		{"0.0.0.0", [2]uint64{0, 0xffff_00000000}},
		{"2001:db8::10", [2]uint64{0x20010db8_00000000, 0x10}},
		{"::", [2]uint64{0, 0}},
	}
	for _, test := range tests {
		a := netip.MustParseAddr(test.text)
		if got := Addr(a); got != test.want {
			t.Errorf("Addr(%v) = %#x, want %#x", a, got, test.want)
		}
		if got := Netip(test.want); got != a {
			t.Errorf("Netip(%#x) = %v, want %v", test.want, got, a)
		}
	}
}

func TestParseQuote(t *testing.T) {
	reversed4, reversed6 := ip4(layers.IPProtocolTCP), ip6(layers.IPProtocolTCP)
	reversed4.SrcIP, reversed4.DstIP = vip4, client4
	reversed6.SrcIP, reversed6.DstIP = vip6, client6
	tcp := &layers.TCP{SrcPort: 443, DstPort: 4242, ACK: true}
	quote4 := serialize(t, reversed4, tcp, gopacket.Payload(make([]byte, 100)))
	quote6 := serialize(t, reversed6, tcp, gopacket.Payload(make([]byte, 100)))
	later := bytes.Clone(quote4)
	later[7] = 3 // fragment offset 24
	options := append([]byte{0x46, 0, 0, 80}, quote4[4:20]...)
	options = append(append(options, 1, 1, 1, 0), quote4[20:28]...)
	gre := bytes.Clone(quote4)
	gre[9] = 47
	badSum := bytes.Clone(quote4)
	badSum[8]-- // a router quoted it after taking a hop off

	tests := []struct {
		name    string
		kind    Kind
		quote   []byte
		problem Problem
		flags   Flags
		l4      int // behind the quote's start
		proto   uint8
	}{
		{"8 bytes", KindIPv4, quote4[:28], OK, HasPorts, 20, 6},
		{"4 bytes", KindIPv4, quote4[:24], OK, HasPorts, 20, 6},
		{"3 bytes", KindIPv4, quote4[:23], OK, 0, 20, 6},
		{"whole header", KindIPv4, quote4[:40], OK, HasPorts | HasTransport | ACK, 20, 6},
		{"changed TTL", KindIPv4, badSum[:28], OK, HasPorts, 20, 6},
		{"later fragment", KindIPv4, later[:40], OK, Fragment | LaterFragment, 20, 6},
		{"options", KindIPv4, options, OK, HasPorts | IPOptions, 24, 6},
		{"no ports", KindIPv4, gre[:28], OK, 0, 20, 47},
		{"half a header", KindIPv4, quote4[:19], Truncated, 0, 0, 0},
		{"half the options", KindIPv4, options[:22], Truncated, 0, 0, 0},
		{"nothing", KindIPv4, nil, Truncated, 0, 0, 0},
		{"ipv6 in icmp", KindIPv4, quote6, BadVersion, 0, 0, 0},
		{"8 bytes of ipv6", KindIPv6, quote6[:48], OK, HasPorts, 40, 6},
		{"whole ipv6", KindIPv6, quote6, OK, HasPorts | HasTransport | ACK, 40, 6},
		{"half an ipv6 header", KindIPv6, quote6[:39], Truncated, 0, 0, 0},
	}
	for _, test := range tests {
		var frame []byte
		body := append(make([]byte, 4), test.quote...)
		if test.kind == KindIPv4 {
			frame = serialize(t, ethernet(layers.EthernetTypeIPv4), ip4(layers.IPProtocolICMPv4),
				&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 4)}, gopacket.Payload(body[4:]))
		} else {
			frame = serialize(t, ethernet(layers.EthernetTypeIPv6), ip6(layers.IPProtocolICMPv6),
				&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(2, 0)}, gopacket.Payload(body))
		}
		var outer Parsed
		if got := outer.Parse(frame); got != OK || !outer.Has(ICMPError) {
			t.Errorf("%s: Parse = %v with flags %b, want an ICMP error", test.name, got, outer.Flags)
			continue
		}
		p := dirtyParsed()
		if got := p.ParseQuote(frame, &outer); got != test.problem {
			t.Errorf("%s: ParseQuote = %v, want %v", test.name, got, test.problem)
			continue
		}
		if test.problem != OK {
			continue
		}
		at := int(outer.L4) + 8
		want := Parsed{Src: outer.Dst, Dst: outer.Src, SrcMAC: outer.SrcMAC, L3: uint16(at), L4: uint16(at + test.l4),
			End: outer.End, Flags: test.flags, Kind: test.kind, Proto: test.proto, TTL: p.TTL}
		if test.flags&Fragment != 0 {
			want.FragID = 0x1234
		}
		if test.flags&HasPorts != 0 {
			want.SrcPort, want.DstPort = 443, 4242
		}
		if p != want {
			t.Errorf("%s: ParseQuote gives %+v, want %+v", test.name, p, want)
		}
	}
	var outer, p Parsed
	frame := udp4Frame(t, 10)
	outer.Parse(frame)
	if got := p.ParseQuote(frame, &outer); got != NotIP {
		t.Errorf("ParseQuote(datagram) = %v, want %v", got, NotIP)
	}
}

package packet

import (
	"bytes"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// FuzzParseQuote puts any bytes into an ICMP error, behind tags, options and
// extension headers, and holds what ParseQuote reads of them against gopacket.
func FuzzParseQuote(f *testing.F) {
	for i, frame := range vectorFrames(f) {
		if len(frame) < ethernetLen+ipv4Len {
			continue
		}
		// Whole, and cut to what RFC 792 promises of a plain packet.
		quote, v6 := frame[ethernetLen:], frame[12] == 0x86
		f.Add(quote, v6, uint8(i), uint8(i), uint8(0))
		if n := ipv4Len + 8; !v6 && len(quote) > n {
			f.Add(quote[:n], v6, uint8(3), uint8(0), uint8(46))
		}
		if n := ipv6Len + 8; v6 && len(quote) > n {
			f.Add(quote[:n], v6, uint8(2), uint8(0), uint8(0))
		}
	}
	f.Fuzz(func(t *testing.T, quote []byte, v6 bool, icmpType, outside, trailer uint8) {
		if len(quote) > 1500 {
			return
		}
		frame, at := errorFrame(t, quote, v6, icmpType, outside)
		end := at + len(quote)
		frame = append(frame, bytes.Repeat([]byte{0x45}, int(trailer))...) // padding is no part of the quote
		var outer Parsed
		if got := outer.Parse(frame); got != OK || !outer.Has(ICMPError) || int(outer.End) != end {
			t.Fatalf("Parse = %v, %+v; want an ICMP error that ends at %d", got, outer, end)
		}
		before := bytes.Clone(frame)
		p := dirtyParsed()
		got := p.ParseQuote(frame, &outer)
		want, ok := reference(quote, at, outer.Kind, true)
		want.SrcMAC, want.VLANs = outer.SrcMAC, outer.VLANs
		if (got == OK) != ok {
			t.Fatalf("ParseQuote(%x) = %v, accepted by gopacket: %v", quote, got, ok)
		}
		if ok && p != want {
			t.Fatalf("ParseQuote(%x) gives\n%+v, gopacket\n%+v", quote, p, want)
		}
		if !bytes.Equal(frame, before) {
			t.Fatal("ParseQuote changed the frame")
		}
	})
}

// errorFrame is an ICMP error with a quote. The low bits of outside say how many
// tags are before the packet, the next ones how many words of options, or
// destination options headers, are before the message. The quote is at an offset
// that it returns too.
func errorFrame(t testing.TB, quote []byte, v6 bool, icmpType, outside uint8) (frame []byte, at int) {
	ether := ethernet(layers.EthernetTypeIPv4)
	if v6 {
		ether.EthernetType = layers.EthernetTypeIPv6
	}
	stack := []gopacket.SerializableLayer{ether}
	for range outside & 3 % 3 {
		stack = append(stack, &layers.Dot1Q{VLANIdentifier: 7, Type: ether.EthernetType})
	}
	if n := len(stack) - 1; n > 0 {
		ether.EthernetType = layers.EthernetTypeDot1Q
		if n == 2 {
			stack[1].(*layers.Dot1Q).Type = layers.EthernetTypeDot1Q
		}
	}
	words := int(outside >> 2 & 3)
	at = ethernetLen + tagLen*(len(stack)-1) + icmpLen
	if !v6 {
		kinds := []uint8{icmpUnreachable, icmpSourceQuench, icmpRedirect, icmpTimeExceeded, icmpParameter}
		ip := ip4(layers.IPProtocolICMPv4)
		for range words * 4 {
			ip.Options = append(ip.Options, layers.IPv4Option{OptionType: 1})
		}
		frame = serialize(t, append(stack, ip, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kinds[int(icmpType)%len(kinds)], 0)}, gopacket.Payload(quote))...)
		return frame, at + ipv4Len + 4*words
	}
	next := layers.IPProtocolICMPv6
	message := append([]byte{icmpType & 127, 0, 0, 0, 0, 0, 0, 0}, quote...)
	for range words {
		message = append([]byte{uint8(next), 0, 1, 4, 0, 0, 0, 0}, message...)
		next = layers.IPProtocolIPv6Destination
	}
	frame = serialize(t, append(stack, ip6(next), gopacket.Payload(message))...)
	return frame, at + ipv6Len + minExtensionLen*words
}

package packet

import (
	"bytes"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// FuzzParse holds Parse against its own general path and against gopacket.
func FuzzParse(f *testing.F) {
	for _, frame := range vectorFrames(f) {
		f.Add(frame)
	}
	f.Add(goldenTCP)
	f.Add(goldenUDP6)
	f.Fuzz(func(t *testing.T, frame []byte) {
		fixIPv4Checksum(frame)
		checkShortcut(t, frame)
		var p Parsed
		if p.Parse(frame) != OK {
			return
		}
		if p.L3 > p.L4 || p.L4 > p.End || int(p.End) > len(frame) {
			t.Fatalf("offsets %d, %d, %d do not ascend within %d bytes", p.L3, p.L4, p.End, len(frame))
		}
		compareWithGopacket(t, frame, &p)
	})
}

// compareWithGopacket follows the layers that gopacket finds, from the outside,
// as long as it finds any that a forwarder reads.
func compareWithGopacket(t *testing.T, frame []byte, p *Parsed) {
	equal := func(what string, got, want any) {
		if got != want {
			t.Fatalf("%s is %v, gopacket says %v: %x, %+v", what, got, want, frame, *p)
		}
	}
	tags, extensions, network := 0, 0, false
	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	decoded := packet.Layers()
	if packet.ErrorLayer() != nil {
		decoded = decoded[:max(len(decoded)-2, 0)] // the error, and the layer it refused
	}
	for _, layer := range decoded {
		if _, isNetwork := layer.(gopacket.NetworkLayer); isNetwork {
			if network {
				return // a packet within the packet
			}
			network = true
		}
		switch v := layer.(type) {
		case *layers.Ethernet:
			equal("source MAC", p.SrcMAC, macOf((*[6]byte)(v.SrcMAC)))
		case *layers.Dot1Q:
			tags++
		case *layers.ARP:
			equal("kind", p.Kind, KindARP)
			equal("sender", p.Src, words(v.SourceProtAddress))
			equal("target", p.Dst, words(v.DstProtAddress))
			equal("tags", int(p.VLANs), tags)
			return
		case *layers.IPv4:
			equal("kind", p.Kind, KindIPv4)
			equal("tags", int(p.VLANs), tags)
			equal("source", p.Src, words(v.SrcIP))
			equal("destination", p.Dst, words(v.DstIP))
			equal("protocol", p.Proto, uint8(v.Protocol))
			equal("TTL", p.TTL, v.TTL)
			equal("header length", p.L4-p.L3, uint16(v.IHL)*4)
			equal("total length", p.End-p.L3, v.Length)
			equal("options", p.Has(IPOptions), v.IHL > 5)
			equal("later fragment", p.Has(LaterFragment), v.FragOffset != 0)
			fragment := v.FragOffset != 0 || v.Flags&layers.IPv4MoreFragments != 0
			equal("fragment", p.Has(Fragment), fragment)
			if fragment {
				equal("identification", p.FragID, uint32(v.Id))
				return
			}
		case *layers.IPv6:
			equal("kind", p.Kind, KindIPv6)
			equal("tags", int(p.VLANs), tags)
			equal("source", p.Src, words(v.SrcIP))
			equal("destination", p.Dst, words(v.DstIP))
			equal("hop limit", p.TTL, v.HopLimit)
			equal("payload length", p.End-p.L3-40, v.Length)
		case *layers.IPv6HopByHop, *layers.IPv6Routing, *layers.IPv6Destination:
			if p.Kind != KindIPv6 {
				return // gopacket takes the numbers of extension headers for such in IPv4 too
			}
			equal("extension headers", p.Has(ExtensionHeaders), true)
			if extensions++; extensions > maxExtensionHeaders {
				return // Parse stops here by design
			}
		case *layers.IPv6Fragment:
			if p.Kind != KindIPv6 {
				return
			}
			equal("later fragment", p.Has(LaterFragment), v.FragmentOffset != 0)
			if p.Has(Fragment) {
				equal("identification", p.FragID, v.Identification)
			}
			return // gopacket does not look behind it
		case *layers.TCP:
			equal("protocol", p.Proto, uint8(ProtoTCP))
			equal("source port", p.SrcPort, uint16(v.SrcPort))
			equal("destination port", p.DstPort, uint16(v.DstPort))
			equal("SYN", p.Has(SYN), v.SYN)
			equal("ACK", p.Has(ACK), v.ACK)
			equal("FIN", p.Has(FIN), v.FIN)
			equal("RST", p.Has(RST), v.RST)
			return
		case *layers.UDP:
			equal("protocol", p.Proto, uint8(ProtoUDP))
			equal("source port", p.SrcPort, uint16(v.SrcPort))
			equal("destination port", p.DstPort, uint16(v.DstPort))
			return
		case *layers.SCTP:
			equal("protocol", p.Proto, uint8(ProtoSCTP))
			equal("source port", p.SrcPort, uint16(v.SrcPort))
			equal("destination port", p.DstPort, uint16(v.DstPort))
			return
		case *layers.UDPLite:
			equal("protocol", p.Proto, uint8(ProtoUDPLite))
			equal("source port", p.SrcPort, uint16(v.SrcPort))
			equal("destination port", p.DstPort, uint16(v.DstPort))
			return
		case *layers.ICMPv4:
			if p.Kind == KindIPv4 {
				equal("ICMP type and code", layers.CreateICMPv4TypeCode(p.ICMPType, p.ICMPCode), v.TypeCode)
			}
			return
		case *layers.ICMPv6:
			if p.Kind == KindIPv6 {
				equal("ICMPv6 type and code", layers.CreateICMPv6TypeCode(p.ICMPType, p.ICMPCode), v.TypeCode)
			}
			return
		default:
			return
		}
	}
}

// FuzzAnswers asks for every answer to any frame, in chunks of any size.
func FuzzAnswers(f *testing.F) {
	for i, frame := range vectorFrames(f) {
		f.Add(frame, uint16(i*7), uint16(i))
	}
	f.Fuzz(func(t *testing.T, frame []byte, room, cut uint16) {
		fixIPv4Checksum(frame)
		var p Parsed
		if p.Parse(frame) != OK {
			return
		}
		var quoted Parsed
		if quoted.ParseQuote(frame, &p) == OK && (quoted.L4 > quoted.End || quoted.End > p.End) {
			t.Fatalf("quote ends at %d, its transport starts at %d, the packet ends at %d", quoted.End, quoted.L4, p.End)
		}
		ARPClaims(frame, &p)
		NeighborClaims(frame, &p)
		for call, answer := range answers {
			c := newGuarded(frame, int(room)%2048)
			out := answer(c.frame, &p)
			c.check(t, call)
			if out == nil {
				if !bytes.Equal(c.frame, frame) {
					t.Fatalf("%s refused and yet changed the frame", call)
				}
				continue
			}
			if len(out) > cap(c.frame) || &out[0] != &c.frame[0] {
				t.Fatalf("%s answers outside of the chunk", call)
			}
			var answered Parsed
			if got := answered.Parse(out); got != OK || answered.VLANs != p.VLANs || answered.Kind != p.Kind {
				t.Fatalf("%s answers %x: Parse = %v, %+v", call, out, got, answered)
			}
			checkICMPSum(t, call, out, &answered)
		}
		// A frame that has lost its end since it was parsed is a caller's
		// fault, but must not reach beyond it.
		for call, answer := range answers {
			c := newGuarded(frame[:int(cut)%(len(frame)+1)], 0)
			answer(c.frame, &p)
			DecrementTTL(c.frame, &p)
			SetMACs(c.frame, &ownMAC, &ownMAC)
			c.check(t, call)
		}
	})
}

// checkICMPSum verifies the checksum of those answers that compute it (an echo
// reply is as good as its request).
func checkICMPSum(t *testing.T, call string, out []byte, p *Parsed) {
	var sum uint64
	switch {
	case call != "neighbor" && call != "timeExceeded" && call != "tooBig":
		return
	case p.Kind == KindIPv6:
		sum = sumPseudo6(p.Src, p.Dst, int(p.End-p.L4), ProtoICMPv6)
	}
	if !validSum(sumBytes(sum, out[p.L4:p.End])) {
		t.Fatalf("%s answers %x: bad checksum", call, out)
	}
}

// guarded is a frame in a chunk between two guards that must not change.
type guarded struct {
	all, frame []byte
	room       int
}

const guardLen = 64

func newGuarded(frame []byte, room int) guarded {
	all := bytes.Repeat([]byte{0x5a}, guardLen+len(frame)+room+guardLen)
	end := guardLen + len(frame)
	copy(all[guardLen:], frame)
	return guarded{all, all[guardLen : end : end+room], room}
}

func (c *guarded) check(t *testing.T, call string) {
	t.Helper()
	guard := bytes.Repeat([]byte{0x5a}, guardLen)
	if !bytes.HasPrefix(c.all, guard) || !bytes.HasSuffix(c.all, guard) {
		t.Fatalf("%s wrote outside of the chunk", call)
	}
}

package packet

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"pgregory.net/rapid"
)

// frameGen draws frames that are mostly good: the length, checksum and tag of a
// vector stay, a few bytes change.
func frameGen(vectors [][]byte) *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		frame := bytes.Clone(rapid.SampledFrom(vectors).Draw(t, "vector"))
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			if len(frame) > 0 {
				frame[rapid.IntRange(0, min(len(frame)-1, 63)).Draw(t, "at")] = rapid.Byte().Draw(t, "value")
			}
		}
		if rapid.Bool().Draw(t, "fix") {
			fixIPv4Checksum(frame)
		}
		if rapid.IntRange(0, 3).Draw(t, "cut") == 0 {
			frame = frame[:rapid.IntRange(0, len(frame)).Draw(t, "length")]
		}
		return frame
	})
}

// fixIPv4Checksum makes the header of an untagged frame valid again, so that
// changed bytes reach the checks behind the checksum.
func fixIPv4Checksum(frame []byte) {
	if len(frame) < 34 || binary.BigEndian.Uint16(frame[12:]) != etherTypeIPv4 {
		return
	}
	h := frame[14:min(len(frame), 14+int(frame[14]&15)*4)]
	if len(h) >= 20 {
		h[10], h[11] = 0, 0
		binary.BigEndian.PutUint16(h[10:], ^referenceSum(h))
	}
}

func vectorFrames(t testing.TB) (frames [][]byte) {
	for _, v := range readVectors(t) {
		frames = append(frames, unhex(t, v.Frame))
	}
	return frames
}

// What Parse accepts at once is what the general path accepts, with the same fields.
func TestShortcutAgreesWithGeneralPath(t *testing.T) {
	vectors := vectorFrames(t)
	rapid.Check(t, func(t *rapid.T) {
		checkShortcut(t, frameGen(vectors).Draw(t, "frame"))
	})
}

func checkShortcut(t interface{ Fatalf(string, ...any) }, frame []byte) {
	fast, general := dirtyParsed(), dirtyParsed()
	got, want := fast.Parse(frame), general.parseEthernet(frame)
	if got != want || fast != general {
		t.Fatalf("Parse(%x) = %v, %+v, want as the general path %v, %+v", frame, got, fast, want, general)
	}
}

func TestDecrementTTL(t *testing.T) {
	vectors := vectorFrames(t)
	rapid.Check(t, func(t *rapid.T) {
		frame := frameGen(vectors).Draw(t, "frame")
		var p Parsed
		if p.Parse(frame) != OK {
			return
		}
		before := bytes.Clone(frame)
		parsed := p
		if !DecrementTTL(frame, &p) {
			if p.Kind != KindARP && p.TTL > 1 {
				t.Fatalf("DecrementTTL(TTL %d) = false, want true", p.TTL)
			}
			if !bytes.Equal(frame, before) || p != parsed {
				t.Fatal("DecrementTTL refused and yet changed the frame")
			}
			return
		}
		if p.Kind == KindARP || parsed.TTL <= 1 {
			t.Fatalf("DecrementTTL(TTL %d) = true, want false", parsed.TTL)
		}
		want := before
		l3 := int(p.L3)
		if p.Kind == KindIPv4 {
			h := want[l3:p.L4]
			h[8]--
			h[10], h[11] = 0, 0
			binary.BigEndian.PutUint16(h[10:], ^referenceSum(h))
		} else {
			want[l3+7]--
		}
		if !bytes.Equal(frame, want) {
			t.Fatalf("DecrementTTL gives\n%x, want\n%x", frame, want)
		}
		var again Parsed
		if got := again.Parse(frame); got != OK || again != p {
			t.Fatalf("Parse after DecrementTTL = %v, %+v, want ok, %+v", got, again, p)
		}
	})
}

func TestSetMACs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frame := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "frame")
		dst := [6]byte(rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "dst"))
		src := [6]byte(rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "src"))
		want := bytes.Clone(frame)
		if len(want) >= 12 {
			copy(want, append(dst[:], src[:]...))
		}
		SetMACs(frame, &dst, &src)
		if !bytes.Equal(frame, want) {
			t.Fatalf("SetMACs gives %x, want %x", frame, want)
		}
	})
}

// Answers to random requests, decoded and rebuilt by gopacket, come out byte
// for byte the same: lengths and checksums are right.
func TestAnswersVerifyUnderGopacket(t *testing.T) {
	answered := 0
	rapid.Check(t, func(rt *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 0, 1400).Draw(rt, "data")
		tag := &layers.Dot1Q{VLANIdentifier: rapid.Uint16Range(1, 4094).Draw(rt, "vlan")}
		tagged, v6 := rapid.Bool().Draw(rt, "tagged"), rapid.Bool().Draw(rt, "ipv6")
		call := rapid.SampledFrom([]string{"echo", "timeExceeded", "tooBig"}).Draw(rt, "call")
		ethernet := ethernet(layers.EthernetTypeIPv4)
		if v6 {
			ethernet.EthernetType = layers.EthernetTypeIPv6
		}
		stack := []gopacket.SerializableLayer{ethernet}
		if tagged {
			tag.Type, ethernet.EthernetType = ethernet.EthernetType, layers.EthernetTypeDot1Q
			stack = append(stack, tag)
		}
		id := rapid.Uint16().Draw(rt, "id")
		if v6 {
			stack = append(stack, ip6(layers.IPProtocolICMPv6), &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(128, 0)},
				&layers.ICMPv6Echo{Identifier: id, SeqNumber: 1}, gopacket.Payload(data))
		} else {
			ip := ip4(layers.IPProtocolICMPv4)
			if rapid.Bool().Draw(rt, "options") {
				ip.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
			}
			stack = append(stack, ip, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: id, Seq: 1}, gopacket.Payload(data))
		}
		frame := chunk(serialize(t, stack...))
		var p Parsed
		if got := p.Parse(frame); got != OK {
			rt.Fatalf("Parse = %v, want ok", got)
		}
		out := answers[call](frame, &p)
		if out == nil {
			rt.Fatalf("%s: no answer", call)
		}
		answered++
		verify(t, rt, out)
		if call == "echo" && !bytes.Contains(out, data) {
			rt.Fatalf("echo reply lacks the data of the request")
		}
	})
	if answered == 0 {
		t.Fatal("no answer was tried")
	}
}

// verify decodes a frame with gopacket, serializes what it found with lengths
// and checksums computed anew, and compares.
func verify(t testing.TB, rt interface{ Fatalf(string, ...any) }, out []byte) {
	decoded := gopacket.NewPacket(out, layers.LayerTypeEthernet, gopacket.Default)
	if failure := decoded.ErrorLayer(); failure != nil {
		rt.Fatalf("gopacket refuses %x: %v", out, failure.Error())
	}
	var stack []gopacket.SerializableLayer
	for _, layer := range decoded.Layers() {
		stack = append(stack, layer.(gopacket.SerializableLayer))
		if v, ok := layer.(*layers.ICMPv6); ok {
			stack = append(stack, gopacket.Payload(v.Payload)) // the body as it is: gopacket loses the data of an echo
			break
		}
	}
	again := serialize(t, stack...) // padded as an Ethernet frame must be
	if !bytes.Equal(again, out) {
		rt.Fatalf("answer is\n%x, gopacket makes of it\n%x", out, again)
	}
	var p Parsed
	if got := p.Parse(out); got != OK {
		rt.Fatalf("Parse(answer) = %v, want ok", got)
	}
}

package packet

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// vector is a frame from testdata/vectors.json, made by testdata/make_vectors.py.
type vector struct {
	Name    string `json:"name"`
	Frame   string `json:"frame"`
	Problem string `json:"problem"`
	Fields  *struct {
		Kind     string     `json:"kind"`
		Src      netip.Addr `json:"src"`
		Dst      netip.Addr `json:"dst"`
		SrcMAC   string     `json:"srcMAC"`
		TTL      uint8      `json:"ttl"`
		L3       uint16     `json:"l3"`
		L4       uint16     `json:"l4"`
		End      uint16     `json:"end"`
		Proto    uint8      `json:"proto"`
		Flags    []string   `json:"flags"`
		SrcPort  uint16     `json:"srcPort"`
		DstPort  uint16     `json:"dstPort"`
		VLANs    uint8      `json:"vlans"`
		FragID   uint32     `json:"fragID"`
		ICMPType uint8      `json:"icmpType"`
		ICMPCode uint8      `json:"icmpCode"`
	} `json:"fields"`
	Call   string `json:"call"`   // the answer to ask for
	Output string `json:"output"` // empty: no answer may be given
}

var flagNames = map[string]Flags{
	"hasPorts": HasPorts, "hasTransport": HasTransport, "fragment": Fragment, "laterFragment": LaterFragment,
	"atomicFragment": AtomicFragment, "syn": SYN, "ack": ACK, "fin": FIN, "rst": RST, "neighborSolicit": NeighborSolicit,
	"neighborAdvert": NeighborAdvert, "echoRequest": EchoRequest, "icmpError": ICMPError, "ipOptions": IPOptions,
	"extensionHeaders": ExtensionHeaders,
}

var kindNames = map[string]Kind{"ipv4": KindIPv4, "ipv6": KindIPv6, "arp": KindARP}

func readVectors(t testing.TB) []vector {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
	must(t, err)
	var file struct {
		Source  string   `json:"source"`
		Vectors []vector `json:"vectors"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	must(t, d.Decode(&file))
	if len(file.Vectors) == 0 {
		t.Fatal("testdata/vectors.json holds no vectors")
	}
	return file.Vectors
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	must(t, err)
	return b
}

func (v *vector) parsed(t *testing.T) Parsed {
	t.Helper()
	f := v.Fields
	kind, known := kindNames[f.Kind]
	if !known {
		t.Fatalf("kind %q is unknown", f.Kind)
	}
	want := Parsed{
		Src: Addr(f.Src), Dst: Addr(f.Dst), SrcMAC: macOf((*[6]byte)(unhex(t, f.SrcMAC))), FragID: f.FragID,
		SrcPort: f.SrcPort, DstPort: f.DstPort, L3: f.L3, L4: f.L4, End: f.End, Kind: kind, Proto: f.Proto,
		VLANs: f.VLANs, TTL: f.TTL, ICMPType: f.ICMPType, ICMPCode: f.ICMPCode,
	}
	for _, name := range f.Flags {
		flag, known := flagNames[name]
		if !known {
			t.Fatalf("flag %q is unknown", name)
		}
		want.Flags |= flag
	}
	return want
}

// answers are the functions that turn a received frame into an answer, by the
// name they have in the vectors.
var answers = map[string]func(frame []byte, p *Parsed) []byte{
	"arp":      func(frame []byte, p *Parsed) []byte { return ReplyARP(frame, p, &ownMAC) },
	"neighbor": func(frame []byte, p *Parsed) []byte { return ReplyNeighbor(frame, p, &ownMAC) },
	"echo": func(frame []byte, p *Parsed) []byte {
		out, _ := ReplyEcho(frame, p)
		return out
	},
	"timeExceeded": func(frame []byte, p *Parsed) []byte {
		out, _ := TimeExceeded(frame, p, ownAddr(p), &ownMAC)
		return out
	},
	"tooBig": func(frame []byte, p *Parsed) []byte {
		out, _ := TooBig(frame, p, ownAddr(p), &ownMAC, 1400)
		return out
	},
}

// ownAddr is the appliance's own address of a packet's family.
func ownAddr(p *Parsed) [2]uint64 {
	if p.Kind == KindIPv6 {
		return own6
	}
	return own4
}

var (
	own4 = Addr(netip.MustParseAddr("192.0.2.1"))
	own6 = Addr(netip.MustParseAddr("2001:db8::1"))
)

func TestVectors(t *testing.T) {
	seen := make(map[string]int)
	for _, v := range readVectors(t) {
		seen[v.Problem]++
		seen[v.Call]++
		t.Run(v.Name, func(t *testing.T) {
			frame := chunk(unhex(t, v.Frame))
			received := bytes.Clone(frame)
			p := dirtyParsed()
			if got := p.Parse(frame); got.String() != v.Problem {
				t.Fatalf("Parse(%s) = %v, want %v", v.Name, got, v.Problem)
			}
			if v.Fields == nil {
				return
			}
			if diff := cmp.Diff(v.parsed(t), p); diff != "" {
				t.Errorf("Parse(%s): fields differ (-want +got):\n%s", v.Name, diff)
			}
			if v.Call == "" {
				return
			}
			answer := answers[v.Call]
			if answer == nil {
				t.Fatalf("call %q is unknown", v.Call)
			}
			out := answer(frame, &p)
			if want := unhex(t, v.Output); !bytes.Equal(out, want) {
				t.Errorf("%s answers\n%x, want\n%x", v.Call, out, want)
			}
			if out == nil && !bytes.Equal(frame, received) {
				t.Errorf("%s refused and yet changed the frame", v.Call)
			}
		})
	}
	for problem := range Problem(NumProblems) {
		if seen[problem.String()] == 0 {
			t.Errorf("no vector shows the problem %v", problem)
		}
	}
	for name := range answers {
		if seen[name] == 0 {
			t.Errorf("no vector asks for the answer %q", name)
		}
	}
}

// dirtyParsed is what an earlier packet may have left.
func dirtyParsed() Parsed {
	return Parsed{
		Src: [2]uint64{1, 2}, Dst: [2]uint64{3, 4}, SrcMAC: 5, FragID: 6, SrcPort: 7, DstPort: 8, L3: 9, L4: 10, End: 11,
		Flags: 0xffff, Kind: 12, Proto: 13, VLANs: 14, TTL: 15, ICMPType: 16, ICMPCode: 17,
	}
}

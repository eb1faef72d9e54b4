package claim

import (
	"net/netip"
	"testing"
	"time"

	"zonehop/forwarder/packet"
)

const (
	stranger = 0x0200000000aa
	ours     = 0x020000000001
)

var (
	vip  = packet.Addr(netip.MustParseAddr("10.0.100.10"))
	vip6 = packet.Addr(netip.MustParseAddr("fd00:0:100::10"))
)

// bench is a Guard on a clock of its own, that answers for vip and vip6 on port
// 0 and for vip6 on port 1.
type bench struct {
	*Guard
	now      time.Time
	standby  bool // nothing is answered for
	unable   bool // nothing can be sent
	defences []Claim
	told     []Report
}

func newBench() *bench {
	b := &bench{now: time.Unix(1_000_000, 0)}
	b.Guard = NewGuard(Options{
		Answers: func(addr [2]uint64, port int) bool {
			return !b.standby && (port == 0 && addr == vip || addr == vip6)
		},
		Own: func(mac uint64) bool { return mac == ours },
		Defend: func(c Claim) bool {
			if !b.unable {
				b.defences = append(b.defences, c)
			}
			return !b.unable
		},
		Tell: func(r Report) { b.told = append(b.told, r) },
		Now:  func() time.Time { return b.now },
	})
	return b
}

// TestDefendOnce: one defence in ten seconds for each address, on each link,
// whoever claims it.
func TestDefendOnce(t *testing.T) {
	b := newBench()
	claim := Claim{Addr: vip, MAC: stranger}
	for step, tt := range []struct {
		wait   time.Duration
		change func(*Claim)
		want   bool
	}{
		{0, func(*Claim) {}, true},
		{0, func(*Claim) {}, false},
		{0, func(c *Claim) { c.MAC++ }, false}, // another host, the same address
		{9999 * time.Millisecond, func(*Claim) {}, false},
		{time.Millisecond, func(*Claim) {}, true}, // whole 10 s after the defence, not after the last claim
		{0, func(c *Claim) { c.Tags = Tags{0x8100_0007} }, true},
		{0, func(c *Claim) { c.Tags = Tags{0x8100_0007} }, false},
		{0, func(c *Claim) { c.Addr = vip6 }, true},
		{0, func(c *Claim) { c.Addr, c.Port = vip6, 1 }, true},
		{0, func(c *Claim) { c.Addr, c.Port = vip6, 1 }, false},
		{time.Second, func(*Claim) {}, false},
	} {
		b.now = b.now.Add(tt.wait)
		c := claim
		tt.change(&c)
		before := len(b.defences)
		b.Take(c)
		if got := len(b.defences) == before+1; got != tt.want {
			t.Errorf("step %d: %+v defended: %v, want %v", step, c, got, tt.want)
		} else if got && b.defences[before] != c {
			t.Errorf("step %d: defended %+v, want %+v", step, b.defences[before], c)
		}
	}
	if got, want := b.Counts(), (Counts{Conflicts: 11, Defences: 5}); got != want {
		t.Errorf("counts are %+v, want %+v", got, want)
	}
}

// TestNoConflict: what is ignored.
func TestNoConflict(t *testing.T) {
	b := newBench()
	b.Take(Claim{Addr: vip, MAC: ours})
	b.Take(Claim{Addr: vip, MAC: stranger, Port: 1})
	b.Take(Claim{Addr: packet.Addr(netip.MustParseAddr("10.0.100.11")), MAC: stranger})
	b.standby = true // a peer has taken over and says so
	b.Take(Claim{Addr: vip, MAC: stranger})
	b.Take(Claim{Addr: vip, MAC: stranger, Kind: Probe})
	if len(b.defences)+len(b.told)+len(b.Records()) != 0 || b.Counts() != (Counts{}) {
		t.Errorf("defended %v, told %v, counted %+v; want nothing", b.defences, b.told, b.Counts())
	}
}

// TestDefendWhenPossible: a defence that could not be sent does not count.
func TestDefendWhenPossible(t *testing.T) {
	b := newBench()
	b.unable = true
	b.Take(Claim{Addr: vip, MAC: stranger})
	if b.told[0].Defended {
		t.Error("told as defended, though it could not be")
	}
	b.unable = false
	b.Take(Claim{Addr: vip, MAC: stranger})
	if r := b.Records(); len(b.defences) != 1 || len(r) != 1 || r[0].Defences != 1 || r[0].Count != 2 {
		t.Errorf("%d defences, records %+v; want 1 of 2 claims", len(b.defences), r)
	}
}

// TestProbes are counted and told, and not defended: their answer does that.
func TestProbes(t *testing.T) {
	b := newBench()
	for range 3 {
		b.Take(Claim{Addr: vip6, MAC: stranger, Kind: Probe})
		b.now = b.now.Add(time.Second)
	}
	b.Take(Claim{Addr: vip6, MAC: stranger})
	if got, want := b.Counts(), (Counts{Conflicts: 1, Probes: 3, Defences: 1}); got != want {
		t.Errorf("counts are %+v, want %+v", got, want)
	}
	if len(b.told) != 2 || b.told[0].Kind != Probe || b.told[1].Kind != Conflict || b.told[1].Count != 1 {
		t.Errorf("told %+v, want a probe and a conflict", b.told)
	}
	r := b.Records()
	if len(r) != 2 || r[0].Kind != Conflict || r[1].Kind != Probe || r[1].Count != 3 || r[1].Last.Sub(r[1].First) != 2*time.Second {
		t.Errorf("records are %+v, want a conflict, then three probes within two seconds", r)
	}
	b.now = b.now.Add(recordLife + time.Second)
	if r := b.Records(); len(r) != 0 {
		t.Errorf("records are %+v an hour later, want none", r)
	}
}

// TestTell: one record is told once a minute, and many of them ten times at
// once and then every six seconds; what is left out is counted.
func TestTell(t *testing.T) {
	b := newBench()
	for range 119 { // from 0 s to 118 s
		b.Take(Claim{Addr: vip, MAC: stranger})
		b.now = b.now.Add(time.Second)
	}
	if len(b.told) != 2 || b.told[1].Count != 61 {
		t.Fatalf("told %+v, want the first and the 61st", b.told)
	}
	b.told = nil
	for i := range 1000 {
		b.Take(Claim{Addr: vip, MAC: uint64(0x020000100000 + i)})
	}
	if len(b.told) != tellBurst {
		t.Fatalf("told %d times of 1000 hosts, want %d", len(b.told), tellBurst)
	}
	b.now = b.now.Add(tellEvery)
	b.Take(Claim{Addr: vip, MAC: 0x020000200000})
	if len(b.told) != tellBurst+1 || b.told[tellBurst].Untold != 1000-tellBurst {
		t.Errorf("told %d times, the last time with %d left out, want %d and %d", len(b.told), b.told[len(b.told)-1].Untold, tellBurst+1, 1000-tellBurst)
	}
}

// TestFlood: whatever comes, memory and defences are bounded, and the oldest
// record goes first.
func TestFlood(t *testing.T) {
	b := newBench()
	b.Take(Claim{Addr: vip, MAC: 1})
	for i := range 5000 {
		b.now = b.now.Add(time.Millisecond)
		b.Take(Claim{Addr: vip, MAC: uint64(0x020000100000 + i), Tags: Tags{0x8100_0000 | uint32(i%4096)}})
		if i%50 == 0 {
			b.Take(Claim{Addr: vip6, MAC: stranger})
		}
	}
	if len(b.defences) != maxDefences || len(b.defended) != maxDefences {
		t.Errorf("%d defences within 5 s, %d remembered, want %d", len(b.defences), len(b.defended), maxDefences)
	}
	r := b.Records()
	if len(r) != maxRecords {
		t.Errorf("%d records, want %d", len(r), maxRecords)
	}
	kept := 0
	for _, r := range r {
		if r.MAC == 1 {
			t.Error("the oldest record is kept")
		}
		if r.MAC == stranger && r.Count == 100 {
			kept++
		}
	}
	if kept != 1 {
		t.Errorf("%d records of the host that goes on, want 1", kept)
	}
	b.now = b.now.Add(DefendInterval)
	b.Take(Claim{Addr: vip, MAC: stranger})
	if len(b.defences) != maxDefences+1 || len(b.defended) != 1 {
		t.Errorf("%d defences, %d remembered, want %d and 1 after the interval", len(b.defences), len(b.defended), maxDefences+1)
	}
	if want := uint64(1 + 5000 + 100 + 1); b.Counts().Conflicts != want {
		t.Errorf("%d conflicts are counted, want %d", b.Counts().Conflicts, want)
	}
}

func TestTags(t *testing.T) {
	frame := make([]byte, 60)
	for i := range frame {
		frame[i] = byte(i)
	}
	for _, tt := range []struct {
		tags Tags
		text string
		mid  []byte
	}{
		{Tags{}, "", nil},
		{Tags{0x8100_0007}, "7", []byte{0x81, 0, 0, 7}},
		{Tags{0x8100_0000}, "0", []byte{0x81, 0, 0, 0}}, // a priority tag
		{Tags{0x88a8_0064, 0x8100_0fff}, "100.4095", []byte{0x88, 0xa8, 0, 100, 0x81, 0, 0x0f, 0xff}},
	} {
		out := tt.tags.Tagged(frame)
		if got := string(out[:12]) + string(out[12:12+len(tt.mid)]) + string(out[12+len(tt.mid):]); got != string(frame[:12])+string(tt.mid)+string(frame[12:]) {
			t.Errorf("%v.Tagged = %x", tt.tags, out)
		}
		if got := tagsOf(out, len(tt.mid)/4); got != tt.tags {
			t.Errorf("tags of %x are %x, want %x", out[:20], got, tt.tags)
		}
		if got := tt.tags.String(); got != tt.text {
			t.Errorf("%x.String() = %q, want %q", [2]uint32(tt.tags), got, tt.text)
		}
	}
}

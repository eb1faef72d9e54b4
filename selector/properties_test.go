package selector

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// choices are the names selected for many tuples of one client.
func choices(s *Snapshot, client string) []string {
	r := &s.Rules[0]
	out := make([]string, 500)
	for i := range out {
		tuple := tupleFrom(client, uint16(i*131))
		if b := s.Backend(s.Select(r, &tuple).Backend); b != nil {
			out[i] = b.Name
		}
	}
	return out
}

// TestListingOrderDoesNotMatter: neither the order of listing nor the ids that history gave out
// change a choice.
func TestListingOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "backends")
		o := grid(n, 1)
		want := choices(healthy(mustNewRapid(t, o), 1), "10.1.0.1")

		b := mustNewRapid(t, grid(rapid.IntRange(0, 9).Draw(t, "earlier backends"), 1))
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 1))
		r.Shuffle(n, func(i, j int) {
			list := o.Services[0].Backends
			list[i], list[j] = list[j], list[i]
		})
		if err := b.Apply(o, 1); err != nil {
			t.Fatal(err)
		}
		if got := choices(healthy(b, 2), "10.1.0.1"); !slices.Equal(got, want) {
			t.Fatal("another order of listing changed a choice")
		}
	})
}

func mustNewRapid(t *rapid.T, o Options) *Builder {
	b, err := New(o, 0)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestVerdictStaysInItsZone: a verdict on a backend of one zone moves no client of another zone that
// keeps to its own backends.
func TestVerdictStaysInItsZone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := grid(24, 3)
		o.Services[0].Policy.Spillover = rapid.SampledFrom([]Spillover{StayWithinZone, SpillCrossZone}).Draw(t, "spillover")
		b := mustNewRapid(t, o)
		before := healthy(b, 1)
		victim := 3 * rapid.IntRange(0, 7).Draw(t, "victim") // in zone-a
		b.SetHealth("web", fmt.Sprintf("b%04d", victim), V4, Unhealthy)
		after := b.Publish(2)
		for _, client := range []string{"10.2.0.1", "10.3.0.1"} {
			if !slices.Equal(choices(before, client), choices(after, client)) {
				t.Fatalf("client %s moved", client)
			}
		}
		for i, name := range choices(after, "10.1.0.1") {
			if name == fmt.Sprintf("b%04d", victim) {
				t.Fatalf("choice %d is the unhealthy backend", i)
			}
		}
	})
}

// TestGolden pins tables and hashes: appliances of one group may run different versions and
// processors, and must choose alike. A change here sends untracked flows of every user elsewhere, so
// it belongs into the changelog.
func TestGolden(t *testing.T) {
	h := sha256.New()
	for _, weight := range []uint32{0, 3} {
		var cs []candidate
		for i := range 57 {
			cs = append(cs, candidate{newSeed("key", "group", fmt.Sprint("backend-", i)), 1 + uint32(i)%(weight+1)})
		}
		if err := binary.Write(h, binary.LittleEndian, new(pricing).build(cs)[:]); err != nil {
			t.Fatal(err)
		}
	}
	secret := newSecret("key", "group")
	tuple := tupleFrom("10.0.0.1", 1000)
	flow := secret.hash(tuple.Src, tuple.Dst, tuple.SrcPort, tuple.DstPort, tuple.Proto, Shape5)
	const wantTables, wantFlow = "24ab72e21aa55497", 0x6d607280dc31d5f3
	if got := hex.EncodeToString(h.Sum(nil)[:8]); got != wantTables || flow != wantFlow {
		t.Errorf("tables %s, flow %#x, want %s, %#x", got, flow, wantTables, uint64(wantFlow))
	}
}

// TestReadersBesidePublisher is for the race detector: readers use whatever snapshot they load while
// everything changes.
func TestReadersBesidePublisher(t *testing.T) {
	b := mustNew(t, grid(12, 3))
	healthy(b, 1)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for i := uint16(0); ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				s := b.Current()
				tuple := tupleFrom("10.1.0.1", i)
				r := s.VIP(tuple.Dst).Rule(protoTCP, 80, true)
				if c := s.Select(r, &tuple); c.Result == Selected && s.Backend(c.Backend) == nil {
					t.Error("a snapshot selected a backend it does not have")
					return
				}
				s.Answers(tuple.Dst, 0)
			}
		})
	}
	for i := range 60 {
		name := fmt.Sprintf("b%04d", i%12)
		b.SetHealth("web", name, V4, Health(i%2))
		b.SetDrain(name, i%3 == 0)
		if i%10 == 0 {
			if err := b.Apply(grid(10+i%5, 3), int64(i)*second); err != nil {
				t.Fatal(err)
			}
		}
		b.Publish(int64(i) * second)
	}
	close(stop)
	readers.Wait()
}

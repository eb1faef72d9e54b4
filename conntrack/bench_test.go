package conntrack

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

const benchBatch = 64

// flowKey is the key of flow n: IPv4 addresses and ports that look like real
// traffic to one virtual address, all different.
func flowKey(n uint64) Key {
	client := uint32(n*0x9e3779b97f4a7c15>>32) ^ uint32(n)
	return Key{
		Src:  [2]uint64{0, 0xffff_0000_0000 | uint64(client)},
		Dst:  [2]uint64{0, 0xffff_c633_6401},
		Meta: MakeMeta(uint16(1024+n>>32+n%60000), 443, 6, KeyConnection, 7),
	}
}

// fill inserts n confirmed flows and returns how many were refused.
func fill(tb testing.TB, w *Writer, n uint64, now Tick) (refused int) {
	for i := range n {
		k := flowKey(i)
		if _, res := w.Insert(&k, k.Hash(w.t.seed), Backend(i&0xfffff|1), now, 60, true); res != Inserted {
			refused++
		}
	}
	return refused
}

func BenchmarkLookup(b *testing.B) {
	for _, c := range []struct {
		name  string
		flows uint64
		lines int
	}{{"64", 64, 4 << 20}, {"1M", 1e6, 4 << 20}, {"10M", 1e7, 16 << 20}} {
		table, err := New(Options{Lines: c.lines, Seed: 1})
		if err != nil {
			b.Fatal(err)
		}
		w := table.NewWriter()
		refused := fill(b, w, c.flows, 0)
		if float64(refused) > 1e-5*float64(c.flows) {
			b.Fatalf("%d of %d flows refused, want less than 0.001 %%", refused, c.flows)
		}
		table.JoinPages()
		b.Run(fmt.Sprintf("flows=%s/hit", c.name), func(b *testing.B) {
			benchHits(b, w, c.flows, 0, refused)
		})
		if c.name == "1M" {
			b.Run("flows=1M/miss", func(b *testing.B) { benchHits(b, w, c.flows, c.flows, 0) })
		}
		if err := table.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// benchHits looks up and hits random flows in batches the way a worker does.
// Keys come from a prepared array that is read in order, as parsed packets would.
func benchHits(b *testing.B, w *Writer, flows, first uint64, refused int) {
	rng := rand.New(rand.NewPCG(1, 2))
	keys := make([]Key, 1<<16)
	for i := range keys {
		keys[i] = flowKey(first + rng.Uint64N(flows))
	}
	var hashes [benchBatch]uint64
	var sink uint64
	at, now, hits, batches := 0, Tick(1), 0, 0
	b.ReportAllocs()
	for b.Loop() {
		batch := keys[at : at+benchBatch]
		at = (at + benchBatch) % len(keys)
		if batches++; batches%4096 == 0 {
			now++
		}
		for i := range batch {
			hashes[i] = batch[i].Hash(1)
		}
		for i := range hashes {
			sink += w.Touch(hashes[i])
		}
		for i := range hashes {
			sink += w.TouchRest(&batch[i], hashes[i])
		}
		for i := range batch {
			if _, _, ref, ok := w.Lookup(&batch[i], hashes[i], now); ok {
				w.Hit(ref, now, 60, false)
				hits++
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(batches*benchBatch), "ns/pkt")
	b.ReportMetric(float64(refused), "refused")
	want := batches * benchBatch
	if first != 0 {
		want = 0
	}
	if d := want - hits; d < 0 || d > want/1000+refused {
		b.Fatalf("%d hits, want %d", hits, want)
	}
	benchSink = sink
}

var benchSink uint64

// BenchmarkInsert measures a miss and an insertion in a table of 4 M lines that
// is filled from empty to a quarter again and again.
func BenchmarkInsert(b *testing.B) {
	const flows = 1 << 20
	table, err := New(Options{Lines: 4 * flows, Seed: 1})
	if err != nil {
		b.Fatal(err)
	}
	w := table.NewWriter()
	var keys [benchBatch]Key
	var hashes [benchBatch]uint64
	var sink uint64
	n, now := uint64(0), Tick(600*16)
	if refused := fill(b, w, flows, 0); refused != 0 { // so that the memory is there
		b.Fatalf("%d refused", refused)
	}
	table.JoinPages()
	w.Sweep(now, table.Lines())
	b.ReportAllocs()
	for b.Loop() {
		for i := range keys {
			keys[i] = flowKey(n)
			n++
			hashes[i] = keys[i].Hash(1)
		}
		for i := range hashes {
			sink += w.Touch(hashes[i])
		}
		for i := range hashes {
			sink += w.TouchRest(&keys[i], hashes[i])
		}
		for i := range keys {
			if _, _, _, ok := w.Lookup(&keys[i], hashes[i], now); ok {
				b.Fatal("hit")
			}
			if _, res := w.Insert(&keys[i], hashes[i], 1<<12, now, 60, false); res != Inserted {
				b.Fatal(res)
			}
		}
		if n%flows == 0 {
			b.StopTimer()
			now += 30 * 16
			w.Sweep(now, table.Lines())
			b.StartTimer()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/pkt")
	benchSink = sink
	if err := table.Close(); err != nil {
		b.Fatal(err)
	}
}

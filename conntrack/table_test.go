package conntrack

import (
	"testing"
	"time"
)

func TestNewOptions(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     Options
		lines int // 0: an error
	}{
		{"least", Options{Lines: 1}, 1024},
		{"rounded up", Options{Lines: 1025}, 2048},
		{"power of two", Options{Lines: 4096}, 4096},
		{"negative lines", Options{Lines: -1}, 0},
		{"too many lines", Options{Lines: 1<<31 + 1}, 0},
		{"share above 1", Options{Lines: 1024, HalfOpenShare: 1.1}, 0},
		{"negative share", Options{Lines: 1024, HalfOpenShare: -0.1}, 0},
		{"negative time", Options{Lines: 1024, Idle: -time.Second}, 0},
	} {
		table, err := New(c.o)
		if (err != nil) != (c.lines == 0) {
			t.Errorf("%s: New = %v", c.name, err)
		}
		if err == nil {
			if table.Lines() != c.lines {
				t.Errorf("%s: %d lines, want %d", c.name, table.Lines(), c.lines)
			}
			if err := table.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestWriterClose checks that neither counters nor quota leave with a writer.
func TestWriterClose(t *testing.T) {
	table := newTable(t, Options{Lines: 1024, Seed: 3})
	w := table.NewWriter()
	for n := range uint64(100) {
		k := flowKey(n)
		if _, res := w.Insert(&k, k.Hash(3), 1, 0, 60, false); res != Inserted {
			t.Fatal(res)
		}
	}
	before := table.Stats()
	w.Close()
	if after := table.Stats(); after != before || after.Unconfirmed != 100 {
		t.Fatalf("%+v after Close, want %+v", after, before)
	}
	checkSound(t, table)
}

// TestSaturation checks that neither packets nor bytes overflow.
func TestSaturation(t *testing.T) {
	table := newTable(t, Options{Lines: 1024, Seed: 3})
	w := table.NewWriter()
	k := flowKey(0)
	w.Insert(&k, k.Hash(3), 1, 0, 60, true)
	i, ident, _ := w.find(&k, k.Hash(3))
	table.at(i).volume.Store((maxPackets-1)<<bytesBits | (maxBytes - 1))
	for range 5 {
		w.Hit(Ref{line: i, seq: seqOf(ident)}, 0, 1<<31, false)
	}
	table.All(0, func(e Entry) bool {
		if e.Packets != maxPackets || e.Bytes != maxBytes {
			t.Errorf("%d packets, %d bytes, want %d, %d", e.Packets, e.Bytes, uint64(maxPackets), uint64(maxBytes))
		}
		return true
	})
}

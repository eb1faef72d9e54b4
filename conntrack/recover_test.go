package conntrack

import "testing"

// TestDeadWriter stops an insertion after each of its steps, for ever: the key
// and its bucket stay usable, and Recover finds what was left.
func TestDeadWriter(t *testing.T) {
	k, b := flowKey(0), MakeBackend(1, 0)
	for _, c := range []struct {
		name    string
		die     func(w *Writer, l *line)
		found   bool // the dead writer's entry can be looked up
		emptied int
	}{
		{"claimed", func(w *Writer, l *line) { l.ident.Store(claimIdent(0)) }, false, 1},
		{"key written", func(w *Writer, l *line) {
			l.ident.Store(claimIdent(0))
			l.setKey(&k)
		}, false, 1},
		{"seen written", func(w *Writer, l *line) {
			l.ident.Store(claimIdent(0))
			l.setKey(&k)
			l.seen.Store(makeSeen(0, 0, Unconfirmed))
		}, false, 1},
		{"tagged", func(w *Writer, l *line) {
			l.ident.Store(claimIdent(0))
			l.setKey(&k)
			l.seen.Store(makeSeen(0, 0, Unconfirmed))
			w.setTag(0, tagOf(narrow(&k)))
		}, false, 1},
		{"published", func(w *Writer, l *line) {
			if !w.acquire() {
				t.Fatal("no quota")
			}
			w.publish(0, 0, &k, narrow(&k), b, makeSeen(0, 0, Unconfirmed), 60)
		}, true, 0},
		{"ended", func(w *Writer, l *line) {
			w.publish(0, 0, &k, narrow(&k), b, makeSeen(0, 0, Confirmed), 60)
			l.seen.Store(0)
		}, false, 1},
		{"tag cleared", func(w *Writer, l *line) {
			ident := w.publish(0, 0, &k, narrow(&k), b, makeSeen(0, 0, Confirmed), 60)
			l.seen.Store(0)
			l.ident.Store(claimIdent(ident))
			w.clearTag(0)
		}, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := newTable(t, Options{Lines: 1024, Seed: 3})
			table.touch(0)
			c.die(table.NewWriter(), table.at(0))

			w := table.NewWriter()
			inserted := 0
			for n := range uint64(15) { // all that the two buckets still hold
				k := flowKey(n)
				if _, res := w.Insert(&k, narrow(&k), b, 0, 60, true); res == Inserted {
					inserted++
				}
			}
			want := 15
			if _, _, _, ok := w.Lookup(&k, narrow(&k), 0); !ok {
				t.Fatal("the key is not usable")
			}
			if c.found {
				want-- // of the key itself
			}
			if inserted != want {
				t.Fatalf("%d entries inserted, want %d", inserted, want)
			}
			w.Sweep(1, table.Lines())
		})
		t.Run(c.name+"/recover", func(t *testing.T) {
			table := newTable(t, Options{Lines: 1024, Seed: 3})
			table.touch(0)
			c.die(table.NewWriter(), table.at(0))
			w := table.NewWriter()
			alive := flowKey(1)
			w.Insert(&alive, alive.Hash(3), b, 0, 60, true)
			want := c.emptied
			if c.found {
				want++ // line 0 is not where the key belongs
			}
			if got := table.Recover(0); got != want {
				t.Fatalf("Recover emptied %d lines, want %d", got, want)
			}
			checkSound(t, table)
			if !isFree(table.at(0).ident.Load()) {
				t.Fatal("the line is not free")
			}
			if _, _, _, ok := w.Lookup(&alive, alive.Hash(3), 0); !ok {
				t.Fatal("Recover lost an entry")
			}
			if s := table.Stats(); s.Used != 1 {
				t.Fatalf("%d entries used, want 1", s.Used)
			}
		})
	}
}

// TestRecoverDuplicates has writers end after publishing, before they looked
// for the other's entry: one entry stays.
func TestRecoverDuplicates(t *testing.T) {
	for _, c := range []struct {
		name    string
		settled [2]bool // of the entries in the lower and higher home line
	}{
		{name: "both tentative"},
		{name: "lower settled", settled: [2]bool{true, false}},
		{name: "higher settled", settled: [2]bool{false, true}},
		{name: "both settled", settled: [2]bool{true, true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := newTable(t, Options{Lines: 1024, Seed: 3})
			k := flowKey(0)
			var lines [2]uint32
			lines[0], lines[1] = table.homes(k.Hash(3))
			if lines[0] > lines[1] {
				lines[0], lines[1] = lines[1], lines[0]
			}
			w := table.NewWriter()
			for n, i := range lines {
				ident := w.publish(i, 0, &k, k.Hash(3), MakeBackend(uint32(n+1), 0), makeSeen(0, 0, Confirmed), 60)
				if c.settled[n] {
					table.at(i).ident.Store(ident &^ tentative)
				}
			}
			want := MakeBackend(1, 0)
			if c.settled == [2]bool{false, true} {
				want = MakeBackend(2, 0)
			}
			if got := table.Recover(0); got != 1 {
				t.Fatalf("Recover emptied %d lines, want 1", got)
			}
			checkSound(t, table)
			if b, _, _, ok := w.Lookup(&k, k.Hash(3), 0); !ok || b != want {
				t.Fatalf("Lookup = %v, %v, want %v", b, ok, want)
			}
			if got := table.Recover(0); got != 0 {
				t.Fatalf("second Recover emptied %d lines", got)
			}
		})
	}
}

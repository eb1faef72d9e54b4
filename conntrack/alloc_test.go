// The race detector allocates.

//go:build !race

package conntrack

import "testing"

// TestNoAllocation runs each outcome that a packet can have.
func TestNoAllocation(t *testing.T) {
	table := newTable(t, Options{Lines: 1024, HalfOpenShare: 1.0 / 1024, Seed: 3})
	w := table.NewWriter()
	k, hash := flowKey(0), uint64(0)
	now := Tick(0)
	insert := func(key *Key, confirmed bool, want InsertResult) {
		if _, res := w.Insert(key, hash, 1, now, 60, confirmed); res != want {
			t.Fatalf("Insert = %v, want %v", res, want)
		}
	}
	lookup := func(want bool) Ref {
		_, _, ref, ok := w.Lookup(&k, hash, now)
		if ok != want {
			t.Fatalf("Lookup = %v, want %v", ok, want)
		}
		return ref
	}
	var keys [17]Key
	for n := range keys {
		keys[n] = flowKey(uint64(n + 1))
	}
	for _, c := range []struct {
		name string
		run  func()
	}{
		{"miss, insert, hit, close, remove", func() {
			w.Touch(hash)
			lookup(false)
			insert(&k, false, Inserted)
			w.Hit(lookup(true), now, 60, false)
			insert(&k, false, Existed)
			w.Hit(lookup(true), now, 60, true)
			w.Remove(lookup(true))
		}},
		{"reselect", func() {
			insert(&k, true, Inserted)
			if !w.Reselect(&k, hash, lookup(true), 2, now, 60) {
				t.Fatal("Reselect refused")
			}
			w.Remove(lookup(true))
		}},
		{"expire", func() {
			insert(&k, false, Inserted)
			now += 30 * 16
			lookup(false)
			insert(&k, false, Inserted)
			now += 30 * 16
			w.Sweep(now, table.Lines())
		}},
		{"reject for the quota", func() {
			insert(&keys[0], false, Inserted)
			insert(&k, false, RejectedQuota)
			now += 30 * 16
			w.Sweep(now, table.Lines())
		}},
		{"reject for room", func() {
			for n := range 16 {
				insert(&keys[n], true, Inserted)
			}
			insert(&keys[16], true, RejectedFull)
			now += 600 * 16
			w.Sweep(now, table.Lines())
		}},
		{"statistics", func() {
			if s := table.Stats(); s.Used != 0 {
				t.Fatalf("%d entries used, want 0", s.Used)
			}
		}},
	} {
		if n := testing.AllocsPerRun(100, c.run); n != 0 {
			t.Errorf("%s: %v allocations, want 0", c.name, n)
		}
	}
}

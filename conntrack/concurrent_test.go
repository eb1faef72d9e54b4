package conntrack

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// newTable makes a table that is closed with the test.
func newTable(t testing.TB, o Options) *Table {
	t.Helper()
	table, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
	return table
}

// TestInsertSameKey has two writers insert the same keys at the same time: one
// entry of each remains, and both writers are given its backend.
func TestInsertSameKey(t *testing.T) {
	const rounds = 2000
	table := newTable(t, Options{Lines: 1024, Seed: 3})
	var got [2][rounds]Backend
	var results [2][rounds]InsertResult
	var start, done sync.WaitGroup
	writers := [2]*Writer{table.NewWriter(), table.NewWriter()}
	for n := range rounds {
		k := flowKey(uint64(n))
		start.Add(1)
		for who, w := range writers {
			done.Go(func() {
				start.Wait()
				got[who][n], results[who][n] = w.Insert(&k, narrow(&k), MakeBackend(uint32(who+1), 0), 0, 60, true)
			})
		}
		start.Done()
		done.Wait()
		if got[0][n] != got[1][n] {
			t.Fatalf("round %d: the writers got %v %v and %v %v", n, got[0][n], results[0][n], got[1][n], results[1][n])
		}
		b, _, ref, ok := writers[0].Lookup(&k, narrow(&k), 0)
		if !ok || b != got[0][n] {
			t.Fatalf("round %d: Lookup = %v, %v, want %v", n, b, ok, got[0][n])
		}
		checkSound(t, table)
		if !writers[0].Remove(ref) {
			t.Fatalf("round %d: entry cannot be removed", n)
		}
	}
	if s := table.Stats(); s.Inserted != rounds || s.Existed != rounds {
		t.Fatalf("inserted %d, existed %d, want %d each", s.Inserted, s.Existed, rounds)
	}
}

// TestInterleavedInsert runs the steps of three insertions of one key in every
// order, with the lines in every order.
func TestInterleavedInsert(t *testing.T) {
	orders := 0
	var run func(left [3]int, order []int)
	run = func(left [3]int, order []int) {
		done := true
		for who, n := range left {
			if n > 0 {
				done = false
				next := left
				next[who]--
				run(next, append(order[:len(order):len(order)], who))
			}
		}
		if done {
			orders++
			for _, lines := range [][3]uint32{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
				interleave(t, order, lines)
			}
		}
	}
	run([3]int{2, 2, 2}, nil)
	if orders != 90 {
		t.Fatalf("%d orders, want 90", orders)
	}
}

func interleave(t *testing.T, order []int, lines [3]uint32) {
	table := newTable(t, Options{Lines: 1024, Seed: 3})
	k := flowKey(0)
	hash := k.Hash(3)&tagBits | 8<<32 // buckets 0 and 1
	var w [3]*Writer
	var ident [3]uint64
	var got [3]Backend
	var settled []int
	for who := range w {
		w[who] = table.NewWriter()
	}
	for _, who := range order {
		b := MakeBackend(uint32(who+1), 0)
		if ident[who] == 0 {
			ident[who] = w[who].publish(lines[who], 0, &k, hash, b, makeSeen(0, 0, Confirmed), 60)
			continue
		}
		_, other, won := w[who].settle(lines[who], ident[who], &k, hash, 0)
		got[who] = b
		if !won {
			got[who] = backendOf(other)
		}
		settled = append(settled, who)
	}
	checkSound(t, table)
	b, _, _, ok := w[0].Lookup(&k, hash, 0)
	if !ok {
		t.Fatalf("order %v, lines %v: no entry remains", order, lines)
	}
	// The last two cannot have followed an entry that lost meanwhile.
	for _, who := range settled[1:] {
		if got[who] != b {
			t.Fatalf("order %v, lines %v: writer %d got %v, the entry has %v", order, lines, who, got[who], b)
		}
	}
}

// TestChurn has writers whose clocks differ do everything to a few keys that
// share two buckets, beside readers. Each backend carries the number of its
// key, so an identity put together from two entries shows.
func TestChurn(t *testing.T) {
	const keyCount = 24
	table := newTable(t, Options{Lines: 1024, Seed: 3, HalfOpenShare: 0.01, HalfOpen: time.Second, Closing: time.Second, Idle: 2 * time.Second})
	keys, numbers := make([]Key, keyCount), map[Key]uint32{}
	for n := range keys {
		keys[n] = flowKey(uint64(n))
		numbers[keys[n]] = uint32(n + 1)
	}
	var clock atomic.Uint32
	stop := make(chan struct{})
	var writers, readers sync.WaitGroup
	for who := range 4 {
		w := table.NewWriter()
		writers.Go(func() { churn(t, w, keys, who, &clock) })
	}
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			table.All(1<<31-1, func(e Entry) bool {
				if e.Backend.ID() != numbers[e.Key] {
					t.Errorf("entry of key %d has backend %d", numbers[e.Key], e.Backend.ID())
				}
				return true
			})
			if s := table.Stats(); s.Confirmed > 1024 {
				t.Errorf("%d confirmed entries", s.Confirmed)
			}
		}
	})
	writers.Wait()
	close(stop)
	readers.Wait()
	checkSound(t, table)
	if s := table.Stats(); s.Expired == 0 || s.Removed == 0 || s.Reselected == 0 || s.RejectedFull == 0 || s.RejectedQuota == 0 {
		t.Fatalf("something did not happen: %+v", s)
	}
}

func churn(t *testing.T, w *Writer, keys []Key, who int, clock *atomic.Uint32) {
	rng := rand.New(rand.NewPCG(7, uint64(who)))
	steps := 400_000
	if raceEnabled {
		steps = 40_000
	}
	for step := range steps {
		n := rng.IntN(len(keys))
		k, hash := &keys[n], narrow(&keys[n])
		if step%4000 == 3999 {
			clock.Add(40) // past every timeout
		}
		now := Tick(clock.Load()) + Tick(who)
		b, _, ref, ok := w.Lookup(k, hash, now)
		if ok && b.ID() != uint32(n+1) {
			t.Errorf("key %d has backend %d", n+1, b.ID())
			return
		}
		fresh := MakeBackend(uint32(n+1), uint16(step))
		switch p := rng.IntN(100); {
		case !ok:
			if got, _ := w.Insert(k, hash, fresh, now, 60, p < 50); got.ID() != uint32(n+1) {
				t.Errorf("key %d was given backend %d", n+1, got.ID())
				return
			}
		case p < 3:
			w.Remove(ref)
		case p < 20:
			w.Reselect(k, hash, ref, fresh, now, 60)
		case p < 21:
			w.Sweep(now, 256)
		default:
			w.Hit(ref, now, 60, p < 25)
		}
	}
}

// TestNoResurrection has one writer give an entry newer and newer backends
// while others hit it with refs of any age: nobody ever sees an older backend
// after a newer one.
func TestNoResurrection(t *testing.T) {
	table := newTable(t, Options{Lines: 1024, Seed: 3})
	k := flowKey(0)
	hash := k.Hash(3)
	w := table.NewWriter()
	w.Insert(&k, hash, 1, 0, 60, true)
	const last = 20_000
	var hitters sync.WaitGroup
	for range 2 {
		w := table.NewWriter()
		hitters.Go(func() {
			newest, old := Backend(0), Ref{}
			for newest < last {
				b, _, ref, ok := w.Lookup(&k, hash, 0)
				if !ok || b < newest {
					t.Errorf("Lookup = %v, %v after %v", b, ok, newest)
					return
				}
				newest = b
				w.Hit(old, 0, 60, false)
				w.Hit(ref, 0, 60, false)
				old = ref
			}
		})
	}
	for b := Backend(2); b <= last; b++ {
		_, _, ref, _ := w.Lookup(&k, hash, 0)
		if !w.Reselect(&k, hash, ref, b, 0, 60) {
			t.Fatalf("Reselect to %v refused", b)
		}
	}
	hitters.Wait()
	checkSound(t, table)
}

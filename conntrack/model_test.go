package conntrack

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// modelEntry is what the table must know of a key.
type modelEntry struct {
	backend        Backend
	state          State
	created, last  Tick
	packets, bytes uint64
	ref            Ref
}

// model is a table of few lines beside a map that does the same in plain words.
type model struct {
	table   *Table
	w       *Writer
	now     Tick
	idle    [3]uint32 // ticks, by service
	entries map[Key]*modelEntry
	keys    []Key
}

// narrow hashes into two buckets, so that they are full after 16 entries. Tags
// are those of the hash.
func narrow(k *Key) uint64 { return k.Hash(3) & (0x0000_000f_0000_000f | tagBits) }

// tagBits are those that tagOf reads.
const tagBits = 0xff00_0000_ff00_0000

func newModel(t *rapid.T) *model {
	table, err := New(Options{
		Lines: 1024, HalfOpenShare: 10.0 / 1024, Seed: 3,
		HalfOpen: 30 * time.Second, Closing: 60 * time.Second, Idle: 100 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &model{
		table: table, w: table.NewWriter(), entries: map[Key]*modelEntry{},
		idle: [3]uint32{1600, 1600, 20 * 16},
		now:  rapid.SampledFrom([]Tick{0, 1000, 1<<32 - 700, 1<<31 - 700}).Draw(t, "start"),
	}
	table.SetIdle(2, 20*time.Second)
	for n := range uint64(24) {
		k := flowKey(n % 12)
		k.Meta = MakeMeta(uint16(n), 443, 6, Kind(n%2), uint16(n%3))
		if n%4 >= 2 {
			k.Src[0], k.Dst[0] = 0x2001_0db8_0000_0000, 0x2001_0db8_0000_0001
		}
		m.keys = append(m.keys, k)
	}
	return m
}

func (m *model) live(e *modelEntry, k *Key) bool {
	limit := m.idle[k.Service()]
	switch e.state {
	case Unconfirmed:
		limit = min(limit, 30*16)
	case Closing:
		limit = min(limit, 60*16)
	}
	return uint32(m.now-e.last) < limit
}

func (m *model) find(k *Key) *modelEntry {
	if e := m.entries[*k]; e != nil && m.live(e, k) {
		return e
	}
	return nil
}

// lookup looks a key up in both and compares.
func (m *model) lookup(t *rapid.T, k *Key) *modelEntry {
	b, s, ref, ok := m.w.Lookup(k, narrow(k), m.now)
	e := m.find(k)
	if ok != (e != nil) {
		t.Fatalf("Lookup(%v) at %d found %v, want %v", *k, m.now, ok, e != nil)
	}
	if !ok {
		return nil
	}
	if b != e.backend || s != e.state {
		t.Fatalf("Lookup(%v) = %v, %v, want %v, %v", *k, b, s, e.backend, e.state)
	}
	if ref != e.ref && e.ref != (Ref{}) {
		t.Fatalf("Lookup(%v) gives ref %v, want %v", *k, ref, e.ref)
	}
	e.ref = ref
	return e
}

func (m *model) insert(t *rapid.T, k *Key, b Backend, confirmed bool) {
	e := m.find(k)
	got, res := m.w.Insert(k, narrow(k), b, m.now, 100, confirmed)
	stats := m.table.Stats()
	switch {
	case e != nil:
		if res != Existed || got != e.backend {
			t.Fatalf("Insert of a live key = %v, %v, want %v, existed", got, res, e.backend)
		}
		e.hit(m.now, 100, false)
	case res == RejectedQuota:
		if confirmed || stats.Unconfirmed < uint64(stats.Quota) {
			t.Fatalf("quota refused with %d of %d", stats.Unconfirmed, stats.Quota)
		}
	case res == RejectedFull:
		live := 0
		for k, e := range m.entries {
			if m.live(e, &k) {
				live++
			}
		}
		if live < 2*bucketLines {
			t.Fatalf("full with %d live entries in 16 lines", live)
		}
	case res == Inserted:
		if got != b {
			t.Fatalf("Insert = %v, want %v", got, b)
		}
		if !confirmed && stats.Unconfirmed > uint64(stats.Quota) {
			t.Fatalf("%d unconfirmed, quota %d", stats.Unconfirmed, stats.Quota)
		}
		state := Unconfirmed
		if confirmed {
			state = Confirmed
		}
		m.entries[*k] = &modelEntry{backend: b, state: state, created: m.now &^ 3, last: m.now, packets: 1, bytes: 100}
	default:
		t.Fatalf("Insert = %v", res)
	}
}

func (e *modelEntry) hit(now Tick, lenBytes uint64, closing bool) {
	e.last = now
	e.packets++
	e.bytes += lenBytes
	if closing {
		e.state = Closing
	} else if e.state == Unconfirmed {
		e.state = Confirmed
	}
}

func (m *model) check(t *rapid.T) {
	seen := 0
	m.table.All(m.now, func(got Entry) bool {
		seen++
		e := m.find(&got.Key)
		if e == nil {
			t.Fatalf("All yields %v, which is not live", got)
		}
		want := Entry{Key: got.Key, Backend: e.backend, State: e.state, Created: e.created, LastSeen: e.last, Packets: e.packets, Bytes: e.bytes}
		if got != want {
			t.Fatalf("All yields %+v, want %+v", got, want)
		}
		return true
	})
	live := 0
	for k, e := range m.entries {
		if m.live(e, &k) {
			live++
		} else {
			delete(m.entries, k)
		}
	}
	if seen != live {
		t.Fatalf("All yields %d entries, want %d", seen, live)
	}
	checkSound(t, m.table)
}

// TestModel compares the table with a map under random use on a clock that
// only the test moves, with ticks that wrap around.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		defer m.table.Close()
		key := rapid.Custom(func(t *rapid.T) *Key { return &m.keys[rapid.IntRange(0, len(m.keys)-1).Draw(t, "key")] })
		backend := rapid.Custom(func(t *rapid.T) Backend { return Backend(rapid.Uint32Range(1, 1<<32-1).Draw(t, "backend")) })
		var stale []Ref
		t.Repeat(map[string]func(*rapid.T){
			"lookup": func(t *rapid.T) { m.lookup(t, key.Draw(t, "k")) },
			"hit": func(t *rapid.T) {
				if e := m.lookup(t, key.Draw(t, "k")); e != nil {
					closing := rapid.IntRange(0, 5).Draw(t, "closing") == 0
					m.w.Hit(e.ref, m.now, 60, closing)
					e.hit(m.now, 60, closing)
				}
			},
			"insert": func(t *rapid.T) {
				m.insert(t, key.Draw(t, "k"), backend.Draw(t, "b"), rapid.Bool().Draw(t, "confirmed"))
			},
			"fill": func(t *rapid.T) {
				for i := range m.keys {
					m.insert(t, &m.keys[i], Backend(i+1), true)
				}
			},
			"reselect": func(t *rapid.T) {
				k := key.Draw(t, "k")
				e := m.lookup(t, k)
				if e == nil {
					return
				}
				b := backend.Draw(t, "b")
				if !m.w.Reselect(k, narrow(k), e.ref, b, m.now, 70) {
					t.Fatalf("Reselect(%v) refused", *k)
				}
				stale = append(stale, e.ref)
				state := e.state
				if k.Kind() == KeyConnection {
					state = Unconfirmed
				}
				*e = modelEntry{backend: b, state: state, created: m.now &^ 3, last: m.now, packets: 1, bytes: 70}
			},
			"remove": func(t *rapid.T) {
				k := key.Draw(t, "k")
				if e := m.lookup(t, k); e != nil {
					if !m.w.Remove(e.ref) {
						t.Fatalf("Remove(%v) refused", *k)
					}
					stale = append(stale, e.ref)
					delete(m.entries, *k)
				}
			},
			"stale": func(t *rapid.T) { // refs of earlier identities must do nothing
				for _, ref := range stale {
					m.w.Hit(ref, m.now, 1000, true)
					if m.w.Remove(ref) {
						t.Fatalf("Remove of stale %v", ref)
					}
					if m.w.Reselect(&m.keys[0], narrow(&m.keys[0]), ref, 9, m.now, 1000) {
						t.Fatalf("Reselect of stale %v", ref)
					}
				}
			},
			"sweep": func(t *rapid.T) {
				m.w.Sweep(m.now, m.table.Lines())
				live := uint64(0)
				for k, e := range m.entries {
					if m.live(e, &k) {
						live++
					}
				}
				if s := m.table.Stats(); s.Used != live {
					t.Fatalf("%d entries used after a sweep of all lines, want %d", s.Used, live)
				}
			},
			"wait": func(t *rapid.T) {
				m.now += Tick(rapid.SampledFrom([]uint32{1, 16, 20*16 - 1, 20 * 16, 30 * 16, 60 * 16, 100 * 16}).Draw(t, "ticks"))
			},
			"": m.check,
		})
	})
}

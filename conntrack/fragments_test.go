package conntrack

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// TestFragmentsModel: what Get returns was put for that key, was not put too
// long ago, and is the latest put; records are only ever lost to newer ones.
func TestFragmentsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := NewFragments(16, 1)
		type record struct {
			backend Backend
			guessed bool
			at      Tick
			order   int
		}
		model := make(map[FragmentKey]record)
		now, order := Tick(1<<32-100), 0 // wraps around during the test
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			k := FragmentKey{Src: [2]uint64{0, 1}, Dst: [2]uint64{0, 2}, ID: rapid.Uint32Range(0, 40).Draw(t, "id"), Proto: 17}
			now += Tick(rapid.IntRange(0, 20).Draw(t, "pause"))
			if rapid.Bool().Draw(t, "put") {
				order++
				r := record{Backend(rapid.Uint32Range(1, 5).Draw(t, "backend")), rapid.Bool().Draw(t, "guessed"), now, order}
				f.Put(&k, r.backend, r.guessed, now)
				model[k] = r
				if b, g, ok := f.Get(&k, now); !ok || b != r.backend || g != r.guessed {
					t.Fatalf("Get(%d) after Put = %d, %v, %v", k.ID, b, g, ok)
				}
				continue
			}
			want, known := model[k]
			b, g, ok := f.Get(&k, now)
			if ok && (!known || b != want.backend || g != want.guessed || now-want.at > fragmentLife) {
				t.Fatalf("Get(%d) = %d, %v, want %+v", k.ID, b, g, want)
			}
			if !ok && known && now-want.at <= fragmentLife {
				newer := 0
				for _, r := range model {
					if r.order > want.order {
						newer++
					}
				}
				if newer < fragmentWays {
					t.Fatalf("Get(%d) forgot a record with %d newer ones in the whole table", k.ID, newer)
				}
			}
		}
	})
}

// TestFragmentsConcurrent: readers never see a record of another datagram.
func TestFragmentsConcurrent(t *testing.T) {
	f := NewFragments(8, 1)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 20000 {
				id := uint32((i*7 + w) % 32)
				k := FragmentKey{ID: id, Src: [2]uint64{uint64(id), uint64(id)}}
				if w%2 == 0 {
					f.Put(&k, Backend(id+1), false, 5)
				} else if b, _, ok := f.Get(&k, 5); ok && b != Backend(id+1) {
					t.Errorf("datagram %d has backend %d", id, b)
					return
				}
			}
		})
	}
	wg.Wait()
}

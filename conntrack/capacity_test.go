package conntrack

import (
	"math"
	"testing"
)

// TestLoad fills a table to 60 % (10 M entries in 2^24 lines are 59.6 %): hardly
// anything is refused, and most entries are in a home line. The benchmark of
// look-ups with 10 M flows checks the same at full size.
func TestLoad(t *testing.T) {
	lines := 1 << 20
	if raceEnabled {
		lines = 1 << 16 // the detector is slow, and about order, not numbers
	}
	table := newTable(t, Options{Lines: lines, Seed: 0x5eed})
	w := table.NewWriter()
	refused, next := 0, uint64(0)
	for _, c := range []struct {
		load                 float64
		wantFirst, wantHomes float64 // shares of entries in the first, in either home line
	}{{0.25, 0.85, 0.88}, {0.60, 0.61, 0.73}} {
		total := uint64(c.load * float64(lines))
		for ; next < total; next++ {
			k := flowKey(next)
			if _, res := w.Insert(&k, k.Hash(table.seed), 1, 0, 60, true); res != Inserted {
				refused++
			}
		}
		first, second := 0, 0
		for n := range total {
			k := flowKey(n)
			hash := k.Hash(table.seed)
			h1, h2 := table.homes(hash)
			i, ident, _ := table.find(&k, hash)
			switch {
			case ident == 0:
			case i == h1:
				first++
			case i == h2:
				second++
			}
		}
		shareFirst := float64(first) / float64(total)
		shareHomes := float64(first+second) / float64(total)
		t.Logf("%d lines, load %.2f: %d refused, %.1f %% in the first home line, %.1f %% in either", lines, c.load, refused, 100*shareFirst, 100*shareHomes)
		if float64(refused) > 1e-5*float64(total) {
			t.Errorf("load %.2f: %d of %d refused, want less than 0.001 %%", c.load, refused, total)
		}
		if shareFirst < c.wantFirst || shareHomes < c.wantHomes {
			t.Errorf("load %.2f: %.3f in the first home line, %.3f in either, want %.2f, %.2f", c.load, shareFirst, shareHomes, c.wantFirst, c.wantHomes)
		}
	}
	if s := table.Stats(); s.Used != next-uint64(refused) || s.RejectedFull != uint64(refused) {
		t.Errorf("%+v after %d insertions, %d refused", s, next, refused)
	}
}

// TestHashSpreads checks that keys that differ in little fall on lines like
// random numbers do: the number of lines hit by as many keys as lines, for each
// of the two homes, and the bits that one flipped bit flips.
func TestHashSpreads(t *testing.T) {
	const lines = 1 << 16
	table := newTable(t, Options{Lines: lines, Seed: 42})
	base := flowKey(0)
	for _, c := range []struct {
		name string
		key  func(n uint64) Key
	}{
		{"source ports", func(n uint64) Key { k := base; k.Meta += n << 48; return k }},
		{"source addresses", func(n uint64) Key { k := base; k.Src[1] += n; return k }},
		{"source networks", func(n uint64) Key { k := base; k.Src[1] += n << 16; return k }},
		{"destination addresses", func(n uint64) Key { k := base; k.Dst[1] += n; return k }},
		{"addresses and ports", func(n uint64) Key { k := base; k.Src[1] += n >> 8; k.Meta += n & 0xff << 48; return k }},
		{"IPv6 interface ids", func(n uint64) Key { k := base; k.Src = [2]uint64{0x20010db8_00000000, n << 32}; return k }},
		{"IPv6 networks", func(n uint64) Key { k := base; k.Src = [2]uint64{0x20010db8_00000000 + n, 1}; return k }},
		{"services", func(n uint64) Key { k := base; k.Meta += n; return k }},
	} {
		var hit [2][lines]bool
		var used [2]int
		for n := range uint64(lines) {
			k := c.key(n)
			i, j := table.homes(k.Hash(42))
			for home, line := range [2]uint32{i, j} {
				if !hit[home][line] {
					hit[home][line] = true
					used[home]++
				}
			}
		}
		want := (1 - 1/math.E) * lines
		for home := range used {
			if got := float64(used[home]); math.Abs(got-want) > 5*math.Sqrt(lines*0.1) {
				t.Errorf("%s: %v lines used as home %d, want about %.0f", c.name, got, home+1, want)
			}
		}
	}
}

// TestHashAvalanche flips each bit of a key: each bit of the hash flips about
// half of the time.
func TestHashAvalanche(t *testing.T) {
	const keys = 2000
	for word := range 5 {
		for bit := range 64 {
			var flips [64]int
			for n := range uint64(keys) {
				k := flowKey(n)
				before := k.Hash(42)
				*[...]*uint64{&k.Src[0], &k.Src[1], &k.Dst[0], &k.Dst[1], &k.Meta}[word] ^= 1 << bit
				for d, i := before^k.Hash(42), 0; i < 64; i++ {
					flips[i] += int(d >> i & 1)
				}
			}
			for i, n := range flips {
				if math.Abs(float64(n)-keys/2) > 6*math.Sqrt(keys)/2 {
					t.Errorf("bit %d of word %d flips bit %d of the hash in %d of %d keys", bit, word, i, n, keys)
				}
			}
		}
	}
}

package conntrack

import (
	"math/rand/v2"
	"testing"
)

// TestTagMarks holds the word arithmetic of tags against a loop over bytes.
func TestTagMarks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	spurious := 0
	for range 1_000_000 {
		var tags, equal, zero uint64
		tag := tagOf(rng.Uint64())
		for n := range uint32(bucketLines) {
			v := uint64(0)
			switch rng.IntN(4) {
			case 0:
				v = tag
			case 1:
				v = tag ^ 1
			case 2:
				v = rng.Uint64() & 0xff
			}
			tags |= v << tagShift(n)
			if v == tag {
				equal |= 0x80 << tagShift(n)
			}
			if v == 0 {
				zero |= 0x80 << tagShift(n)
			}
		}
		if got := untagged(tags); got != zero {
			t.Fatalf("untagged(%x) = %x, want %x", tags, got, zero)
		}
		got := tagged(tags, tag)
		if got&equal != equal {
			t.Fatalf("tagged(%x, %x) = %x, want at least %x", tags, tag, got, equal)
		}
		if got != equal {
			spurious++
		}
		for marks, n := got, 0; marks != 0; marks &= marks - 1 {
			for got>>tagShift(uint32(n))&0x80 == 0 {
				n++
			}
			if i := marked(16+3, marks); i != 16+uint32(n) {
				t.Fatalf("the first mark of %x is line %d, want %d", marks, i, 16+n)
			}
			n++
		}
	}
	if spurious == 0 {
		t.Fatal("no spurious mark: the case was not tried")
	}
}

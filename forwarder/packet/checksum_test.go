package packet

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// referenceSum is RFC 1071 as written: 16 bits at a time.
func referenceSum(b []byte) uint16 {
	var sum uint32
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

func TestChecksumAgreesWithRFC1071(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes")
		want := ^referenceSum(b)
		if got := checksumOf(sumBytes(0, b)); got != want {
			t.Fatalf("checksumOf(%x) = %#04x, want %#04x", b, got, want)
		}
		if len(b)%2 == 0 {
			whole := binary.BigEndian.AppendUint16(b, want)
			if !validSum(sumBytes(0, whole)) {
				t.Fatalf("validSum(%x) = false, want true", whole)
			}
			whole[len(whole)-1] ^= 1
			if validSum(sumBytes(0, whole)) {
				t.Fatalf("validSum(%x) = true, want false", whole)
			}
		}
	})
}

// The largest sums, where carries are added back more than once.
func TestChecksumOfOnes(t *testing.T) {
	for n := 1; n < 200; n++ {
		b := make([]byte, n)
		for i := range b {
			b[i] = 0xff
		}
		if got, want := checksumOf(sumBytes(0xffffffffffffffff, b)), ^referenceSum(b); got != want {
			t.Errorf("checksumOf(%d bytes of ff) = %#04x, want %#04x", n, got, want)
		}
	}
}

func TestIncrementalChecksumEqualsRecomputation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 2, 60).Filter(func(b []byte) bool { return len(b)%2 == 0 }).Draw(t, "bytes")
		at := rapid.IntRange(0, len(b)/2-1).Draw(t, "word") * 2
		changed := rapid.Uint16().Draw(t, "new")
		before, old := checksumOf(sumBytes(0, b)), binary.BigEndian.Uint16(b[at:])
		binary.BigEndian.PutUint16(b[at:], changed)
		got, want := updateChecksum(before, old, changed), checksumOf(sumBytes(0, b))
		// All zeros is the one content where 0xffff and 0 cannot be told apart (RFC 1624, section 3).
		if got != want && !(referenceSum(b) == 0 && got == 0) {
			t.Fatalf("updateChecksum(%#04x, %#04x, %#04x) = %#04x, want %#04x", before, old, changed, got, want)
		}
	})
}

// The example of RFC 1624, section 4, in which equation 2 of RFC 1141 gives 0xffff.
func TestUpdateChecksumExampleOfRFC1624(t *testing.T) {
	if got := updateChecksum(0xdd2f, 0x5555, 0x3285); got != 0 {
		t.Errorf("updateChecksum(0xdd2f, 0x5555, 0x3285) = %#04x, want 0", got)
	}
}

package config

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestRatio(t *testing.T) {
	for _, c := range []struct {
		text     string
		num, den uint64
		string   string
	}{
		{"0", 0, 1, "0"},
		{"0.0", 0, 1, "0"},
		{"1", 1, 1, "1"},
		{"1.000", 1, 1, "1"},
		{"0.8", 4, 5, "0.8"},
		{"0.80", 4, 5, "0.8"},
		{".5", 1, 2, "0.5"},
		{"0.333333333333333333", 333333333333333333, 1000000000000000000, "0.333333333333333333"},
	} {
		r, err := ratio.parse(c.text)
		if err != nil {
			t.Errorf("parse(%s): %v", c.text, err)
			continue
		}
		if num, den := r.Fraction(); num != c.num || den != c.den || r.String() != c.string {
			t.Errorf("parse(%s) = %d/%d, %s; want %d/%d, %s", c.text, num, den, r, c.num, c.den, c.string)
		}
	}
	for _, text := range []string{"", ".", "1.", "00.5", "1.1", "-0.5", "+0.5", "1e-1", "0.5 ", "0,5", "NaN", "0x1p-1", "1_0", "٠.٥"} {
		if r, err := ratio.parse(text); err == nil {
			t.Errorf("parse(%q) = %s, want an error", text, r)
		}
	}
	// 59.9 % is below 60 %, and exactly so.
	below, err := percent.parse("59.9")
	if sixty, err2 := percent.parse("60"); err != nil || err2 != nil || below >= sixty || below.Percent() != "59.9" || sixty.String() != "0.6" {
		t.Errorf("percent: %s and %s, %v, %v", below.Percent(), sixty, err, err2)
	}
}

func TestRatioIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Ratio(rapid.Uint64Range(0, uint64(RatioOne)).Draw(t, "units"))
		again, err := ratio.parse(r.String())
		if err != nil || again != r {
			t.Fatalf("parse(%s) = %d, %v; want %d", r, again, err, r)
		}
		want, ok := new(big.Rat).SetString(r.String())
		if !ok || want.Cmp(r.Rat()) != 0 {
			t.Fatalf("%s as a fraction is %s", r, r.Rat())
		}
	})
}

package selector

import "testing"

func TestParseRatio(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"0", "0"}, {"0.0", "0"}, {"1", "1"}, {"1.000", "1"}, {"0.8", "0.8"}, {".50", "0.5"},
		{"0.05", "0.05"}, {"00.3", "0.3"}, {"0.000000000000000001", "0.000000000000000001"},
	} {
		if r, err := ParseRatio(c.text); err != nil || r.String() != c.want {
			t.Errorf("ParseRatio(%q) = %v, %v, want %s", c.text, r, err, c.want)
		}
	}
	for _, text := range []string{"", ".", "-0", "1.01", "2", "10", "0.8e0", "4/5", "0x1", " 1", "0.0000000000000000001", "NaN"} {
		if r, err := ParseRatio(text); err == nil {
			t.Errorf("ParseRatio(%q) = %v, want an error", text, r)
		}
	}
	if MustRatio("0.80") != MustRatio(".8") {
		t.Error("equal ratios differ")
	}
}

func TestRatioMet(t *testing.T) {
	for _, c := range []struct {
		ratio       string
		part, whole int
		want        bool
	}{
		{"0.8", 4, 5, true}, {"0.8", 3, 4, false}, {"0.8", 799999999, 1000000000, false},
		{"0.7", 7, 10, true}, {"0.67", 2, 3, false}, {"0.666666666666666666", 2, 3, true},
		{"0.666666666666666667", 2, 3, false}, {"1", 5, 5, true}, {"1", 4, 5, false},
		{"0", 0, 5, true}, {"0", 0, 0, true}, {"0.1", 0, 0, false}, {"0.000000000000000001", 1, 1 << 40, true},
	} {
		if got := MustRatio(c.ratio).Met(c.part, c.whole); got != c.want {
			t.Errorf("%d/%d >= %s is %v, want %v", c.part, c.whole, c.ratio, got, c.want)
		}
	}
}

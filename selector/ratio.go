package selector

import (
	"fmt"
	"math/bits"
	"strings"
)

// maxRatioDigits is the longest fraction kept: 10^18 is the largest power of ten below 2^63.
const maxRatioDigits = 18

// Ratio is a number from 0 to 1, kept as the scaled integer its decimal text spells. Comparing
// counts with it is exact: 4 of 5 meets 0.8, which no binary fraction can promise. The zero value
// is 0. Equal numbers are == whatever their text ("0.80", ".8").
type Ratio struct {
	scaled uint64 // value × 10^digits, trailing zeros removed
	digits uint8  // 0..maxRatioDigits
}

// ParseRatio reads a plain decimal from 0 to 1 ("0.8", ".5", "1", "0.750"), with at most 18 digits
// after the point. Signs, exponents and fractions are refused.
func ParseRatio(text string) (Ratio, error) {
	whole, fraction, _ := strings.Cut(text, ".")
	if whole == "" && fraction == "" {
		return Ratio{}, fmt.Errorf("ratio %q: not a number; use a decimal from 0 to 1, for example 0.8", text)
	}
	fraction = strings.TrimRight(fraction, "0")
	whole = strings.TrimLeft(whole, "0")
	if len(fraction) > maxRatioDigits {
		return Ratio{}, fmt.Errorf("ratio %q: more than %d digits after the point", text, maxRatioDigits)
	}
	var scaled uint64
	for _, c := range []byte(whole + fraction) {
		if c < '0' || c > '9' {
			return Ratio{}, fmt.Errorf("ratio %q: not a number; use a decimal from 0 to 1, for example 0.8", text)
		}
	}
	if len(whole) > 1 || whole > "1" || (whole == "1" && fraction != "") {
		return Ratio{}, fmt.Errorf("ratio %q: out of range; use 0 to 1", text)
	}
	for _, c := range []byte(whole + fraction) {
		scaled = scaled*10 + uint64(c-'0')
	}
	return Ratio{scaled: scaled, digits: uint8(len(fraction))}, nil
}

// MustRatio is ParseRatio for constants; it panics on text that is not a ratio.
func MustRatio(text string) Ratio {
	r, err := ParseRatio(text)
	if err != nil {
		panic(err)
	}
	return r
}

// IsZero reports whether the ratio is 0.
func (r Ratio) IsZero() bool { return r.scaled == 0 }

// Met reports whether part/whole >= r, exactly. A whole of 0 counts as the ratio 0.
func (r Ratio) Met(part, whole int) bool {
	if whole <= 0 || part < 0 {
		return r.scaled == 0
	}
	scale := uint64(1)
	for range r.digits {
		scale *= 10
	}
	leftHi, leftLo := bits.Mul64(uint64(part), scale)
	rightHi, rightLo := bits.Mul64(uint64(whole), r.scaled)
	return leftHi > rightHi || (leftHi == rightHi && leftLo >= rightLo)
}

// String is the shortest decimal that spells the ratio: "0", "0.8", "1".
func (r Ratio) String() string {
	if r.digits == 0 {
		return fmt.Sprint(r.scaled)
	}
	return fmt.Sprintf("0.%0*d", int(r.digits), r.scaled)
}

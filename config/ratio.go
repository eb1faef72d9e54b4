package config

import (
	"errors"
	"math/big"
	"strings"
)

// Ratio is a number from 0 to 1, exactly as written: it counts units of 10⁻¹⁸, so that a ratio of 0.8 is
// met by 4 of 5, which no binary fraction can promise. Ratios compare with == and <.
type Ratio uint64

// RatioOne is the ratio 1.
const RatioOne Ratio = 1e18

const ratioDigits = 18

// Fraction returns the ratio in lowest terms: 0.8 is 4, 5. The denominator is never 0.
func (r Ratio) Fraction() (num, den uint64) {
	a, b := uint64(r), uint64(RatioOne)
	for b != 0 {
		a, b = b, a%b
	}
	return uint64(r) / a, uint64(RatioOne) / a
}

// Rat returns the ratio as a rational number the caller owns.
func (r Ratio) Rat() *big.Rat {
	num, den := r.Fraction()
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(num), new(big.Int).SetUint64(den))
}

// Float64 returns the nearest floating-point number, for what need not be exact.
func (r Ratio) Float64() float64 {
	f, _ := r.Rat().Float64()
	return f
}

// String returns the shortest decimal text, such as "0.8" or "1".
func (r Ratio) String() string { return formatDecimal(uint64(r), ratioDigits) }

// Percent returns the ratio as a percentage in the shortest decimal text, such as "59.9".
func (r Ratio) Percent() string { return formatDecimal(uint64(r), ratioDigits-2) }

var (
	errNotDecimal = errors.New("is not a number")
	errTooPrecise = errors.New("has too many digits after the point")
)

// parseDecimal reads plain decimal text as a count of units of 10⁻ᵈⁱᵍⁱᵗˢ. Exponents, signs, separators
// and leading zeros are not numbers here: each means different things to different readers of YAML.
func parseDecimal(text string, digits int) (uint64, error) {
	whole, frac, point := strings.Cut(text, ".")
	if whole == "" && frac == "" || point && frac == "" || len(whole) > 1 && whole[0] == '0' {
		return 0, errNotDecimal
	}
	frac = strings.TrimRight(frac, "0")
	var n big.Int
	for _, c := range whole + frac {
		if c < '0' || c > '9' {
			return 0, errNotDecimal
		}
	}
	if len(frac) > digits {
		return 0, errTooPrecise
	}
	if len(whole) > 20 {
		return 1<<64 - 1, nil // larger than any range in use
	}
	n.SetString("0"+whole+frac+strings.Repeat("0", digits-len(frac)), 10)
	if !n.IsUint64() {
		return 1<<64 - 1, nil
	}
	return n.Uint64(), nil
}

func formatDecimal(units uint64, digits int) string {
	text := new(big.Int).SetUint64(units).String()
	if pad := digits + 1 - len(text); pad > 0 {
		text = strings.Repeat("0", pad) + text
	}
	whole, frac := text[:len(text)-digits], strings.TrimRight(text[len(text)-digits:], "0")
	if frac == "" {
		return whole
	}
	return whole + "." + frac
}

package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// integer is a whole number from least to most.
func integer[V ~int | ~uint16 | ~uint32](least, most int) kind[V] {
	allowed := fmt.Sprintf("a whole number from %d to %d", least, most)
	return leaf(allowed, func(text string) (V, error) {
		n, err := parseInteger(text, allowed)
		if err != nil {
			return 0, err
		}
		if n < least || n > most {
			return 0, fmt.Errorf("%s is out of range; use %d to %d", text, least, most)
		}
		return V(n), nil
	}, func(v V) *yaml.Node { return bare(strconv.Itoa(int(v))) }, schema{"type": "integer", "minimum": least, "maximum": most})
}

// powerOfTwo is a power of two from least to most, which are powers of two themselves.
func powerOfTwo(least, most int) kind[int] {
	k := integer[int](least, most)
	inRange := k.parse
	var powers []any
	for p := least; p <= most; p *= 2 {
		powers = append(powers, p)
	}
	return leaf(fmt.Sprintf("a power of two from %d to %d", least, most), func(text string) (int, error) {
		n, err := inRange(text)
		if err == nil && n&(n-1) != 0 {
			low := least
			for low*2 < n {
				low *= 2
			}
			err = fmt.Errorf("%d is not a power of two; use %d or %d, or another from %d to %d", n, low, low*2, least, most)
		}
		return n, err
	}, func(v int) *yaml.Node { return bare(strconv.Itoa(v)) }, schema{"type": "integer", "enum": powers})
}

// parseInteger reads decimal digits. Other notations are refused, because readers of YAML disagree on
// them: 010 is 8 for some and 10 for others.
func parseInteger(text, allowed string) (int, error) {
	digits := strings.TrimPrefix(text, "-")
	plain := digits != "" && (digits[0] != '0' || digits == "0")
	for _, c := range digits {
		plain = plain && c >= '0' && c <= '9'
	}
	if !plain {
		return 0, fmt.Errorf("%s is not a whole number; use %s, in decimal digits", show(text), allowed)
	}
	n, err := strconv.Atoi(text)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%s is out of range; use %s", show(text), allowed)
	}
	return n, err
}

// seconds is a time of whole seconds, or of so many decimals of one, up to nine.
func seconds(least, most time.Duration, decimals int) kind[time.Duration] {
	from, to := formatSeconds(least), formatSeconds(most)
	allowed := "seconds from " + from + " to " + to
	kindOfNumber := "integer"
	if decimals > 0 {
		kindOfNumber = "number"
	}
	return leaf(allowed, func(text string) (time.Duration, error) {
		n, err := parseDecimal(strings.TrimPrefix(text, "-"), 9)
		d := time.Duration(min(n, 1<<62))
		switch {
		case errors.Is(err, errNotDecimal):
			return 0, fmt.Errorf("%s is not a number; use %s", show(text), allowed)
		case strings.HasPrefix(text, "-"), d < least, d > most:
			return 0, fmt.Errorf("%s is out of range; use %s to %s", text, from, to)
		case decimals == 0 && d%time.Second != 0:
			return 0, fmt.Errorf("%s is not a whole number; use whole %s", text, allowed)
		case err != nil, d%(time.Second/time.Duration(pow10(decimals))) != 0:
			return 0, fmt.Errorf("%s is too precise; use %s with at most %d digits after the point", text, allowed, decimals)
		}
		return d, nil
	}, func(v time.Duration) *yaml.Node { return bare(formatSeconds(v)) },
		schema{"type": kindOfNumber, "minimum": least.Seconds(), "maximum": most.Seconds()})
}

func formatSeconds(d time.Duration) string { return formatDecimal(uint64(d), 9) }

func pow10(n int) int {
	p := 1
	for range n {
		p *= 10
	}
	return p
}

// ratio is a number from 0 to 1; percent is one from 0 to 100 that is held as a ratio.
var (
	ratio   = fraction("0 to 1", ratioDigits, 1, Ratio.String)
	percent = fraction("0 to 100", ratioDigits-2, 100, Ratio.Percent)
)

func fraction(allowed string, digits, most int, format func(Ratio) string) kind[Ratio] {
	return leaf("a decimal number from "+allowed, func(text string) (Ratio, error) {
		n, err := parseDecimal(strings.TrimPrefix(text, "-"), digits)
		switch {
		case errors.Is(err, errTooPrecise):
			return 0, fmt.Errorf("%s is too precise; use a decimal number from %s with at most %d digits after the point", show(text), allowed, digits)
		case err != nil:
			return 0, fmt.Errorf("%s is not a number; use a decimal number from %s", show(text), allowed)
		case strings.HasPrefix(text, "-") && n != 0, n > uint64(RatioOne):
			return 0, fmt.Errorf("%s is out of range; use %s", show(text), allowed)
		}
		return Ratio(n), nil
	}, func(v Ratio) *yaml.Node { return bare(format(v)) }, schema{"type": "number", "minimum": 0, "maximum": most})
}

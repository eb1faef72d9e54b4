package config

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// leaf is a kind for single values. A leaf is read as the text in the file, never through the YAML
// library's own idea of numbers and truth, and parse explains what is wrong and what is allowed.
func leaf[V any](allowed string, parse func(text string) (V, error), write func(v V) *yaml.Node, describes schema) kind[V] {
	return kind[V]{
		parse: parse,
		read: func(d *decoder, n *yaml.Node, path string, v *V) bool {
			m := resolve(n)
			if m.Kind != yaml.ScalarNode || m.Tag == "!!null" {
				d.errorf(n, path, "is %s; use %s", describe(m), allowed)
				d.refuse(v)
				return false
			}
			if m.Style&yaml.TaggedStyle != 0 && m.Tag != "!!str" && m.Tag != "!!int" && m.Tag != "!!float" && m.Tag != "!!bool" {
				d.errorf(n, path, "has the tag %s; use a plain value: %s", show(m.Tag), allowed)
				d.refuse(v)
				return false
			}
			got, err := parse(m.Value)
			if err != nil {
				d.errorf(n, path, "%v", err)
				d.refuse(v)
				return false
			}
			*v = got
			if reason := notYetReason(path, write(got).Value); reason != "" {
				d.errorf(n, path, "%s is not yet supported; %s", show(m.Value), reason)
			}
			return true
		},
		write:  func(v *V) *yaml.Node { return write(*v) },
		schema: func() schema { return maps.Clone(describes) },
	}
}

// name is an identifier of at most the given number of characters. The characters beyond letters, digits
// and "-" are those of the names that are made from addresses and ports.
func name(most int) kind[string] {
	allowed := fmt.Sprintf("1 to %d letters, digits and \"-._:/,[]\", starting with a letter, a digit, \":\" or \"[\"", most)
	return leaf(allowed, func(text string) (string, error) {
		for i, c := range text {
			plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == ':' || c == '['
			if !plain && (i == 0 || !strings.ContainsRune("-._/,]", c)) {
				return "", fmt.Errorf("%s is not a name; use %s", show(text), allowed)
			}
		}
		if text == "" || len(text) > most {
			return "", fmt.Errorf("%s has %d characters; use %s", show(text), len(text), allowed)
		}
		return text, nil
	}, word, schema{"type": "string", "minLength": 1, "maxLength": most, "pattern": `^[A-Za-z0-9:\[][-A-Za-z0-9._:/,\[\]]*$`})
}

const (
	maxName     = 128
	maxPartName = 63 // of what becomes part of made names and of metric labels in pairs
)

// text is any printable text of at most the given number of bytes.
func text(least, most int) kind[string] {
	allowed := fmt.Sprintf("%d to %d printable characters", least, most)
	return leaf(allowed, func(text string) (string, error) {
		for _, c := range text {
			if !strconv.IsPrint(c) {
				return "", fmt.Errorf("%s has a character that cannot be printed; use %s", show(text), allowed)
			}
		}
		if len(text) < least || len(text) > most {
			return "", fmt.Errorf("has %d characters; use %s", len(text), allowed)
		}
		return text, nil
	}, word, schema{"type": "string", "minLength": least, "maxLength": most})
}

// ascii is text as it goes over the wire in a probe, line ends included.
func ascii(most int) kind[string] {
	allowed := fmt.Sprintf("at most %d ASCII characters", most)
	return leaf(allowed, func(text string) (string, error) {
		if i := strings.IndexFunc(text, func(c rune) bool { return c > '~' || c == 0 || c == 0x7f }); i >= 0 {
			return "", fmt.Errorf("%s is not ASCII; use %s", show(text), allowed)
		}
		if len(text) > most {
			return "", fmt.Errorf("has %d characters; use %s", len(text), allowed)
		}
		return text, nil
	}, word, schema{"type": "string", "maxLength": most})
}

// path is a file's absolute path of at most the given number of bytes.
func path(most int, empty bool) kind[string] {
	allowed := fmt.Sprintf("an absolute path of at most %d characters", most)
	return leaf(allowed, func(text string) (string, error) {
		switch {
		case empty && text == "":
			return text, nil
		case !strings.HasPrefix(text, "/"), strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }):
			return "", fmt.Errorf("%s is not an absolute path; use %s", show(text), allowed)
		case len(text) > most:
			return "", fmt.Errorf("has %d characters; use %s", len(text), allowed)
		}
		return text, nil
	}, word, schema{"type": "string", "maxLength": most})
}

var boolean = leaf("true or false", func(text string) (bool, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	guess := ""
	switch strings.ToLower(text) {
	case "true", "yes", "on", "y", "1":
		guess = " (did you mean true?)"
	case "false", "no", "off", "n", "0":
		guess = " (did you mean false?)"
	}
	return false, fmt.Errorf("%s is neither true nor false; use true or false%s", show(text), guess)
}, func(v bool) *yaml.Node { return bare(strconv.FormatBool(v)) }, schema{"type": "boolean"})

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

// enum is one of the given words, in exact case. The words may be written without prefix, which those of
// the product carry. refused are words that the product knows for other products, with the reason.
func enum[V ~string](prefix string, refused map[string]string, words ...V) kind[V] {
	var allowed, known []string
	var values []any
	for _, w := range words {
		bare := strings.TrimPrefix(string(w), prefix)
		allowed, known = append(allowed, bare), append(known, bare)
		values = append(values, string(w))
		if bare != string(w) {
			known, values = append(known, string(w)), append(values, bare)
		}
	}
	return leaf(either(allowed), func(text string) (V, error) {
		for _, w := range words {
			if text == string(w) || text == strings.TrimPrefix(string(w), prefix) {
				return w, nil
			}
		}
		if reason := refused[text]; reason != "" {
			return "", fmt.Errorf("%s is not possible here: %s; use %s", text, reason, either(allowed))
		}
		return "", fmt.Errorf("%s is not known; use %s%s", show(text), either(allowed), didYouMean(text, known))
	}, func(v V) *yaml.Node { return word(string(v)) }, schema{"type": "string", "enum": values})
}

// list is a list of least to most values.
func list[V any](k kind[V], noun string, least, most int) kind[[]V] {
	return kind[[]V]{
		read: func(d *decoder, n *yaml.Node, path string, v *[]V) bool {
			m := resolve(n)
			if m.Kind != yaml.SequenceNode {
				hint := ""
				if m.Kind == yaml.ScalarNode && m.Tag != "!!null" {
					hint = ", such as [" + show(m.Value) + "]"
				}
				d.errorf(n, path, "is %s; use a list of %s%s", describe(m), noun, hint)
				d.refuse(v)
				return false
			}
			switch count := len(m.Content); {
			case least == most && count != least:
				d.errorf(n, path, "has %d %s; use exactly %d", count, noun, least)
			case count < least:
				d.errorf(n, path, "has no %s; list at least %d", noun, least)
			case count > most:
				d.errorf(n, path, "has %d %s; use at most %d", count, noun, most)
				d.refuse(v)
				return false
			}
			// Made at full length first: places are kept by address.
			out := make([]V, len(m.Content))
			for i, c := range m.Content {
				at := item(path, i)
				if !d.spend(c, at) {
					return false
				}
				if k.reset != nil {
					k.reset(&out[i])
				}
				d.places[&out[i]] = place{node: c, path: at}
				k.read(d, c, at, &out[i])
			}
			*v = slices.Clip(out)
			if len(out) == 0 {
				*v = nil
			}
			return true
		},
		write: func(v *[]V) *yaml.Node {
			s := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
			for i := range *v {
				c := k.write(&(*v)[i])
				if c.Kind == yaml.ScalarNode {
					s.Style = yaml.FlowStyle
				}
				s.Content = append(s.Content, c)
			}
			if len(s.Content) == 0 {
				s.Style = yaml.FlowStyle
			}
			return s
		},
		schema: func() schema {
			s := schema{"type": "array", "items": k.schema()}
			if least > 0 {
				s["minItems"] = least
			}
			if most < maxList {
				s["maxItems"] = most
			}
			return s
		},
	}
}

// maxList is the length of lists whose length nothing else limits.
const maxList = 1 << 20

// address is one unicast IP address of a machine, of either family unless only is 4 or 6.
func address(only int) kind[netip.Addr] {
	allowed := map[int]string{0: "an IPv4 or IPv6 address", 4: "an IPv4 address", 6: "an IPv6 address"}[only]
	return leaf(allowed, func(text string) (netip.Addr, error) {
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil && strings.Contains(text, "/"):
			return a, fmt.Errorf("%s is a range; use %s without a length", show(text), allowed)
		case err != nil:
			return a, fmt.Errorf("%s is not an IP address; use %s", show(text), allowed)
		case a.Is4In6():
			return a, fmt.Errorf("%s is an IPv4 address in IPv6 form; write %s", text, a.Unmap())
		case a.Zone() != "":
			return a, fmt.Errorf("%s names an interface; use %s without %s", show(text), allowed, show("%"+a.Zone()))
		case only == 4 && !a.Is4(), only == 6 && !a.Is6():
			return a, fmt.Errorf("%s is of the other family; use %s", text, allowed)
		}
		if what := special(a); what != "" {
			return a, fmt.Errorf("%s is %s; use %s of one machine", text, what, allowed)
		}
		return a, nil
	}, func(v netip.Addr) *yaml.Node {
		if !v.IsValid() {
			return word("")
		}
		return word(v.String())
	}, schema{"type": "string"})
}

// special says why an address cannot be that of one machine on a network, or nothing.
func special(a netip.Addr) string {
	switch {
	case a.IsUnspecified():
		return "the unspecified address"
	case a.IsLoopback():
		return "a loopback address"
	case a.IsMulticast():
		return "a multicast address"
	case a.IsLinkLocalUnicast():
		return "a link-local address"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "the broadcast address"
	case a.Is4() && a.As4()[0] == 0:
		return "of this network (RFC 791)"
	case a.Is4() && a.As4()[0] >= 240:
		return "in the reserved range 240.0.0.0/4"
	}
	return ""
}

var prefix = leaf("a range such as 10.1.0.0/24", parsePrefix, func(v netip.Prefix) *yaml.Node {
	if !v.IsValid() {
		return word("")
	}
	return word(v.String())
}, schema{"type": "string"})

func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		if a, err := netip.ParseAddr(text); err == nil && !a.Is4In6() && a.Zone() == "" {
			return p, fmt.Errorf("%s has no length; write %s/%d for the one address", text, text, a.BitLen())
		}
		return p, fmt.Errorf("%s is not an address range; use an address and a length such as 10.1.0.0/24 or fd00::/64", show(text))
	}
	if a := p.Addr(); a.Is4In6() {
		if p.Bits() < 96 {
			return p, fmt.Errorf("%s is an IPv4 address in IPv6 form; write an IPv4 range such as 10.1.0.0/24", text)
		}
		return p, fmt.Errorf("%s is an IPv4 range in IPv6 form; write %s", text, netip.PrefixFrom(a.Unmap(), p.Bits()-96).Masked())
	}
	if p.Masked() != p {
		return p, fmt.Errorf("%s has bits set past its length; write %s, or %s/%d for the one address", text, p.Masked(), p.Addr(), p.Addr().BitLen())
	}
	return p, nil
}

// listen is an address and port to listen on; empty turns the listener off.
var listen = leaf("an address and port such as 127.0.0.1:9109, or \"\" for none", func(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	colon := strings.LastIndexByte(text, ':')
	port, err := parseInteger(text[colon+1:], "")
	if colon < 0 || err != nil || port < 0 || port > 65535 {
		return "", fmt.Errorf("%s has no port from 0 to 65535; use an address and port such as 127.0.0.1:9109", show(text))
	}
	if colon == 0 {
		return text, nil
	}
	if _, err := netip.ParseAddrPort(text); err != nil {
		return "", fmt.Errorf("%s is not an IP address and port; use one such as 127.0.0.1:9109, [::1]:9109 or :9109", show(text))
	}
	return text, nil
}, word, schema{"type": "string"})

// only is a list of exactly one value.
func only(k kind[string], noun string) kind[string] {
	many := list(k, noun, 1, 1)
	return kind[string]{
		read: func(d *decoder, n *yaml.Node, path string, v *string) bool {
			var values []string
			if !many.read(d, n, path, &values) || len(values) == 0 {
				return false
			}
			*v, d.places[v] = values[0], d.places[&values[0]]
			return true
		},
		write: func(v *string) *yaml.Node {
			values := []string{*v}
			return many.write(&values)
		},
		schema: many.schema,
	}
}

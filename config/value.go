package config

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

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

package config

import (
	"slices"

	"gopkg.in/yaml.v3"
)

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

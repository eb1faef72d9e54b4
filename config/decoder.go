package config

import (
	"fmt"
	"slices"
	"strconv"

	"gopkg.in/yaml.v3"
)

// maxValues bounds the values read from one file, counting a value behind an alias once for every use.
// It stops a small file whose aliases multiply (the "billion laughs"); one service with as many backends
// as it can have needs some 300,000.
const maxValues = 1 << 19

// decoder reads one file. It remembers where each field of the data came from, so that checks made after
// reading can still name a line.
type decoder struct {
	file     string
	problems Problems
	// places is keyed by the address of the field in the data under construction.
	places map[any]place
	// mappings record, once they are called, where the fields that their mappings lack would stand. Few
	// files make it necessary, and it takes longer than reading.
	mappings []func()
	values   int
	full     bool
	// inPlace are the checks written inside services, in the order of the file.
	inPlace []inPlaceCheck
}

// place is where a value stands in the file, or where it would stand.
type place struct {
	node *yaml.Node
	path string
	// absent: node is the mapping that lacks the value. refused: the value is given and was reported.
	absent, refused bool
}

func (d *decoder) errorf(n *yaml.Node, path, format string, args ...any) {
	d.report(n, path, false, fmt.Sprintf(format, args...))
}

func (d *decoder) report(n *yaml.Node, path string, warning bool, text string) {
	p := Problem{File: d.file, Line: 1, Column: 1, Path: path, Text: text, Warning: warning}
	if n != nil && n.Line > 0 {
		p.Line, p.Column = n.Line, max(n.Column, 1)
	}
	d.problems = append(d.problems, p)
}

// place is where a field stands in the file, or would stand.
func (d *decoder) place(field any) place {
	p, known := d.places[field]
	if !known {
		d.record()
		p = d.places[field]
	}
	return p
}

// record runs mappings, the inner ones first: they know the form that the file uses.
func (d *decoder) record() {
	for _, record := range slices.Backward(d.mappings) {
		record()
	}
	d.mappings = nil
}

// errorAt reports on a field of the data, given its address.
func (d *decoder) errorAt(field any, format string, args ...any) {
	p := d.place(field)
	d.errorf(p.node, p.path, format, args...)
}

func (d *decoder) warnAt(field any, format string, args ...any) {
	p := d.place(field)
	d.report(p.node, p.path, true, fmt.Sprintf(format, args...))
}

// given reports whether the file has a value for the field.
func (d *decoder) given(field any) bool {
	p, ok := d.places[field]
	return ok && !p.absent
}

// refused reports whether the file has a value for the field that could not be read.
func (d *decoder) refused(field any) bool { return d.places[field].refused }

// refuse marks the value of a field as reported, so that nothing more is said about it.
func (d *decoder) refuse(field any) {
	p := d.places[field]
	p.refused = true
	d.places[field] = p
}

// line is the line of a field, for messages about one value that mention another.
func (d *decoder) line(field any) int {
	if n := d.place(field).node; n != nil {
		return n.Line
	}
	return 1
}

// spend counts one value and reports whether reading may go on.
func (d *decoder) spend(n *yaml.Node, path string) bool {
	d.values++
	if d.values > maxValues && !d.full {
		d.full = true
		d.errorf(n, path, "the file holds more than %d values once its aliases are followed; use fewer", maxValues)
	}
	return !d.full
}

// resolve follows an alias to what it stands for.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

type pair struct{ key, value *yaml.Node }

// mapping returns the keys of a mapping in order, merge keys followed: a key of the mapping itself wins
// over a merged one, and an earlier merged mapping over a later one.
func (d *decoder) mapping(n *yaml.Node, path, noun string) ([]pair, bool) {
	m := resolve(n)
	if m.Kind != yaml.MappingNode {
		d.errorf(n, path, "is %s; write the keys of %s, such as \"key: value\"", describe(m), noun)
		return nil, false
	}
	seen := make(map[string]int, len(m.Content)/2)
	pairs := d.ownPairs(m, path, seen)
	return d.merged(m, path, pairs, seen, map[*yaml.Node]bool{m: true}), true
}

func (d *decoder) ownPairs(m *yaml.Node, path string, seen map[string]int) []pair {
	var pairs []pair
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, value := m.Content[i], m.Content[i+1]
		name := resolve(key)
		switch {
		case isMerge(key):
			continue
		case name.Kind != yaml.ScalarNode || name.Tag == "!!null":
			d.errorf(key, path, "a key is %s; write a plain word", describe(name))
			continue
		}
		if first, again := seen[name.Value]; again {
			d.errorf(key, under(path, name.Value), "is given twice, first in line %d; keep one", first)
			continue
		}
		seen[name.Value] = key.Line
		pairs = append(pairs, pair{key, value})
	}
	return pairs
}

// merged appends what the merge keys of m bring. visited stops a mapping that merges itself.
func (d *decoder) merged(m *yaml.Node, path string, pairs []pair, seen map[string]int, visited map[*yaml.Node]bool) []pair {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if !isMerge(m.Content[i]) {
			continue
		}
		sources := []*yaml.Node{m.Content[i+1]}
		if r := resolve(sources[0]); r.Kind == yaml.SequenceNode {
			sources = r.Content
		}
		for _, source := range sources {
			from := resolve(source)
			if from.Kind != yaml.MappingNode {
				d.errorf(source, under(path, "<<"), "is %s; merge a mapping, or a list of mappings, by alias", describe(from))
				continue
			}
			if visited[from] || !d.spend(source, path) {
				continue
			}
			visited[from] = true
			own := make(map[string]int)
			for _, p := range d.ownPairs(from, path, own) {
				name := resolve(p.key).Value
				if _, have := seen[name]; !have && d.spend(p.key, path) {
					seen[name] = p.key.Line
					pairs = append(pairs, p)
				}
			}
			pairs = d.merged(from, path, pairs, seen, visited)
		}
	}
	return pairs
}

func isMerge(key *yaml.Node) bool { return key.Kind == yaml.ScalarNode && key.Tag == "!!merge" }

// describe names what stands in the file in the words of YAML.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "empty"
	default:
		return show(n.Value)
	}
}

// under joins a path and a key.
func under(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// item joins a path and an index.
func item(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

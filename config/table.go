package config

import (
	"gopkg.in/yaml.v3"
)

// kind is how values of one type are read, written and described. Every key of the format is bound to
// one, so that reading, defaults, printing and the schema cannot drift apart.
type kind[V any] struct {
	// read sets v and reports whether it did; it reports problems itself.
	read func(d *decoder, n *yaml.Node, path string, v *V) bool
	// write returns the value for printing, nil to leave it out.
	write func(v *V) *yaml.Node
	// schema describes what read accepts.
	schema func() schema
	// parse reads the text of a single value; nil for mappings and lists.
	parse func(text string) (V, error)
	// reset sets the defaults of a mapping's fields; nil for anything else.
	reset func(v *V)
	// missing records where the fields of a mapping that the file leaves out would stand.
	missing func(d *decoder, n *yaml.Node, path string, v *V)
}

// field is one key of a mapping that is read into a T.
type field[T any] struct {
	key, doc string
	// required makes the key's absence an error.
	required bool
	// refused is the reason why a key that the product knows is not accepted here.
	refused string
	// fallback is the default as the file would say it; hasDefault tells "" from none.
	fallback   string
	hasDefault bool
	// printable decides whether the value is written: never for a short form, and only when it is set for
	// an optional value.
	printable func(v *T) bool

	read    func(d *decoder, n *yaml.Node, path string, v *T)
	reset   func(f *field[T], v *T)
	missing func(d *decoder, n *yaml.Node, path string, v *T)
	write   func(v *T) *yaml.Node
	schema  func() schema
	// move carries the places of one value over to its copy.
	move func(d *decoder, from, to *T)
}

// key binds a key of the file to the part of T that at points to. Two keys may be bound to one part, as a
// short and a long form: giving both is an error.
func key[T, V any](name string, k kind[V], at func(*T) *V, doc string) *field[T] {
	f := &field[T]{key: name, doc: doc, schema: k.schema}
	f.read = func(d *decoder, n *yaml.Node, path string, v *T) {
		part := at(v)
		if before, twice := d.places[part]; twice && !before.absent && any(part) != any(v) {
			d.errorf(n, path, "is already given as %s; give it once", before.path)
			return
		}
		if any(part) != any(v) {
			d.places[part] = place{node: n, path: path}
		} else {
			d.places[groupOf{v, name}] = place{node: n, path: path}
		}
		k.read(d, n, path, part)
	}
	f.reset = func(f *field[T], v *T) {
		switch {
		case f.hasDefault:
			value, err := k.parse(f.fallback)
			if err != nil {
				panic("config: the default of " + name + " " + err.Error())
			}
			*at(v) = value
		case k.reset != nil:
			k.reset(at(v))
		}
	}
	f.missing = func(d *decoder, n *yaml.Node, path string, v *T) {
		part := at(v)
		if _, known := d.places[part]; !known && any(part) != any(v) {
			d.places[part] = place{node: n, path: path, absent: true}
		}
		if k.missing != nil {
			k.missing(d, n, path, part)
		}
	}
	f.write = func(v *T) *yaml.Node { return k.write(at(v)) }
	f.move = func(d *decoder, from, to *T) {
		if p, ok := d.places[at(from)]; ok {
			d.places[at(to)] = p
		}
	}
	return f
}

// groupOf is the address of a group: the value it is part of, and its key.
type groupOf struct {
	of  any
	key string
}

// group binds a key to a mapping whose fields are parts of the same T: the file nests more than the data.
func group[T any](name, noun, doc string, fields ...*field[T]) *field[T] {
	o := object[T]{noun: noun, fields: fields}
	return key(name, o.kind(), func(v *T) *T { return v }, doc)
}

// refuse is a key of the product that this format knows and does not take.
func refuse[T any](name, reason string) *field[T] { return &field[T]{key: name, refused: reason} }

func (f *field[T]) def(text string) *field[T] {
	f.fallback, f.hasDefault = text, true
	return f
}

func (f *field[T]) need() *field[T] {
	f.required = true
	return f
}

// printed limits when the field is written.
func (f *field[T]) printed(when func(v *T) bool) *field[T] {
	f.printable = when
	return f
}

// short marks a short form, which is read and never written.
func (f *field[T]) short() *field[T] { return f.printed(func(*T) bool { return false }) }

// object is the table of keys that make a mapping.
type object[T any] struct {
	noun   string // "a backend", for messages
	fields []*field[T]
	// finish checks what concerns several fields, and fills in defaults that depend on other fields. It
	// runs after all keys are read.
	finish func(d *decoder, v *T)
}

func (o *object[T]) kind() kind[T] {
	return kind[T]{read: o.read, write: o.write, schema: o.schema, reset: o.reset, missing: o.missing}
}

func (o *object[T]) find(name string) *field[T] {
	for _, f := range o.fields {
		if f.key == name {
			return f
		}
	}
	return nil
}

// keys are those that the file may have.
func (o *object[T]) keys() []string {
	var keys []string
	for _, f := range o.fields {
		if f.refused == "" {
			keys = append(keys, f.key)
		}
	}
	return keys
}

func (o *object[T]) read(d *decoder, n *yaml.Node, path string, v *T) bool {
	d.mappings = append(d.mappings, func() { o.missing(d, n, path, v) })
	pairs, ok := d.mapping(n, path, o.noun)
	if !ok {
		d.refuse(v)
		return false
	}
	given := make(map[string]bool, len(pairs))
	for _, p := range pairs {
		name := resolve(p.key).Value
		at := under(path, name)
		f := o.find(name)
		switch {
		case !d.spend(p.key, at):
			return false
		case f == nil:
			d.errorf(p.key, under(path, show(name)), "unknown key in %s; use %s%s", o.noun, either(o.keys()), didYouMean(name, o.keys()))
		case f.refused != "":
			d.errorf(p.key, at, "is not supported here: %s", f.refused)
		case resolve(p.value).Kind == yaml.ScalarNode && resolve(p.value).Tag == "!!null":
			given[name] = true
			d.errorf(p.key, at, "has no value; give one or remove the key")
		default:
			given[name] = true
			f.read(d, p.value, at, v)
		}
	}
	for _, f := range o.fields {
		if f.required && !given[f.key] {
			d.errorf(n, under(path, f.key), "missing; required in %s: %s", o.noun, f.doc)
		}
	}
	if o.finish != nil {
		o.finish(d, v)
	}
	return true
}

// reset sets every default that does not depend on other fields.
func (o *object[T]) reset(v *T) {
	for _, f := range o.fields {
		if f.refused == "" {
			f.reset(f, v)
		}
	}
}

func (o *object[T]) missing(d *decoder, n *yaml.Node, path string, v *T) {
	for _, f := range o.fields {
		if f.refused == "" {
			f.missing(d, n, under(path, f.key), v)
		}
	}
}

func (o *object[T]) write(v *T) *yaml.Node {
	m := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, f := range o.fields {
		if f.refused != "" || f.printable != nil && !f.printable(v) {
			continue
		}
		if value := f.write(v); value != nil {
			m.Content = append(m.Content, word(f.key), value)
		}
	}
	if len(m.Content) == 0 {
		return nil
	}
	return m
}

// move carries the places of a value's fields over to its copy.
func (o *object[T]) move(d *decoder, from, to *T) {
	d.places[to] = d.places[from]
	for _, f := range o.fields {
		if f.refused == "" {
			f.move(d, from, to)
		}
	}
}

// word is a text value to be printed; yaml.v3 quotes it where it would be read as something else.
func word(text string) *yaml.Node {
	n := new(yaml.Node)
	n.SetString(text)
	return n
}

// bare is a number or a truth value to be printed.
func bare(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }

package config

import (
	"encoding/json"
)

// schema is a JSON Schema (draft 2020-12) of one value.
type schema map[string]any

// Schema returns a JSON Schema (draft 2020-12) of the configuration file for editors. It is made from the
// tables the parser reads by, and describes what can be said without looking at other values.
func Schema() []byte {
	s := configTable.schema()
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "zonehop configuration"
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic("config: the schema cannot be written: " + err.Error()) // it holds plain values only
	}
	return append(out, '\n')
}

func (o *object[T]) schema() schema {
	properties := schema{}
	var required []any
	for _, f := range o.fields {
		if f.refused != "" {
			continue
		}
		s := f.schema()
		s["description"] = f.doc
		if f.hasDefault {
			s["default"] = f.defaultValue()
		}
		properties[f.key] = s
		if f.required {
			required = append(required, f.key)
		}
	}
	s := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if required != nil {
		s["required"] = required
	}
	return s
}

// defaultValue is the default as JSON: its text where the value is text, otherwise the value itself.
func (f *field[T]) defaultValue() any {
	if t := f.schema()["type"]; t == "integer" || t == "number" || t == "boolean" {
		return json.RawMessage(f.fallback)
	}
	return f.fallback
}

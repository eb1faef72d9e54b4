package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"
)

// decodedSchema is the schema as an editor reads it.
func decodedSchema(t *testing.T) map[string]any {
	t.Helper()
	var s map[string]any
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// validate is the part of JSON Schema that the schema uses. It fails on a keyword it does not know.
func validate(s map[string]any, v any, path string) error {
	for keyword, want := range s {
		var err error
		switch keyword {
		case "description", "default", "title", "$schema":
		case "type":
			err = validateType(want.(string), v)
		case "const":
			if v != want {
				err = fmt.Errorf("%v is not %v", v, want)
			}
		case "enum":
			if !slices.ContainsFunc(want.([]any), func(e any) bool { return e == v }) {
				err = fmt.Errorf("%v is not one of %v", v, want)
			}
		case "minimum", "maximum":
			if n, ok := v.(float64); ok && (keyword == "minimum" && n < want.(float64) || keyword == "maximum" && n > want.(float64)) {
				err = fmt.Errorf("%v breaks %s %v", v, keyword, want)
			}
		case "minLength", "maxLength":
			if text, ok := v.(string); ok && (keyword == "minLength" && len(text) < int(want.(float64)) || keyword == "maxLength" && len(text) > int(want.(float64))) {
				err = fmt.Errorf("%q breaks %s %v", text, keyword, want)
			}
		case "pattern":
			if text, ok := v.(string); ok && !regexp.MustCompile(want.(string)).MatchString(text) {
				err = fmt.Errorf("%q does not match %s", text, want)
			}
		case "anyOf":
			var errs []string
			for _, one := range want.([]any) {
				e := validate(one.(map[string]any), v, path)
				if e == nil {
					errs = nil
					break
				}
				errs = append(errs, e.Error())
			}
			if errs != nil {
				err = fmt.Errorf("none of: %s", strings.Join(errs, " | "))
			}
		case "items", "minItems", "maxItems":
			list, _ := v.([]any)
			for i, item := range list {
				if keyword == "items" {
					if e := validate(want.(map[string]any), item, fmt.Sprintf("%s[%d]", path, i)); e != nil {
						return e
					}
				}
			}
			if keyword == "minItems" && list != nil && len(list) < int(want.(float64)) || keyword == "maxItems" && len(list) > int(want.(float64)) {
				err = fmt.Errorf("%d items break %s %v", len(list), keyword, want)
			}
		case "properties":
			object, _ := v.(map[string]any)
			for key, value := range object {
				if property, ok := want.(map[string]any)[key]; ok {
					if e := validate(property.(map[string]any), value, path+"."+key); e != nil {
						return e
					}
				}
			}
		case "additionalProperties":
			object, _ := v.(map[string]any)
			for key := range object {
				if _, ok := s["properties"].(map[string]any)[key]; !ok {
					err = fmt.Errorf("unknown key %s", key)
				}
			}
		case "required":
			object, _ := v.(map[string]any)
			for _, key := range want.([]any) {
				if _, ok := object[key.(string)]; !ok && object != nil {
					err = fmt.Errorf("%s is missing", key)
				}
			}
		default:
			err = fmt.Errorf("the keyword %s is not in this validator", keyword)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func validateType(want string, v any) error {
	is := false
	switch n := v.(type) {
	case string:
		is = want == "string"
	case bool:
		is = want == "boolean"
	case []any:
		is = want == "array"
	case map[string]any:
		is = want == "object"
	case float64:
		is = want == "number" || want == "integer" && n == float64(int64(n))
	}
	if !is {
		return fmt.Errorf("%v is not of type %s", v, want)
	}
	return nil
}

// asJSON is a YAML file as an editor hands it to a schema.
func asJSON(t interface{ Fatal(...any) }, data []byte) any {
	var v any
	if err := yaml.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSchemaAcceptsGoodFiles(t *testing.T) {
	s := decodedSchema(t)
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("Glob: %d files, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(s, asJSON(t, data), ""); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	everythingSupported(t)
	rapid.Check(t, func(t *rapid.T) {
		printed := generated(t).YAML()
		if err := validate(s, asJSON(t, printed), ""); err != nil {
			t.Fatalf("%v\n%s", err, printed)
		}
	})
}

func TestSchemaRefuses(t *testing.T) {
	s := decodedSchema(t)
	for _, text := range []string{
		"{}", "interfaces: eth0", "interfaces: []", "interfaces: [{mode: auto}]", "interfaces: [{name: e, mode: Auto}]", "interfaces: [e]\nzone: 5",
		"interfaces: [e]\ntuning: {rxRing: 1000}", "interfaces: [e]\ntuning: {rxRings: 1024}", "interfaces: [e]\nlogging: {level: loud}",
		"interfaces: [e]\nbackendServices: [{name: web, healthChecks: [a, b], backends: [{address: 10.0.0.1}]}]",
		"interfaces: [e]\nbackendServices: [{name: web, healthChecks: [{port: 80}], backends: [{address: 10.0.0.1}]}]",
		"interfaces: [e]\nforwardingRules: [{IPAddress: 10.0.0.1, ports: [80000], backendService: web}]",
		"interfaces: [{name: e, busyPoll: 1}]", "interfaces: [{name: e, queues: [x]}]",
	} {
		if err := validate(s, asJSON(t, []byte(text)), ""); err == nil {
			t.Errorf("the schema accepts\n%s", text)
		}
	}
}

// schemaPaths are all keys of the schema, written like those of a file without indexes.
func schemaPaths(s map[string]any, path string, out map[string]bool) {
	if many, ok := s["anyOf"].([]any); ok {
		for _, one := range many {
			schemaPaths(one.(map[string]any), path, out)
		}
	}
	if items, ok := s["items"].(map[string]any); ok {
		schemaPaths(items, path+"[]", out)
	}
	properties, _ := s["properties"].(map[string]any)
	for key, property := range properties {
		out[under(path, key)] = true
		schemaPaths(property.(map[string]any), under(path, key), out)
	}
}

// filePaths are all keys of a file.
func filePaths(v any, path string, out map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			filePaths(item, path+"[]", out)
		}
	case map[string]any:
		for key, value := range v {
			out[under(path, key)] = true
			filePaths(value, under(path, key), out)
		}
	}
}

// TestSchemaAndParserKnowTheSameKeys asks the parser for every key of the schema and, through the keys it
// offers when it meets one it does not know, the schema for every key of the parser.
func TestSchemaAndParserKnowTheSameKeys(t *testing.T) {
	inSchema := make(map[string]bool)
	schemaPaths(decodedSchema(t), "", inSchema)

	// One unknown key in every mapping that the schema knows makes the parser list what it takes there.
	mappings := map[string]bool{"": true}
	for path := range inSchema {
		if i := strings.LastIndexByte(path, '.'); i >= 0 {
			mappings[path[:i]] = true
		}
	}
	offered := make(map[string]bool)
	list := regexp.MustCompile(`^unknown key in .*?; use (.*)$`)
	for _, mapping := range slices.Sorted(maps.Keys(mappings)) {
		text, depth := "", 0
		for _, step := range strings.FieldsFunc(mapping, func(r rune) bool { return r == '.' }) {
			key, isList := strings.CutSuffix(step, "[]")
			text += key + ": "
			if isList {
				text += "["
			}
			text += "{"
			depth++
		}
		text += "no-such-key: 1"
		for step := range strings.FieldsFuncSeq(reversed(mapping), func(r rune) bool { return r == '.' }) {
			text += "}"
			if strings.HasPrefix(step, "[]") {
				text += "]"
			}
		}
		_, problems := Parse("f", []byte(text))
		said := false
		for _, p := range problems {
			if m := list.FindStringSubmatch(p.Text); m != nil && withoutIndexes(p.Path) == under(mapping, "no-such-key") {
				said = true
				for _, key := range strings.Split(strings.Replace(m[1], " or ", ", ", 1), ", ") {
					offered[under(mapping, key)] = true
				}
			}
		}
		if !said {
			t.Errorf("the parser did not list the keys of %q:\n%s\n%s", mapping, text, problems)
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(inSchema)), slices.Sorted(maps.Keys(offered))); diff != "" {
		t.Errorf("keys (-schema +parser):\n%s", diff)
	}
	if len(inSchema) < 150 {
		t.Errorf("the schema has only %d keys", len(inSchema))
	}
}

// reversed turns "a[].b" into "b.[]a": its steps from the last to the first.
func reversed(path string) string {
	steps := strings.Split(path, ".")
	slices.Reverse(steps)
	for i, s := range steps {
		if key, isList := strings.CutSuffix(s, "[]"); isList {
			steps[i] = "[]" + key
		}
	}
	return strings.Join(steps, ".")
}

// TestEveryKeyIsInAFile keeps testdata/every-key.yaml complete, but for the keys of health checks of
// types that are not yet supported.
func TestEveryKeyIsInAFile(t *testing.T) {
	data, err := os.ReadFile("testdata/every-key.yaml")
	if err != nil {
		t.Fatal(err)
	}
	inSchema, inFile := make(map[string]bool), make(map[string]bool)
	schemaPaths(decodedSchema(t), "", inSchema)
	filePaths(asJSON(t, data), "", inFile)
	for _, path := range slices.Sorted(maps.Keys(inSchema)) {
		if strings.HasPrefix(path, "backendServices[].healthChecks[].") || strings.Contains(path, "healthChecks[].grpc") {
			continue // the same table as healthChecks[]
		}
		for _, p := range protocols {
			if notYetReason("healthChecks[0].type", string(p.kind)) != "" && strings.Contains(path, "."+p.key) {
				delete(inSchema, path)
			}
		}
		// hashKeyFile excludes hashKey, and only TCP has a request beside its type.
		if inSchema[path] && !inFile[path] && path != "hashKeyFile" && path != "healthChecks[].request" {
			t.Errorf("%s is not in every-key.yaml", path)
		}
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/cmd/appliance/internal/metrics"
	"zonehop/config"
	"zonehop/forwarder"
)

// The README's statements about the program are held against the program:
// configuration blocks, commands, keys, drop reasons, metrics and links.

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// section is the text below the heading, up to the next one of its level or
// above.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n"+heading+"\n")
	if !found {
		t.Fatalf("README has no %q", heading)
	}
	level := strings.IndexByte(heading, ' ')
	end := regexp.MustCompile(fmt.Sprintf(`(?m)^#{1,%d} `, level)).FindStringIndex(rest)
	if end != nil {
		rest = rest[:end[0]]
	}
	return rest
}

// rows are the cells of all table rows, headings left out. A "\|" is not a
// border.
func rows(text string) (out [][]string) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		heading := i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|---")
		if !strings.HasPrefix(line, "| ") || heading {
			continue
		}
		line = strings.ReplaceAll(strings.Trim(line, "| "), `\|`, "\x00")
		cells := strings.Split(line, "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], "\x00", "|"))
		}
		out = append(out, cells)
	}
	return out
}

var quoted = regexp.MustCompile("`([^`]*)`")

// firstCode is the first `code` of a cell.
func firstCode(t *testing.T, cell string) string {
	t.Helper()
	m := quoted.FindStringSubmatch(cell)
	if m == nil {
		t.Fatalf("the cell %q has no code", cell)
	}
	return m[1]
}

// blocks are the fenced code blocks with the info string.
func blocks(text, info string) (out []string) {
	fence := regexp.MustCompile("(?ms)^```" + info + "\n(.*?)^```$")
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

// TestReadmeConfigurations loads every configuration of the README. A fragment
// takes the place of the same keys of the first whole one.
func TestReadmeConfigurations(t *testing.T) {
	text := readme(t)
	whole, fragments := blocks(text, "yaml"), blocks(text, "yaml fragment")
	if len(whole) == 0 || len(fragments) == 0 || len(whole)+len(fragments) != strings.Count(text, "```yaml") {
		t.Fatalf("README has %d configurations and %d fragments, of %d blocks", len(whole), len(fragments), strings.Count(text, "```yaml"))
	}
	for _, f := range fragments {
		whole = append(whole, completed(whole[0], f))
	}
	for _, y := range whole {
		if _, problems := config.Parse("README", []byte(y)); problems.Err() != nil {
			t.Errorf("%v\nin\n%s", problems.Err(), y)
		}
	}
}

// completed is the file with the fragment's top-level keys in place of its own.
func completed(file, fragment string) string {
	key := regexp.MustCompile(`(?m)^[A-Za-z]+:`)
	given := key.FindAllString(fragment, -1)
	starts := append(key.FindAllStringIndex(file, -1), []int{len(file)})
	out := fragment
	for i := range starts[:len(starts)-1] {
		if !slices.Contains(given, file[starts[i][0]:starts[i][1]]) {
			out += file[starts[i][0]:starts[i+1][0]]
		}
	}
	return out
}

// command finds what a line such as "appliance flows --client IP" names.
func command(line string) (cmd *cobra.Command, flags []string, err error) {
	root := newRootCommand()
	root.InitDefaultCompletionCmd()
	cmd, _, err = root.Find(strings.Fields(line))
	for _, f := range regexp.MustCompile(`--[a-z-]+`).FindAllString(line, -1) {
		flags = append(flags, f[2:])
	}
	return cmd, flags, err
}

// TestReadmeCommands holds the commands that the README names against the
// program's, and its table of commands the other way too.
func TestReadmeCommands(t *testing.T) {
	text := readme(t)
	call := regexp.MustCompile("(?:^|[`/ ])appliance ([a-z][^`\n]*)")
	checked := 0
	check := func(line string) {
		for _, m := range call.FindAllStringSubmatch(line, -1) {
			cmd, flags, err := command(m[1])
			if err != nil || !cmd.HasParent() {
				t.Errorf("README: %q is not a command: %v", "appliance "+m[1], err)
				continue
			}
			checked++
			for _, f := range flags {
				if cmd.Flags().Lookup(f) == nil && f != "help" {
					t.Errorf("README: %q: there is no --%s", m[0], f)
				}
			}
		}
	}
	for _, b := range blocks(text, "sh") {
		for line := range strings.Lines(b) {
			line, _, _ = strings.Cut(line, "#")
			check(strings.TrimSuffix(strings.TrimSpace(line), "&"))
		}
	}
	prose := regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(text, "")
	for _, m := range quoted.FindAllString(prose, -1) {
		check(m)
	}
	if checked < 20 {
		t.Errorf("only %d commands were found", checked)
	}

	described := make(map[string][]string)
	for _, r := range rows(section(t, text, "## Commands")) {
		cmd, flags, err := command(strings.TrimPrefix(firstCode(t, r[0]), "appliance "))
		if err != nil {
			t.Errorf("README: %s: %v", r[0], err)
			continue
		}
		described[cmd.Name()] = flags
	}
	for _, cmd := range newRootCommand().Commands() {
		var flags []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
		got, known := described[cmd.Name()]
		slices.Sort(got)
		if !known || !slices.Equal(got, flags) {
			t.Errorf("README's table says of %s: %v %v, and the program: %v", cmd.Name(), known, got, flags)
		}
	}
}

// schemaNode is one value of the JSON Schema, as far as the reference says it.
type schemaNode struct {
	Type                 string
	Default, Const       any
	Minimum, Maximum     json.Number
	Enum                 []any
	Required             []string
	Properties           map[string]*schemaNode
	Items                *schemaNode
	AnyOf                []*schemaNode
	AdditionalProperties bool
}

// object is the mapping that a node, or the items of a list, may be.
func (n *schemaNode) object() *schemaNode {
	if n.Items != nil {
		return n.Items.object()
	}
	for _, one := range n.AnyOf {
		if o := one.object(); o != nil {
			return o
		}
	}
	if n.Properties == nil {
		return nil
	}
	return n
}

// referenceOf is the part of the README that describes each mapping.
var referenceOf = []struct{ heading, table, path string }{
	{"### Top level", "", ""},
	{"### Interfaces", "", "interfaces"},
	{"### Zones and regions", "`zones[]` and `regions[]`:", "zones"},
	{"### Zones and regions", "`zones[]` and `regions[]`:", "regions"},
	{"### Zones and regions", "`incompatibleClients`:", "incompatibleClients"},
	{"### Health checks", "", "healthChecks"},
	{"### Backend services", "`backendServices[]`:", "backendServices"},
	{"### Backend services", "`backendServices[].backends[]`.", "backendServices.backends"},
	{"### Forwarding rules", "", "forwardingRules"},
	{"### Routes", "", "routes"},
	{"### Composite health", "`healthAggregationPolicies[]`:", "healthAggregationPolicies"},
	{"### Composite health", "`healthSources[]`:", "healthSources"},
	{"### Composite health", "`compositeHealthChecks[]`:", "compositeHealthChecks"},
	{"### Flow table", "", "flowTable"},
	{"### Tuning", "", "tuning"},
	{"### Health, admin and logging", "`health`, all", "health"},
	{"### Health, admin and logging", "`admin`, all", "admin"},
	{"### Health, admin and logging", "`logging`, all", "logging"},
}

// TestReadmeReference holds the configuration reference against the schema that
// the parser's own tables make: every key, its default, and its range.
func TestReadmeReference(t *testing.T) {
	text := section(t, readme(t), "## Configuration")
	d := json.NewDecoder(strings.NewReader(string(config.Schema())))
	d.UseNumber()
	var root schemaNode
	if err := d.Decode(&root); err != nil {
		t.Fatal(err)
	}
	described := make(map[string]bool)
	for _, r := range referenceOf {
		described[r.path] = true
	}
	for _, r := range referenceOf {
		node := &root
		for _, key := range strings.FieldsFunc(r.path, func(c rune) bool { return c == '.' }) {
			if node = node.object().Properties[key]; node == nil {
				t.Fatalf("the schema has no %s", r.path)
			}
		}
		part := "\n" + section(t, text, r.heading)
		if _, after, found := strings.Cut(part, "\n"+r.table); found {
			part = strings.TrimLeft(after, "\n")
		} else {
			t.Fatalf("README: %q has no %q", r.heading, r.table)
		}
		if r.table != "" { // only the table that follows
			start := strings.Index(part, "| key |")
			part, _, _ = strings.Cut(part[start:], "\n\n")
		}
		table := make(map[string][]string)
		for _, row := range rows(part) {
			table[firstCode(t, row[0])] = row
		}
		compareKeys(t, r.path, "", node.object(), table, described)
		for key := range table {
			t.Errorf("README: %s: there is no key %s", r.path, key)
		}
	}
}

// compareKeys removes from the table what the mapping has. A mapping inside
// another has rows of its own as "outer.inner", or one row that lists its keys.
func compareKeys(t *testing.T, path, outer string, o *schemaNode, table map[string][]string, described map[string]bool) {
	for key, n := range o.Properties {
		key = outer + key
		row, known := table[key]
		delete(table, key)
		inner := n.object()
		switch {
		case known && len(row) != 6:
			t.Errorf("README: %s: %s has %d cells", path, key, len(row))
		case known && inner != nil && row[1] == "object" && !described[strings.TrimPrefix(path+"."+key, ".")] && !strings.Contains(row[5], "short form of"):
			for k := range inner.Properties {
				if !strings.Contains(row[4], "`"+k+"`") {
					t.Errorf("README: %s: %s does not list %s", path, key, k)
				}
			}
		case known:
			compareValue(t, path+" "+key, row[3], row[4], n, slices.Contains(o.Required, strings.TrimPrefix(key, outer)))
		case inner != nil && n.Items == nil && len(n.AnyOf) == 0:
			compareKeys(t, path, key+".", inner, table, described)
		default:
			t.Errorf("README: %s: no row for %s", path, key)
		}
	}
}

func compareValue(t *testing.T, name, fallback, allowed string, n *schemaNode, required bool) {
	if required != (fallback == "**required**") {
		t.Errorf("README: %s: default %q, and the schema says required: %t", name, fallback, required)
	}
	if n.Default != nil {
		want := fmt.Sprint(n.Default)
		if want == "" {
			want = `""`
		}
		if !strings.HasPrefix(fallback, "`"+want+"`") {
			t.Errorf("README: %s: default %s, and the schema says %s", name, fallback, want)
		}
	}
	var words []string
	for _, bound := range []json.Number{n.Minimum, n.Maximum} {
		if bound != "" {
			words = append(words, bound.String())
		}
	}
	enum := n.Enum
	if n.Const != nil {
		enum = []any{n.Const}
	}
	if len(enum) > 3 && n.Type == "integer" { // powers of two
		enum = []any{enum[0], enum[len(enum)-1]}
	}
	for _, e := range enum {
		if s := fmt.Sprint(e); !slices.Contains(enum, any("ZONAL_AFFINITY_"+s)) {
			words = append(words, s)
		}
	}
	for _, w := range words {
		if !regexp.MustCompile(`(^|[^0-9A-Z_a-z])` + regexp.QuoteMeta(w) + `($|[^0-9A-Z_a-z])`).MatchString(allowed) {
			t.Errorf("README: %s: the range %q does not have %s", name, allowed, w)
		}
	}
}

// TestReadmeDropReasons holds the table of drop reasons against the forwarder's.
func TestReadmeDropReasons(t *testing.T) {
	var want, got []string
	for r := range forwarder.NumReasons {
		if r := forwarder.Reason(r); r.Used() {
			want = append(want, r.String())
		}
	}
	for _, row := range rows(section(t, readme(t), "### Drop reasons")) {
		got = append(got, firstCode(t, row[0]))
	}
	compareSets(t, "drop reason", got, want)
}

// filled is a source of metrics in which nothing is empty, so that every sample
// there can be is there.
type filled struct{}

func (filled) Status() (s admin.Status) { fill(reflect.ValueOf(&s).Elem()); return s }
func (filled) Health() (h admin.Health) { fill(reflect.ValueOf(&h).Elem()); return h }

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1)
	default:
		panic("fill: no value for " + v.Type().String())
	}
}

// TestReadmeMetrics holds the table of metrics, with their labels, against what
// a scrape returns.
func TestReadmeMetrics(t *testing.T) {
	families, err := metrics.Registry(filled{}, metrics.NewEvents()).Gather()
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "zonehop_") {
			continue
		}
		labels := make(map[string]bool)
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = true
			}
		}
		want = append(want, metricText(f.GetName(), slices.Collect(maps.Keys(labels))))
	}
	for _, row := range rows(section(t, readme(t), "### Metrics")) {
		name, labels, _ := strings.Cut(strings.TrimSuffix(firstCode(t, row[0]), "}"), "{")
		got = append(got, metricText(name, strings.FieldsFunc(labels, func(c rune) bool { return c == ',' })))
	}
	compareSets(t, "metric", got, want)
}

func metricText(name string, labels []string) string {
	slices.Sort(labels)
	return name + strconv.Quote(strings.Join(labels, ","))
}

func compareSets(t *testing.T, what string, got, want []string) {
	t.Helper()
	if len(want) == 0 {
		t.Fatalf("the program has no %s", what)
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("README: there is no %s %s", what, g)
		}
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("README: no row for %s %s", what, w)
		}
	}
	if slices.Sort(got); len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("README: a %s has two rows", what)
	}
}

// TestReadmeDevelopment looks for the scripts and the tests that the README
// names.
func TestReadmeDevelopment(t *testing.T) {
	scripts, tests := 0, 0
	for _, m := range quoted.FindAllStringSubmatch(readme(t), -1) {
		words := strings.Fields(m[1])
		switch {
		case strings.HasPrefix(m[1], "scripts/"), strings.HasPrefix(m[1], ".ci/"):
			scripts++
			if fi, err := os.Stat("../../" + words[0]); err != nil || fi.Mode()&0o111 == 0 {
				t.Errorf("README: %s is not a script: %v", words[0], err)
			}
		case strings.HasPrefix(m[1], "go test -run"):
			tests++
			name, dir := "", "../../"+words[len(words)-1]
			for _, w := range words {
				if strings.HasPrefix(w, "Test") || strings.HasPrefix(w, "Benchmark") || strings.HasPrefix(w, "Fuzz") {
					name = w
				}
			}
			if !hasTest(t, dir, name) {
				t.Errorf("README: %s: %s has no %s", m[0], dir, name)
			}
		}
	}
	if scripts == 0 || tests == 0 {
		t.Errorf("README names %d scripts and %d tests", scripts, tests)
	}
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if name != "" && strings.Contains(string(b), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}

// TestReadmeLinks follows links to files and headings.
func TestReadmeLinks(t *testing.T) {
	text := readme(t)
	anchors := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		slug := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		anchor := "#" + strings.ReplaceAll(slug, " ", "-")
		if anchors[anchor] {
			t.Errorf("README has two headings %s", anchor)
		}
		anchors[anchor] = true
	}
	links := regexp.MustCompile(`\]\(([^)]*)\)`).FindAllStringSubmatch(text, -1)
	if len(links) == 0 {
		t.Fatal("README has no links")
	}
	for _, m := range links {
		if strings.HasPrefix(m[1], "#") {
			if !anchors[m[1]] {
				t.Errorf("README: no heading %s", m[1])
			}
		} else if _, err := os.Stat("../../" + m[1]); err != nil {
			t.Errorf("README: %v", err)
		}
	}
}

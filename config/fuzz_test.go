package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzParse: no text makes Parse panic; every problem has a place inside the file and a text; there is a
// configuration exactly when there are no errors, and it prints to an equal one.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("Glob: %v, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, c := range wrongCases(f) {
		f.Add([]byte(c.yaml))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, problems := Parse("f", data)
		lines := 1 + strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + strings.Count(string(data), "\u0085") +
			strings.Count(string(data), "\u2028") + strings.Count(string(data), "\u2029")
		for _, p := range problems {
			if p.Line < 1 || p.Line > lines || p.Column < 1 || p.Text == "" || strings.Contains(p.String(), "\n") {
				t.Errorf("%q is not a line of %d with a place", p, lines)
			}
		}
		if (c == nil) != (len(problems.Errors()) > 0) {
			t.Fatalf("a configuration: %v, with errors\n%s", c != nil, problems.Errors())
		}
		if c == nil {
			return
		}
		again, problems := Parse("printed", c.YAML())
		if again == nil {
			t.Fatalf("Parse of what was printed:\n%s\n%s", problems.Errors(), c.YAML())
		}
		if diff := cmp.Diff(c, again, equal); diff != "" {
			t.Fatalf("printed and read again (-before +after):\n%s", diff)
		}
	})
}

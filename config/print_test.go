package config

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// everythingSupported lifts notYet for a test.
func everythingSupported(t *testing.T) {
	rows := notYet
	notYet = nil
	t.Cleanup(func() { notYet = rows })
}

// TestPrintedIsEqual prints any configuration and reads it back.
func TestPrintedIsEqual(t *testing.T) {
	everythingSupported(t)
	rapid.Check(t, func(t *rapid.T) {
		c := generated(t)
		again, problems := Parse("printed", c.YAML())
		if again == nil {
			t.Fatalf("Parse of what was printed:\n%s\n%s", problems.Errors(), c.YAML())
		}
		if diff := cmp.Diff(c, again, equal); diff != "" {
			t.Fatalf("printed and read again (-before +after):\n%s\n%s", diff, c.YAML())
		}
	})
}

// texts are what problems say, wherever they say it.
func texts(problems Problems) []string {
	var out []string
	for _, p := range problems {
		out = append(out, p.Text)
	}
	slices.Sort(out)
	return out
}

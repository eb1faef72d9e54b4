package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var equal = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// TestGoodFiles loads every good file, prints it and loads that again.
func TestGoodFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("Glob: %d files, %v", len(files), err)
	}
	for _, file := range files {
		c, problems := Load(file)
		if c == nil {
			t.Fatalf("Load(%s):\n%s", file, problems)
		}
		again, warnings := Parse("printed", c.YAML())
		if again == nil {
			t.Fatalf("Parse of the printed %s:\n%s\n%s", file, warnings, c.YAML())
		}
		if diff := cmp.Diff(texts(problems), texts(warnings)); diff != "" {
			t.Errorf("warnings of the printed %s differ (-loaded +printed):\n%s", file, diff)
		}
		if diff := cmp.Diff(c, again, equal); diff != "" {
			t.Errorf("printed %s differs (-loaded +printed):\n%s", file, diff)
		}
	}
}

// BenchmarkParse reads 10,000 backends in ten services.
func BenchmarkParse(b *testing.B) {
	var text strings.Builder
	text.WriteString("interfaces: [eth0]\nzones: [{name: a, clientRanges: [10.1.0.0/24]}]\nhealthChecks: [{name: tcp, type: TCP}]\nbackendServices:\n")
	for s := range 10 {
		fmt.Fprintf(&text, "  - name: s%d\n    healthChecks: [tcp]\n    backends:\n", s)
		for i := range 1000 {
			fmt.Fprintf(&text, "      - {name: b%d-%d, zone: a, address: 10.%d.%d.%d, weight: 2}\n", s, i, 10+s, i/250, 1+i%250)
		}
	}
	data := []byte(text.String())
	b.ReportAllocs()
	for b.Loop() {
		if c, problems := Parse("f", data); c == nil {
			b.Fatal(problems)
		}
	}
}

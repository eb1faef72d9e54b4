package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestStream: all rows in order, cells in columns, and columns that only grow.
func TestStream(t *testing.T) {
	var out bytes.Buffer
	s := newStream(&out, "NAME SIZE")
	for i := range 3 * streamDepth {
		if err := s.row(fmt.Sprintf("b%d→", i), i); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.flush(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 1+3*streamDepth || lines[0] != "NAME   SIZE" {
		t.Fatalf("%d lines from %q on", len(lines), lines[0])
	}
	least := 0
	for i, l := range lines[1:] {
		at := strings.LastIndex(l, " ")
		if l != fmt.Sprintf("b%d→%*d", i, at-len(fmt.Sprintf("b%d→", i))+1+len(fmt.Sprint(i)), i) || at < least {
			t.Fatalf("row %d is %q", i, l)
		}
		least = at
	}
}

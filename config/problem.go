package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing wrong, or worth a warning, in a configuration file.
type Problem struct {
	File string
	// Line and Column count from 1. Both are 0 only when the file could not be read at all.
	Line, Column int
	// Path names the value in the file, such as "backendServices[0].backends[2].weight"; empty when the
	// problem is one of the file as a whole.
	Path string
	// Text says what is wrong and, after a semicolon, what is allowed.
	Text string
	// Warning marks a problem with which the file is still accepted.
	Warning bool
}

// String is the problem as one line of a report: "FILE:LINE:COL: path: what is wrong; what is allowed",
// with "warning: " after the place where it is one.
func (p Problem) String() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "%s:%d:%d: ", p.File, p.Line, p.Column)
	}
	if p.Warning {
		b.WriteString("warning: ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Text)
	return b.String()
}

// Problems are the findings of one run over a file, in the order of their places.
type Problems []Problem

// Errors returns those that make the file unusable.
func (ps Problems) Errors() Problems { return ps.only(false) }

// Warnings returns those with which the file is still accepted.
func (ps Problems) Warnings() Problems { return ps.only(true) }

func (ps Problems) only(warning bool) Problems {
	var out Problems
	for _, p := range ps {
		if p.Warning == warning {
			out = append(out, p)
		}
	}
	return out
}

// Err is nil when there is no error among the problems, otherwise an error whose text has one line for
// each of them.
func (ps Problems) Err() error {
	errs := ps.Errors()
	if len(errs) == 0 {
		return nil
	}
	return errors.New(errs.String())
}

// String has one line for each problem, without a newline after the last.
func (ps Problems) String() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sorted orders by place and drops what is said twice of one place: a value behind an alias is read once
// for each use, and one line for its fault is enough.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	type said struct {
		line, column int
		path, text   string
	}
	seen := make(map[said]bool, len(ps))
	return slices.DeleteFunc(ps, func(p Problem) bool {
		s := said{p.Line, p.Column, withoutIndexes(p.Path), p.Text}
		again := seen[s]
		seen[s] = true
		return again
	})
}

// withoutIndexes turns "zones[2].clientRanges[0]" into "zones[].clientRanges[]".
func withoutIndexes(path string) string {
	var b strings.Builder
	for _, c := range path {
		if c < '0' || c > '9' || !strings.HasSuffix(b.String(), "[") {
			b.WriteRune(c)
		}
	}
	return b.String()
}

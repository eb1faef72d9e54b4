package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// stream prints a table of any number of rows. It holds a few of them to see
// how wide the columns are, and a column never gets narrower again.
type stream struct {
	w      io.Writer
	held   [][]string
	widths []int
}

// streamDepth is how many rows are held.
const streamDepth = 512

func newStream(w io.Writer, heading string) *stream {
	cells := strings.Fields(heading)
	return &stream{w: w, held: [][]string{cells}, widths: make([]int, len(cells))}
}

func (s *stream) row(cells ...any) error {
	text := make([]string, len(cells))
	for i, c := range cells {
		text[i] = fmt.Sprint(c)
	}
	if s.held = append(s.held, text); len(s.held) < streamDepth {
		return nil
	}
	return s.flush()
}

// flush prints what is held.
func (s *stream) flush() error {
	for _, row := range s.held {
		for i, cell := range row {
			s.widths[i] = max(s.widths[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for _, row := range s.held {
		for i, cell := range row {
			out.WriteString(cell)
			if i < len(row)-1 {
				out.WriteString(strings.Repeat(" ", s.widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		out.WriteByte('\n')
	}
	s.held = s.held[:0]
	_, err := io.WriteString(s.w, out.String())
	return err
}

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Load reads a configuration file. The configuration is nil exactly when there is an error among the
// problems. A file that cannot be read is one problem without a line.
func Load(path string) (*Config, Problems) {
	data, err := ReadFile(path, maxConfigBytes)
	if err != nil {
		return nil, Problems{{File: path, Text: fmt.Sprintf("read configuration: %v", err)}}
	}
	return Parse(path, data)
}

// Parse reads the text of a configuration file; name stands for it in messages. It opens no file and no
// socket. The configuration is nil exactly when there is an error among the problems.
func Parse(name string, data []byte) (*Config, Problems) {
	d := &decoder{file: name, places: make(map[any]place)}
	c := new(Config)
	if root := d.document(data); root != nil {
		configTable.reset(c)
		configTable.read(d, root, "", c)
		if !d.full && resolve(root).Kind == yaml.MappingNode {
			d.check(c)
		}
	}
	problems := d.problems.sorted()
	if len(problems.Errors()) > 0 {
		return nil, problems
	}
	return c, problems
}

const emptyFile = "the file is empty; give at least interfaces, backendServices and forwardingRules or routes"

// document returns the value of the only document in data, nil after reporting why there is none.
func (d *decoder) document(data []byte) *yaml.Node {
	if d.unreadable(data) {
		return nil
	}
	stream := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := decode(stream, &doc); {
	case errors.Is(err, io.EOF):
		d.errorf(nil, "", emptyFile)
		return nil
	case err != nil:
		d.syntax(data, err)
		return nil
	}
	var second yaml.Node
	switch err := decode(stream, &second); {
	case err == nil:
		d.errorf(&second, "", "a second document starts here; put everything into one")
	case !errors.Is(err, io.EOF):
		d.syntax(data, err)
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		d.errorf(nil, "", emptyFile)
		return nil
	}
	return root
}

// decode reads one document. The YAML library panics on some malformed input; that is a syntax error too.
func decode(stream *yaml.Decoder, doc *yaml.Node) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("yaml: the text cannot be read: %v", r)
		}
	}()
	return stream.Decode(doc)
}

var (
	syntaxLine    = regexp.MustCompile(`^yaml: line (\d+): `)
	unexpected    = regexp.MustCompile(`^did not find expected (<|node content|'-' indicator|key|',' or)`)
	unknownAnchor = regexp.MustCompile(`unknown anchor '([^']*)'`)
)

// syntax reports what the YAML library says, which is a line at best; the column is where the text of
// that line starts. Where one token is not the expected one, the library gives the line before, or that of
// the mapping or list around it; how far it has read then says more.
func (d *decoder) syntax(data []byte, err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	at := 1
	if m := syntaxLine.FindStringSubmatch(err.Error()); m != nil {
		at, _ = strconv.Atoi(m[1])
		text = strings.TrimPrefix(err.Error(), m[0])
	}
	if unexpected.MatchString(text) {
		at = 1 + bytes.Count(bytes.TrimRight(data[:readUntilError(data)], " \t\r\n"), []byte("\n"))
	}
	lines := strings.Split(string(data), "\n")
	at = min(max(at, 1), len(lines))
	column := 1 + len(lines[at-1]) - len(strings.TrimLeft(lines[at-1], " \t"))
	if m := unknownAnchor.FindStringSubmatch(text); m != nil {
		at, column = placeOf(string(data), "*"+m[1])
		text = "the alias *" + m[1] + " stands for nothing; put the anchor &" + m[1] + " before it"
	} else {
		text = "not valid YAML: " + text + "; check indentation, quotes and brackets here and before"
		if strings.HasPrefix(strings.TrimLeft(lines[at-1], " "), "\t") {
			text += " (indent with spaces, not tabs)"
		}
	}
	d.errorf(&yaml.Node{Line: at, Column: column}, "", "%s", text)
}

// readUntilError is the number of bytes that the YAML library takes until it meets an error: a few more
// than those up to the end of the token it cannot use.
func readUntilError(data []byte) int {
	r := &slowReader{data: data}
	stream := yaml.NewDecoder(r)
	for decode(stream, new(yaml.Node)) == nil {
		continue
	}
	return r.read
}

// slowReader hands out one byte at a time, so that no more is read than is needed.
type slowReader struct {
	data []byte
	read int
}

func (r *slowReader) Read(p []byte) (int, error) {
	if r.read == len(r.data) || len(p) == 0 {
		return 0, io.EOF
	}
	p[0] = r.data[r.read]
	r.read++
	return 1, nil
}

// placeOf is the line and column of the first occurrence of part in text, 1, 1 if there is none.
func placeOf(text, part string) (line, column int) {
	before, _, found := strings.Cut(text, part)
	if !found {
		return 1, 1
	}
	return 1 + strings.Count(before, "\n"), 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
}

// unreadable reports the first byte that is not text. The YAML library refuses such files without saying
// where.
func (d *decoder) unreadable(data []byte) bool {
	line, column := 1, 1
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		bad := r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f || r > 0x7f && r < 0xa0 && r != 0x85 ||
			r == 0xfeff && i > 0 || r == 0xfffe || r == 0xffff
		switch {
		case r == utf8.RuneError && size == 1:
			d.errorf(&yaml.Node{Line: line, Column: column}, "", "the byte 0x%02x is not UTF-8 text; save the file as UTF-8", data[i])
			return true
		case bad:
			d.errorf(&yaml.Node{Line: line, Column: column}, "", "the control character U+%04X cannot stand here; remove it", r)
			return true
		case r == '\n':
			line, column = line+1, 1
		default:
			column++
		}
		i += size
	}
	return false
}

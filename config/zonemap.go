package config

import (
	"fmt"
	"net/netip"
	"strings"

	"gopkg.in/yaml.v3"
)

// ZoneMapEntry is one line of a zone map file: the clients of a range are in a zone.
type ZoneMapEntry struct {
	Prefix netip.Prefix
	Zone   string
}

// LoadZoneMap reads the file that ZoneMapFile names, as ParseZoneMap does. A file that cannot be read is
// one problem without a line; with no file named there are no entries and no problems.
func (c *Config) LoadZoneMap() ([]ZoneMapEntry, Problems) {
	if c.ZoneMapFile == "" {
		return nil, nil
	}
	data, err := ReadFile(c.ZoneMapFile, maxZoneMapBytes)
	if err != nil {
		return nil, Problems{{File: c.ZoneMapFile, Text: fmt.Sprintf("read zone map: %v", err)}}
	}
	return c.ParseZoneMap(c.ZoneMapFile, data)
}

// ParseZoneMap reads lines of the form "PREFIX ZONE"; empty lines, and what follows a "#", are skipped.
// The zones are those of the configuration. There are no entries exactly when there are problems, or no
// lines.
func (c *Config) ParseZoneMap(name string, data []byte) ([]ZoneMapEntry, Problems) {
	d := &decoder{file: name, places: make(map[any]place)}
	if d.unreadable(data) {
		return nil, d.problems
	}
	zones := knownNames(d, "zone", "zones", &c.Zones, func(z *Zone) string { return z.Name })
	lines := make(map[netip.Prefix]int)
	var entries []ZoneMapEntry
	for i, line := range strings.Split(string(data), "\n") {
		line, _, _ = strings.Cut(strings.TrimSuffix(line, "\r"), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		at := func(word int) *yaml.Node {
			column := 1
			for _, w := range words[:word] {
				column += strings.Index(line[column-1:], w) + len(w)
			}
			return &yaml.Node{Line: i + 1, Column: column + strings.Index(line[column-1:], words[word])}
		}
		if len(words) != 2 {
			d.errorf(at(min(2, len(words)-1)), "", "the line has %d words; use a range and a zone, such as \"10.1.0.0/24 a\"", len(words))
			continue
		}
		p, err := parsePrefix(words[0])
		if err != nil {
			d.errorf(at(0), "", "%v", err)
			continue
		}
		if !zones.has[words[1]] {
			d.places[&words[1]] = place{node: at(1)}
			d.refer(&words[1], zones)
			continue
		}
		if first, taken := lines[p]; taken {
			d.errorf(at(0), "", "%s is already given in line %d; give each range once", p, first)
			continue
		}
		lines[p] = i + 1
		entries = append(entries, ZoneMapEntry{Prefix: p, Zone: words[1]})
	}
	if len(d.problems) > 0 {
		return nil, d.problems.sorted()
	}
	return entries, nil
}

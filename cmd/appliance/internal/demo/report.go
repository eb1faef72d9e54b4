package demo

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"zonehop/cmd/appliance/internal/admin"
)

// Report is what `appliance demo --json` prints.
type Report struct {
	OK         bool             `json:"ok"`
	Problems   []string         `json:"problems"`
	Phases     []PhaseReport    `json:"phases"`
	Route      []ShareReport    `json:"route"`
	ByteExact  ExactReport      `json:"byteExact"`
	Streams    []StreamReport   `json:"establishedConnections"`
	Accounting admin.Accounting `json:"accounting"`
	Interface  admin.Interface  `json:"interface"`
	Seconds    float64          `json:"seconds"`
}

// PhaseReport is one phase.
type PhaseReport struct {
	Title  string        `json:"title"`
	Why    string        `json:"why"`
	Failed []string      `json:"failing"`
	Shares []ShareReport `json:"shares"`
	OK     bool          `json:"ok"`
}

// ShareReport compares where one client's connections went with the rules.
type ShareReport struct {
	Client      string             `json:"client"`
	Connections int                `json:"connections"`
	Expected    map[string]float64 `json:"expectedByZone"`
	Actual      map[string]float64 `json:"actualByZone"`
	Backends    map[string]int     `json:"backends"`
	OK          bool               `json:"ok"`
	Problem     string             `json:"problem,omitempty"`
}

// ExactReport is the comparison of frames as clients sent and backends received them.
type ExactReport struct {
	Frames  int    `json:"frames"`
	OK      bool   `json:"ok"`
	Problem string `json:"problem,omitempty"`
}

// StreamReport is one connection that was open all the time.
type StreamReport struct {
	Client  string `json:"client"`
	Backend string `json:"backend"`
	Bytes   int64  `json:"bytes"`
	OK      bool   `json:"ok"`
	Problem string `json:"problem,omitempty"`
}

// judge compares the backends that answered with those the rules allow. The
// shares of a hash scatter like a draw of lots; four standard deviations of
// that are allowed, of a draw that is always the same.
func judge(client string, got map[string]int, want []string, zone func(string) string) ShareReport {
	r := ShareReport{Client: client, Expected: make(map[string]float64), Actual: make(map[string]float64), Backends: got, OK: true}
	for _, n := range got {
		r.Connections += n
	}
	fail := func(format string, args ...any) {
		if r.OK {
			r.OK, r.Problem = false, fmt.Sprintf(format, args...)
		}
	}
	for b, n := range got {
		if !slices.Contains(want, b) {
			fail("%d connections went to %s, which the rules exclude", n, b)
		}
		r.Actual[zone(b)] += float64(n) / float64(r.Connections)
	}
	for _, b := range want {
		r.Expected[zone(b)] += 1 / float64(len(want))
		if got[b] == 0 {
			fail("no connection went to %s", b)
		}
	}
	for z, p := range r.Expected {
		if sigma := math.Sqrt(p * (1 - p) / float64(r.Connections)); math.Abs(r.Actual[z]-p) > 4*sigma+1e-9 {
			fail("zone %s got %.0f %% where %.0f %% were expected", z, 100*r.Actual[z], 100*p)
		}
	}
	return r
}

// shares writes a distribution over zones.
func shares(m map[string]float64) string {
	var zones []string
	for z := range m {
		zones = append(zones, z)
	}
	slices.Sort(zones)
	for i, z := range zones {
		zones[i] = fmt.Sprintf("%s %3.0f%%", z, 100*m[z])
	}
	return strings.Join(zones, "  ")
}

// backends writes who got how many.
func backends(m map[string]int) string {
	var names []string
	for b := range m {
		names = append(names, b)
	}
	slices.Sort(names)
	for i, b := range names {
		names[i] = fmt.Sprintf("%s %d", b, m[b])
	}
	return strings.Join(names, ", ")
}

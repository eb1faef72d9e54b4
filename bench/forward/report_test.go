package main

import (
	"strings"
	"testing"
)

func samples(mpps ...float64) (s []sample) {
	for _, v := range mpps {
		s = append(s, sample{Mpps: v, Lost: 1})
	}
	return s
}

// A drift of the machine that meets both of a round leaves the ratio alone.
func TestRatioIsTakenWithinRounds(t *testing.T) {
	rate := func(s sample) float64 { return s.Mpps }
	if got := ratio(samples(1, 2, 4, 8), samples(2, 4, 8, 16), rate); got != 0.5 {
		t.Errorf("ratio = %v, want 0.5", got)
	}
	if got := median(samples(3, 9, 1), rate); got != 3 {
		t.Errorf("median of 1, 3, 9 = %v", got)
	}
	if got := median(samples(3, 1), rate); got != 2 {
		t.Errorf("median of 1, 3 = %v", got)
	}
	if got := spread(samples(3, 9, 1), "%.1f", rate); got != "3.0 (1.0 to 9.0)" {
		t.Errorf("spread = %q", got)
	}
	if got := sum(samples(3, 9, 1), func(s sample) uint64 { return s.Lost }); got != 3 {
		t.Errorf("sum = %v, want 3", got)
	}
}

// The report says of each goal whether it is reached.
func TestReport(t *testing.T) {
	r := newReport(options{rounds: 1})
	for i, name := range applications {
		r.add(name, 0, sample{Mode: "copy", Mpps: 1, CPUPerFrame: 100, PerCall: 64})
		r.add(name, 1, sample{Mpps: 1, CPUPerFrame: 100 + float64(i), Lost: 7})
		r.Quiet[name] = quiet{P50: 100, P99: 1000}
	}
	r.finish()
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{
		"saturated rate, worker / swap": true, "saturated rate, worker / library": true,
		"frames per system call, saturated": true, "paced CPU per frame, worker / library": false,
		"paced loss, worker, frames": false, "received, neither transmitted nor counted": true,
		"first packet after idle, p50, µs": true, "first packet after idle, p99, µs": false,
	}
	for _, g := range r.Goals {
		if w, ok := want[g.What]; ok && w != g.Reached {
			t.Errorf("%s: %v against %s: reached = %v", g.What, g.Measured, g.Want, g.Reached)
		}
		delete(want, g.What)
		if !strings.Contains(out.String(), g.What) {
			t.Errorf("the printed report lacks %q", g.What)
		}
	}
	if len(want) > 0 {
		t.Errorf("no goal for %v", want)
	}
}

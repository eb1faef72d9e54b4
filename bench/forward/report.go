package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// report is everything a run found.
type report struct {
	Machine   machine
	Command   string
	Saturated map[string][]sample
	Paced     map[string][]sample
	Quiet     map[string]quiet
	Goals     []goal

	o options
}

// machine says where and of what the numbers are.
type machine struct {
	CPU, Kernel, Go, Commit, Link, Mode string
	CPUs                                int
	Date                                time.Time
	Load                                string // load averages at the start and at the end
}

// goal is one number beside what it should be.
type goal struct {
	What     string
	Measured float64
	Want     string
	Reached  bool
}

func newReport(o options) *report {
	return &report{
		Machine: machine{
			CPU: cpuModel(), Kernel: kernel(), Go: runtime.Version(), Commit: commit(), Link: "veth",
			CPUs: runtime.NumCPU(), Date: time.Now(), Load: load(),
		},
		Command:   "forward " + strings.Join(os.Args[1:], " "),
		Saturated: map[string][]sample{}, Paced: map[string][]sample{}, Quiet: map[string]quiet{},
		o: o,
	}
}

func (r *report) add(name string, rateHz int, s sample) {
	to := r.Saturated
	if rateHz > 0 {
		to = r.Paced
	}
	to[name] = append(to[name], s)
}

// finish compares with the goals.
func (r *report) finish() {
	r.Machine.Load += " to " + load()
	r.Machine.Mode = r.Saturated[appWorker][0].Mode
	rate := func(s sample) float64 { return s.Mpps }
	cpu := func(s sample) float64 { return s.CPUPerFrame }
	atLeast := func(what string, v, want float64) {
		r.Goals = append(r.Goals, goal{what, v, fmt.Sprintf(">= %g", want), v >= want})
	}
	atMost := func(what string, v, want float64) {
		r.Goals = append(r.Goals, goal{what, v, fmt.Sprintf("<= %g", want), v <= want})
	}
	sat, paced := r.Saturated, r.Paced
	atLeast("saturated rate, worker / swap", ratio(sat[appWorker], sat[appSwap], rate), 0.95)
	atLeast("saturated rate, worker / library", ratio(sat[appWorker], sat[appLibrary], rate), 1)
	atMost("saturated CPU per frame, worker / swap", ratio(sat[appWorker], sat[appSwap], cpu), 1.05)
	atLeast("frames per system call, saturated", median(sat[appWorker], func(s sample) float64 { return s.PerCall }), 48)
	atMost("paced CPU per frame, worker / library", ratio(paced[appWorker], paced[appLibrary], cpu), 0.95)
	atMost("paced loss, worker, frames", sum(paced[appWorker], func(s sample) uint64 { return s.Lost }), 0)
	unaccounted := func(s sample) uint64 { return s.Unaccounted }
	atMost("received, neither transmitted nor counted", sum(sat[appWorker], unaccounted)+sum(paced[appWorker], unaccounted), 0)
	q := r.Quiet[appWorker]
	atMost("first packet after idle, p50, µs", q.P50, 150)
	atMost("first packet after idle, p99, µs", q.P99, 300)
	atMost("idle CPU, % of one", 100*q.IdleCPU, 2)
}

// median of one number of the samples.
func median(s []sample, of func(sample) float64) float64 {
	v := make([]float64, len(s))
	for i := range s {
		v[i] = of(s[i])
	}
	return middle(v)
}

func middle(v []float64) float64 {
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// ratio is the median over the rounds of a's number by b's of the same round.
func ratio(a, b []sample, of func(sample) float64) float64 {
	v := make([]float64, len(a))
	for i := range a {
		v[i] = of(a[i]) / of(b[i])
	}
	return middle(v)
}

func sum(s []sample, of func(sample) uint64) float64 {
	total := uint64(0)
	for i := range s {
		total += of(s[i])
	}
	return float64(total)
}

// print writes the report as tables.
func (r *report) print(to io.Writer) error {
	m := r.Machine
	fmt.Fprintf(to, "%s\n%s, %d CPUs, Linux %s, %s, commit %s\n", r.Command, m.CPU, m.CPUs, m.Kernel, m.Go, m.Commit)
	fmt.Fprintf(to, "%s, %s mode, %s, load average %s\n", m.Link, m.Mode, m.Date.Format(time.DateTime), m.Load)
	fmt.Fprintf(to, "%d rounds of %v, %d flows, 60-byte frames; medians, (lowest to highest)\n", r.o.rounds, r.o.window, r.o.flows)
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, part := range []struct {
		title string
		of    map[string][]sample
	}{{"saturated", r.Saturated}, {fmt.Sprintf("paced at %g Mpps", float64(r.o.rateHz)/1e6), r.Paced}} {
		fmt.Fprintf(w, "\n%s\tMpps\tCPU ns/frame\tframes/call\tlost\tof these counted\tunaccounted\twaited for CPU %%\tdisturbed\n", part.title)
		for _, name := range applications {
			s := part.of[name]
			fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\t%.0f\t%.0f\t%.0f\t%.1f\t%.0f\n", name,
				spread(s, "%.3f", func(s sample) float64 { return s.Mpps }),
				spread(s, "%.0f", func(s sample) float64 { return s.CPUPerFrame }),
				median(s, func(s sample) float64 { return s.PerCall }),
				sum(s, func(s sample) uint64 { return s.Lost }),
				sum(s, func(s sample) uint64 { return s.Counted }),
				sum(s, func(s sample) uint64 { return s.Unaccounted }),
				100*median(s, func(s sample) float64 { return s.WaitShare }),
				sum(s, func(s sample) uint64 {
					if s.Disturbed {
						return 1
					}
					return 0
				}))
		}
	}
	fmt.Fprintf(w, "\nfirst packet after idle\tp50 µs\tp99 µs\tpackets\tlost\tidle CPU %%\n")
	for _, name := range applications {
		q := r.Quiet[name]
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%d\t%d\t%.2f\n", name, q.P50, q.P99, q.Packets, q.Lost, 100*q.IdleCPU)
	}
	fmt.Fprintf(w, "\ngoal\tmeasured\twanted\t\n")
	for _, g := range r.Goals {
		verdict := "reached"
		if !g.Reached {
			verdict = "not reached"
		}
		fmt.Fprintf(w, "%s\t%.4g\t%s\t%s\n", g.What, g.Measured, g.Want, verdict)
	}
	return w.Flush()
}

// spread is the median and the extremes.
func spread(s []sample, format string, of func(sample) float64) string {
	v := make([]float64, len(s))
	for i := range s {
		v[i] = of(s[i])
	}
	m := middle(v)
	return fmt.Sprintf(format+" ("+format+" to "+format+")", m, v[0], v[len(v)-1])
}

func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err.Error()
	}
	return unix.ByteSliceToString(u.Release[:])
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err.Error()
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}

// commit is the one built from, with a + if files differ from it.
func commit() string {
	revision, changed := "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value[:min(len(s.Value), 12)]
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = "+"
			}
		}
	}
	if revision == "" { // go run stamps nothing
		out, err := exec.Command("git", "describe", "--always", "--abbrev=12", "--dirty=+").Output()
		if err != nil {
			return "unknown"
		}
		return strings.TrimSpace(string(out))
	}
	return revision + changed
}

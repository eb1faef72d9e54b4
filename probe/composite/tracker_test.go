package composite

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"zonehop/selector"
)

var (
	epoch = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	addr4 = netip.MustParseAddr("10.0.0.1")
	addr6 = netip.MustParseAddr("fd00::1")
)

// backends makes n backends of a zone.
func backends(zone string, n int, addresses ...netip.Addr) []Backend {
	var out []Backend
	for i := range n {
		b := Backend{Name: fmt.Sprintf("%s%d", zone, i+1), Group: zone, Addresses: [2]netip.Addr{addr4}}
		for _, a := range addresses {
			if a.Is6() {
				b.Addresses[1] = a
			}
		}
		out = append(out, b)
	}
	return out
}

func region(services map[string]int) Options {
	o := Options{}
	p := Policy{Name: "most", Percent: selector.MustRatio("0.6"), Min: 1}
	c := Composite{Name: "region", Destination: "vip"}
	for _, name := range []string{"api", "db", "web"} {
		if n, ok := services[name]; ok {
			o.Services = append(o.Services, Service{name, backends(name+"-", n)})
			o.Sources = append(o.Sources, Source{Name: name + "-source", Service: name, Policy: p})
			c.Sources = append(c.Sources, name+"-source")
		}
	}
	o.Composites = []Composite{c}
	return o
}

// told records what a tracker tells, one text for each transition.
type told struct {
	lines   []string
	reports int
}

func (r *told) hear(c Change) {
	r.reports++
	for _, t := range c.Transitions {
		r.lines = append(r.lines, fmt.Sprintf("%s %v>%v at %v: %s", t.Name(), t.From, t.To, t.At.Sub(epoch), t.Cause))
	}
}

func (r *told) take() []string {
	out := r.lines
	r.lines = nil
	return out
}

func newTold(t *testing.T, o Options) (*Tracker, *told) {
	t.Helper()
	r := &told{}
	tr, err := New(o, r.hear)
	if err != nil {
		t.Fatal(err)
	}
	return tr, r
}

func verdict(service, backend string, state selector.Health, second int) Verdict {
	v := Verdict{Service: service, Backend: backend, State: state, At: epoch.Add(time.Duration(second) * time.Second)}
	if state == selector.Unhealthy {
		v.Cause = "timed out"
	}
	return v
}

func all(service string, n int, state selector.Health) (out []Verdict) {
	for i := range n {
		out = append(out, verdict(service, fmt.Sprintf("%s-%d", service, i+1), state, 0))
	}
	return out
}

func want(t *testing.T, what string, got []string, lines ...string) {
	t.Helper()
	if d := cmp.Diff(lines, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// TestTrackerFlipsAtTheThreshold walks a region of three services to the edge and over it.
func TestTrackerFlipsAtTheThreshold(t *testing.T) {
	tr, r := newTold(t, region(map[string]int{"api": 5, "db": 2, "web": 3}))
	want(t, "nothing is known at the start", r.take())
	tr.Update(all("api", 5, selector.Healthy))
	want(t, "one source", r.take(), "api-source UNKNOWN>HEALTHY at 0s: backend api-5 turned HEALTHY (and 4 more)")
	tr.Update(append(all("db", 2, selector.Healthy), all("web", 3, selector.Healthy)...))
	want(t, "all sources", r.take(),
		"db-source UNKNOWN>HEALTHY at 0s: backend db-2 turned HEALTHY (and 1 more)",
		"web-source UNKNOWN>HEALTHY at 0s: backend web-3 turned HEALTHY (and 2 more)",
		"region UNKNOWN>HEALTHY at 0s: health source web-source turned HEALTHY: backend web-3 turned HEALTHY (and 2 more)")

	tr.Update([]Verdict{verdict("api", "api-1", selector.Unhealthy, 1)})
	tr.Update([]Verdict{verdict("api", "api-2", selector.Unhealthy, 2)})
	want(t, "exactly at the threshold", r.take())
	tr.Update([]Verdict{verdict("api", "api-3", selector.Unhealthy, 3)})
	want(t, "below the threshold", r.take(),
		"api-source HEALTHY>UNHEALTHY at 3s: backend api-3 turned UNHEALTHY: timed out",
		"region HEALTHY>UNHEALTHY at 3s: health source api-source turned UNHEALTHY: backend api-3 turned UNHEALTHY: timed out")
	tr.Update([]Verdict{verdict("api", "api-1", selector.Healthy, 4)})
	want(t, "back at the threshold", r.take(),
		"api-source UNHEALTHY>HEALTHY at 4s: backend api-1 turned HEALTHY",
		"region UNHEALTHY>HEALTHY at 4s: health source api-source turned HEALTHY: backend api-1 turned HEALTHY")

	c := tr.Report().Composite("region")
	if c.State != selector.Healthy || c.Since != epoch.Add(4*time.Second) || c.Missing != "UNHEALTHY once one of its 3 sources turns UNHEALTHY" {
		t.Errorf("region is %v since %v: %s", c.State, c.Since, c.Missing)
	}
	if n := len(tr.CompositeHistory("region")); n != 3 {
		t.Errorf("region has %d transitions, want 3", n)
	}
}

// TestCountsAreTold: counts reach whoever listens even where no state changes, and nothing is told
// twice.
func TestCountsAreTold(t *testing.T) {
	tr, r := newTold(t, region(map[string]int{"web": 5}))
	tr.Update(all("web", 5, selector.Healthy))
	before := r.reports
	tr.Update([]Verdict{verdict("web", "web-1", selector.Unhealthy, 1)})
	if r.reports != before+1 {
		t.Errorf("%d reports for a changed count, want 1", r.reports-before)
	}
	tr.Update([]Verdict{verdict("web", "web-1", selector.Unhealthy, 2), verdict("web", "gone", selector.Healthy, 2), verdict("gone", "web-1", selector.Healthy, 2)})
	tr.SetDrain("gone", true, epoch)
	if r.reports != before+1 {
		t.Errorf("%d reports for nothing new, want none", r.reports-before-1)
	}
}

// TestScaleOutIsNeverUnhealthy adds backends, replaces all of them and adds a service: what has no
// verdict yet may make a source UNKNOWN, but never UNHEALTHY.
func TestScaleOutIsNeverUnhealthy(t *testing.T) {
	tr, r := newTold(t, region(map[string]int{"web": 3}))
	tr.Update(all("web", 3, selector.Healthy))
	apply := func(o Options, known ...Verdict) {
		t.Helper()
		if err := tr.Apply(o, known, epoch.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	r.take()
	apply(region(map[string]int{"web": 5}))
	want(t, "two more", r.take())
	apply(region(map[string]int{"web": 9}))
	want(t, "six more", r.take(), "web-source HEALTHY>UNKNOWN at 1m0s: configuration changed", "region HEALTHY>UNKNOWN at 1m0s: health source web-source turned UNKNOWN: configuration changed")
	apply(region(map[string]int{"web": 9}), all("web", 9, selector.Healthy)...)
	r.take()
	apply(region(map[string]int{"web": 9, "api": 4}))
	want(t, "another service", r.take(), "region HEALTHY>UNKNOWN at 1m0s: configuration changed")
	if n := len(tr.SourceHistory("web-source")); n != 3 {
		t.Errorf("%d transitions are remembered over reloads, want 3", n)
	}
	moved := region(map[string]int{"web": 9})
	for i := range moved.Services[0].Backends {
		moved.Services[0].Backends[i].Addresses[0] = netip.MustParseAddr("10.9.9.9")
	}
	apply(moved)
	for _, line := range r.take() {
		if strings.Contains(line, ">UNHEALTHY") {
			t.Error(line)
		}
	}
	if s := tr.Report().Source("web-source"); s.State != selector.Unknown || s.Count.Unknown != 9 {
		t.Errorf("with nine new addresses the source is %v of %+v, want UNKNOWN", s.State, s.Count)
	}
}

// TestScaleInIsOneStep: a reload that removes the unhealthy backends is evaluated once, with the new
// set.
func TestScaleInIsOneStep(t *testing.T) {
	tr, r := newTold(t, region(map[string]int{"web": 5}))
	tr.Update(all("web", 2, selector.Healthy))
	tr.Update([]Verdict{verdict("web", "web-3", selector.Unhealthy, 1), verdict("web", "web-4", selector.Unhealthy, 1), verdict("web", "web-5", selector.Unhealthy, 1)})
	r.take()
	if err := tr.Apply(region(map[string]int{"web": 2}), nil, epoch); err != nil {
		t.Fatal(err)
	}
	want(t, "three fewer", r.take(), "web-source UNHEALTHY>HEALTHY at 0s: configuration changed", "region UNHEALTHY>HEALTHY at 0s: health source web-source turned HEALTHY: configuration changed")
}

// TestDrainedDoNotCount: a drained backend is not configured, and if all are, all count.
func TestDrainedDoNotCount(t *testing.T) {
	tr, r := newTold(t, region(map[string]int{"web": 4}))
	tr.Update(append(all("web", 2, selector.Healthy), verdict("web", "web-3", selector.Unhealthy, 0), verdict("web", "web-4", selector.Unhealthy, 0)))
	r.take()
	tr.SetDrain("web-3", true, epoch)
	want(t, "2 of 3 is above 60 %", r.take(), "web-source UNHEALTHY>HEALTHY at 0s: backend web-3 drained", "region UNHEALTHY>HEALTHY at 0s: health source web-source turned HEALTHY: backend web-3 drained")
	if err := tr.Apply(region(map[string]int{"web": 4}), nil, epoch); err != nil {
		t.Fatal(err)
	}
	want(t, "a drain survives a reload", r.take())
	for _, b := range []string{"web-1", "web-2", "web-4"} {
		tr.SetDrain(b, true, epoch)
	}
	if s := tr.Report().Source("web-source"); s.Count != (Count{2, 2, 0}) {
		t.Errorf("with every backend drained, %+v count, want all four", s.Count)
	}
	r.take()
	tr.SetDrain("web-1", false, epoch)
	want(t, "one is back", r.take(), "web-source UNHEALTHY>HEALTHY at 0s: drain of backend web-1 ended", "region UNHEALTHY>HEALTHY at 0s: health source web-source turned HEALTHY: drain of backend web-1 ended")
}

// TestFamiliesAreCombined: a backend with two addresses is as healthy as the worse of them.
func TestFamiliesAreCombined(t *testing.T) {
	o := region(map[string]int{"web": 1})
	o.Services[0].Backends = backends("web-", 1, addr6)
	for _, c := range []struct{ v4, v6, want selector.Health }{
		{selector.Healthy, selector.Healthy, selector.Healthy},
		{selector.Healthy, selector.Unhealthy, selector.Unhealthy},
		{selector.Unhealthy, selector.Healthy, selector.Unhealthy},
		{selector.Healthy, selector.Unknown, selector.Unknown},
		{selector.Unknown, selector.Healthy, selector.Unknown},
		{selector.Unknown, selector.Unhealthy, selector.Unhealthy},
		{selector.Unknown, selector.Unknown, selector.Unknown},
	} {
		tr, _ := newTold(t, o)
		tr.Update([]Verdict{
			{Service: "web", Backend: "web-1", Family: selector.V4, State: c.v4},
			{Service: "web", Backend: "web-1", Family: selector.V6, State: c.v6},
		})
		if got := tr.Endpoints("web")[0].State; got != c.want {
			t.Errorf("IPv4 %v and IPv6 %v make %v, want %v", c.v4, c.v6, got, c.want)
		}
	}
}

// TestDryRun: dry runs are evaluated and told like others, and change nothing that is not one.
func TestDryRun(t *testing.T) {
	o := region(map[string]int{"api": 1, "web": 1})
	o.Sources[0].DryRun = true
	trial := o.Composites[0]
	trial.Name, trial.DryRun = "trial", true
	alone := Composite{Name: "alone", Sources: []string{"api-source"}}
	o.Composites = append(o.Composites, trial, alone)
	tr, r := newTold(t, o)
	tr.Update([]Verdict{verdict("api", "api-1", selector.Unhealthy, 1), verdict("web", "web-1", selector.Healthy, 1)})
	want(t, "one dry run fails", r.take(),
		"api-source UNKNOWN>UNHEALTHY at 1s: backend api-1 turned UNHEALTHY: timed out",
		"web-source UNKNOWN>HEALTHY at 1s: backend web-1 turned HEALTHY",
		"region UNKNOWN>HEALTHY at 1s: health source web-source turned HEALTHY: backend web-1 turned HEALTHY",
		"trial UNKNOWN>UNHEALTHY at 1s: health source api-source turned UNHEALTHY: backend api-1 turned UNHEALTHY: timed out")
	if c := tr.Report().Composite("alone"); c.State != selector.Unknown || !strings.Contains(c.Missing, "dry run") {
		t.Errorf("a composite of dry runs is %v: %s; want UNKNOWN", c.State, c.Missing)
	}
}

func TestGroups(t *testing.T) {
	o := region(map[string]int{"web": 0})
	o.Services[0].Backends = append(backends("b", 2), backends("c", 3)...)
	spare := backends("d", 1)
	spare[0].Group, spare[0].Failover = "b", true
	o.Services[0].Backends = append(o.Services[0].Backends, spare...)
	tr, _ := newTold(t, o)
	tr.Update([]Verdict{verdict("web", "b1", selector.Healthy, 0), verdict("web", "c1", selector.Healthy, 0), verdict("web", "d1", selector.Healthy, 0)})
	tr.SetDrain("c3", true, epoch)
	if d := cmp.Diff([]Group{{"b", false, 2, 1}, {"c", false, 2, 1}, {"b", true, 1, 1}}, tr.Report().Source("web-source").Groups); d != "" {
		t.Error(d)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	tr, _ := newTold(t, region(map[string]int{"web": 1}))
	for i := range 100 {
		tr.Update([]Verdict{verdict("web", "web-1", selector.Health(i%2), i)})
	}
	h := tr.SourceHistory("web-source")
	if len(h) != historyLen {
		t.Fatalf("%d transitions are kept, want %d", len(h), historyLen)
	}
	for i, x := range h {
		if at := epoch.Add(time.Duration(100-historyLen+i) * time.Second); x.At != at {
			t.Errorf("transition %d is of %v, want %v", i, x.At, at)
		}
	}
}

// TestSuppose: what is supposed does not touch the tracker.
func TestSuppose(t *testing.T) {
	o := region(map[string]int{"api": 2, "web": 3})
	tr, err := Offline(o, []string{"web-1", "api/api-1"}, []string{"web-2"})
	if err != nil {
		t.Fatal(err)
	}
	r := tr.Report()
	if got := [2]selector.Health{r.Source("api-source").State, r.Source("web-source").State}; got != [2]selector.Health{selector.Unhealthy, selector.Unknown} {
		t.Errorf("api and web are %v, want UNHEALTHY and UNKNOWN", got)
	}
	better, err := tr.Suppose(nil, []string{"api-1"})
	if err != nil {
		t.Fatal(err)
	}
	if got := better.Report().Composite("region").State; got != selector.Unknown {
		t.Errorf("with api-1 unknown the region is %v, want UNKNOWN", got)
	}
	if tr.Report() != r || r.Composite("region").State != selector.Unhealthy {
		t.Error("supposing changed the tracker")
	}
	if _, err := tr.Suppose([]string{"web-7"}, nil); err == nil || !strings.Contains(err.Error(), "web-7") {
		t.Errorf("an unknown name gives %v", err)
	}
}

func TestValidate(t *testing.T) {
	for text, spoil := range map[string]func(o *Options){
		"two of that name":       func(o *Options) { o.Sources = append(o.Sources, o.Sources[0]) },
		"there is no service":    func(o *Options) { o.Sources[0].Service = "nowhere" },
		"use at least 1":         func(o *Options) { o.Sources[0].Policy.Min = 0 },
		"use 1 to 10":            func(o *Options) { o.Composites[0].Sources = nil },
		"11 sources":             func(o *Options) { o.Composites[0].Sources = strings.Split(strings.Repeat("web-source ", 11), " ")[:11] },
		"no health source":       func(o *Options) { o.Composites[0].Sources = []string{"nothing"} },
		"has no address":         func(o *Options) { o.Services[0].Backends[0].Addresses = [2]netip.Addr{} },
		"service web: backend":   func(o *Options) { o.Services[0].Backends[1] = o.Services[0].Backends[0] },
		`composite health check`: func(o *Options) { o.Composites = append(o.Composites, o.Composites[0]) },
	} {
		o := region(map[string]int{"web": 2})
		if err := Validate(&o); err != nil {
			t.Fatal(err)
		}
		spoil(&o)
		if err := Validate(&o); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("Validate = %v, want an error with %q", err, text)
		}
	}
}

package appliance

import (
	"errors"
	"net/netip"
	"testing"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/config"
	"zonehop/probe"
	"zonehop/selector"
)

// TestFeedCutsOffTheSlow: a watcher that does not read gets everything up to its depth and is then
// cut off, and nobody else notices.
func TestFeedCutsOffTheSlow(t *testing.T) {
	var f healthFeed
	f.publish(nil, &admin.HealthUpdate{Sources: []admin.HealthSource{{Name: "first"}}})
	slow, endSlow, err := f.watch()
	if err != nil {
		t.Fatal(err)
	}
	defer endSlow()
	quick, endQuick, err := f.watch()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * watchDepth {
		f.publish([]admin.HealthEvent{{Name: "web"}}, nil)
		if u := <-quick; u.Sources[0].Name != "first" {
			t.Fatalf("an update without the state: %+v", u)
		}
	}
	n := 0
	for range slow {
		n++
	}
	if n != watchDepth {
		t.Errorf("the slow one got %d updates, want %d", n, watchDepth)
	}
	endQuick()
	f.publish(nil, nil)
	if len(f.watchers) != 0 {
		t.Errorf("%d watchers are left", len(f.watchers))
	}
}

func TestFeedBoundsWatchers(t *testing.T) {
	var f healthFeed
	for range maxWatchers {
		_, end, err := f.watch()
		if err != nil {
			t.Fatal(err)
		}
		defer end()
	}
	if _, _, err := f.watch(); !errors.Is(err, admin.ErrRefused) {
		t.Errorf("one too many gives %v, want ErrRefused", err)
	}
}

// TestWeightReports: what probes say about weights, for checks that ask.
func TestWeightReports(t *testing.T) {
	c := &config.Config{BackendServices: []config.BackendService{
		{Name: "web", HealthCheck: "asks", LocalityLbPolicy: config.PolicyWeightedRendezvous},
		{Name: "db", HealthCheck: "does-not", LocalityLbPolicy: config.PolicyRendezvous},
	}}
	key := probe.Key{Backend: netip.MustParseAddr("10.0.0.1"), Check: "asks"}
	other := probe.Key{Backend: netip.MustParseAddr("10.0.0.1"), Check: "does-not"}
	members := map[probe.Key][]probed{key: {{service: "web"}}, other: {{service: "db"}}}
	w := newWeightReports()
	w.configure(c, members)
	see := func(k probe.Key, r probe.Result) { w.observe(&probe.Observation{Key: k, Result: r}) }
	for _, c := range []struct {
		name   string
		key    probe.Key
		result probe.Result
		want   *selector.ReportedWeight // nil: nothing changed
	}{
		{"valid", key, probe.Result{OK: true, Weight: probe.Weight{State: probe.WeightValid, Value: 5}}, &selector.ReportedWeight{State: selector.ValidWeight, Value: 5}},
		{"the same", key, probe.Result{OK: true, Weight: probe.Weight{State: probe.WeightValid, Value: 5}}, nil},
		{"this host was short of something", key, probe.Result{Inconclusive: true}, nil},
		{"no answer", key, probe.Result{}, &selector.ReportedWeight{State: selector.UnavailableWeight}},
		{"none in the answer", key, probe.Result{OK: true, Weight: probe.Weight{State: probe.WeightMissing}}, &selector.ReportedWeight{State: selector.MissingWeight}},
		{"unreadable, in an answer that fails", key, probe.Result{Weight: probe.Weight{State: probe.WeightInvalid}}, &selector.ReportedWeight{State: selector.InvalidWeight}},
		{"a check that does not ask", other, probe.Result{OK: true}, nil},
	} {
		see(c.key, c.result)
		got := w.take()
		if c.want == nil && len(got) != 0 || c.want != nil && (len(got) != 1 || got[c.key] != *c.want) {
			t.Errorf("%s: changed %v, want %v", c.name, got, c.want)
		}
	}
	w.configure(c, members)
	if got := w.take(); len(got) != 1 || got[key].State != selector.InvalidWeight {
		t.Errorf("a reload hears %v again, want the last report", got)
	}
	c.BackendServices[0].LocalityLbPolicy = config.PolicyRendezvous
	w.configure(c, members)
	if got := w.take(); len(got) != 0 || len(w.latest) != 0 {
		t.Errorf("without the policy %v are left", w.latest)
	}
}

package metrics

import (
	"testing"

	"zonehop/cmd/appliance/internal/admin"
)

// backends are a source of the health of backends alone.
type backends []admin.BackendHealth

func (backends) Status() admin.Status   { return admin.Status{} }
func (b backends) Health() admin.Health { return admin.Health{Backends: b} }

// TestBackendHealth: a backend is shown as healthy as the worst of its addresses, in any order.
func TestBackendHealth(t *testing.T) {
	const up, down, unknown = "HEALTHY", "UNHEALTHY", "UNKNOWN"
	for _, c := range []struct {
		states []string // of its addresses
		want   float64
	}{
		{[]string{up}, 1}, {[]string{down}, 0}, {[]string{unknown}, -1}, {[]string{up, up}, 1},
		{[]string{up, down}, 0}, {[]string{down, up}, 0}, {[]string{up, unknown}, -1}, {[]string{unknown, up}, -1},
		{[]string{unknown, down}, 0}, {[]string{down, unknown}, 0}, {[]string{up, unknown, down}, 0},
	} {
		var list backends
		for i, s := range c.states {
			list = append(list, admin.BackendHealth{Service: "web", Backend: "b", Check: "http", Address: string(rune('a' + i)), State: s})
		}
		families, err := Registry(list, NewEvents()).Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range families {
			if f.GetName() != "zonehop_backend_health" {
				continue
			}
			found = true
			if m := f.GetMetric(); len(m) != 1 || m[0].GetGauge().GetValue() != c.want {
				t.Errorf("%v: %v, want one of %v", c.states, m, c.want)
			}
		}
		if !found {
			t.Errorf("%v: there is no such metric", c.states)
		}
	}
}

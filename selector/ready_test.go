package selector

import "testing"

// TestNothingIsChosenUnsettled: before a service has settled, part of its
// verdicts would send a connection of an earlier run to another backend.
func TestNothingIsChosenUnsettled(t *testing.T) {
	o := grid(2, 1)
	backends := o.Services[0].Backends
	tuple := tupleFrom("10.0.0.1", 1)
	b := mustNew(t, o)
	check := func(what string, s *Snapshot, want Result) {
		t.Helper()
		if c := s.Select(s.Rule("vip"), &tuple); c.Result != want || (c.Backend != 0) != (want == Selected) {
			t.Errorf("%s: %v (%d), want %v", what, c.Result, c.Backend, want)
		}
	}
	check("nothing known", b.Current(), NotReady)
	b.SetHealth("web", backends[0].Name, V4, Healthy)
	b.SetDelivery(backends[0].Address, Delivery{State: Deliverable})
	check("one verdict of two", b.Publish(second), NotReady)
	b.SetHealth("web", backends[1].Name, V4, Healthy)
	check("no delivery yet", b.Publish(2*second), NotReady)
	b.SetDelivery(backends[1].Address, Delivery{State: NoNeighbour})
	check("healthy, and its neighbour not known yet", b.Publish(2*second), NotReady)
	b.SetDelivery(backends[1].Address, Delivery{State: Deliverable})
	check("all known", b.Publish(3*second), Selected)
	b.SetHealth("web", backends[1].Name, V4, Unknown)
	if err := b.Apply(grid(3, 1), 4*second); err != nil {
		t.Fatal(err)
	}
	check("a new backend beside settled ones", b.Publish(4*second), Selected)

	b = mustNew(t, o)
	b.SetHealth("web", backends[0].Name, V4, Unhealthy)
	b.SetHealth("web", backends[1].Name, V4, Unhealthy)
	b.SetDelivery(backends[0].Address, Delivery{State: NoNeighbour})
	b.SetDelivery(backends[1].Address, Delivery{State: NotOnLink})
	check("nothing to wait for", b.Publish(second), Selected)

	b = mustNew(t, o)
	b.SetReady("vip")
	check("waited for long enough", b.Publish(second), Selected)
}

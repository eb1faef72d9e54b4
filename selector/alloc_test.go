// The race detector allocates.

//go:build !race

package selector

import (
	"net/netip"
	"testing"
)

// TestNoAllocation: nothing that runs per packet allocates, whatever the outcome.
func TestNoAllocation(t *testing.T) {
	o := grid(20, 3)
	o.Regions = []RegionOptions{{"elsewhere", prefixes("10.200.0.0/16")}}
	o.Rules[0].AllowGlobalAccess = false
	o.Routes = []RouteOptions{{Name: "r", DestRange: netip.MustParsePrefix("192.168.0.0/16"), Service: "web", Symmetric: true}}
	s := healthy(mustNew(t, o), 1)
	dead, err := Offline(withDrop(grid(2, 1)), []string{"b0000", "b0001"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	in, out := tupleFrom("10.1.0.1", 99), tupleFrom("10.200.0.1", 99)
	for name, f := range map[string]func(){
		"Select selected":      func() { s.Select(&s.Rules[0], &in) },
		"Select region denied": func() { s.Select(&s.Rules[0], &out) },
		"Select dropped":       func() { dead.Select(&dead.Rules[0], &in) },
		"VIP hit":              func() { s.VIP(in.Dst).Rule(protoTCP, 80, true) },
		"VIP miss":             func() { s.VIP(in.Src) },
		"Route hit":            func() { s.Route(in.Src, words(netip.MustParseAddr("192.168.3.4")), protoUDP, 1) },
		"Route miss":           func() { s.Route(in.Src, in.Dst, protoUDP, 1) },
		"TrackingKey":          func() { s.Rules[1].TrackingKey(&in) },
		"Answers":              func() { s.Answers(in.Dst, 1) },
		"Backend and Keeps":    func() { s.Backend(s.Backends[1].Ref).Keeps(V4, protoTCP, false, 5) },
	} {
		if n := testing.AllocsPerRun(200, f); n != 0 {
			t.Errorf("%s allocates %v times, want 0", name, n)
		}
	}
}

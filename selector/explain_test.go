package selector

import (
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// spillOptions has five backends in each of two zones and a spill-over ratio of 0.8.
func spillOptions() Options {
	o := grid(10, 2)
	o.Services[0].Policy.SpilloverRatio = MustRatio("0.80")
	return o
}

func TestExplain(t *testing.T) {
	s, err := Offline(spillOptions(), []string{"b0001", "b0003"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tuple := tupleFrom("10.2.4.9", 1234)
	tuple.Dst = [2]uint64{} // the rule's address is known
	x, err := s.Explain("vip", tuple)
	if err != nil {
		t.Fatal(err)
	}
	odd := []string{"b0001", "b0003", "b0005", "b0007", "b0009"}
	all := []string{"b0000", "b0001", "b0002", "b0003", "b0004", "b0005", "b0006", "b0007", "b0008", "b0009"}
	alive := []string{"b0000", "b0002", "b0004", "b0005", "b0006", "b0007", "b0008", "b0009"}
	want := Explanation{
		Rule: "vip", BackendService: "web", Client: "10.2.4.9", ClientZone: "zone-b", Destination: "192.0.2.1",
		Compatible: true, Kind: "HEALTHY_PRIMARIES", Configured: all, OriginalEligible: alive,
		ZonalMatchTest: all, ZonalMatched: odd, Intersection: odd[2:], Ratio: "3/5", SpilloverRatio: "0.8",
		ZonalMatch: true, ModifiedEligible: alive, Undeliverable: []string{}, Reason: "SPILL_RATIO_NOT_MET",
		Result: "selected", Backend: x.Backend, Slot: x.Slot, Shares: x.Shares, SnapshotGeneration: s.Generation,
	}
	if d := cmp.Diff(want, x); d != "" {
		t.Errorf("Explain (-want +got):\n%s", d)
	}
	tuple.Dst = words(addr("192.0.2.1"))
	if got := s.Backend(s.Select(&s.Rules[0], &tuple).Backend).Name; x.Backend != got || x.Slot == nil {
		t.Errorf("explained backend %q, slot %v, want %q", x.Backend, x.Slot, got)
	}
	sum := 0.0
	for i, share := range x.Shares {
		sum += share.Share
		if share.Backend != alive[i] || math.Abs(share.Share-0.125) > 0.00125 {
			t.Errorf("share %d = %+v, want %s with an eighth", i, share, alive[i])
		}
	}
	if math.Abs(sum-1) > 1e-5 {
		t.Errorf("shares add up to %v, want 1", sum)
	}
}

// TestExplainKeys holds the JSON names that scripts rely on.
func TestExplainKeys(t *testing.T) {
	keys := func(client string, down ...string) map[string]any {
		t.Helper()
		s, err := Offline(withDrop(spillOptions()), down, nil)
		if err != nil {
			t.Fatal(err)
		}
		x, err := s.Explain("vip", tupleFrom(client, 1))
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		var out map[string]any
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	got := keys("10.1.0.1")
	for _, key := range []string{
		"rule", "backendService", "client", "clientZone", "compatible", "kind", "configured", "originalEligible",
		"zonalMatchTest", "zonalMatched", "intersection", "ratio", "spilloverRatio", "zonalMatch", "modifiedEligible", "reason", "backend",
	} {
		if got[key] == nil {
			t.Errorf("key %q is missing in %v", key, got)
		}
	}
	if got = keys("192.0.2.200"); got["clientZone"] != nil || got["compatible"] != false || got["reason"] != "CLIENT_NOT_COMPATIBLE" || got["zonalMatched"] == nil {
		t.Errorf("client without a zone: %v", got)
	}
	var names []string
	for _, b := range spillOptions().Services[0].Backends {
		names = append(names, b.Name)
	}
	if got = keys("10.1.0.1", names...); got["backend"] != nil || got["kind"] != "DROP" || got["reason"] != "DROPPED" || got["result"] != "dropped_unhealthy" {
		t.Errorf("dropped: %v", got)
	}
}

func TestExplainRegion(t *testing.T) {
	o := spillOptions()
	o.Regions = []RegionOptions{{"west", prefixes("10.77.0.0/16")}}
	o.Rules[0].AllowGlobalAccess = false
	s, err := Offline(o, nil, []string{"b0000"})
	if err != nil {
		t.Fatal(err)
	}
	x, err := s.Explain("vip", tupleFrom("10.77.0.1", 1))
	if err != nil || x.ClientRegion != "west" || x.Result != "region_denied" || x.Backend != "" {
		t.Errorf("Explain = %+v, %v, want region west denied", x, err)
	}
	if len(x.Configured) != 9 {
		t.Errorf("configured = %v, want all but the one without a verdict", x.Configured)
	}
}

func TestExplainErrors(t *testing.T) {
	s, err := Offline(spillOptions(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Explain("nothing", Tuple{}); !errors.Is(err, ErrNoRule) {
		t.Errorf("Explain = %v, want ErrNoRule", err)
	}
	if _, err := s.Explain("vip", Tuple{Src: words(addr("2001:db8::1"))}); !errors.Is(err, ErrFamilies) {
		t.Errorf("Explain = %v, want ErrFamilies", err)
	}
	if _, err := s.Explain("vip", Tuple{Src: words(addr("10.1.0.1")), Dst: words(addr("2001:db8::1"))}); !errors.Is(err, ErrFamilies) {
		t.Errorf("Explain = %v, want ErrFamilies", err)
	}
	if _, err := Offline(spillOptions(), []string{"nobody"}, nil); err == nil {
		t.Error("Offline took a backend that is in no service")
	}
}

// TestLastResortPrefersDeliverable: when nothing is healthy, those that no frame can reach are left
// out as long as there are others.
func TestLastResortPrefersDeliverable(t *testing.T) {
	b := mustNew(t, grid(4, 1))
	healthy(b, 1)
	for i, e := range b.options.Services[0].Backends {
		b.SetHealth("web", e.Name, V4, Unhealthy)
		if i > 0 {
			b.SetDelivery(e.Address, Delivery{State: NotOnLink, Port: -1})
		}
	}
	s := b.Publish(2)
	x, err := s.Explain("vip", tupleFrom("10.1.0.1", 1))
	if err != nil || x.Backend != "b0000" || len(x.Undeliverable) != 3 || len(x.ModifiedEligible) != 4 || len(x.Shares) != 1 {
		t.Errorf("Explain = %+v, %v, want b0000 of 4, 3 of them undeliverable", x, err)
	}
	b.SetDelivery(addr("172.16.0.0"), Delivery{State: NoRoute, Port: -1})
	if s = b.Publish(3); len(s.Shares(&s.Rules[0], 1)) != 4 {
		t.Errorf("with nothing deliverable %d backends are selected from, want 4", len(s.Shares(&s.Rules[0], 1)))
	}
}

// TestExplainNotTaken: of a packet that another rule takes, or none, nothing is said as if this one did.
func TestExplainNotTaken(t *testing.T) {
	o := spillOptions()
	web := o.Services[0].Name
	o.Ports = []string{"eth0", "eth1"}
	o.Rules = append(o.Rules, RuleOptions{Name: "dns", Address: addr("192.0.2.1"), Protocol: protoUDP, Ports: []PortRange{{53, 53}}, Service: web})
	o.Routes = []RouteOptions{
		{Name: "wide", DestRange: netip.MustParsePrefix("192.0.0.0/16"), Service: web},
		{Name: "tcp", DestRange: netip.MustParsePrefix("192.0.0.0/16"), Protocol: protoTCP, Interfaces: []string{"eth1"}, Service: web},
		{Name: "narrow", DestRange: netip.MustParsePrefix("192.0.3.0/24"), SrcRange: netip.MustParsePrefix("10.1.0.0/16"), Service: web},
	}
	s, err := Offline(o, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	tuple := func(dst string, proto uint8, port uint16) Tuple {
		t := tupleFrom("10.1.0.1", 1)
		t.Dst, t.Proto, t.DstPort = words(addr(dst)), proto, port
		return t
	}
	for _, c := range []struct {
		rule  string
		tuple Tuple
		want  string // nothing: it takes the packet
	}{
		{"vip", tuple("192.0.2.1", protoTCP, 80), ""},
		{"vip", tuple("192.0.2.1", protoUDP, 53), "forwarding rule dns takes it"},
		{"dns", tuple("192.0.2.1", protoUDP, 53), ""},
		{"dns", tuple("192.0.2.1", protoUDP, 54), "no rule of that address takes it, and it is dropped"},
		{"vip", tuple("192.0.5.1", protoUDP, 80), "route wide takes it"},
		{"wide", tuple("192.0.2.1", protoTCP, 80), "forwarding rule vip takes it"},
		{"wide", tuple("192.0.3.1", protoUDP, 80), "route narrow takes it"},
		{"wide", tuple("192.0.5.1", protoTCP, 80), ""}, // on eth0
		{"tcp", tuple("192.0.5.1", protoTCP, 80), ""},  // on eth1
		{"tcp", tuple("192.0.5.1", protoUDP, 80), "route wide takes it"},
		{"wide", tuple("203.0.113.1", protoTCP, 80), "neither a rule nor a route takes it, and it is left to the host"},
	} {
		_, err := s.Explain(c.rule, c.tuple)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("Explain(%s, %v): %v", c.rule, c.tuple, err)
		case c.want != "" && (!errors.Is(err, ErrNotTaken) || !strings.HasSuffix(err.Error(), ": "+c.want)):
			t.Errorf("Explain(%s, %v) = %v, want %q", c.rule, c.tuple, err, c.want)
		}
	}
}

// withDrop makes the service drop when nothing is healthy.
func withDrop(o Options) Options {
	o.Services[0].Policy.DropIfUnhealthy = true
	return o
}

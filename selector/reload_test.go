package selector

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const second = int64(time.Second)

// refsByName maps the names of all backends of a snapshot to their references; a removed backend's
// name gets a minus sign.
func refsByName(s *Snapshot) map[string]Ref {
	out := map[string]Ref{}
	for _, b := range s.Backends {
		if b.Ref == 0 {
			continue
		}
		name := b.Name
		if b.Flags[V4]&FlagRemoved != 0 {
			name = "-" + name
		}
		out[name] = b.Ref
	}
	return out
}

func apply(t *testing.T, b *Builder, o Options, now int64) *Snapshot {
	t.Helper()
	if err := b.Apply(o, now); err != nil {
		t.Fatal(err)
	}
	return b.Publish(now)
}

func TestReloadIsADifference(t *testing.T) {
	o := grid(4, 2)
	b := mustNew(t, o)
	before := healthy(b, second)
	old := refsByName(before)
	if old["b0000"]>>refGenerationBits != 1 {
		t.Errorf("first id = %d, want 1", old["b0000"]>>refGenerationBits)
	}

	o = grid(5, 2)
	o.Services[0].Backends[1].Address = addr("172.16.9.9") // removal plus addition
	o.Services[0].Backends = slices.Delete(o.Services[0].Backends, 2, 3)
	s := apply(t, b, o, 2*second)
	now := refsByName(s)
	for _, name := range []string{"b0000", "b0003"} {
		if now[name] != old[name] || s.Backend(old[name]).Health(V4) != Healthy {
			t.Errorf("%s: reference %x health %v, want %x HEALTHY", name, now[name], s.Backend(old[name]).Health(V4), old[name])
		}
	}
	for _, name := range []string{"b0001", "b0002"} {
		if now["-"+name] != old[name] {
			t.Errorf("%s should drain under its old reference %x: %v", name, old[name], now)
		}
	}
	if now["b0001"] == old["b0001"] || s.Backend(now["b0001"]).Health(V4) != Unknown {
		t.Error("a changed address must make a new, unjudged backend")
	}
	if before.Backend(old["b0002"]).Flags[V4]&FlagRemoved != 0 {
		t.Error("the old snapshot changed")
	}

	// Draining lasts for a minute: no new connection, old ones stay.
	gone := s.Backend(old["b0002"])
	if gone.Keeps(V4, protoTCP, true, 3*second) || !gone.Keeps(V4, protoUDP, false, 61*second) || gone.Keeps(V4, protoTCP, false, 63*second) {
		t.Error("a removed backend must keep flows, not SYNs, for its draining time")
	}
	if at, ok := b.NextExpiry(); !ok || at != 62*second {
		t.Errorf("NextExpiry = %d, %v, want 62 s", at, ok)
	}
	for port := range uint16(300) {
		tuple := tupleFrom("198.51.100.1", port)
		if c := s.Select(&s.Rules[0], &tuple); c.Backend == old["b0001"] || c.Backend == old["b0002"] {
			t.Fatal("a removed backend was selected")
		}
	}
	layout := s.Layout
	s = b.Publish(62 * second)
	if s.Backend(old["b0001"]) != nil || s.Backend(old["b0002"]) != nil {
		t.Error("drained backends are still there")
	}
	if s.Layout == layout || s.Layout.Pairs != 4 {
		t.Errorf("layout has %d pairs (same %v), want a new one with 4", s.Layout.Pairs, s.Layout == layout)
	}

	// Freed ids come back first in, first out, with another generation.
	freed := []uint32{old["b0001"] >> refGenerationBits, old["b0002"] >> refGenerationBits}
	s = apply(t, b, grid(7, 2), 63*second)
	now = refsByName(s)
	for i, name := range []string{"b0001", "b0002"} { // in configuration order
		if ref := now[name]; ref>>refGenerationBits != freed[i] || ref&refGenerationMask != 2 {
			t.Errorf("%s = id %d generation %d, want id %d generation 2", name, ref>>refGenerationBits, ref&refGenerationMask, freed[i])
		}
	}
	if s.Backend(old["b0001"]) != nil {
		t.Error("a reference of an earlier life found a backend")
	}
}

func TestRemovalWithoutDraining(t *testing.T) {
	o := grid(3, 1)
	o.Services[0].DrainTimeout = 0
	b := mustNew(t, o)
	s := healthy(b, second)
	ref := refsByName(s)["b0002"]
	o.Services[0].Backends = o.Services[0].Backends[:2]
	if s = apply(t, b, o, 2*second); s.Backend(ref) != nil {
		t.Error("the backend is still there")
	}
}

func TestReturnWhileDraining(t *testing.T) {
	b := mustNew(t, grid(3, 1))
	ref := refsByName(healthy(b, second))["b0002"]
	less := grid(3, 1)
	less.Services[0].Backends = less.Services[0].Backends[:2]
	apply(t, b, less, 2*second)
	s := apply(t, b, grid(3, 1), 3*second)
	e := s.Backend(ref)
	if e == nil || e.Flags[V4]&FlagRemoved != 0 || !e.Keeps(V4, protoTCP, false, 1000*second) {
		t.Errorf("a backend that returned = %+v, want it back under its reference", e)
	}
}

func TestForget(t *testing.T) {
	b := mustNew(t, grid(3, 1))
	refs := refsByName(healthy(b, second))
	less := grid(3, 1)
	less.Services[0].Backends = less.Services[0].Backends[:2]
	apply(t, b, less, 2*second)
	if b.Forget(refs["b0000"]) || b.Forget(0) || b.Forget(1<<31) {
		t.Error("Forget took a backend that is not draining")
	}
	if !b.Forget(refs["b0002"]) {
		t.Error("Forget refused a draining backend")
	}
	if s := b.Publish(3 * second); s.Backend(refs["b0002"]) != nil {
		t.Error("the backend is still there")
	}
}

func TestServiceIDsFollowNames(t *testing.T) {
	o := grid(2, 1)
	second := o.Services[0]
	second.Name = "other"
	o.Services = append(o.Services, second)
	b := mustNew(t, o)
	ids := map[string]uint16{}
	for _, s := range b.Current().Services {
		ids[s.Name] = s.ID
	}
	o.Services[0], o.Services[1] = o.Services[1], o.Services[0]
	for _, s := range apply(t, b, o, 1).Services {
		if s.ID != ids[s.Name] || s.ID == 0 {
			t.Errorf("service %s has ID %d, want %d", s.Name, s.ID, ids[s.Name])
		}
	}
}

func TestRefusedReloadChangesNothing(t *testing.T) {
	b := mustNew(t, grid(3, 1))
	before := healthy(b, 1)
	o := grid(3, 1)
	o.Rules[0].Service = "nothing"
	if err := b.Apply(o, 2); err == nil || !strings.Contains(err.Error(), `"nothing"`) {
		t.Fatalf("Apply = %v, want an error that names the service", err)
	}
	if b.Publish(3) != before {
		t.Error("a refused configuration made another snapshot")
	}
}

func TestUnchangedPartsAreShared(t *testing.T) {
	o := grid(30, 3)
	other := o.Services[0]
	other.Name, other.SymmetryGroup = "other", "web"
	o.Services = append(o.Services, other)
	b := mustNew(t, o)
	first := healthy(b, 1)
	if first.states[0].families[V4].draws[1].table != first.states[1].families[V4].draws[1].table {
		t.Error("two services of one symmetry group with the same names have two tables")
	}
	b.SetHealth("web", "b0000", V4, Unhealthy) // of zone 1
	s := b.Publish(2)
	if s.Layout != first.Layout {
		t.Error("a verdict changed the layout")
	}
	if s.states[1] != first.states[1] {
		t.Error("a verdict in one service changed another")
	}
	for zone, same := range []bool{false, false, true, true} {
		if got := s.states[0].families[V4].draws[zone].table == first.states[0].families[V4].draws[zone].table; got != same {
			t.Errorf("table of client zone %d shared = %v, want %v", zone, got, same)
		}
	}
	b.SetHealth("web", "b0000", V4, Healthy)
	if b.Publish(3).states[0].families[V4].draws[1].table != first.states[0].families[V4].draws[1].table {
		t.Error("the table from before the flap was built again")
	}
	if s := apply(t, b, o, 4); s.Layout != first.Layout {
		t.Error("an equal configuration changed the layout")
	}
}

func TestSpareTablesAreBounded(t *testing.T) {
	b := mustNew(t, grid(100, 1))
	healthy(b, 1)
	for i := range 60 {
		b.SetHealth("web", b.options.Services[0].Backends[i].Name, V4, Unhealthy)
		b.Publish(int64(i))
	}
	if n := len(b.cache.tables); n > spareTables+1 {
		t.Errorf("%d tables are kept, want at most %d", n, spareTables+1)
	}
}

func TestLayoutLabels(t *testing.T) {
	o := grid(3, 2)
	o.Routes = []RouteOptions{{Name: "route", DestRange: prefixes("192.168.0.0/16")[0], Service: "web"}}
	s := healthy(mustNew(t, o), 1)
	l := s.Layout
	if l.Pairs != 6 || l.Conns != 18 || l.Stride != 3 {
		t.Fatalf("layout = %d pairs, %d conns, stride %d, want 6, 18, 3", l.Pairs, l.Conns, l.Stride)
	}
	r := s.Rule("route")
	for _, b := range s.Backends[1:] {
		rule, backend, ref := l.PairLabel(int(r.PairBase) + int(b.Pos))
		if rule != "route" || backend != b.Name || ref != b.Ref {
			t.Errorf("pair of %s = %s, %s", b.Name, rule, backend)
		}
	}
	if rule, client, backend := l.ConnLabel(int(r.ConnBase) + 2*l.Stride); rule != "route" || client != "zone-b" || backend != "" {
		t.Errorf("conn label = %q, %q, %q, want route, zone-b and none", rule, client, backend)
	}
}

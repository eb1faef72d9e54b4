package selector

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// throughJSON is what a later process reads.
func throughJSON(t testing.TB, s Saved) Saved {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var out Saved
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func mustRestore(t testing.TB, o Options, saved Saved, now int64) *Builder {
	t.Helper()
	b, err := Restore(o, throughJSON(t, saved), now)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRestore checks that references, IDs, verdicts and drains go on, and that
// a changed configuration is a difference as in a reload.
func TestRestore(t *testing.T) {
	o := grid(4, 2)
	o.Services = append(o.Services, ServiceOptions{Name: "other", Backends: []BackendOptions{{Name: "x", Address: addr("172.16.1.1")}}})
	b := mustNew(t, o)
	healthy(b, second)
	b.SetHealth("web", "b0001", V4, Unhealthy)
	b.SetDrain("b0003", true)
	old := refsByName(b.Publish(second))
	webID := b.Current().service("web").ID

	next := grid(5, 2)
	next.Services[0].Backends = slices.Delete(next.Services[0].Backends, 2, 3) // b0002
	r := mustRestore(t, next, b.Save(), 2*second)
	s := r.Current()
	got := refsByName(s)
	for _, name := range []string{"b0000", "b0001", "b0003"} {
		if got[name] != old[name] {
			t.Errorf("%s has reference %#x, want %#x", name, got[name], old[name])
		}
	}
	if got["-b0002"] != old["b0002"] {
		t.Errorf("b0002 does not drain under its reference: %v", got)
	}
	if until, ok := r.NextExpiry(); !ok || until != 2*second+int64(time.Minute) {
		t.Errorf("b0002 drains until %v, %v", until, ok)
	}
	for _, ref := range old {
		if ref == got["b0004"] {
			t.Errorf("the new backend has the reference %#x of an old one", ref)
		}
	}
	if s.service("web").ID != webID {
		t.Errorf("web has ID %d, want %d", s.service("web").ID, webID)
	}
	if h := s.Backend(old["b0001"]).Health(V4); h != Unhealthy {
		t.Errorf("b0001 is %v, want its last verdict", h)
	}
	if s.Backend(old["b0003"]).Flags[V4]&FlagDrained == 0 {
		t.Error("b0003 is not drained any more")
	}
	if s.Backend(old["x"]) != nil {
		t.Error("the backend of a service that is gone is known")
	}

	// What drains goes on draining, until its time; its reference is not given out again.
	r = mustRestore(t, next, r.Save(), 3*second)
	if got := refsByName(r.Current()); got["-b0002"] != old["b0002"] {
		t.Errorf("after a second restart: %v", got)
	}
	next.Services[0].Backends = append(next.Services[0].Backends, grid(7, 2).Services[0].Backends[5:]...)
	r = mustRestore(t, next, r.Save(), 300*second)
	got = refsByName(r.Current())
	if len(got) != 6 {
		t.Errorf("after the drain: %v", got)
	}
	for name, ref := range got {
		if ref == old["b0002"] || ref == old["x"] {
			t.Errorf("%s has the reference of a backend that is gone", name)
		}
	}
}

// TestRestoreSelectsNothingAnew checks that after a restart nothing moves while
// deliveries and verdicts come in, also where failover backends serve.
func TestRestoreSelectsNothingAnew(t *testing.T) {
	o := failoverService()
	o.Services[0].NoFailoverDrain = true
	b := mustNew(t, o)
	healthy(b, second)
	b.SetHealth("web", "b0000", V4, Unhealthy)
	refs := refsByName(b.Publish(second))
	if k := b.Current().Kind(b.Current().Services[0], V4); k != HealthyFailovers {
		t.Fatalf("%v before the restart", k)
	}
	r := mustRestore(t, o, b.Save(), 2*second)
	checkKeeps(t, "failover backend after a restart", r.Current().Backend(refs["b0001"]), 1<<60, all)
	r.SetDelivery(addr("172.16.0.1"), Delivery{State: Deliverable})
	s := r.Publish(3 * second)
	checkKeeps(t, "failover backend, first delivery", s.Backend(refs["b0001"]), 1<<60, all)
	r.SetDelivery(addr("172.16.0.0"), Delivery{State: Deliverable})
	s = r.Publish(3 * second)
	checkKeeps(t, "failover backend, all deliveries", s.Backend(refs["b0001"]), 1<<60, all)
	if k := s.Kind(s.Services[0], V4); k != HealthyFailovers {
		t.Errorf("%v after the restart, want the last verdicts", k)
	}
	r.SetHealth("web", "b0000", V4, Healthy) // fails back
	checkKeeps(t, "failover backend, failed back", r.Publish(4*second).Backend(refs["b0001"]), 1<<60, "")
}

func TestRestoreErrors(t *testing.T) {
	good := func() Saved {
		b := mustNew(t, grid(3, 1))
		return b.Save()
	}
	for name, spoil := range map[string]func(*Saved){
		"no ids":           func(s *Saved) { s.Generations = nil },
		"id out of range":  func(s *Saved) { s.Services[0].Backends[0].Ref = 9<<refGenerationBits | 1 },
		"id 0":             func(s *Saved) { s.Services[0].Backends[0].Ref = 1 },
		"id twice":         func(s *Saved) { s.Services[0].Backends[0].Ref = s.Services[0].Backends[1].Ref },
		"other generation": func(s *Saved) { s.Services[0].Backends[0].Ref++ },
		"free id in use":   func(s *Saved) { s.Free = []uint32{1} },
		"free id 0":        func(s *Saved) { s.Free = []uint32{0} },
		"health":           func(s *Saved) { s.Services[0].Backends[0].Health[V6] = 7 },
		"role":             func(s *Saved) { s.Services[0].Role[V4] = 3 },
		"service id 0":     func(s *Saved) { s.Services[0].ID = 0 },
		"service twice":    func(s *Saved) { s.Services = append(s.Services, SavedService{Name: "web", ID: 2}) },
		"service id twice": func(s *Saved) { s.Services = append(s.Services, SavedService{Name: "b", ID: 1}) },
	} {
		s := good()
		spoil(&s)
		if _, err := Restore(grid(3, 1), s, 0); !errors.Is(err, ErrSaved) {
			t.Errorf("%s: Restore = %v", name, err)
		}
	}
}

// TestRestoreIsAReload compares, over random histories, a builder that was
// saved and restored with one that lived on.
func TestRestoreIsAReload(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func() Options {
			o := grid(4, 1)
			kept := o.Services[0].Backends[:0]
			for _, e := range o.Services[0].Backends {
				if rapid.Bool().Draw(t, "kept") {
					e.Weight = uint32(rapid.IntRange(1, 3).Draw(t, "weight"))
					kept = append(kept, e)
				}
			}
			o.Services[0].Weighted, o.Services[0].Backends = true, kept
			return o
		}
		lived := mustNewRapid(t, draw())
		for step := range int64(rapid.IntRange(1, 5).Draw(t, "steps")) {
			now := (step + 1) * 20 * second
			healthy(lived, now)
			o := draw()
			text, err := json.Marshal(lived.Save())
			if err != nil {
				t.Fatal(err)
			}
			var saved Saved
			if err := json.Unmarshal(text, &saved); err != nil {
				t.Fatal(err)
			}
			restored, err := Restore(o, saved, now)
			if err != nil {
				t.Fatal(err)
			}
			if err := lived.Apply(o, now); err != nil {
				t.Fatal(err)
			}
			want, got := lived.Publish(now), restored.Current()
			if x, y := refsByName(want), refsByName(got); !maps.Equal(x, y) {
				t.Fatalf("restored %v, lived %v", y, x)
			}
			if x, y := lived.Save(), restored.Save(); !slices.Equal(x.Generations, y.Generations) {
				t.Fatalf("restored generations %v, lived %v", y.Generations, x.Generations)
			}
			if rapid.Bool().Draw(t, "restart") {
				lived = restored
			}
		}
	})
}

func TestPreview(t *testing.T) {
	b := mustNew(t, grid(10, 1))
	before := healthy(b, second)
	refs := refsByName(before)
	next := grid(11, 1)
	next.Services[0].Backends = next.Services[0].Backends[1:]
	s, err := b.Preview(&next, 2*second, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b.Current() != before || b.Publish(2*second) != before {
		t.Fatal("a preview changed what is in force")
	}
	got := refsByName(s)
	if got["-b0000"] != refs["b0000"] || got["b0005"] != refs["b0005"] || got["b0010"] == 0 {
		t.Errorf("references in the preview: %v", got)
	}
	for _, m := range before.Movements(s, "web") {
		if m.Share < 0.15 || m.Share > 0.25 { // a tenth leaves, an eleventh comes
			t.Errorf("%+v moves, want about 0.18", m)
		}
	}
	if n := len(before.Movements(s, "web")); n != 2 {
		t.Errorf("%d movements, want those of one zone and of none", n)
	}
	for _, m := range before.Movements(before, "web") {
		if m.Share != 0 {
			t.Errorf("%+v without a change", m)
		}
	}
	next = grid(10, 1)
	next.HashKey = "another"
	if s, err = b.Preview(&next, 2*second, nil); err != nil {
		t.Fatal(err)
	}
	for _, m := range before.Movements(s, "web") {
		if m.Share < 0.89 || m.Share > 0.91 {
			t.Errorf("%+v moves with another hash key, want 0.9", m)
		}
	}
	s, err = b.Preview(nil, 2*second, func(p *Builder) { p.SetHealth("web", "b0003", V4, Unhealthy) })
	if err != nil {
		t.Fatal(err)
	}
	if h := s.Backend(refs["b0003"]).Health(V4); h != Unhealthy {
		t.Errorf("b0003 is %v in the preview", h)
	}
	if before.Backend(refs["b0003"]).Health(V4) != Healthy || len(before.Movements(s, "nobody")) != 0 {
		t.Error("the preview changed more than its own")
	}
}

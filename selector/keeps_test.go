package selector

import (
	"testing"
	"time"
)

// flows are what Keeps tells apart.
var flows = []struct {
	name  string
	proto uint8
	syn   bool
}{{"SYN", protoTCP, true}, {"TCP", protoTCP, false}, {"SCTP", protoSCTP, false}, {"UDP", protoUDP, false}, {"ICMP", 1, false}}

func checkKeeps(t *testing.T, what string, b *Backend, now int64, want string) {
	t.Helper()
	got := ""
	for _, f := range flows {
		if b.Keeps(V4, f.proto, f.syn, now) {
			got += f.name + " "
		}
	}
	if got != want {
		t.Errorf("%s: keeps %q, want %q", what, got, want)
	}
}

const all = "SYN TCP SCTP UDP ICMP "

// TestPersistence is the table of what happens when a backend turns unhealthy.
func TestPersistence(t *testing.T) {
	for _, c := range []struct {
		persistence Persistence
		mode        TrackingMode
		affinity    SessionAffinity
		want        string
	}{
		{PersistDefault, PerConnection, AffinityNone, "SYN TCP SCTP "},
		{PersistDefault, PerConnection, AffinityClientIP, "SYN TCP SCTP "},
		{PersistDefault, PerSession, AffinityNone, "SYN TCP SCTP "},
		{PersistDefault, PerSession, AffinityClientIPPortProto, "SYN TCP SCTP "},
		{PersistDefault, PerSession, AffinityClientIP, ""},
		{PersistDefault, PerSession, AffinityClientIPProto, ""},
		{PersistDefault, PerSession, AffinityClientIPNoDestination, ""},
		{PersistNever, PerConnection, AffinityNone, ""},
		{PersistNever, PerSession, AffinityClientIP, ""},
		{PersistAlways, PerConnection, AffinityNone, all},
	} {
		o := grid(2, 1)
		o.Services[0].Persistence, o.Services[0].TrackingMode, o.Services[0].Affinity = c.persistence, c.mode, c.affinity
		b := mustNew(t, o)
		ref := refsByName(b.Current())["b0000"]
		checkKeeps(t, "not judged yet", b.Current().Backend(ref), second, all)
		checkKeeps(t, "healthy", healthy(b, second).Backend(ref), second, all)
		b.SetHealth("web", "b0000", V4, Unhealthy)
		what := c.persistence.String() + " " + c.mode.String() + " " + c.affinity.String()
		s := b.Publish(2 * second)
		checkKeeps(t, what, s.Backend(ref), 3*second, c.want)
		shared := c.mode == PerSession && c.affinity != AffinityNone && c.affinity != AffinityClientIPPortProto
		if s.Services[0].SYNSelects == shared {
			t.Errorf("%s: SYNSelects = %v, want %v", what, !shared, shared)
		}
	}
}

func TestOperatorDrain(t *testing.T) {
	b := mustNew(t, grid(4, 1))
	ref := refsByName(healthy(b, second))["b0000"]
	if n := b.SetDrain("b0000", true); n != 1 {
		t.Errorf("SetDrain = %d, want 1", n)
	}
	if n := b.SetDrain("nobody", true); n != 0 {
		t.Errorf("SetDrain of an unknown name = %d, want 0", n)
	}
	s := b.Publish(2 * second)
	checkKeeps(t, "drained", s.Backend(ref), 1<<60, "TCP SCTP UDP ICMP ")
	for port := range uint16(200) {
		tuple := tupleFrom("10.1.0.1", port)
		if s.Select(&s.Rules[0], &tuple).Backend == ref {
			t.Fatal("a drained backend was selected")
		}
	}
	s = apply(t, b, grid(5, 1), 3*second)
	if s.Backend(ref).Flags[V4]&FlagDrained == 0 {
		t.Error("the drain did not survive a reload")
	}
	b.SetDrain("b0000", false)
	checkKeeps(t, "undrained", b.Publish(4*second).Backend(ref), 5*second, all)
}

// failoverService has a primary and a failover backend.
func failoverService() Options {
	o := grid(2, 1)
	o.Services[0].Backends[1].Failover = true
	return o
}

func TestFailoverDrain(t *testing.T) {
	ten := int64(10 * time.Minute)
	b := mustNew(t, failoverService())
	refs := refsByName(healthy(b, second))
	primary, failover := refs["b0000"], refs["b0001"]
	b.SetHealth("web", "b0000", V4, Unhealthy)
	s := b.Publish(10 * second)
	if s.Kind(s.Services[0], V4) != HealthyFailovers {
		t.Fatalf("kind = %v, want HEALTHY_FAILOVERS", s.Kind(s.Services[0], V4))
	}
	checkKeeps(t, "primary after failover", s.Backend(primary), 10*second+ten, "SYN TCP SCTP ")
	checkKeeps(t, "primary ten minutes later", s.Backend(primary), 11*second+ten, "")
	checkKeeps(t, "failover while it serves", s.Backend(failover), 11*second+ten, all)

	// Back again: what the failover has now drains, counted from the failback.
	b.SetHealth("web", "b0000", V4, Healthy)
	s = b.Publish(100 * second)
	checkKeeps(t, "failover after failback", s.Backend(failover), 100*second+ten, "SYN TCP SCTP ")
	checkKeeps(t, "failover ten minutes later", s.Backend(failover), 101*second+ten, "")
	checkKeeps(t, "primary after failback", s.Backend(primary), 1<<60, all)

	// The last resort counts as primaries: failing over to it is no failover.
	b.SetHealth("web", "b0000", V4, Unhealthy)
	b.SetHealth("web", "b0001", V4, Unhealthy)
	s = b.Publish(200 * second)
	checkKeeps(t, "primary in the last resort", s.Backend(primary), 1<<60, "SYN TCP SCTP ")
}

func TestFailoverDrainDisabled(t *testing.T) {
	o := failoverService()
	o.Services[0].NoFailoverDrain = true
	b := mustNew(t, o)
	ref := refsByName(healthy(b, second))["b0000"]
	b.SetHealth("web", "b0000", V4, Unhealthy)
	checkKeeps(t, "primary after failover", b.Publish(10*second).Backend(ref), 10*second, "")
}

// TestRestartReselectsNothing: until a service has settled, flows of an earlier run stay where they
// are, whichever role served then.
func TestRestartReselectsNothing(t *testing.T) {
	b := mustNew(t, failoverService())
	refs := refsByName(b.Current())
	checkKeeps(t, "failover at start", b.Current().Backend(refs["b0001"]), second, all)
	b.SetHealth("web", "b0001", V4, Healthy)
	b.SetDelivery(addr("172.16.0.1"), Delivery{State: Deliverable})
	s := b.Publish(second)
	checkKeeps(t, "primary without a verdict", s.Backend(refs["b0000"]), 1<<60, all)
	b.SetReady("vip") // nobody waits any longer
	s = b.Publish(3 * second)
	checkKeeps(t, "primary once settled", s.Backend(refs["b0000"]), 4*second, "SYN TCP SCTP ")
}

package neigh

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// silent returns n addresses of 10.11.0.0/16 that nobody answers for.
func silent(n int) []netip.Addr {
	addrs := make([]netip.Addr, n)
	for i := range addrs {
		addrs[i] = netip.AddrFrom4([4]byte{10, 11, 1 + byte(i/200), 1 + byte(i%200)})
	}
	return addrs
}

func TestManyTargetsMakeNoBurst(t *testing.T) {
	t.Parallel() // mostly waits
	host, backend := pair(t)
	host.addr("zhnb0", "10.11.0.1/16")
	seen := newCapture(t, backend, "zhnb1")
	f := follow(t, host, Options{Interfaces: []string{"zhnb0"}})
	// More would fill the kernel's neighbour table, which all namespaces share,
	// to where it throws entries of others out.
	const count = 150
	targets := silent(count)
	start := time.Now()
	f.SetTargets(targets)

	var asked map[[4]byte][]frameSeen
	for asked = seen.arpRequests(); len(asked) < count; asked = seen.arpRequests() {
		if time.Since(start) > patience {
			t.Fatalf("%d of %d targets solicited after %v", len(asked), count, time.Since(start))
		}
		time.Sleep(20 * time.Millisecond)
	}
	took := time.Since(start)
	t.Logf("%d targets solicited in %v", count, took)
	if least := (count/10 - 1) * solicitInterval; took < least { // 500 per second, in tens
		t.Errorf("all solicited after %v, want them spread over %v", took, least)
	}
}

func TestBackoffOnTheWire(t *testing.T) {
	t.Parallel() // mostly waits
	host, backend := pair(t)
	// One request and 100 ms make the kernel's rounds short, so that the
	// pauses between them are ours.
	host.sysctl("ipv4/neigh/zhnb0/mcast_solicit", "1")
	host.sysctl("ipv4/neigh/zhnb0/retrans_time_ms", "100")
	seen := newCapture(t, backend, "zhnb1")
	f := follow(t, host, Options{Interfaces: []string{"zhnb0"}})
	f.SetTargets(addrsOf("10.9.0.77"))
	requests := func() []frameSeen { return seen.arpRequests()[[4]byte{10, 9, 0, 77}] }
	for start := time.Now(); len(requests()) < 3; time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatalf("%d rounds after %v, want 3", len(requests()), time.Since(start))
		}
	}
	got := requests()
	for i, want := range []time.Duration{time.Second, 2 * time.Second} {
		gap := got[i+1].at.Sub(got[i].at)
		t.Logf("pause %d: %v, aim %v to %v", i+1, gap, want, want*5/4)
		if gap < want/4 { // the first of the two may have been seen late
			t.Errorf("pause %d = %v, want %v at least", i+1, gap, want)
		}
	}
	f.waitTarget("10.9.0.77", NoNeighbour)
	views := f.Stats().Views
	time.Sleep(1500 * time.Millisecond)
	if got := f.Stats().Views; got != views {
		t.Errorf("%d views about a target that stays silent, want none", got-views)
	}
	backend.addr("zhnb1", "10.9.0.77/32")
	f.waitTarget("10.9.0.77", Deliverable)
}

func TestBackoff(t *testing.T) {
	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		want *= time.Second
		for range 100 {
			if got := backoff(i + 1); got < want || got > want*5/4 {
				t.Fatalf("backoff(%d) = %v, want %v to %v", i+1, got, want, want*5/4)
			}
		}
	}
	if got := backoff(1 << 40); got < maxBackoff {
		t.Errorf("backoff(1<<40) = %v, want at least %v", got, maxBackoff)
	}
}

// A neighbour that dies without a word is noticed although no packet of the
// kernel's goes to it: when its entry turns stale, we have it verified.
func TestStaleEntryIsVerified(t *testing.T) {
	t.Parallel() // mostly waits
	host, backend := pair(t)
	host.sysctl("ipv4/neigh/zhnb0/delay_first_probe_time", "1")
	host.sysctl("ipv4/neigh/zhnb0/retrans_time_ms", "100")
	seen := newCapture(t, backend, "zhnb1")
	f := follow(t, host, Options{Interfaces: []string{"zhnb0"}})
	f.SetTargets(addrsOf("10.9.0.2"))
	f.waitTarget("10.9.0.2", Deliverable)
	mac := backend.mac("zhnb1")
	verified := func() bool {
		return slices.ContainsFunc(seen.arpRequests()[[4]byte{10, 9, 0, 2}], func(f frameSeen) bool { return [6]byte(f.data[:6]) == mac })
	}
	// Reachable time is 15 s or more, so the test makes the entry stale. The
	// kernel leaves a stale entry as it is until somebody uses it.
	stale := func() {
		host.must(host.NeighSet(&netlink.Neigh{
			LinkIndex: host.link("zhnb0").Attrs().Index, IP: net.IPv4(10, 9, 0, 2),
			State: netlink.NUD_STALE, HardwareAddr: mac[:],
		}))
	}
	stale()
	for start := time.Now(); !verified(); time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatal("a stale entry is not verified")
		}
	}
	if v, _ := f.last(); v.Targets[netip.MustParseAddr("10.9.0.2")].State != Deliverable {
		t.Errorf("a stale entry that answers = %+v, want it deliverable", v.Targets)
	}
	a, err := netlink.ParseAddr("10.9.0.2/24")
	backend.must(err)
	backend.must(backend.AddrDel(backend.link("zhnb1"), a))
	stale()
	f.waitTarget("10.9.0.2", NoNeighbour)
}

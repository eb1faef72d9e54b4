package forwarder

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"zonehop/selector"
)

// backendOf returns the single backend that all frames went to.
func backendOf(t *testing.T, out [][]byte) int {
	t.Helper()
	if len(out) == 0 {
		t.Fatal("nothing was forwarded")
	}
	for _, f := range out[1:] {
		if chosen(f) != chosen(out[0]) {
			t.Fatalf("frames went to backends %d and %d", chosen(out[0]), chosen(f))
		}
	}
	return chosen(out[0])
}

// TestFragmentsFollowFlow: all fragments of a datagram reach the backend that
// the flow's whole packets reach, in any order.
func TestFragmentsFollowFlow(t *testing.T) {
	far := netip.MustParseAddr("192.168.1.1")
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t, rigOptions{backends: 10})
		for flow := range 20 {
			for _, dst := range []netip.Addr{vip4, vip4any, far} {
				port := uint16(1000 + flow)
				want := backendOf(t, r.run(0, udpFrame(client4, dst, port, 53)))
				parts := fragments(bigUDP(dst, port, 53, 4000), uint16(flow+1), 1000)
				rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
				var out [][]byte
				for _, p := range parts {
					out = append(out, r.run(0, p)...)
					r.clock += int64(time.Millisecond)
				}
				if len(out) != len(parts) {
					t.Fatalf("seed %d: %d of %d fragments forwarded; held %d", seed, len(out), len(parts), r.holding.count)
				}
				if got := backendOf(t, out); got != want {
					t.Fatalf("seed %d: fragments went to backend %d, the flow's is %d", seed, got, want)
				}
			}
		}
		r.checkAccounts()
	}
}

// TestFragmentWithoutFirst: after the wait the 3-tuple decides, and a late
// first fragment follows; without a rule for all ports it is dropped.
func TestFragmentWithoutFirst(t *testing.T) {
	r := newRig(t, rigOptions{backends: 10})
	parts := fragments(bigUDP(vip4, 7, 53, 4000), 9, 1000)
	if out := r.run(0, parts[1]); len(out) != 0 {
		t.Fatal("forwarded at once")
	}
	if got := r.totals().Held; got != 1 {
		t.Errorf("held %d, want 1", got)
	}
	r.clock += holdTime
	want := backendOf(t, r.run(0))
	if got := backendOf(t, r.run(0, parts[2], parts[0], parts[3])); got != want {
		t.Errorf("the rest went to backend %d, the first to leave to %d", got, want)
	}
	tcp := fragments(bigFrame(1400), 10, 400)
	r.run(0, tcp[1])
	r.clock += holdTime
	if out := r.run(0); len(out) != 0 {
		t.Error("forwarded by a rule for some ports only")
	}
	if got := r.totals().Dropped[ReasonFragmentUnmatched]; got != 1 {
		t.Errorf("dropped %v, want one fragment_unmatched", byReason(ptr(r.totals())))
	}
	r.checkAccounts()
}

// TestPortlessFragments: fragments of a protocol without ports need not wait.
func TestPortlessFragments(t *testing.T) {
	r := newRig(t, rigOptions{backends: 10})
	for _, dst := range []netip.Addr{vip4any, netip.MustParseAddr("192.168.1.1")} {
		whole := frame(ip4(client4, dst, layers.IPProtocolESP), gopacket.Payload(make([]byte, 3000)))
		parts := fragments(whole, 5, 1000)
		want := backendOf(t, r.run(0, parts[2]))
		if got := backendOf(t, r.run(0, parts[0], parts[1])); got != want {
			t.Errorf("fragments to %v went to backends %d and %d", dst, want, got)
		}
	}
	r.checkAccounts()
}

// TestFragmentIDReuse: a new datagram with the identification of an old one is
// not sent after it.
func TestFragmentIDReuse(t *testing.T) {
	r := newRig(t, rigOptions{backends: 10})
	for port := range uint16(50) {
		want := backendOf(t, r.run(0, udpFrame(client4, vip4, port, 53)))
		parts := fragments(bigUDP(vip4, port, 53, 3000), 1, 1000)
		if got := backendOf(t, r.run(0, parts...)); got != want {
			t.Fatalf("fragments of flow %d went to backend %d, want %d", port, got, want)
		}
	}
	r.checkAccounts()
}

// TestFragmentFlood: memory for waiting is bounded, the oldest give way, and
// whole datagrams still go through.
func TestFragmentFlood(t *testing.T) {
	r := newRig(t, rigOptions{backends: 10, frames: 4096})
	limit := r.holding.limit
	if limit != 4096/heldShare {
		t.Fatalf("at most %d of 4096 frames wait, want 1/%d", limit, heldShare)
	}
	for id := range uint16(3 * limit) {
		r.run(0, fragments(bigUDP(vip4, 1, 53, 3000), id, 1000)[2])
	}
	totals := r.totals()
	if totals.Held != uint64(limit) || totals.Dropped[ReasonFragmentEvicted] != 2*uint64(limit) {
		t.Errorf("held %d, dropped %v; want %d and %d evicted", totals.Held, byReason(&totals), limit, 2*limit)
	}
	parts := fragments(bigUDP(vip4, 99, 53, 3000), 60000, 1000)
	if out := r.run(0, parts...); len(out) != len(parts) {
		t.Errorf("%d of %d fragments of a whole datagram forwarded in a flood", len(out), len(parts))
	}
	for r.holding.count > 0 {
		r.clock += holdTime
		r.run(0)
	}
	r.checkAccounts()
}

// TestErrorsReachFlow: an ICMP error goes to the backend that sent the packet
// it quotes, with the flow in the table and without, and touches no entry.
func TestErrorsReachFlow(t *testing.T) {
	router4, router6 := netip.MustParseAddr("10.200.0.1"), netip.MustParseAddr("fd00:200::1")
	for _, tracked := range []bool{true, false} {
		r := newRig(t, rigOptions{backends: 10})
		for port := range uint16(50) {
			port += 1000
			for _, c := range []struct{ router, client, vip netip.Addr }{{router4, client4, vip4}, {router6, client6, vip6}} {
				syn := tcpFrame(c.client, c.vip, port, 80, "S")
				var want int
				if tracked {
					want = backendOf(t, r.run(0, syn))
				}
				inserted, packets := r.table.Stats().Inserted, r.flowPackets()
				reply := tcpFrame(c.vip, c.client, 80, port, "A")
				header := 20
				if c.vip.Is6() {
					header = 40
				}
				got := backendOf(t, r.run(0, unreachable(c.router, c.vip, reply)))
				if short := backendOf(t, r.run(0, unreachable(c.router, c.vip, reply, header+8))); short != got {
					t.Fatalf("an error with 8 bytes of TCP went to backend %d, a longer one to %d", short, got)
				}
				if n := r.table.Stats().Inserted - inserted; n != 0 {
					t.Errorf("an error made %d entries", n)
				}
				if n := r.flowPackets() - packets; n != 0 {
					t.Errorf("errors were counted as %d packets of the flow", n)
				}
				if !tracked {
					want = backendOf(t, r.run(0, syn))
				}
				if got != want {
					t.Fatalf("tracked %v: the error went to backend %d, the flow's is %d", tracked, got, want)
				}
			}
		}
		r.checkAccounts()
	}
}

// TestErrorFollowsTrackedFlow: also when a new selection would choose another
// backend.
func TestErrorFollowsTrackedFlow(t *testing.T) {
	r := newRig(t, rigOptions{backends: 10})
	var want []int
	for port := range uint16(50) {
		want = append(want, backendOf(t, r.run(0, tcpFrame(client4, vip4, 1000+port, 80, "S"))))
	}
	r.reconfigure(func(o *selector.ServiceOptions) { o.Backends[3].Weight = 900 })
	for port := range uint16(50) {
		e := unreachable(netip.MustParseAddr("10.200.0.1"), vip4, tcpFrame(vip4, client4, 80, 1000+port, "A"))
		if got := backendOf(t, r.run(0, e)); got != want[port] {
			t.Errorf("the error went to backend %d, the flow is on %d", got, want[port])
		}
	}
}

func (r *rig) flowPackets() (n uint64) {
	for e := range r.entries {
		n += e.Packets
	}
	return n
}

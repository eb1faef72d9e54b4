package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"zonehop/bench/lab"
	"zonehop/cmd/appliance/internal/admin"
)

// fragmentSize is what each fragment of the tests carries, in bytes.
const fragmentSize = 1000

// piece is a fragment on its way to a receive queue.
type piece struct {
	queue int
	frame []byte
}

// identification makes every datagram of a test run another one.
var identification uint32 = 1000

// TestFragments sends fragmented datagrams by sockets and by hand, in every
// order and on different queues.
func TestFragments(t *testing.T) {
	r := newFlowRig(t)
	for _, version := range []int{4, 6} {
		targets := map[string]netip.Addr{"ports": vip("web", version), "all ports": vip("ports", version), "route": far4.Addr()}
		if version == 6 {
			targets["route"] = far6.Addr()
		}
		for name, to := range targets {
			r.part(fmt.Sprintf("IPv%d/%s", version, name), func(r *flowRig) {
				r.fragmentedBySocket(netip.AddrPortFrom(to, lab.EchoPort))
				r.fragmentOrders(netip.AddrPortFrom(to, lab.EchoPort))
			})
		}
		to := netip.AddrPortFrom(vip("web", version), lab.EchoPort)
		r.part(fmt.Sprintf("IPv%d/tracked flow", version), func(r *flowRig) { r.fragmentsFollowFlow(to) })
		r.part(fmt.Sprintf("IPv%d/interleaved", version), func(r *flowRig) { r.interleaved(version) })
		r.part(fmt.Sprintf("IPv%d/overlapping", version), func(r *flowRig) { r.overlapping(to) })
		r.part(fmt.Sprintf("IPv%d/no first fragment", version), func(r *flowRig) { r.withoutFirst(version) })
	}
	r.balanced()
	r.stop()
}

// fragmentedBySocket lets the client's kernel fragment.
func (r *flowRig) fragmentedBySocket(to netip.AddrPort) {
	r.net.Helper()
	for _, size := range []int{1500, 9000, 60_000} {
		payload := make([]byte, size)
		lab.Pattern(int64(size), payload)
		_, echo, err := r.client.UDP(r.net.soon(), to, netip.AddrPort{}, payload)
		r.net.must(err)
		if !bytes.Equal(echo, payload) {
			r.net.Fatalf("%d bytes of %d came back, or they differ", len(echo), size)
		}
	}
}

// fragmentOrders sends a datagram's fragments in many orders.
func (r *flowRig) fragmentOrders(to netip.AddrPort) {
	r.net.Helper()
	const pieces = 4
	seed := uint64(time.Now().UnixNano())
	r.net.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	orders := [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 2, 3, 0}, {1, 0, 3, 2}}
	for range 4 {
		orders = append(orders, random.Perm(pieces))
	}
	for _, order := range orders {
		for name, queue := range map[string]func(fragment int) int{
			"one queue":          func(int) int { return 0 },
			"alternating":        func(i int) int { return i % 2 },
			"first on its own":   func(i int) int { return min(i, 1) },
			"first on the other": func(i int) int { return 1 - min(i, 1) },
		} {
			conn := r.dialUDP(to)
			r.echoes(conn, fmt.Sprintf("order %v, %s", order, name), r.explainUDP(conn), func(payload []byte) (out []piece) {
				frames := r.fragmentsOf(conn, payload)
				for _, i := range order {
					out = append(out, piece{queue(i), frames[i]})
				}
				return out
			})
			conn.Close()
		}
	}
}

func (r *flowRig) dialUDP(to netip.AddrPort) *net.UDPConn {
	r.net.Helper()
	conn, err := r.client.DialUDP(r.net.soon(), to, netip.AddrPort{})
	r.net.must(err)
	r.net.Cleanup(func() { conn.Close() })
	return conn
}

func ends(conn net.Conn) (local, remote netip.AddrPort) {
	return conn.LocalAddr().(*net.UDPAddr).AddrPort(), conn.RemoteAddr().(*net.UDPAddr).AddrPort()
}

// fragmentsOf makes the frames of a datagram that the connection would send.
func (r *flowRig) fragmentsOf(conn net.Conn, payload []byte) (frames [][]byte) {
	from, to := ends(conn)
	identification++
	h := ipHead{src: from.Addr(), dst: to.Addr(), proto: protoUDP}
	for _, p := range h.fragments(identification, udpHeader(from, to, payload), fragmentSize) {
		frames = append(frames, r.frame(p))
	}
	return frames
}

// explainUDP says which backend new flows of the connection's tuple get.
func (r *flowRig) explainUDP(conn net.Conn) string {
	r.net.Helper()
	from, to := ends(conn)
	rule := map[netip.Addr]string{
		vip("web", 4): "web-udp", vip("web", 6): "web-udp6", vip("ports", 4): "ports-udp", vip("ports", 6): "ports-udp6",
		far4.Addr(): "inspect", far6.Addr(): "inspect6",
	}[to.Addr()]
	e, err := r.Explain(admin.ExplainRequest{Rule: rule, Tuple: admin.Tuple{
		Client: from.Addr().String(), Dst: to.Addr().String(), Protocol: protoUDP, SrcPort: from.Port(), DstPort: to.Port(),
	}})
	r.net.must(err)
	return e.Backend
}

// holdTime is how long a fragment waits for the first one of its datagram.
const holdTime = 100 * time.Millisecond

// unhurried makes attempts at something with fragments until the machine lets
// one be made within the time that fragments wait for each other. An attempt
// that failed says nothing if it took longer, or if fragments were dropped
// because they had waited too long, which late counts: a worker or the sender
// may have been without a CPU meanwhile.
func (r *flowRig) unhurried(what string, attempt func(late func() uint64) error) {
	r.net.Helper()
	unmatched := func() uint64 { return r.status().Accounting.Dropped["fragment_unmatched"] }
	for began := time.Now(); ; {
		before, start := unmatched(), time.Now()
		late := func() uint64 { return unmatched() - before }
		err := attempt(late)
		if err == nil {
			return
		}
		took := time.Since(start)
		if took < holdTime && late() == 0 || time.Since(began) > patience {
			r.net.Fatalf("%s: %v", what, err)
		}
		r.net.Logf("%s: once more, after %v: %v", what, took, err)
	}
}

// echoes sends a datagram in pieces that send makes, until its backend has
// answered one.
func (r *flowRig) echoes(conn *net.UDPConn, what, backend string, send func(payload []byte) []piece) {
	r.net.Helper()
	r.unhurried(what, func(late func() uint64) error {
		payload := make([]byte, 3500)
		lab.Pattern(int64(identification), payload)
		for _, p := range send(payload) {
			r.queues[p.queue].send(p.frame)
		}
		return echoBy(conn, backend, payload, late)
	})
}

// echoBy reads the answer of an echo, which must be a backend's, unless
// fragments come too late for one.
func echoBy(conn *net.UDPConn, backend string, payload []byte, late func() uint64) error {
	for deadline := time.Now().Add(patience); ; {
		by, err := readEcho(conn, payload, 2*holdTime)
		switch {
		case err == nil && by == backend:
			return nil
		case err == nil:
			return fmt.Errorf("%s answered, want %s", by, backend)
		case !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(deadline):
			return err
		}
		if k := late(); k > 0 {
			return fmt.Errorf("%d fragments waited too long", k)
		}
	}
}

// readEcho reads the answer of an echo: the backend's name, and the payload.
func readEcho(conn net.Conn, payload []byte, within time.Duration) (backend string, err error) {
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	buf := make([]byte, 1<<16)
	k, err := conn.Read(buf)
	if err != nil {
		return "", err
	}
	name, echo, _ := bytes.Cut(buf[:k], []byte{'\n'})
	if !bytes.Equal(echo, payload) {
		return "", fmt.Errorf("%s echoed %d bytes of %d, or they differ", name, len(echo), len(payload))
	}
	return string(name), nil
}

// fragmentsFollowFlow sends fragments of a flow whose backend the hash would no
// longer choose.
func (r *flowRig) fragmentsFollowFlow(to netip.AddrPort) {
	defer r.weigh(nil)
	conn := r.dialUDP(to)
	backend, _, err := lab.ExchangeUDP(r.net.soon(), conn, []byte("whole"))
	r.net.must(err)
	r.weigh(map[string]int{backend: 0})
	if hash := r.explainUDP(conn); hash == backend {
		r.net.Fatalf("the hash still chooses %s", hash)
	}
	r.echoes(conn, "last first", backend, func(payload []byte) []piece {
		f := r.fragmentsOf(conn, payload)
		return []piece{{0, f[3]}, {1, f[1]}, {1, f[0]}, {0, f[2]}}
	})
}

// interleaved sends the fragments of several datagrams by turns: of two flows
// of different backends, and of one with the same identification to another address.
func (r *flowRig) interleaved(version int) {
	web, all := netip.AddrPortFrom(vip("web", version), lab.EchoPort), netip.AddrPortFrom(vip("ports", version), lab.EchoPort)
	for i := range 8 {
		conns := []*net.UDPConn{r.dialUDP(web), r.dialUDP(web), r.dialUDP(all)}
		for r.explainUDP(conns[0]) == r.explainUDP(conns[1]) {
			conns[1] = r.dialUDP(web)
		}
		var backends []string
		for _, conn := range conns {
			backends = append(backends, r.explainUDP(conn))
		}
		r.unhurried(fmt.Sprintf("round %d", i), func(late func() uint64) error {
			payloads := make([][]byte, len(conns))
			var frames [][][]byte
			for c, conn := range conns {
				payloads[c] = make([]byte, 3500)
				lab.Pattern(int64(i*10+c), payloads[c])
				if c == 2 {
					identification-- // as the one before
				}
				frames = append(frames, r.fragmentsOf(conn, payloads[c]))
			}
			for _, k := range []int{2, 0, 3, 1} {
				for c := range frames {
					r.queues[(c+k+i)%2].send(frames[c][k])
				}
			}
			var problem error
			for c, conn := range conns {
				problem = errors.Join(problem, echoBy(conn, backends[c], payloads[c], late))
			}
			return problem
		})
	}
}

// overlapping sends fragments that overlap. What becomes of them is for the
// receiver to judge (RFC 5722, RFC 8200 section 4.5), so all reach the same one.
func (r *flowRig) overlapping(to netip.AddrPort) {
	r.forgetFrames()
	conn := r.dialUDP(to)
	from, _ := ends(conn)
	payload := udpHeader(from, to, make([]byte, 2992))
	h := ipHead{src: from.Addr(), dst: to.Addr(), proto: protoUDP}
	want := r.explainUDP(conn)
	sections := [][2]int{{800, 1600}, {0, 1000}, {400, 1200}, {0, 1000}, {1600, 3000}} // the first waits for the second
	r.unhurried("overlapping fragments", func(late func() uint64) error {
		identification++
		sent := make(map[string]int)
		for i, at := range sections {
			frame := r.frame(h.fragment(identification, payload, at[0], at[1]))
			r.queues[i%2].send(frame)
			sent[string(frame)]++
		}
		var missing error
		err := lab.Wait(r.net.ctx, "all to arrive", patience, func() (bool, error) {
			missing = nil
			for frame, times := range sent {
				if got := r.got([]byte(frame), false); !slices.Equal(got, slices.Repeat([]string{want}, times)) {
					missing = fmt.Errorf("a fragment sent %d times to %s arrived at %v", times, want, got)
				}
			}
			return missing == nil || late() > 0, missing
		})
		return errors.Join(err, missing)
	})
}

// withoutFirst sends fragments whose first one does not come, or too late.
func (r *flowRig) withoutFirst(version int) {
	r.forgetFrames()
	web := r.dialUDP(netip.AddrPortFrom(vip("web", version), lab.EchoPort))
	frames := r.fragmentsOf(web, make([]byte, 3500))
	got := r.counting(3, func() { r.queues[0].send(frames[1:]...) })
	if len(got) != 1 || got["fragment_unmatched"] != 3 {
		r.net.Errorf("without all-ports rule: counted as %v, want 3 fragment_unmatched", got)
	}
	// Where one rule takes all ports the 3-tuple decides, also for a first
	// fragment that comes after all. The test needs one that the ports would
	// have sent elsewhere.
	guessed := ""
	for try := 0; ; try++ {
		conn := r.dialUDP(netip.AddrPortFrom(vip("ports", version), lab.EchoPort))
		if guessed != "" && r.explainUDP(conn) == guessed {
			continue
		}
		payload := make([]byte, 3500)
		frames := r.fragmentsOf(conn, payload)
		if got := r.counting(3, func() { r.queues[try%2].send(frames[1:]...) }); got["forwarded"] != 3 || len(got) != 1 {
			r.net.Fatalf("counted as %v, want 3 forwarded", got)
		}
		guessed = r.arrives(frames[1], "")
		r.arrives(frames[2], guessed)
		r.arrives(frames[3], guessed)
		if r.explainUDP(conn) == guessed {
			continue
		}
		r.queues[1-try%2].send(frames[0])
		r.arrives(frames[0], guessed)
		if backend, err := readEcho(conn, payload, patience); err != nil || backend != guessed {
			r.net.Errorf("%s answered, want %s: %v", backend, guessed, err)
		}
		return
	}
}

// TestFragmentFlood sends what can never be put together, in numbers far above
// what may wait or be remembered, beside traffic that must not notice.
func TestFragmentFlood(t *testing.T) {
	r := newFlowRig(t)
	// The servers' kernels keep what they cannot put together yet; it is not
	// their limits that are tested.
	for _, b := range r.net.Backends() {
		for path, value := range map[string]string{
			"net/ipv4/ipfrag_time": "1", "net/ipv4/ipfrag_high_thresh": "1000000000",
			"net/ipv6/ip6frag_time": "1", "net/ipv6/ip6frag_high_thresh": "1000000000",
		} {
			r.net.must(b.Sysctl(path, value))
		}
	}
	s := r.net.stream("client", netip.AddrPortFrom(vip("web", 4), lab.EchoTLS), "")
	each := 40_000
	if raceEnabled { // where the appliance is slow
		each = 8000
	}
	maxHeld, done := uint64(0), 0
	flood := func(version int, first bool) {
		to := netip.AddrPortFrom(vip("web", version), lab.EchoPort)
		var frames [2][][]byte
		for i := range each {
			from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}), uint16(2000+i))
			if version == 6 {
				from = netip.AddrPortFrom(netip.AddrFrom16([16]byte{0xfd, 0, 0, 200, 12: byte(i >> 8), 13: byte(i)}), uint16(2000+i))
			}
			identification++
			h, datagram := ipHead{src: from.Addr(), dst: to.Addr(), proto: protoUDP}, udpHeader(from, to, make([]byte, 192))
			at := 0
			if !first {
				at = 64
			}
			frames[i%2] = append(frames[i%2], r.frame(h.fragment(identification, datagram, at, at+64)))
			if len(frames[1]) < 64 {
				continue
			}
			for q := range frames {
				r.queues[q].send(frames[q]...)
				frames[q] = nil
			}
			if i%4096 == 4095 {
				maxHeld = max(maxHeld, r.status().Accounting.Held)
				done++
				r.fragmentedBySocket(netip.AddrPortFrom(vip("web", []int{4, 6}[done%2]), lab.EchoPort))
			}
		}
	}
	flood(4, true) // warms up
	before, memory := r.balanced().Accounting, residentKiB(t, r.process.Pid())
	var after admin.Accounting
	var got map[string]uint64
	var dropped uint64
	// On a busy machine not every flood is one, nor is much of it received.
	floods := 0
	r.wait("floods to be too much", func() error {
		for _, version := range []int{4, 6} {
			flood(version, false)
			floods++
		}
		r.wait("nothing to be held", func() error {
			if held := r.status().Accounting.Held; held != 0 {
				return fmt.Errorf("%d held", held)
			}
			return nil
		})
		after = r.balanced().Accounting
		got = change(&before, &after)
		dropped = got["fragment_evicted"] + got["fragment_unmatched"]
		if got["fragment_evicted"] == 0 || got["fragment_unmatched"] == 0 || dropped < uint64(each) || maxHeld == 0 && !raceEnabled {
			return fmt.Errorf("%v; at most %d were held", got, maxHeld)
		}
		return nil
	})
	received := after.Received - before.Received
	t.Logf("%d × %d fragments without a first one: %v; at most %d were held", floods, each, got, maxHeld)
	answered := uint64(0) // for a client that looks whether an address is where it was
	for kind, k := range after.Answered {
		answered += k - before.Answered[kind]
	}
	if dropped+got["forwarded"]+answered != received {
		t.Errorf("of %d received were answered %d and counted: %v", received, answered, got)
	}
	if maxHeld > 1024 {
		t.Errorf("%d fragments were held at a time, want no more than 512 for each of 2 workers", maxHeld)
	}
	for _, version := range []int{4, 6} {
		flood(version, true)
	}
	r.fragmentOrders(netip.AddrPortFrom(vip("web", 4), lab.EchoPort)) // tracking was never turned off
	now := residentKiB(t, r.process.Pid())
	t.Logf("resident memory: %d KiB, then %d KiB", memory, now)
	if !raceEnabled && now > memory+heapPlay {
		t.Errorf("resident memory grew from %d to %d KiB", memory, now)
	}
	r.net.flowing(s)
	if state := s.Close(); state.Err != nil {
		t.Error(state.Err)
	}
	r.balanced()
	r.stop()
}

package main

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"zonehop/bench/lab"
)

// TestTrackingEndToEnd follows one row of each kind of the tracking matrices
// (forwarder/testdata/tracking.json) with real connections.
func TestTrackingEndToEnd(t *testing.T) {
	r := newFlowRig(t)
	for _, version := range []int{4, 6} {
		for name, row := range map[string]func(r *flowRig, version int){
			"a session outlives its backend's weight":             sessionKeepsBackend,
			"connections are tracked one by one":                  connectionsChooseAnew,
			"a SYN on an old tuple chooses anew":                  synChoosesAnew,
			"unhealthy, by default: TCP stays, UDP leaves":        unhealthyByDefault,
			"unhealthy, never persist: TCP leaves":                unhealthyNever,
			"unhealthy, always persist: both stay":                unhealthyAlways,
			"a SYN on an old tuple leaves an unhealthy backend":   synLeavesUnhealthy,
			"a session's UDP leaves an unhealthy backend":         sessionUDPLeaves,
			"a mid-flow packet of an unknown connection is taken": midFlow,
		} {
			r.part(fmt.Sprintf("IPv%d/%s", version, name), func(r *flowRig) {
				r.sick()
				r.weigh(nil)
				row(r, version)
			})
		}
	}
	r.balanced()
	r.stop()
}

// sick makes some backends fail their health checks, and no others, and waits
// for the verdicts.
func (r *flowRig) sick(names ...string) {
	r.net.Helper()
	for _, b := range r.net.Backends() {
		health := lab.HealthOK
		if slices.Contains(names, b.Name()) {
			health = lab.HealthFailing
		}
		r.net.must(b.SetHealth(health))
	}
	r.wait(fmt.Sprintf("all but %q to be healthy", names), func() error {
		list, err := r.Backends()
		for _, b := range list {
			if (b.Health == "UNHEALTHY") != slices.Contains(names, b.Name) || b.Health == "UNKNOWN" {
				return fmt.Errorf("%s %s is %s", b.Name, b.Address, b.Health)
			}
		}
		return err
	})
}

// connect opens a connection to a rule's TCP echo, from a port if it is not 0,
// and returns who greeted.
func (r *flowRig) connect(name string, version int, port uint16) (net.Conn, string) {
	r.net.Helper()
	conn, err := r.client.DialTCP(r.net.soon(), netip.AddrPortFrom(vip(name, version), lab.EchoTLS), netip.AddrPortFrom(netip.Addr{}, port))
	r.net.must(err)
	r.net.Cleanup(func() { conn.Close() })
	r.net.must(conn.SetReadDeadline(time.Now().Add(patience)))
	var greeting []byte
	for len(greeting) == 0 || greeting[len(greeting)-1] != '\n' {
		b := make([]byte, 1)
		_, err := io.ReadFull(conn, b)
		r.net.must(err)
		greeting = append(greeting, b...)
	}
	return conn, string(greeting[:len(greeting)-1])
}

// echoed has a connected UDP flow say something, and returns who answers.
func (r *flowRig) echoed(conn *net.UDPConn) string {
	r.net.Helper()
	name, _, err := lab.ExchangeUDP(r.net.soon(), conn, []byte("who is there"))
	r.net.must(err)
	return name
}

func (r *flowRig) udpFlow(name string, version int) *net.UDPConn {
	r.net.Helper()
	return r.dialUDP(netip.AddrPortFrom(vip(name, version), lab.EchoPort))
}

// sessionKeepsBackend: PER_SESSION and CLIENT_IP. One entry holds everything
// that a client does at an address; no SYN moves it.
func sessionKeepsBackend(r *flowRig, version int) {
	_, first := r.connect("session", version, 0)
	r.weigh(map[string]int{first: 0})
	for range 5 {
		if _, again := r.connect("session", version, 0); again != first {
			r.net.Fatalf("another connection of the client went to %s, its session is at %s", again, first)
		}
	}
	if got := r.echoed(r.udpFlow("session", version)); got != first {
		r.net.Errorf("the client's UDP went to %s, its session is at %s", got, first)
	}
}

// connectionsChooseAnew: PER_CONNECTION. New connections see the new weights,
// old ones stay, TCP and UDP.
func connectionsChooseAnew(r *flowRig, version int) {
	s := r.net.stream("client", netip.AddrPortFrom(vip("web", version), lab.EchoTLS), "")
	udp := r.udpFlow("web", version)
	first := r.echoed(udp)
	r.weigh(map[string]int{s.Backend: 0, first: 0})
	for range 10 {
		if _, name := r.connect("web", version, 0); name == s.Backend {
			r.net.Fatalf("a new connection went to %s, whose weight is 0", name)
		}
		if name := r.echoed(r.udpFlow("web", version)); name == first {
			r.net.Fatalf("a new flow went to %s, whose weight is 0", name)
		}
	}
	if name := r.echoed(udp); name != first {
		r.net.Errorf("a tracked UDP flow moved from %s to %s", first, name)
	}
	r.net.flowing(s)
	if state := s.Close(); state.Err != nil {
		r.net.Error(state.Err)
	}
}

// synChoosesAnew: PER_CONNECTION. The client uses a port again, after a reset
// and after an orderly end.
func synChoosesAnew(r *flowRig, version int) {
	for i, reset := range []bool{true, false} {
		port := uint16(20_000 + version*10 + i)
		conn, first := r.connect("web", version, port)
		if reset {
			r.net.must(conn.(*net.TCPConn).SetLinger(0))
		}
		r.net.must(conn.Close())
		r.weigh(map[string]int{first: 0})
		var second string
		// The client's own TIME-WAIT gives the port back when it likes.
		r.net.eventually("the port to be free", func() (bool, error) {
			again, err := r.client.DialTCP(r.net.soon(), netip.AddrPortFrom(vip("web", version), lab.EchoTLS), netip.AddrPortFrom(netip.Addr{}, port))
			if err != nil {
				return false, err
			}
			defer again.Close()
			buf := make([]byte, 32)
			if err := again.SetReadDeadline(time.Now().Add(patience)); err != nil {
				return false, err
			}
			k, err := again.Read(buf)
			second = string(buf[:max(0, k-1)])
			return err == nil, err
		})
		if second == first || second == "" {
			r.net.Errorf("after a reset=%v the same port led to %q again, want another than %s", reset, second, first)
		}
		r.weigh(nil)
	}
}

// unhealthyByDefault: DEFAULT_FOR_PROTOCOL, PER_CONNECTION.
func unhealthyByDefault(r *flowRig, version int) {
	udp := r.udpFlow("web", version)
	first := r.echoed(udp)
	s := r.net.stream("client", netip.AddrPortFrom(vip("web", version), lab.EchoTLS), first)
	r.sick(first)
	if got := r.echoed(udp); got == first {
		r.net.Errorf("UDP is still at %s, which is unhealthy", got)
	}
	r.net.flowing(s)
	if flows := r.tracked(s.LocalAddr()); len(flows) != 1 || flows[0].Backend != first {
		r.net.Errorf("the TCP connection is tracked as %+v, want %s", flows, first)
	}
	if state := s.Close(); state.Err != nil {
		r.net.Error(state.Err)
	}
}

// unhealthyNever: NEVER_PERSIST. The new backend does not know the connection
// and resets it.
func unhealthyNever(r *flowRig, version int) {
	s := r.net.stream("client", netip.AddrPortFrom(vip("never", version), lab.EchoTLS), "")
	r.sick(s.Backend)
	r.net.eventually("the connection to be reset", func() (bool, error) { return s.State().Err != nil, nil })
	flows := r.tracked(s.LocalAddr())
	if len(flows) != 1 || flows[0].Backend == s.Backend {
		r.net.Errorf("the connection is tracked as %+v, want one that left %s", flows, s.Backend)
	}
	udp := r.udpFlow("never", version)
	first := r.echoed(udp)
	r.sick(first)
	if got := r.echoed(udp); got == first {
		r.net.Errorf("UDP is still at %s, which is unhealthy", got)
	}
}

// unhealthyAlways: ALWAYS_PERSIST.
func unhealthyAlways(r *flowRig, version int) {
	udp := r.udpFlow("always", version)
	first := r.echoed(udp)
	s := r.net.stream("client", netip.AddrPortFrom(vip("always", version), lab.EchoTLS), first)
	r.sick(first)
	for range 3 {
		if got := r.echoed(udp); got != first {
			r.net.Errorf("UDP moved from %s to %s", first, got)
		}
	}
	r.net.flowing(s)
	if state := s.Close(); state.Err != nil {
		r.net.Error(state.Err)
	}
}

// synLeavesUnhealthy: persistence is for connections, not for tuples.
func synLeavesUnhealthy(r *flowRig, version int) {
	port := uint16(21_000 + version)
	conn, first := r.connect("always", version, port)
	r.net.must(conn.(*net.TCPConn).SetLinger(0))
	r.net.must(conn.Close())
	r.sick(first)
	if _, second := r.connect("always", version, port); second == first {
		r.net.Errorf("a new connection went to %s, which is unhealthy", second)
	}
}

// sessionUDPLeaves: PER_SESSION, DEFAULT_FOR_PROTOCOL. The entry is shared, and
// the protocol of the packet decides.
func sessionUDPLeaves(r *flowRig, version int) {
	udp := r.udpFlow("session", version)
	first := r.echoed(udp)
	r.sick(first)
	if got := r.echoed(udp); got == first {
		r.net.Errorf("UDP is still at %s, which is unhealthy", got)
	}
}

// midFlow: an acknowledgement of a connection that nobody has seen begin is
// given to a backend, tracked and counted.
func midFlow(r *flowRig, version int) {
	from, to := r.flow(version, "web", lab.HTTPPort)
	before := r.balanced().Accounting.MidFlow
	r.forgetFrames()
	frame := r.frame(ipHead{src: from.Addr(), dst: to.Addr(), proto: protoTCP}.packet(tcpHeader(from, to, tcpACK)))
	r.queues[0].send(frame)
	at := r.arrives(frame, r.explain(nameOf("web-tcp", version), from, to).Backend)
	if flows := r.tracked(from); len(flows) != 1 || flows[0].Backend != at || flows[0].State != "unconfirmed" {
		r.net.Errorf("it is tracked as %+v, want one unconfirmed entry for %s", flows, at)
	}
	if got := r.balanced().Accounting.MidFlow; got != before+1 {
		r.net.Errorf("%d mid-flow misses are counted, want 1", got-before)
	}
}

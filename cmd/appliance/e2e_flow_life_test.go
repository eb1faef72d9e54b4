package main

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"zonehop/bench/lab"
	"zonehop/cmd/appliance/internal/admin"
)

// closingTime is the life of an ended connection in TestFlowLives.
const closingTime = 2 * time.Second

// TestFlowLives follows flows over what happens to them late: their end, a
// failback, and the packets of the other direction.
func TestFlowLives(t *testing.T) {
	r := newFlowRig(t, "flowTable: {entries: 65536}", "flowTable: {entries: 65536, tcpClosingSec: 2}",
		`ipv6Address: "fd00:1::13"}`, `ipv6Address: "fd00:1::13", failover: true}`,
		"  - name: never\n", "  - name: never\n    failoverPolicy: {disableConnectionDrainOnFailover: true}\n",
		"\nroutes:\n", `
routes:
  - {name: back, destRange: 172.30.0.0/16, backendService: inspection}
  - {name: back6, destRange: "fd30::/16", backendService: inspection}
`)
	for _, version := range []int{4, 6} {
		for name, row := range map[string]func(r *flowRig, version int){
			"an end shortens the entry":              endShortensEntry,
			"a half-closed connection lives on":      halfClosedLives,
			"a failback leaves TCP, takes UDP":       failback,
			"both directions reach the same backend": bothDirections,
		} {
			r.part(fmt.Sprintf("IPv%d/%s", version, name), func(r *flowRig) {
				r.sick()
				row(r, version)
			})
		}
	}
	r.balanced()
	r.stop()
}

// endShortensEntry: after a FIN or a RST of the client its entry, which would
// stay for ten minutes, goes soon.
func endShortensEntry(r *flowRig, version int) {
	for name, end := range map[string]func(c *net.TCPConn) error{
		"FIN": (*net.TCPConn).CloseWrite,
		"RST": func(c *net.TCPConn) error {
			if err := c.SetLinger(0); err != nil {
				return err
			}
			return c.Close()
		},
	} {
		conn, _ := r.connect("web", version, 0)
		from := conn.LocalAddr().(*net.TCPAddr).AddrPort()
		r.wait("the connection to be confirmed", func() error { return r.hasState(from, "confirmed") })
		start := time.Now()
		r.net.must(end(conn.(*net.TCPConn)))
		r.wait(name+": the entry to go", func() error { return r.hasState(from, "") })
		if took := time.Since(start); took < closingTime*9/10 {
			r.net.Errorf("%s: the entry was gone after %v, want %v", name, took, closingTime)
		}
	}
}

// hasState says what is tracked of a client's flow, unless it is one entry in a
// state or, if the state is empty, none.
func (r *flowRig) hasState(client netip.AddrPort, state string) error {
	r.net.Helper()
	flows := r.tracked(client)
	if state == "" && len(flows) == 0 || len(flows) == 1 && flows[0].State == state {
		return nil
	}
	return fmt.Errorf("tracked as %+v, want state %q", flows, state)
}

// halfClosedLives: after the client's FIN its acknowledgements of what the
// server still sends keep the entry.
func halfClosedLives(r *flowRig, version int) {
	defer r.weigh(nil)
	for try := 0; !r.halfClosed(version); try++ {
		if try == 19 {
			r.net.Fatal("the machine stood still for longer than the entry lives, twenty times")
		}
		r.weigh(nil)
	}
}

// halfClosed tries it with a new flow. It is not ok if there was a pause in
// which the entry may have gone.
func (r *flowRig) halfClosed(version int) (ok bool) {
	r.net.Helper()
	from, to := r.flow(version, "web", lab.HTTPPort)
	send := func(flags byte) (at string) {
		frame := r.frame(ipHead{src: from.Addr(), dst: to.Addr(), proto: protoTCP}.packet(tcpHeader(from, to, flags)))
		r.forgetFrames()
		r.queues[version/2%2].send(frame)
		return r.arrives(frame, "")
	}
	backend := send(tcpACK)
	send(tcpACK)
	r.weigh(map[string]int{backend: 0}) // without its entry the flow would go elsewhere
	last := time.Now()
	send(tcpFIN | tcpACK)
	for start := last; time.Since(start) < 2*closingTime; time.Sleep(closingTime / 8) {
		at, before := send(tcpACK), last
		last = time.Now()
		if last.Sub(before) > closingTime*3/4 {
			return false
		}
		if at != backend {
			r.net.Fatalf("after %v of acknowledgements the flow went to %s, its backend is %s", last.Sub(start), at, backend)
		}
	}
	r.wait("the entry to go", func() error { return r.hasState(from, "") })
	if at := send(tcpACK); at == backend {
		r.net.Errorf("without its entry the flow still goes to %s", at)
	}
	return true
}

// failback: web-3 serves while the primaries are unhealthy. When they are
// healthy again its connections stay, unless the service says otherwise, and
// its UDP flows go.
func failback(r *flowRig, version int) {
	r.sick("web-1", "web-2")
	stays := r.net.stream("client", netip.AddrPortFrom(vip("web", version), lab.EchoTLS), "web-3")
	ends := r.net.stream("client", netip.AddrPortFrom(vip("never", version), lab.EchoTLS), "web-3")
	udp := r.udpFlow("web", version)
	if got := r.echoed(udp); got != "web-3" {
		r.net.Fatalf("%s serves, want the failover backend", got)
	}
	r.sick()
	if got := r.echoed(udp); got == "web-3" {
		r.net.Error("the UDP flow is still at web-3")
	}
	r.net.eventually("the connection without draining to be reset", func() (bool, error) { return ends.State().Err != nil, nil })
	r.net.flowing(stays)
	if flows := r.tracked(stays.LocalAddr()); len(flows) != 1 || flows[0].Backend != "web-3" {
		r.net.Errorf("the connection is tracked as %+v, want web-3", flows)
	}
	for range 10 {
		if _, name := r.connect("web", version, 0); name == "web-3" {
			r.net.Error("a new connection went to web-3, whose turn is over")
		}
	}
	if state := stays.Close(); state.Err != nil {
		r.net.Error(state.Err)
	}
	ends.Close()
}

// bothDirections: through routes, which hash symmetrically, what comes back
// reaches the backend that what went there did, by the same entry, also when the
// flow has to move.
func bothDirections(r *flowRig, version int) {
	const flows = 20
	far := map[int]netip.Addr{4: netip.MustParseAddr("192.168.77.1"), 6: netip.MustParseAddr("2001:db8:192::77")}
	var there, back [flows][]byte
	for i := range flows {
		x := netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 30, 1, byte(i)}), uint16(5000+i))
		y := netip.AddrPortFrom(far[version], 9)
		if version == 6 {
			x = netip.AddrPortFrom(netip.AddrFrom16([16]byte{0xfd, 0x30, 15: byte(i)}), uint16(5000+i))
		}
		there[i] = r.frame(ipHead{src: x.Addr(), dst: y.Addr(), proto: protoUDP}.packet(udpHeader(x, y, []byte("there"))))
		back[i] = r.frame(ipHead{src: y.Addr(), dst: x.Addr(), proto: protoUDP}.packet(udpHeader(y, x, []byte("back"))))
	}
	count := make(map[string]int)
	for i := range flows {
		r.forgetFrames()
		first, second := there[i], back[i]
		if i%2 == 1 {
			first, second = second, first
		}
		r.queues[i%2].send(first)
		at := r.arrives(first, "")
		r.queues[1-i%2].send(second)
		r.arrives(second, at)
		count[at]++
	}
	if len(count) != 2 {
		r.net.Errorf("the flows went to %v, want both firewalls", count)
	}
	list, err := r.Flows(admin.FlowFilter{})
	r.net.must(err)
	entries := 0
	for _, f := range list {
		if to := far[version].String(); f.Client == to || f.Destination == to {
			entries++
		}
	}
	if entries != flows {
		r.net.Errorf("%d flows made %d entries", flows, entries)
	}
	r.sick("fw-1")
	for i := range flows {
		r.forgetFrames()
		r.queues[i%2].send(there[i])
		r.queues[1-i%2].send(back[i])
		r.arrives(there[i], "fw-2")
		r.arrives(back[i], "fw-2")
	}
}

package forwarder

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"zonehop/selector"
)

// TestForward checks what leaves the worker: to the right MAC, and nothing
// else changed but what the rule says.
func TestForward(t *testing.T) {
	far4, far6 := netip.MustParseAddr("192.168.1.1"), netip.MustParseAddr("fd99::1")
	gre := func(src, dst netip.Addr) []byte {
		return frame(ip4(src, dst, layers.IPProtocolGRE), gopacket.Payload("opaque bytes"))
	}
	for _, tt := range []struct {
		name  string
		frame []byte
		ttl   bool // decremented
	}{
		{"tcp syn to rule", tcpFrame(client4, vip4, 1000, 80, "S"), false},
		{"tcp mid-flow to rule", tcpFrame(client4, vip4, 1001, 443, "A"), false},
		{"udp to all-ports rule", udpFrame(client4, vip4, 1002, 9999), false},
		{"tcp6 to rule", tcpFrame(client6, vip6, 1003, 80, "S"), false},
		{"unknown protocol to L3_DEFAULT", gre(client4, vip4any), false},
		{"tcp to route", tcpFrame(client4, far4, 1004, 22, "S"), true},
		{"tcp6 to route", tcpFrame(client6, far6, 1005, 22, "S"), true},
		{"unknown protocol to route", gre(client4, far4), true},
		{"ping to L3_DEFAULT is balanced", frame(ip4(client4, vip4any, layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0)}), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, rigOptions{backends: 3})
			out := r.run(0, tt.frame)
			if len(out) != 1 {
				t.Fatalf("%d frames left, want 1; dropped %v", len(out), r.totals().Dropped)
			}
			got, want := out[0], bytes.Clone(tt.frame)
			if b := chosen(got); b > 2 {
				t.Errorf("sent to backend %d, want 0 to 2", b)
			}
			if !bytes.Equal(got[6:12], applianceMAC[:]) {
				t.Errorf("source MAC %x, want the appliance's", got[6:12])
			}
			if tt.ttl {
				want = decremented(t, want)
			}
			if !bytes.Equal(got[12:], want[12:]) {
				t.Errorf("got  %x\nwant %x", got[12:], want[12:])
			}
			// A second packet of the flow goes the same way.
			again := r.run(0, tt.frame)
			if len(again) != 1 || chosen(again[0]) != chosen(got) {
				t.Errorf("the second packet went elsewhere")
			}
			r.checkAccounts()
		})
	}
}

// decremented rebuilds a frame with its TTL lowered, checksum computed anew.
func decremented(t *testing.T, f []byte) []byte {
	t.Helper()
	if f[12] == 0x86 {
		f[21]--
		return f
	}
	f[22]--
	f[24], f[25] = 0, 0
	sum := uint32(0)
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(f[24:], ^uint16(sum))
	return f
}

// TestDropReasons has a row for each reason of this package.
func TestDropReasons(t *testing.T) {
	far := netip.MustParseAddr("192.168.1.1")
	laterFragment := func() []byte {
		ip := ip4(client4, vip4, layers.IPProtocolTCP)
		ip.FragOffset, ip.Id = 100, 7
		return frame(ip, gopacket.Payload("fragment"))
	}
	expired := func() []byte {
		ip := ip4(client4, far, layers.IPProtocolUDP)
		ip.TTL = 1
		u := &layers.UDP{SrcPort: 1, DstPort: 2}
		u.SetNetworkLayerForChecksum(ip)
		return frame(ip, u)
	}
	arp := func(target netip.Addr) []byte { return arpRequest(client4, target, clientMAC) }
	undeliverable := func(state selector.DeliveryState) func(*rig) {
		return func(r *rig) {
			for i := range 2 {
				a4, _ := backendAddr(i)
				r.builder.SetDelivery(a4, selector.Delivery{State: state, Port: -1})
			}
			r.builder.Publish(r.clock)
		}
	}
	for _, tt := range []struct {
		reason Reason
		frame  []byte
		before func(*rig)
	}{
		{ReasonOtherStation, func() []byte {
			f := tcpFrame(client4, vip4, 1, 80, "S")
			mac := backendMAC(0) // on its way to a backend, flooded by the switch
			copy(f[:6], mac[:])
			return f
		}(), nil},
		{ReasonNoRule, tcpFrame(client4, vip4, 1, 81, "S"), nil},
		{ReasonFragmentUnmatched, laterFragment(), nil},
		{ReasonNoRoute, tcpFrame(client4, netip.MustParseAddr("172.16.0.1"), 1, 80, "S"), nil},
		{ReasonBadSource, tcpFrame(netip.MustParseAddr("127.0.0.1"), far, 1, 80, "S"), nil},
		{ReasonNotAnnounced, arp(netip.MustParseAddr("10.9.9.9")), nil},
		{ReasonPingUnavailable, ping(vip4), func(r *rig) { r.reconfigure(func(o *selector.ServiceOptions) { o.Backends = nil }) }},
		{ReasonErrorUnmatched, unreachable(client4, vip4, tcpFrame(vip4, client4, 81, 1, "A")), nil},
		{ReasonTTLExpired, expired(), nil},
		{ReasonUnhealthy, tcpFrame(client4, vip4, 1, 80, "S"), func(r *rig) {
			r.reconfigure(func(o *selector.ServiceOptions) { o.Policy.DropIfUnhealthy = true })
			r.health(selector.Unhealthy)
		}},
		{ReasonNoBackend, tcpFrame(client4, vip4, 1, 80, "S"), func(r *rig) { r.reconfigure(func(o *selector.ServiceOptions) { o.Backends = nil }) }},
		{ReasonNotReady, tcpFrame(client4, vip4, 1, 80, "S"), func(r *rig) {
			for i := range r.options.Rules {
				r.options.Rules[i].Service = "new"
			}
			for i := range r.options.Routes {
				r.options.Routes[i].Service = "new"
			}
			r.reconfigure(func(o *selector.ServiceOptions) { o.Name = "new" }) // nothing is known of it
		}},
		{ReasonNoNeighbour, tcpFrame(client4, vip4, 1, 80, "S"), undeliverable(selector.NoNeighbour)},
		{ReasonNotOnLink, tcpFrame(client4, vip4, 1, 80, "S"), undeliverable(selector.NotOnLink)},
		{ReasonLoop, func() []byte {
			f := tcpFrame(client4, far, 1, 80, "S")
			mac := backendMAC(0)
			copy(f[6:12], mac[:])
			return f
		}(), func(r *rig) { r.reconfigure(func(o *selector.ServiceOptions) { o.Backends = o.Backends[:1] }) }},
		{ReasonTooBig, bigFrame(2000 - 256), nil},
	} {
		t.Run(tt.reason.String(), func(t *testing.T) {
			r := newRig(t, rigOptions{backends: 2})
			if tt.before != nil {
				tt.before(r)
			}
			out := r.run(0, tt.frame)
			r.clock += holdTime // a fragment waits that long
			out = append(out, r.run(0)...)
			totals := r.totals()
			if totals.Dropped[tt.reason] != 1 || totals.DroppedTotal() != 1 {
				t.Errorf("dropped %v, want one %s", byReason(&totals), tt.reason)
			}
			if want := int(totals.OriginatedTotal()); len(out) != want {
				t.Errorf("%d frames left, want %d", len(out), want)
			}
			r.checkAccounts()
		})
	}
}

func byReason(t *Totals) map[string]uint64 {
	m := make(map[string]uint64)
	for i, n := range t.Dropped {
		if n > 0 {
			m[Reason(i).String()] = n
		}
	}
	return m
}

// TestMalformed: whatever the parser refuses is counted under its own reason.
func TestMalformed(t *testing.T) {
	r := newRig(t, rigOptions{backends: 2})
	good := tcpFrame(client4, vip4, 1, 80, "S")
	for n := range good[:60] {
		r.run(0, good[:n])
	}
	bad := bytes.Clone(good)
	bad[24] ^= 1 // header checksum
	r.run(0, bad)
	totals := r.totals()
	if totals.Received != 61 || totals.DroppedTotal() != 61 {
		t.Errorf("received %d, dropped %v; want all of 61", totals.Received, byReason(&totals))
	}
	for i, n := range totals.Dropped[:ReasonMalformed] {
		if n != 0 {
			t.Errorf("%d truncated frames were dropped as %s, want a reason of the parser", n, Reason(i))
		}
	}
	r.checkAccounts()
}

// TestAnswers: what the appliance answers itself.
func TestAnswers(t *testing.T) {
	r := newRig(t, rigOptions{backends: 2})
	for _, tt := range []struct {
		name  string
		frame []byte
		kind  AnswerKind
	}{
		{"arp", arpRequest(client4, vip4, clientMAC), AnswerARP},
		{"arp probe", arpRequest(netip.IPv4Unspecified(), vip4, clientMAC), AnswerARP},
		{"ping", ping(vip4), AnswerPing},
		{"solicitation", solicitation(client6, vip6, clientMAC), AnswerNeighbour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := r.totals().Answered[tt.kind]
			out := r.run(0, tt.frame)
			if len(out) != 1 {
				t.Fatalf("%d frames left, want 1; dropped %v", len(out), byReason(ptr(r.totals())))
			}
			if !bytes.Equal(out[0][6:12], applianceMAC[:]) {
				t.Errorf("answered from %x, want the interface's own MAC", out[0][6:12])
			}
			if got := r.totals().Answered[tt.kind]; got != before+1 {
				t.Errorf("answers of kind %s: %d more, want 1", tt.kind, got-before)
			}
		})
	}
	r.checkAccounts()
}

// TestTwoPorts: frames leave by the backend's interface, in place where memory
// is shared and by copy where it is not.
func TestTwoPorts(t *testing.T) {
	for _, separate := range []bool{false, true} {
		r := newRig(t, rigOptions{backends: 1, ports: []string{"eth0", "eth1"}, separate: separate})
		r.deliverable(0, 1)
		r.builder.Publish(r.clock)
		for i := range 100 {
			r.ports[0].deliver(tcpFrame(client4, vip4, uint16(1000+i), 80, "S"))
		}
		for r.Pass() > 0 {
		}
		r.publish()
		if got := len(r.ports[1].sent); got != 100 {
			t.Errorf("separate memory %v: %d frames left by eth1, want 100", separate, got)
		}
		totals := r.totals()
		if want := map[bool]uint64{false: 0, true: 100}[separate]; totals.Copied != want || totals.HandedOn != want {
			t.Errorf("separate memory %v: %d copied, %d handed on, want %d", separate, totals.Copied, totals.HandedOn, want)
		}
		r.checkAccounts()
	}
}

// TestBackPressure: a full TX ring of the same interface stops receiving; one
// of another interface drops.
func TestBackPressure(t *testing.T) {
	r := newRig(t, rigOptions{backends: 1, ports: []string{"eth0", "eth1"}})
	for i := range 20 {
		r.ports[0].deliver(tcpFrame(client4, vip4, uint16(i), 80, "S"))
	}
	r.ports[0].txRoom = 8
	if n := r.receive(r.bindings[0]); n != 8 {
		t.Errorf("received %d frames with room for 8 on the TX ring", n)
	}
	if n := r.receive(r.bindings[0]); n != 0 {
		t.Errorf("received %d frames with a full TX ring", n)
	}
	r.ports[0].txRoom = 256
	r.deliverable(0, 1)
	r.builder.Publish(r.clock)
	r.ports[1].txRoom = 5
	r.run(0)
	totals := r.totals()
	if totals.Dropped[ReasonTXFull] != 7 || totals.Forwarded != 13 {
		t.Errorf("forwarded %d, dropped %v; want 13 and 7 tx_full", totals.Forwarded, byReason(&totals))
	}
	r.checkAccounts()
}

// TestCountersSurviveReload: a new layout loses no count.
func TestCountersSurviveReload(t *testing.T) {
	r := newRig(t, rigOptions{backends: 3})
	for i := range 30 {
		r.run(0, tcpFrame(client4, vip4, uint16(i), 80, "S"))
	}
	before := r.totals()
	r.reconfigure(func(o *selector.ServiceOptions) { o.Backends = o.Backends[:2] })
	for i := range 30 {
		r.run(0, tcpFrame(client4, vip4, uint16(i), 80, "S"))
	}
	after := r.totals()
	var pairs, conns uint64
	for l, n := range after.Pairs {
		if n.Packets < before.Pairs[l].Packets {
			t.Errorf("%v went from %d to %d packets", l, before.Pairs[l].Packets, n.Packets)
		}
		pairs += n.Packets
	}
	for l, n := range after.Conns {
		if n < before.Conns[l] {
			t.Errorf("%v went from %d to %d connections", l, before.Conns[l], n)
		}
		conns += n
	}
	if pairs != 60 || after.Forwarded != 60 {
		t.Errorf("%d packets by pair, %d forwarded; want 60 of each", pairs, after.Forwarded)
	}
	// A repeated SYN that selects the same backend again is no new connection.
	if moved := before.Pairs[PairLabel{"tcp", "b2"}].Packets; conns != 30+moved {
		t.Errorf("%d connections, want 30 and the %d that had to move", conns, moved)
	}
}

// TestUnbindFull: a port that is taken away leaves no frame behind, also when
// its TX ring is full.
func TestUnbindFull(t *testing.T) {
	r := newRig(t, rigOptions{backends: 1})
	for i := range 100 {
		r.ports[0].deliver(tcpFrame(client4, vip4, uint16(i), 80, "S"))
	}
	r.ports[0].txRoom = 10
	b := r.bindings[0]
	r.unbind(b)
	r.counters.local[cCompleted] += uint64(b.Complete())
	r.publish()
	totals := r.totals()
	if totals.Received != 100 || b.received != 100 || totals.Forwarded != 10 || totals.Dropped[ReasonNoPort] != 90 {
		t.Errorf("received %d, forwarded %d, dropped %v; want 100, 10 and 90 no_port", totals.Received, totals.Forwarded, byReason(&totals))
	}
	r.checkAccounts()
}

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"zonehop/bench/lab"
)

// Addresses under L3_DEFAULT rules, which take every protocol.
var (
	any4 = netip.MustParseAddr("10.0.100.20")
	any6 = netip.MustParseAddr("fd00:0:100::20")
)

const anyRules = `
  - {name: any, IPAddress: 10.0.100.20, IPProtocol: L3_DEFAULT, allPorts: true, backendService: web}
  - {name: any6, IPAddress: "fd00:0:100::20", IPProtocol: L3_DEFAULT, allPorts: true, backendService: web}
routes:`

// matrix is a network whose every wire is watched.
type matrix struct {
	client  *lab.Client
	out     *lab.Capture            // at the client
	in      map[string]*lab.Capture // at each backend
	through *lab.Capture            // at the switch's port of the appliance
}

// TestMatrix sends every protocol to every kind of address and holds what
// arrived against what was sent, byte by byte, and the way of the answers
// against direct return.
func TestMatrix(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	for _, b := range n.Backends()[:6] {
		n.must(b.AddVIP(any4))
		n.must(b.AddVIP(any6))
	}
	d := n.start(testConfig(t, "two-zones.yaml", "\nroutes:", anyRules))
	m := &matrix{client: n.Client("client-b"), in: make(map[string]*lab.Capture), through: n.port(n.Appliance(), "eth0")}
	m.out = n.capture(m.client.Node, "eth0")
	for _, b := range n.Backends() {
		m.in[b.Name()] = n.capture(b.Node, "eth0")
	}
	targets := []struct {
		name      string
		to        netip.Addr
		route     bool
		protocols []uint8
	}{
		{"vip4", lab.VIPv4, false, []uint8{protoTCP, protoUDP}},
		{"vip6", lab.VIPv6, false, []uint8{protoTCP, protoUDP}},
		{"any4", any4, false, []uint8{protoTCP, protoUDP, protoICMP, lab.RawProtocol}},
		{"any6", any6, false, []uint8{protoTCP, protoUDP, protoICMPv6, lab.RawProtocol}},
		{"route4", far4.Addr(), true, []uint8{protoTCP, protoUDP, protoICMP, lab.RawProtocol}},
		{"route6", far6.Addr(), true, []uint8{protoTCP, protoUDP, protoICMPv6, lab.RawProtocol}},
	}
	for _, target := range targets {
		for _, proto := range target.protocols {
			d.sub(fmt.Sprintf("%s/protocol=%d", target.name, proto), func(d *device) {
				c, backend := m.exchange(d.net, proto, target.to)
				m.check(d.net, c, backend, target.route)
			})
		}
	}
	d.sub("every queue receives", func(d *device) { everyQueue(d, m.client) })
	s := d.balanced()
	if s.Accounting.Copied != 0 {
		t.Errorf("%d frames were copied on one interface, want none", s.Accounting.Copied)
	}
	d.stop()
}

// exchange has the client say something that fills more than one frame where
// the protocol allows, and returns who answered, if the answer tells.
func (m *matrix) exchange(n *network, proto uint8, to netip.Addr) (c conversation, backend string) {
	n.Helper()
	self := netip.AddrPortFrom(m.client.Addr(to), 0)
	payload := make([]byte, 1100)
	lab.Pattern(int64(proto), payload)
	var echo []byte
	var err error
	switch proto {
	case protoTCP:
		return m.tcp(n, netip.AddrPortFrom(to, lab.EchoTLS))
	case protoUDP:
		server := netip.AddrPortFrom(to, lab.EchoPort)
		conn, err := m.client.DialUDP(n.soon(), server, self)
		n.must(err)
		defer conn.Close()
		self = conn.LocalAddr().(interface{ AddrPort() netip.AddrPort }).AddrPort()
		if backend, echo, err = lab.ExchangeUDP(n.soon(), conn, payload); err == nil && !bytes.Equal(echo, payload) {
			err = fmt.Errorf("the echo differs: %d bytes", len(echo))
		}
		n.must(err)
		return between(proto, self, server), backend
	case protoICMP, protoICMPv6:
		_, err = m.client.Ping(n.soon(), to, netip.Addr{}, payload)
	default:
		if backend, echo, err = m.client.Raw(n.soon(), int(proto), to, netip.Addr{}, payload); err == nil && !bytes.Equal(echo, payload) {
			err = fmt.Errorf("the echo differs: %d bytes", len(echo))
		}
	}
	n.must(err)
	return between(proto, self, netip.AddrPortFrom(to, 0)), backend
}

// tcp sends 20 000 bytes through an echo, and closes.
func (m *matrix) tcp(n *network, server netip.AddrPort) (conversation, string) {
	n.Helper()
	conn, err := m.client.DialTCP(n.soon(), server, netip.AddrPort{})
	n.must(err)
	defer conn.Close()
	n.must(conn.SetDeadline(time.Now().Add(patience)))
	c := between(protoTCP, conn.LocalAddr().(interface{ AddrPort() netip.AddrPort }).AddrPort(), server)
	payload := make([]byte, 20_000)
	lab.Pattern(0, payload)
	_, err = conn.Write(payload)
	n.must(err)
	n.must(conn.CloseWrite())
	all, err := io.ReadAll(conn)
	n.must(err)
	name, echo, ok := bytes.Cut(all, []byte{'\n'})
	if !ok || !bytes.Equal(echo, payload) {
		n.Fatalf("the echo of %d bytes differs from the %d sent", len(echo), len(payload))
	}
	return c, string(name)
}

// check holds the captures of a conversation against each other.
func (m *matrix) check(n *network, c conversation, backend string, route bool) {
	n.Helper()
	var owners []string
	var sent, arrived [][]byte
	n.eventually("every frame to arrive", func() (bool, error) {
		owners, arrived = nil, nil
		for name, in := range m.in {
			if frames := framesOf(in, going(lab.In, c.there)); len(frames) > 0 {
				owners, arrived = append(owners, name), append(arrived, frames...)
			}
		}
		sent = framesOf(m.out, going(lab.Out, c.there))
		return len(sent) > 0 && len(arrived) == len(sent), fmt.Errorf("%d of %d", len(arrived), len(sent))
	})
	if len(owners) != 1 || backend != "" && owners[0] != backend {
		n.Fatalf("the frames arrived at %v, and %q answered", owners, backend)
	}
	owner := n.Backend(owners[0]).Node
	mac, own := n.mac(owner, "eth0"), n.mac(n.Appliance(), "eth0")
	for i, frame := range sent {
		if to := frame[:6]; !bytes.Equal(to, own) {
			n.Fatalf("the client sent to %x, want the appliance's %s", to, own)
		}
		if want := forwardedForm(frame, mac, own, route); !bytes.Equal(arrived[i], want) {
			n.Fatalf("frame %d arrived as\n%x\nwant\n%x", i, arrived[i], want)
		}
	}
	n.see(m.out, "the answer at the client", going(lab.In, c.back))
	for _, frame := range framesOf(m.out, going(lab.In, c.back)) {
		if !bytes.Equal(frame[6:12], mac) {
			n.Fatalf("an answer came from %x, want straight from the backend's %s", frame[6:12], mac)
		}
	}
	if k := m.through.Count(c.back); k != 0 {
		n.Errorf("%d frames of the answer went by the appliance's port", k)
	}
}

// everyQueue sends enough flows for all queues and looks whether they came.
func everyQueue(d *device, client *lab.Client) {
	for range 64 {
		_, _, err := client.UDP(d.net.soon(), netip.AddrPortFrom(lab.VIPv4, lab.EchoPort), netip.AddrPort{}, []byte("queue"))
		d.net.must(err)
	}
	queues := d.status().Interfaces[0].Queues
	if len(queues) != 2 {
		d.net.Fatalf("%d queues, want 2", len(queues))
	}
	for _, q := range queues {
		if q.Received == 0 {
			d.net.Errorf("queue %d received nothing of 64 flows", q.Queue)
		}
	}
}

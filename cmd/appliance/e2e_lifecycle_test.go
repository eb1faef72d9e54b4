package main

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"zonehop/bench/lab"
	"zonehop/cmd/appliance/internal/admin"
)

// attached reports whether an XDP program is on an interface of the appliance.
func (n *network) attached(iface string) (yes bool) {
	n.Helper()
	n.must(n.Appliance().Exec(func() error {
		link, err := netlink.LinkByName(iface)
		if err == nil {
			x := link.Attrs().Xdp
			yes = x != nil && x.Attached
		}
		return err
	}))
	return yes
}

// silent checks that nobody answers for the rules' addresses, while the host
// answers for its own.
func (n *network) silent() {
	n.Helper()
	client := n.Client("client-b")
	wire, own := n.capture(client.Node, "eth0"), n.mac(client.Node, "eth0")
	n.send(client.Node, "eth0", arpRequest(n.T, own, client.IPv4(), lab.VIPv4))
	n.send(client.Node, "eth0", arpRequest(n.T, own, client.IPv4(), lab.ApplianceIPv4))
	n.send(client.Node, "eth0", solicit(n.T, own, client.IPv6(), lab.VIPv6))
	n.send(client.Node, "eth0", solicit(n.T, own, client.IPv6(), lab.ApplianceIPv6))
	n.see(wire, "the host's ARP reply", going(lab.In, func(f lab.Frame) bool { return isARPReply(f, lab.ApplianceIPv4) }))
	n.see(wire, "the host's advertisement", going(lab.In, func(f lab.Frame) bool { return isAdvertisement(f, lab.ApplianceIPv6) }))
	if k := wire.Count(going(lab.In, func(f lab.Frame) bool {
		return isARPReply(f, lab.VIPv4) || isAdvertisement(f, lab.VIPv6)
	})); k != 0 {
		n.Errorf("%d answers for a rule's address", k)
	}
	// What the client still sends, by its neighbour cache, dies quietly.
	n.sendSYN(client, vip4)
	n.sendSYN(client, vip6)
	if k := wire.Count(going(lab.In, func(f lab.Frame) bool {
		p, ok := readIP(f)
		return ok && (p.src == lab.VIPv4 || p.src == lab.VIPv6) && p.from == n.mac(n.Appliance(), "eth0").String()
	})); k != 0 {
		n.Errorf("the host answered %d frames sent to a rule's address", k)
	}
}

// TestLifecycle starts a second appliance beside the first, kills one, starts
// it again and stops it, with connections open all the time.
func TestLifecycle(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	d := n.start(testConfig(t, "two-zones.yaml"))
	var streams []*lab.Stream
	for _, to := range []netip.Addr{lab.VIPv4, lab.VIPv6, far4.Addr(), far6.Addr()} {
		for _, client := range []string{"client-b", "client-c", "client-x"} {
			streams = append(streams, n.stream(client, netip.AddrPortFrom(to, lab.EchoTLS), ""))
		}
	}
	stop := n.load("client-c", netip.AddrPortFrom(lab.VIPv4, lab.EchoPort))
	defer func() { stop() }()
	flow := func(n *network) {
		n.Helper()
		for _, s := range streams {
			n.flowing(s)
		}
	}

	d.sub("second instance, same admin socket", func(d *device) {
		second := *d
		second.run()
		status, err := second.process.Wait(d.net.soon())
		d.net.must(err)
		if out := second.process.Output(); status != 1 || !strings.Contains(out, "another appliance answers on it") {
			d.net.Errorf("status %d, output %q; want 1 and that the admin socket is in use", status, out)
		}
		flow(d.net)
	})
	d.sub("second instance, same interface", func(d *device) {
		second := device{net: d.net, node: d.node, file: filepath.Join(d.net.Dir(), "second.yaml"), socket: filepath.Join(d.net.Dir(), "second.sock")}
		second.Client = admin.NewClient(second.socket)
		text := testConfig(d.net.T, "two-zones.yaml") + "\nadmin: {socket: " + second.socket + ", metricsListen: \"\"}\nlogging: {level: debug, format: console}\n"
		d.net.must(os.WriteFile(second.file, []byte(text), 0o644))
		second.run()
		second.interfaceIs("eth0", false)
		second.wait("the refusal", func() error {
			s, err := second.Status()
			if err != nil {
				return err
			}
			if p := s.Interfaces[0].Problem; !strings.Contains(p, "attach xdp to eth0") || !strings.Contains(p, "is attached there; detach it first") {
				return errors.New(p)
			}
			return nil
		})
		flow(d.net)
		second.stop()
		if !d.net.attached("eth0") {
			d.net.Error("the end of the second instance took the first one's program away")
		}
		flow(d.net)
		if s := d.status(); len(s.Conflicts) != 0 || s.Interfaces[0].Problem != "" {
			d.net.Errorf("the first instance was disturbed: conflicts %v, problem %q", s.Conflicts, s.Interfaces[0].Problem)
		}
	})
	d.sub("killed", func(d *device) {
		d.net.must(d.process.Kill())
		d.net.eventually("the program to be gone", func() (bool, error) { return !d.net.attached("eth0"), nil })
		if _, err := os.Stat(d.socket); err != nil {
			d.net.Fatalf("the test needs a stale admin socket: %v", err)
		}
		d.net.silent()
	})
	d.run()
	d.ready()
	d.sub("restarted", func(d *device) {
		// The hash alone finds each connection's backend: another one would
		// have answered with a reset.
		flow(d.net)
		s := d.status()
		if s.Accounting.MidFlow < uint64(len(streams)) {
			d.net.Errorf("%d packets without an entry are counted, want one for each of %d connections at least", s.Accounting.MidFlow, len(streams))
		}
	})
	d.sub("terminated", func(d *device) {
		d.stop()
		if d.net.attached("eth0") {
			d.net.Error("the program is attached still")
		}
		if _, err := os.Stat(d.socket); err == nil {
			d.net.Error("the admin socket is there still")
		}
		if out := d.process.Output(); !strings.Contains(out, "stopped forwarding") {
			d.net.Error("the final accounts are not in the log")
		}
		d.net.silent()
	})
	for _, s := range streams {
		if state := s.Close(); state.Err != nil {
			t.Error(state.Err)
		}
	}
}

// TestRestartBesideUnhealthy kills the appliance while a backend is unhealthy.
// Connections on the others must not be sent to it, nor anywhere else, while
// the new instance does not know better yet.
func TestRestartBesideUnhealthy(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	d := n.start(testConfig(t, "two-zones.yaml"))
	sick := n.Backend("web-b1")
	n.must(sick.SetHealth(lab.HealthFailing))
	d.wait("the backend to be unhealthy", func() error {
		for _, a := range []netip.Addr{sick.IPv4(), sick.IPv6()} {
			if b := d.backend("web", a); b.Health != "UNHEALTHY" {
				return errors.New(b.Health)
			}
		}
		return nil
	})
	var streams []*lab.Stream
	for _, to := range []netip.Addr{lab.VIPv4, lab.VIPv6} {
		for range 8 {
			streams = append(streams, n.stream("client-b", netip.AddrPortFrom(to, lab.EchoTLS), ""))
		}
	}
	n.must(d.process.Kill())
	d.run()
	d.ready()
	for _, s := range streams {
		n.flowing(s)
		if state := s.Close(); state.Err != nil {
			t.Error(state.Err)
		}
	}
	d.balanced()
	d.stop()
}

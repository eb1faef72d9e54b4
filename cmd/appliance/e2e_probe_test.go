package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"zonehop/bench/lab"
	"zonehop/cmd/appliance/internal/admin"
)

// asRulesConfig is the two-zones example with a check of its own for the web
// service.
func asRulesConfig(t *testing.T, kind, target string) string {
	check := fmt.Sprintf(`healthChecks:
  - {name: as-rule, type: %s, port: %d, probeTarget: %s, checkIntervalSec: 0.2, timeoutSec: 0.2, unhealthyThreshold: 5}
`, kind, lab.HealthPort, target)
	if kind == "HTTP" {
		check = check[:len(check)-2] + ", requestPath: /healthz}\n"
	}
	return testConfig(t, "two-zones.yaml", "healthChecks:\n  - name", check+"  - name",
		"healthChecks: [http-8080]\n    connectionDraining: {drainingTimeoutSec: 30}\n    failoverPolicy",
		"healthChecks: [as-rule]\n    connectionDraining: {drainingTimeoutSec: 30}\n    failoverPolicy")
}

// probedAs waits until a backend has a state as a rule's address.
func (d *device) probedAs(backend string, rule netip.Addr, state string) {
	d.net.Helper()
	d.probedInRow(backend, rule, state, 1)
}

// probedInRow waits until that many results in a row say so.
func (d *device) probedInRow(backend string, rule netip.Addr, state string, inRow int) {
	d.net.Helper()
	d.wait(fmt.Sprintf("%s to be %s as %s", backend, state, rule), func() error {
		h, err := d.Health()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(h.Backends, func(b admin.BackendHealth) bool {
			return b.Backend == backend && b.RuleAddress == rule.String()
		})
		if i < 0 {
			return fmt.Errorf("no such probe in %+v", h.Backends)
		}
		if b := &h.Backends[i]; b.State != state || b.InRow < inRow {
			return fmt.Errorf("%s, %d in a row: %s", b.State, b.InRow, b.Text)
		}
		return nil
	})
}

// unhealthy waits until these backend addresses are not healthy, and all others
// are, in what selection goes by.
func (d *device) unhealthy(want ...string) {
	d.net.Helper()
	d.wait(fmt.Sprintf("these to be unhealthy: %v", want), func() error {
		list, err := d.Backends()
		if err != nil {
			return err
		}
		var got []string
		for _, b := range list {
			if b.Health != "HEALTHY" {
				got = append(got, b.Name+" "+b.Address)
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("unhealthy: %v", got)
		}
		return nil
	})
}

// egressPrograms counts the tcx programs on the way out of the appliance's interface.
func (n *network) egressPrograms(iface string) (count int) {
	n.Helper()
	n.must(n.Appliance().Exec(func() error {
		l, err := netlink.LinkByName(iface)
		if err != nil {
			return err
		}
		r, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: ebpf.AttachTCXEgress})
		if err == nil {
			count = len(r.Programs)
		}
		return err
	}))
	return count
}

// nothingAttached waits until the interface is as if there were no appliance.
func (n *network) nothingAttached(iface string) {
	n.Helper()
	n.eventually("nothing to be attached to "+iface, func() (bool, error) {
		return n.egressPrograms(iface) == 0 && !n.attached(iface), nil
	})
}

// TestProbeAsRuleAddress takes a rule's address off a backend's loopback: with
// probeTarget RULE_ADDRESS that backend is found, with BACKEND_ADDRESS it is not.
func TestProbeAsRuleAddress(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	for _, kind := range []string{"HTTP", "TCP"} {
		d := n.start(asRulesConfig(t, kind, "RULE_ADDRESS"))
		d.sub(kind, func(d *device) { d.losesVIP("web-b2") })
		if got := n.egressPrograms("eth0"); got != 1 {
			t.Errorf("%d programs on the way out while rules' addresses are probed, want 1", got)
		}
		d.stop()
		n.nothingAttached("eth0")
	}
}

// losesVIP removes each rule address from a backend and gives it back.
func (d *device) losesVIP(name string) {
	n, b := d.net, d.net.Backend(name)
	stop := n.keepConnecting("client-c", vip4, vip6) // to zone c, where nothing changes
	defer stop()
	for _, vip := range []netip.AddrPort{vip4, vip6} {
		own, host := b.IPv4(), lab.ApplianceIPv4
		if vip.Addr().Is6() {
			own, host = b.IPv6(), lab.ApplianceIPv6
		}
		wire := n.capture(b.Node, "eth0")
		n.see(wire, "a probe as the rule's address", going(lab.In, func(f lab.Frame) bool {
			p, ok := readIP(f)
			return ok && p.src == host && p.dst == vip.Addr() && p.proto == protoTCP
		}))
		if k := wire.Count(going(lab.In, func(f lab.Frame) bool {
			p, ok := readIP(f)
			return ok && p.src == host && p.dst == own && p.proto == protoTCP
		})); k != 0 {
			n.Errorf("%d frames of probes carried the backend's own address %s", k, own)
		}
		stream := n.stream("client-b", netip.AddrPortFrom(vip.Addr(), lab.EchoTLS), "web-b1")

		n.must(b.RemoveVIP(vip.Addr()))
		d.probedAs(name, vip.Addr(), "UNHEALTHY")
		if r, err := n.Client("client-b").Get(n.soon(), netip.AddrPortFrom(own, lab.HealthPort), "/healthz"); err != nil || r.Status != 200 {
			n.Errorf("the backend's own address answers %+v, %v", r, err)
		}
		d.unhealthy(name + " " + own.String())
		n.flowing(stream)
		if got := n.shares("client-b", vip, 20); got[name] != 0 {
			n.Errorf("%s still gets connections: %v", name, got)
		}
		n.must(b.AddVIP(vip.Addr()))
		d.probedAs(name, vip.Addr(), "HEALTHY")
		d.unhealthy()
		n.flowing(stream)
	}
	stop()
	d.balanced()
}

// TestProbeAsBackendAddress is the contrast, and what a reload changes.
func TestProbeAsBackendAddress(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	d := n.start(asRulesConfig(t, "HTTP", "BACKEND_ADDRESS"))
	if got := n.egressPrograms("eth0"); got != 0 {
		t.Errorf("%d programs on the way out although no rule's address is probed", got)
	}
	b := n.Backend("web-b2")
	for _, vip := range []netip.Addr{lab.VIPv4, lab.VIPv6} {
		n.must(b.RemoveVIP(vip))
	}
	before := b.Probes()
	n.eventually("twenty more probes", func() (bool, error) { return b.Probes() >= before+20, nil })
	d.unhealthy()

	d.write(asRulesConfig(t, "HTTP", "RULE_ADDRESS"))
	n.must(d.Reload())
	d.probedAs("web-b2", lab.VIPv4, "UNHEALTHY")
	d.probedAs("web-b2", lab.VIPv6, "UNHEALTHY")
	d.probedAs("web-b1", lab.VIPv4, "HEALTHY")
	d.probedAs("web-b1", lab.VIPv6, "HEALTHY")
	d.write(asRulesConfig(t, "HTTP", "BACKEND_ADDRESS"))
	n.must(d.Reload())
	d.ready()
	if got := n.egressPrograms("eth0"); got != 0 {
		t.Errorf("%d programs on the way out after probeTarget went back", got)
	}
	d.stop()
}

// TestProbeComesBack has a backend forward the probes for an address that it
// lacks: they come back to the appliance, which must not balance them to another
// backend and take the answer of that one.
func TestProbeComesBack(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	// On a port of the rule, where the other backends would answer.
	d := n.start(strings.Replace(asRulesConfig(t, "TCP", "RULE_ADDRESS"), "port: 8080", "port: 80", 1))
	b := n.Backend("web-b2")
	for _, path := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		n.must(b.Sysctl(path, "1"))
	}
	wire := n.capture(b.Node, "eth0")
	for _, vip := range []netip.Addr{lab.VIPv4, lab.VIPv6} {
		n.must(b.RemoveVIP(vip))
		n.see(wire, "a probe on its way back", going(lab.Out, func(f lab.Frame) bool {
			p, ok := readIP(f)
			return ok && p.dst == vip && (p.src == lab.ApplianceIPv4 || p.src == lab.ApplianceIPv6)
		}))
		d.probedInRow("web-b2", vip, "UNHEALTHY", 10)
	}
	d.stop()
}

// TestProbeAfterCrash kills the appliance and looks at what it left behind.
func TestProbeAfterCrash(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	d := n.start(asRulesConfig(t, "HTTP", "RULE_ADDRESS"))
	if got := n.egressPrograms("eth0"); got != 1 || !n.attached("eth0") {
		t.Fatalf("%d programs on the way out, XDP %v", got, n.attached("eth0"))
	}
	n.must(d.process.Kill())
	n.nothingAttached("eth0")
	d.run()
	d.ready()
	d.probedAs("web-b1", lab.VIPv6, "HEALTHY")
	d.stop()
}

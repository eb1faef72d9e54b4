package main

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"zonehop/bench/lab"
)

// inside runs the appliance's program in the node of a device.
func (d *device) inside(args ...string) (output string, status int) {
	d.net.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asAppliance+"=1", "ZONEHOP_SOCKET="+d.socket)
	p, err := d.net.Start(d.node, cmd)
	d.net.must(err)
	status, err = p.Wait(d.net.soon())
	d.net.must(err)
	return p.Output(), status
}

// reaches reports whether a node gets an HTTP answer from a destination. An
// answer that is wanted has more time to come than one that is not.
func (n *network) reaches(node *lab.Node, to netip.AddrPort, want bool) bool {
	n.Helper()
	within := patience
	if !want {
		within = time.Second
	}
	ctx, cancel := context.WithTimeout(n.ctx, within)
	defer cancel()
	_, err := (&lab.Client{Node: node}).Get(ctx, to, "/")
	return err == nil
}

// leftovers lists what is not the kernel's own among a node's rules, and the
// blackholes in any of its tables.
func (n *network) leftovers(node *lab.Node) (out []string) {
	n.Helper()
	n.must(node.Exec(func() error {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			rules, err := netlink.RuleList(family)
			if err != nil {
				return err
			}
			for _, r := range rules {
				if r.IifName != "" || r.Table != unix.RT_TABLE_LOCAL && r.Table != unix.RT_TABLE_MAIN && r.Table != unix.RT_TABLE_DEFAULT {
					out = append(out, r.String())
				}
			}
			routes, err := netlink.RouteListFiltered(family, &netlink.Route{Type: unix.RTN_BLACKHOLE}, netlink.RT_FILTER_TYPE|netlink.RT_FILTER_TABLE)
			if err != nil {
				return err
			}
			for _, r := range routes {
				out = append(out, r.String())
			}
		}
		return nil
	}))
	return out
}

// TestRouteOnCrash kills the appliance on a host that forwards and has routes
// of its own to the inspected ranges.
func TestRouteOnCrash(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	host, client := n.Appliance(), n.Client("client-b").Node
	n.must(host.Sysctl("net/ipv4/ip_forward", "1"))
	n.must(host.Sysctl("net/ipv6/conf/all/forwarding", "1"))
	n.must(host.Exec(func() error {
		for _, r := range []struct {
			to  netip.Prefix
			via netip.Addr
		}{{lab.InspectedIPv4, n.Backend("fw-b").IPv4()}, {lab.InspectedIPv6, n.Backend("fw-b").IPv6()}} {
			dst := &net.IPNet{IP: r.to.Addr().AsSlice(), Mask: net.CIDRMask(r.to.Bits(), r.to.Addr().BitLen())}
			if err := netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: r.via.AsSlice()}); err != nil {
				return err
			}
		}
		return nil
	}))
	through := func(what string, want bool) {
		t.Helper()
		for _, to := range []netip.AddrPort{far4, far6} {
			if got := n.reaches(client, to, want); got != want {
				t.Errorf("%s: the client reaches %s: %v, want %v", what, to, got, want)
			}
			// What the host sends itself, and what is sent to it, is not concerned.
			if !n.reaches(host, to, true) {
				t.Errorf("%s: the host itself does not reach %s", what, to)
			}
			if _, err := n.Client("client-b").Ping(n.soon(), host.Addr(to.Addr()), netip.Addr{}, []byte("host")); err != nil {
				t.Errorf("%s: the host does not answer: %v", what, err)
			}
		}
	}
	through("without an appliance", true) // the host forwards, or the test would prove nothing

	d := n.start(testConfig(t, "two-zones.yaml"))
	through("running", true)
	if out, status := d.inside("cleanup"); status != 1 || !strings.Contains(out, "running") {
		t.Errorf("cleanup beside a running appliance ended with %d: %s", status, out)
	}
	arrives := n.capture(n.Backend("fw-b").Node, "eth0")
	n.must(d.process.Kill())
	arrives.Clear()
	through("killed", false)
	if f := arrives.Count(func(f lab.Frame) bool {
		p, ok := readIP(f)
		return ok && f.Direction == lab.In && p.src == client.Addr(p.dst) && (lab.InspectedIPv4.Contains(p.dst) || lab.InspectedIPv6.Contains(p.dst))
	}); f != 0 {
		t.Errorf("%d frames were forwarded past the appliance", f)
	}
	if left := n.leftovers(host); len(left) != 4 {
		t.Errorf("left are %q, want a rule and a blackhole for each family", left)
	}

	d.run() // takes them over
	d.ready()
	through("running again", true)
	d.stop()
	through("stopped", false)
	if out, status := d.inside("cleanup", "--config", d.file); status != 0 || !strings.Contains(out, "removed 4 rules and routes") {
		t.Errorf("cleanup ended with %d: %s", status, out)
	}
	if left := n.leftovers(host); len(left) != 0 {
		t.Errorf("cleanup left %q", left)
	}
	if _, err := os.Stat(d.socket); err == nil {
		t.Error("cleanup left the admin socket")
	}
	through("cleaned up", true)
	if out, status := d.inside("cleanup"); status != 0 || !strings.Contains(out, "removed 0 rules") {
		t.Errorf("a second cleanup ended with %d: %s", status, out)
	}

	// A reload changes it, also to KERNEL.
	d.run()
	d.ready()
	if left := n.leftovers(host); len(left) != 4 {
		t.Errorf("running: %q", left)
	}
	d.write(testConfig(t, "two-zones.yaml", "hashKey:", "routeOnCrash: KERNEL\nhashKey:"))
	n.must(d.Reload())
	if left := n.leftovers(host); len(left) != 0 {
		t.Errorf("after a reload with KERNEL: %q", left)
	}
	n.must(d.process.Kill())
	through("killed, KERNEL", true)
}

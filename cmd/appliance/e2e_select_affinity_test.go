package main

import (
	"fmt"
	"net/netip"
	"slices"

	"zonehop/bench/lab"
)

// testDrain takes one of two backends of a zone out for maintenance.
func testDrain(d *device) {
	var streams []*lab.Stream
	for _, version := range []int{4, 6} {
		_, to := ruleAt("pair", version)
		streams = append(streams, d.net.stream("client-b", streamAt(to), "b1"), d.net.stream("client-x", streamAt(to), "b1"))
	}
	d.check(decision{client: "client-b", rule: "pair", kind: healthyPrimaries, reason: ratioMet, ratio: "2/2", backends: []string{"b1", "b2"}})

	d.succeed("drain", "b1")
	// It is in force when the command returns: b1 counts for nothing, so that its zone does not spill.
	d.check(decision{client: "client-b", rule: "pair", kind: healthyPrimaries, reason: ratioMet, ratio: "1/1",
		backends: []string{"b2"}, configured: []string{"b2", "c1", "c2"}})
	d.check(decision{client: "client-x", rule: "pair", kind: healthyPrimaries, reason: incompatible, backends: []string{"b2", "c1", "c2"}})
	d.check(decision{client: "client-b", rule: "web", kind: healthyPrimaries, reason: ratioMet, ratio: "4/4", backends: []string{"b2", "b3", "b4", "b5"}})
	list, err := d.Backends()
	d.net.must(err)
	for _, b := range list {
		if b.Drain != (b.Name == "b1") {
			d.net.Errorf("backend %s of %s: drain %v", b.Name, b.Service, b.Drain)
		}
	}
	for _, s := range streams {
		d.lives(s)
	}

	d.succeed("drain", "pair/b2") // the whole zone: its clients go to the other
	d.check(decision{client: "client-b", rule: "pair", kind: healthyPrimaries, reason: noMatch, backends: []string{"c1", "c2"}})
	d.succeed("undrain", "b1")
	d.check(decision{client: "client-b", rule: "pair", kind: healthyPrimaries, reason: ratioMet, ratio: "1/1", backends: []string{"b1"}})
	d.succeed("undrain", "b2")
	d.check(decision{client: "client-b", rule: "pair", kind: healthyPrimaries, reason: ratioMet, ratio: "2/2",
		backends: []string{"b1", "b2"}, configured: []string{"b1", "b2", "c1", "c2"}})
	for _, s := range streams {
		d.lives(s)
		s.Close()
	}
	if out, problems, status := d.command("drain", "b9"); status != 1 || problems == "" {
		d.net.Errorf("drain of an unknown backend: status %d, %q %q", status, out, problems)
	}
}

// moreAddresses gives a client further addresses, to be as many clients.
func (n *network) moreAddresses(client, format string, bits, count int) (out []netip.Addr) {
	n.Helper()
	for i := range count {
		a := netip.MustParseAddr(fmt.Sprintf(format, i+1))
		n.must(n.Client(client).AddAddress("eth0", netip.PrefixFrom(a, bits)))
		out = append(out, a)
	}
	return out
}

// onlyOne opens connections from one address to all the destinations and
// returns the one backend that all of them must have gone to.
func (d *device) onlyOne(client string, from netip.Addr, rule string, to []netip.AddrPort) (backend string) {
	d.net.Helper()
	for _, to := range to {
		r, err := d.net.Client(client).HTTP(d.net.soon(), lab.Request{To: to, From: netip.AddrPortFrom(from, 0)})
		d.net.must(err)
		if e := d.explain(rule, r.Client, to); e.Backend != r.Backend {
			d.net.Fatalf("%s to %s: explain says %s, the connection went to %s", r.Client, to, e.Backend, r.Backend)
		}
		if backend != "" && backend != r.Backend {
			d.net.Fatalf("%s: %s's connections went to %s and %s, want one backend", rule, from, backend, r.Backend)
		}
		backend = r.Backend
	}
	return backend
}

// testClientIP: a client's connections to an address share a backend, whatever
// their ports; clients are spread.
func testClientIP(d *device) {
	for version, addresses := range map[int][]netip.Addr{
		4: d.net.moreAddresses("client-b", "10.1.5.%d", 8, 12), 6: d.net.moreAddresses("client-b", "fd00:1:0:5::%d", 16, 12),
	} {
		rule, to := ruleAt("sticky", version)
		var used []string
		for _, from := range addresses {
			b := d.onlyOne("client-b", from, rule, slices.Repeat([]netip.AddrPort{to}, 6))
			if !slices.Contains(inB, b) {
				d.net.Fatalf("%s went to %s, want a backend of its zone", from, b)
			}
			if !slices.Contains(used, b) {
				used = append(used, b)
			}
		}
		if len(used) < 2 {
			d.net.Errorf("IPv%d: all of %d clients went to %v", version, len(addresses), used)
		}
	}
}

// testNoDestination: a client's connections through the route share a backend,
// whatever their destination; clients are spread.
func testNoDestination(d *device) {
	for version, addresses := range map[int][]netip.Addr{
		4: d.net.moreAddresses("client-c", "10.2.5.%d", 8, 8), 6: d.net.moreAddresses("client-c", "fd00:2:0:5::%d", 16, 8),
	} {
		rule, format := "inspect", "192.168.%d.7"
		if version == 6 {
			rule, format = "inspect6", "2001:db8:192:%d::7"
		}
		var to []netip.AddrPort
		for i := range 10 {
			to = append(to, netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf(format, 20*i)), lab.HTTPPort))
		}
		var used []string
		for _, from := range addresses {
			if b := d.onlyOne("client-c", from, rule, to); !slices.Contains(used, b) {
				used = append(used, b)
			}
		}
		if len(used) < 2 {
			d.net.Errorf("IPv%d: all of %d clients went to %v", version, len(addresses), used)
		}
	}
}

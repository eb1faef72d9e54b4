package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"zonehop/bench/lab"
	"zonehop/cmd/appliance/internal/admin"
)

// The virtual addresses that go with testdata/five-backends.yaml, by rule: 10.0.100.N and
// fd00:0:100::N. The rule of the IPv6 address has a 6 at its end.
var ruleHosts = map[string]int{"web": 10, "stay": 11, "drop": 12, "plain": 13, "sticky": 14, "near": 15, "pair": 16, "grow": 17}

// ruleAt is a rule's name and where it listens, in the given IP version.
func ruleAt(rule string, version int) (name string, to netip.AddrPort) {
	if version == 6 {
		return rule + "6", netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("fd00:0:100::%d", ruleHosts[rule])), lab.HTTPPort)
	}
	return rule, netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("10.0.100.%d", ruleHosts[rule])), lab.HTTPPort)
}

// streamAt is the port where the same rule leads to a TCP echo.
func streamAt(to netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(to.Addr(), lab.EchoTLS) }

// numbered lists prefix1, prefix2, … up to n.
func numbered(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, prefix+strconv.Itoa(i+1))
	}
	return out
}

var (
	inB, inC, inD = numbered("b", 5), numbered("c", 5), numbered("d", 2)
	inBC          = slices.Concat(inB, inC)
	inBCD         = slices.Concat(inB, inC, inD)
)

// fiveBackends is the network of testdata/five-backends.yaml, with a client in
// each zone, one in no zone (x), one that is incompatible (n) and one of
// another region (r).
func fiveBackends() *lab.Topology {
	at := func(net, host int) []lab.InterfaceSpec {
		return []lab.InterfaceSpec{{Name: "eth0", Addresses: []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("10.%d.0.%d/8", net, host)),
			netip.MustParsePrefix(fmt.Sprintf("fd00:%d::%d/16", net, host)),
		}}}
	}
	t := &lab.Topology{Appliance: lab.NodeSpec{Name: "lb", Interfaces: at(0, 2)}}
	var vips []netip.Addr
	for rule := range ruleHosts {
		for _, version := range []int{4, 6} {
			_, to := ruleAt(rule, version)
			vips = append(vips, to.Addr())
		}
	}
	for _, name := range inBCD {
		net, host := int(name[0]-'a'), 10+int(name[1]-'0')
		t.Backends = append(t.Backends, lab.BackendSpec{NodeSpec: lab.NodeSpec{Name: name, Interfaces: at(net, host)}, VIPs: vips})
	}
	for i, name := range numbered("fw", 3) {
		t.Backends = append(t.Backends, lab.BackendSpec{
			NodeSpec: lab.NodeSpec{Name: name, Interfaces: at(1+i, 21)},
			AnyIP:    []netip.Prefix{lab.InspectedIPv4, lab.InspectedIPv6},
		})
	}
	for name, net := range map[string]int{"client-b": 1, "client-c": 2, "client-d": 3, "client-r": 7, "client-x": 8, "client-n": 9} {
		t.Clients = append(t.Clients, lab.NodeSpec{Name: name, Interfaces: at(net, 101), Routes: []lab.RouteSpec{
			{Destination: lab.InspectedIPv4, Via: lab.ApplianceIPv4}, {Destination: lab.InspectedIPv6, Via: lab.ApplianceIPv6},
		}})
	}
	return t
}

// failing makes exactly the named backends fail their health check, and waits
// until the appliance has decided accordingly, in both IP versions.
func (d *device) failing(names ...string) {
	d.net.Helper()
	for _, b := range d.net.Backends() {
		health := lab.HealthOK
		if slices.Contains(names, b.Name()) {
			health = lab.HealthFailing
		}
		d.net.must(b.SetHealth(health))
	}
	d.judged(names...)
}

// judged waits until the named backends are unhealthy and the others healthy.
func (d *device) judged(unhealthy ...string) {
	d.net.Helper()
	d.wait(fmt.Sprintf("exactly %v to be unhealthy", unhealthy), func() error {
		list, err := d.Backends()
		if err != nil {
			return err
		}
		for _, b := range list {
			want := "HEALTHY"
			if slices.Contains(unhealthy, b.Name) {
				want = "UNHEALTHY"
			}
			if b.Health != want {
				return fmt.Errorf("backend %s %s is %s", b.Name, b.Address, b.Health)
			}
		}
		return nil
	})
}

// decision is what a client's new connections to a rule must get, and why.
type decision struct {
	client, rule string
	kind, reason string
	ratio        string   // of the client's zone, where it has a match
	backends     []string // every one of them is reached, and no other
	configured   []string // if not nil
	droppedUnder string   // nothing is reached: the reason its packets are counted under
}

// check holds what `explain --live` says and where connections really go
// against the decision, for both IP versions.
func (d *device) check(want decision) {
	d.net.Helper()
	for _, version := range []int{4, 6} {
		rule, to := ruleAt(want.rule, version)
		d.explained(rule, d.net.Client(want.client).Addr(to.Addr()), want)
		if want.droppedUnder != "" {
			d.refused(want.client, to, want.droppedUnder)
		} else {
			d.reached(want.client, rule, to, want.backends)
		}
	}
}

// explained asks `explain --live --json`, as a script would.
func (d *device) explained(rule string, client netip.Addr, want decision) {
	d.net.Helper()
	out, problems, status := d.command("explain", "--live", "--rule", rule, "--client", client.String(), "--json")
	var e admin.Explanation
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		d.net.Fatalf("explain %s for %s: %v: %s%s", rule, client, err, out, problems)
	}
	wantStatus := 0
	if want.droppedUnder != "" {
		wantStatus = 2
	}
	if status != wantStatus || e.Kind != want.kind || e.Reason != want.reason || e.Ratio != want.ratio {
		d.net.Fatalf("explain %s for %s: status %d, %s, %s, ratio %q; want %d, %s, %s, %q\n%s", rule, client,
			status, e.Kind, e.Reason, e.Ratio, wantStatus, want.kind, want.reason, want.ratio, out)
	}
	if !slices.Equal(e.ModifiedEligible, want.backends) && want.droppedUnder != "region_denied" {
		d.net.Fatalf("explain %s for %s chooses among %v, want %v", rule, client, e.ModifiedEligible, want.backends)
	}
	if want.configured != nil && !slices.Equal(e.Configured, want.configured) {
		d.net.Fatalf("explain %s for %s counts %v as configured, want %v", rule, client, e.Configured, want.configured)
	}
	if (e.Backend == "") != (want.droppedUnder != "") {
		d.net.Fatalf("explain %s for %s: backend %q\n%s", rule, client, e.Backend, out)
	}
}

// reached opens connections until every wanted backend has had one, eight at
// least. Each must go where explain sends its tuple, and be tracked there.
func (d *device) reached(client, rule string, to netip.AddrPort, want []string) {
	d.net.Helper()
	got := make(map[string]int)
	// A backend that can be chosen is missed by bad luck once in 10^13 times.
	for n := 0; n < 8 || len(got) < len(want) && n < 32*len(want); n++ {
		r, err := d.net.Client(client).Get(d.net.soon(), to, "/")
		d.net.must(err)
		got[r.Backend]++
		if !slices.Contains(want, r.Backend) {
			d.net.Fatalf("%s to %s: a connection went to %s, want one of %v", client, rule, r.Backend, want)
		}
		e := d.explain(rule, r.Client, to)
		if e.Backend != r.Backend {
			d.net.Fatalf("%s to %s from %s: explain says %s, the connection went to %s", client, rule, r.Client, e.Backend, r.Backend)
		}
		if e.Tracked == nil || e.Tracked.Backend != r.Backend || e.Tracked.Rule != rule {
			d.net.Fatalf("%s to %s from %s went to %s and is tracked as %+v", client, rule, r.Client, r.Backend, e.Tracked)
		}
	}
	if len(got) != len(want) {
		d.net.Fatalf("%s to %s: connections went to %v, want all of %v", client, rule, got, want)
	}
}

func (d *device) explain(rule string, from, to netip.AddrPort) admin.Explanation {
	d.net.Helper()
	e, err := d.Explain(admin.ExplainRequest{Rule: rule, Tuple: admin.Tuple{
		Client: from.Addr().String(), Dst: to.Addr().String(), Protocol: protoTCP, SrcPort: from.Port(), DstPort: to.Port(),
	}})
	d.net.must(err)
	return e
}

// refused opens a connection that must get no answer at all, and waits until
// its packets are counted under the reason.
func (d *device) refused(client string, to netip.AddrPort, reason string) {
	d.net.Helper()
	before := d.status().Accounting.Dropped[reason]
	ctx, cancel := context.WithTimeout(d.net.ctx, 300*time.Millisecond)
	defer cancel()
	conn, err := d.net.Client(client).DialTCP(ctx, to, netip.AddrPort{})
	if err == nil {
		conn.Close()
		d.net.Fatalf("%s is connected to %s, want its packets dropped", client, to)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		d.net.Fatalf("%s to %s: %v, want no answer at all", client, to, err)
	}
	d.counted(reason, dropped(reason), before+1)
}

// lives checks that a stream still carries data and is tracked where it began.
func (d *device) lives(s *lab.Stream) {
	d.net.Helper()
	d.net.flowing(s)
	flows, err := d.Flows(admin.FlowFilter{Client: s.LocalAddr().Addr().String()})
	d.net.must(err)
	ports := fmt.Sprintf("%d→%d", s.LocalAddr().Port(), lab.EchoTLS)
	for _, f := range flows {
		if f.Ports == ports {
			if f.Backend != s.Backend || f.State != "confirmed" {
				d.net.Fatalf("the stream on %s is tracked as %+v", s.Backend, f)
			}
			return
		}
	}
	d.net.Fatalf("the stream from %s on %s is not among %d flows", s.LocalAddr(), s.Backend, len(flows))
}

// succeed runs a command of the appliance's program that must succeed.
func (d *device) succeed(args ...string) string {
	d.net.Helper()
	out, problems, status := d.command(args...)
	if status != 0 || problems != "" {
		d.net.Fatalf("%v: status %d: %s%s", args, status, out, problems)
	}
	return out
}

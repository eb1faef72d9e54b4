package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"zonehop/bench/lab"
	"zonehop/cmd/appliance/internal/admin"
)

// TestFlows checks the filters of flows, that --follow tells of changes, and
// what explain says of a tracked connection.
func TestFlows(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	d := n.start(testConfig(t, "two-zones.yaml"))
	tcp := n.stream("client-b", netip.AddrPortFrom(lab.VIPv4, lab.EchoTLS), "web-b1")
	n.stream("client-c", netip.AddrPortFrom(lab.VIPv4, lab.EchoTLS), "web-c1")
	n.stream("client-b", netip.AddrPortFrom(far4.Addr(), lab.EchoTLS), "")
	n.flowing(tcp)
	client := n.Client("client-b").IPv4().String()
	for _, c := range []struct {
		args []string
		ok   func(f *admin.Flow) bool
	}{
		{[]string{"--client", client}, func(f *admin.Flow) bool { return f.Client == client }},
		{[]string{"--backend", "web-c1"}, func(f *admin.Flow) bool { return f.Backend == "web-c1" }},
		{[]string{"--rule", "inspect"}, func(f *admin.Flow) bool { return f.Rule == "inspect" && strings.HasPrefix(f.Backend, "fw-") }},
		{[]string{"--state", "confirmed"}, func(f *admin.Flow) bool { return f.State == "confirmed" && f.Packets > 1 && f.Bytes > 0 }},
		{[]string{"--client", client, "--rule", "web-tcp", "--backend", "web-b1"}, func(f *admin.Flow) bool { return f.Backend == "web-b1" && f.Rule == "web-tcp" }},
	} {
		text, problems, status := d.command(append([]string{"flows", "--json"}, c.args...)...)
		var list []admin.Flow
		if err := json.Unmarshal([]byte(text), &list); status != 0 || err != nil || len(list) == 0 {
			t.Fatalf("flows %v ended with %d: %v %s%s", c.args, status, err, text, problems)
		}
		for i := range list {
			if !c.ok(&list[i]) {
				t.Errorf("flows %v: %+v", c.args, list[i])
			}
		}
	}

	for _, c := range []struct{ flag, value, want string }{
		{"--state", "foo", `appliance: flows: state "foo" does not exist; use unconfirmed, confirmed, closing`},
		{"--client", "web-b1", `appliance: flows: client "web-b1" is not an IP address`},
		{"--backend", "nobody", `appliance: flows: backend "nobody": not found; see appliance backends`},
		{"--rule", "web", `appliance: flows: rule or route "web": not found; see appliance status`},
	} {
		for _, mode := range []string{"--json=false", "--json", "--follow"} {
			if out, problems, status := d.command("flows", c.flag, c.value, mode); status != 1 || out != "" || strings.TrimSpace(problems) != c.want {
				t.Errorf("flows %s %s %s ended with %d: %q %q, want %q", c.flag, c.value, mode, status, out, problems, c.want)
			}
		}
	}

	follow := exec.CommandContext(n.ctx, os.Args[0], "flows", "--follow", "--json", "--interval", "20ms", "--client", client)
	follow.Env = append(os.Environ(), asAppliance+"=1", "ZONEHOP_SOCKET="+d.socket)
	out, err := follow.StdoutPipe()
	n.must(err)
	n.must(follow.Start())
	lines := bufio.NewScanner(out)
	conn, err := n.Client("client-b").DialUDP(n.soon(), netip.AddrPortFrom(lab.VIPv4, lab.EchoPort), netip.AddrPort{})
	n.must(err)
	defer conn.Close()
	exchange := func() string {
		t.Helper()
		backend, _, err := lab.ExchangeUDP(n.soon(), conn, []byte("follow"))
		n.must(err)
		return backend
	}
	change := func(want string) flowChange {
		t.Helper()
		for lines.Scan() {
			var c flowChange
			n.must(json.Unmarshal(lines.Bytes(), &c))
			if c.Change == want {
				return c
			}
		}
		t.Fatalf("--follow ended before a change %q", want)
		return flowChange{}
	}
	change("present") // one of the streams: it is following
	backend := exchange()
	if c := change("new"); c.Flow.Backend != backend || c.Flow.Rule != "web-udp" {
		t.Errorf("--follow told of %+v, want backend %s", c, backend)
	}
	exchange()
	if c := change("state"); c.From != "unconfirmed" || c.Flow.State != "confirmed" {
		t.Errorf("--follow told of %+v", c)
	}
	ask := func(proto string, local netip.AddrPort, rule string, port uint16) admin.Explanation {
		t.Helper()
		text, problems, status := d.command("explain", "--live", "--json", "--rule", rule, "--client", client,
			"--proto", proto, "--sport", fmt.Sprint(local.Port()), "--dport", fmt.Sprint(port))
		var e admin.Explanation
		if err := json.Unmarshal([]byte(text), &e); status != 0 || err != nil {
			t.Fatalf("explain ended with %d: %v %s%s", status, err, text, problems)
		}
		return e
	}
	e := ask("tcp", tcp.LocalAddr(), "web-tcp", lab.EchoTLS)
	if e.Tracked == nil || e.Tracked.Backend != "web-b1" || e.IfBackendFails == nil || !e.IfBackendFails.Stays {
		t.Errorf("TCP: tracked %+v, if its backend fails %+v", e.Tracked, e.IfBackendFails)
	}
	local := conn.LocalAddr().String()
	e = ask("udp", netip.MustParseAddrPort(local), "web-udp", lab.EchoPort)
	if e.Tracked == nil || e.Tracked.Backend != backend || e.IfBackendFails == nil || e.IfBackendFails.Stays || e.IfBackendFails.Backend == backend || e.IfBackendFails.Backend == "" {
		t.Errorf("UDP on %s: tracked %+v, if its backend fails %+v", backend, e.Tracked, e.IfBackendFails)
	}
	// What was foretold happens.
	n.must(n.Backend(backend).SetHealth(lab.HealthClosed))
	d.wait(backend+" to be unhealthy", func() error {
		if b := d.backend("web", n.Backend(backend).IPv4()); b.Health != "UNHEALTHY" {
			return fmt.Errorf("%s", b.Health)
		}
		return nil
	})
	if got := exchange(); got != e.IfBackendFails.Backend {
		t.Errorf("after %s failed the flow went to %s, foretold was %s", backend, got, e.IfBackendFails.Backend)
	}
	if c := change("moved"); c.From != backend || c.Flow.Backend != e.IfBackendFails.Backend {
		t.Errorf("--follow told of %+v", c)
	}
	n.must(follow.Process.Kill())
	_ = follow.Wait() // killed
	d.stop()
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"zonehop/bench/lab"
	"zonehop/cmd/appliance/internal/admin"
)

// usage is what a process has taken of its host.
type usage struct{ descriptors, mappings, threads, residentKiB, goroutines, heapKiB int }

// usage reads /proc and the appliance's metrics.
func (d *device) usage() usage {
	d.net.Helper()
	proc := fmt.Sprintf("/proc/%d/", d.process.Pid())
	fds, err := os.ReadDir(proc + "fd")
	d.net.must(err)
	maps, err := os.ReadFile(proc + "maps")
	d.net.must(err)
	status, err := os.ReadFile(proc + "status")
	d.net.must(err)
	u := usage{descriptors: len(fds), mappings: strings.Count(string(maps), "\n")}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		switch f[0] {
		case "Threads:":
			u.threads, _ = strconv.Atoi(f[1])
		case "VmRSS:":
			u.residentKiB, _ = strconv.Atoi(f[1])
		}
	}
	for line := range strings.Lines(d.metrics()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		v, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "go_goroutines":
			u.goroutines = int(v)
		case "go_memstats_heap_inuse_bytes":
			u.heapKiB = int(v) >> 10
		}
	}
	if u.threads == 0 || u.residentKiB == 0 || u.goroutines == 0 {
		d.net.Fatalf("usage could not be read: %+v", u)
	}
	return u
}

// within reports what has grown by so much since an earlier reading that each
// of the rounds in between may have left some of it. Threads that the runtime
// has made, and the memory they have, stay for as long as the process lives.
func (u usage) within(before usage, rounds int) error {
	if u.descriptors > before.descriptors+2 || u.goroutines > before.goroutines+2 || u.mappings > before.mappings+rounds/4+16 ||
		u.threads > before.threads+rounds/4+16 || u.residentKiB > before.residentKiB+32<<10 {
		return fmt.Errorf("%+v, %d rounds before %+v", u, rounds, before)
	}
	return nil
}

// TestReloadChurn reloads a hundred times under traffic, adding and removing
// one backend in turn, each time with a new identity.
func TestReloadChurn(t *testing.T) {
	const reloads = 100
	n := newNetwork(t, lab.Options{})
	c2 := `      - {name: web-c2, zone: europe-west1-c, address: 10.2.0.12, ipv6Address: "fd00:2::12"}` + "\n"
	base := testConfig(t, "two-zones.yaml", "drainingTimeoutSec: 30", "drainingTimeoutSec: 0")
	without := strings.Replace(base, c2, "", 1)
	d := n.start(without)

	var streams []*lab.Stream
	for range 6 {
		for _, to := range []netip.Addr{lab.VIPv4, lab.VIPv6, far4.Addr(), far6.Addr()} {
			streams = append(streams, n.stream("client-b", netip.AddrPortFrom(to, lab.EchoTLS), ""))
			streams = append(streams, n.stream("client-c", netip.AddrPortFrom(to, lab.EchoTLS), ""))
		}
	}
	var before usage
	start := time.Now()
	var longest time.Duration
	for i := range reloads {
		yaml := without
		if i%2 == 0 {
			yaml = strings.Replace(base, "name: web-c2", fmt.Sprintf("name: web-c2-%d", i), 1)
		}
		d.write(yaml)
		began := time.Now()
		n.must(d.Reload())
		longest = max(longest, time.Since(began))
		// New connections meanwhile; one to the backend that goes may break.
		for range 3 {
			ctx, cancel := context.WithTimeout(n.ctx, time.Second)
			_, _ = n.Client("client-c").Get(ctx, vip4, "/")
			cancel()
		}
		if i == 19 {
			before = d.usage()
		}
	}
	took := time.Since(start)
	for _, s := range streams {
		n.flowing(s)
	}
	worst := time.Duration(0)
	for _, s := range streams {
		state := s.Close()
		if state.Err != nil {
			t.Error(state.Err)
		}
		worst = max(worst, state.MaxGap)
	}
	var after usage
	d.wait("what was used for reloads to be given back", func() error {
		after = d.usage()
		return after.within(before, reloads-20)
	})
	s := d.balanced()
	t.Logf("%d reloads in %v, the longest %v; %d streams, longest gap %v, %d unknown packets; after 20 reloads %+v, after all %+v",
		reloads, took.Round(time.Millisecond), longest.Round(time.Microsecond), len(streams), worst.Round(time.Millisecond), s.Accounting.MidFlow, before, after)
	for _, b := range must1(d.Backends()) {
		if strings.HasPrefix(b.Name, "web-c2") {
			t.Errorf("backend %s is there after the last reload", b.Name)
		}
	}

	// The last configuration is in force, and a wrong one does not replace it.
	d.write(base)
	if out, problems, status := d.command("reload"); status != 0 || out+problems != "" {
		t.Errorf("reload ended with %d: %s%s", status, out, problems)
	}
	d.ready()
	names := func() (out []string) {
		for _, b := range must1(d.Backends()) {
			out = append(out, b.Name)
		}
		return out
	}
	if !strings.Contains(strings.Join(names(), " "), "web-c2") {
		t.Errorf("backends are %v, want web-c2 among them", names())
	}
	d.write(strings.Replace(base, "healthyThreshold: 2", "healthyThreshold: 99", 1))
	if _, problems, status := d.command("reload"); status != 1 || !strings.Contains(problems, "healthyThreshold: 99") || !strings.Contains(problems, d.file+":") {
		t.Errorf("a wrong file: reload ended with %d: %s", status, problems)
	}
	n.shares("client-b", vip4, 10)
	d.stop()
}

// TestDiff asks what configurations would change, of the running appliance and
// of files.
func TestDiff(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	base := testConfig(t, "two-zones.yaml")
	d := n.start(base)
	streams := map[string]int{}
	for range 10 {
		streams[n.stream("client-b", netip.AddrPortFrom(lab.VIPv4, lab.EchoTLS), "").Backend]++
	}
	other := func(replace ...string) string {
		t.Helper()
		next := *d
		next.file = filepath.Join(n.Dir(), "next.yaml")
		next.write(testConfig(t, "two-zones.yaml", replace...))
		return next.file
	}
	ask := func(want int, args ...string) (out admin.Diff) {
		t.Helper()
		text, problems, status := d.command(append([]string{"diff", "--json"}, args...)...)
		if status != want {
			t.Fatalf("diff %v ended with %d, want %d: %s%s", args, status, want, text, problems)
		}
		if want != 1 {
			n.must(json.Unmarshal([]byte(text), &out))
		}
		return out
	}
	if got := ask(0, "--config", d.file); got.Changed || !got.Live {
		t.Errorf("the same file: %+v", got)
	}
	ask(1, "--config", other("failoverRatio: 0.5", "failoverRatio: 5"))

	b1 := `      - {name: web-b1, zone: europe-west1-b, address: 10.1.0.11, ipv6Address: "fd00:1::11"}` + "\n"
	file := other(b1, "", "name: web-c1, zone: europe-west1-c", "name: web-c1, weight: 3, zone: europe-west1-c",
		"  - {name: web-udp6,", "  - {name: web-udp7,", "drainingTimeoutSec: 30", "drainingTimeoutSec: 31")
	got := ask(4, "--config", file)
	if fmt.Sprint(got.Backends) != "{[] [web/web-b1] [{web/web-c1 [weight: 1 → 3]}]}" {
		t.Errorf("backends: %v", got.Backends)
	}
	if fmt.Sprint(got.Rules) != "{[web-udp7] [web-udp6] []}" {
		t.Errorf("rules: %v", got.Rules)
	}
	if fmt.Sprint(got.Services) != "{[] [] [{web [drainingTimeoutSec: 30 → 31]} {inspection [drainingTimeoutSec: 30 → 31]}]}" {
		t.Errorf("services: %v", got.Services)
	}
	for _, e := range got.Effects {
		switch e.BackendService {
		case "inspection":
			if e.NewConnections != 0 || *e.Affected != 0 {
				t.Errorf("inspection: %+v", e)
			}
		case "web":
			// Half of zone b's connections are on web-b1; every tracked flow
			// there moves when its drain ends, and no other does.
			if e.NewConnections < 0.45 || *e.Affected < streams["web-b1"] || *e.Flows < 10 {
				t.Errorf("web: %+v, %d of 10 streams on web-b1", e, streams["web-b1"])
			}
			flows := must1(d.Flows(admin.FlowFilter{Backend: "web-b1"}))
			if len(flows) != *e.Affected {
				t.Errorf("%d flows are affected, %d are on web-b1", *e.Affected, len(flows))
			}
		}
	}
	// What was foretold happens: nothing before the reload, all of it after.
	if names := must1(d.Backends()); len(names) != 16 {
		t.Errorf("%d lines of backends after diff, want 16", len(names))
	}
	text, _, status := d.command("diff", "--config", file)
	for _, want := range []string{"- backend web/web-b1", "~ backend web/web-c1: weight: 1 → 3", "+ forwarding rule web-udp7", "AFFECTED"} {
		if !strings.Contains(text, want) {
			t.Errorf("diff prints no %q:\n%s", want, text)
		}
	}
	if status != 4 {
		t.Errorf("diff ended with %d", status)
	}
	offline := ask(4, "--config", file, "--old", d.file)
	if offline.Live || len(offline.Effects) != 2 || offline.Effects[0].Flows != nil || offline.Effects[0].NewConnections == 0 {
		t.Errorf("offline: %+v", offline)
	}
	if got := ask(4, "--config", other("hashKey: end-to-end", "hashKey: end-to-end\ntuning: {batch: 32}")); !strings.Contains(got.Refused, "tuning") {
		t.Errorf("refused: %q", got.Refused)
	}
	if got := ask(0, "--config", d.file, "--old", d.file); got.Changed {
		t.Errorf("the same file twice: %+v", got)
	}
	d.stop()
	if _, problems, status := d.command("diff", "--config", file); status != 1 || !strings.Contains(problems, "--old") {
		t.Errorf("without an appliance diff ended with %d: %s", status, problems)
	}
}

// TestReloadInterfaces adds and removes an interface, and queues, in reloads.
func TestReloadInterfaces(t *testing.T) {
	topology := lab.TwoSegments()
	n := newNetwork(t, lab.Options{Topology: &topology})
	yaml := func(interfaces string) string {
		return testConfig(t, "two-zones.yaml", append([]string{"interfaces: [eth0]", interfaces}, onTheOtherSegment...)...)
	}
	both := yaml("interfaces: [eth0, eth1]")
	d := n.start(both)
	var streams []*lab.Stream
	for range 3 {
		streams = append(streams, n.stream("client-b", netip.AddrPortFrom(lab.VIPv4, lab.EchoTLS), ""),
			n.stream("client-c", netip.AddrPortFrom(far6.Addr(), lab.EchoTLS), ""))
	}
	reload := func(yaml string) {
		t.Helper()
		d.write(yaml)
		if _, problems, status := d.command("reload"); status != 0 {
			t.Fatalf("reload ended with %d: %s", status, problems)
		}
	}
	// A reload is in force when it returns: no waiting here.
	queues := func(want map[string]int) {
		t.Helper()
		got := map[string]int{}
		for _, i := range must1(d.Status()).Interfaces {
			for _, q := range i.Queues {
				if q.Bound {
					got[i.Name]++
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("right after the reload %v are bound, want %v", got, want)
		}
	}
	var before usage
	for round := range 4 {
		reload(yaml("interfaces: [eth0]"))
		queues(map[string]int{"eth0": 2})
		d.wait("web backends to be out of reach", func() error {
			if b := d.backend("web", netip.MustParseAddr("172.20.1.11")); b.Deliverable {
				return fmt.Errorf("%+v", b)
			}
			return nil
		})
		n.flowing(streams[1]) // over eth0 alone
		reload(yaml("interfaces: [eth0, {name: eth1, queues: [0]}]"))
		queues(map[string]int{"eth0": 2, "eth1": 1})
		reload(both)
		queues(map[string]int{"eth0": 2, "eth1": 2})
		d.ready()
		for _, s := range streams {
			n.flowing(s)
		}
		if round == 0 {
			before = d.usage()
		}
	}
	var after usage
	d.wait("what was used for three more rounds to be given back", func() error {
		after = d.usage()
		return after.within(before, 3)
	})
	t.Logf("after the first round %+v, after the fourth %+v", before, after)
	for _, s := range streams {
		if state := s.Close(); state.Err != nil {
			t.Error(state.Err)
		}
	}
	d.balanced()
	d.stop()
}

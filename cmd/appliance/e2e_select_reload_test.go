package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"zonehop/bench/lab"
	"zonehop/cmd/appliance/internal/admin"
)

// Parts of testdata/five-backends.yaml that reloads change.
const (
	rangesOfB  = `[10.1.0.0/16, "fd00:1::/32"]`
	rangesOfC  = `[10.2.0.0/16, "fd00:2::/32"]`
	spillAt08  = `zonalAffinity: {spillover: SPILL_CROSS_ZONE, spilloverRatio: 0.8}`
	backendB1  = `{name: b1, zone: b, address: 10.1.0.11, ipv6Address: "fd00:1::11"}`
	backendB2  = `{name: b2, zone: b, address: 10.1.0.12, ipv6Address: "fd00:1::12"}`
	webService = "  - name: web\n"
)

// TestReload changes the configuration under open connections: new ones follow
// it, open ones stay on their backends.
func TestReload(t *testing.T) {
	n := newNetwork(t, lab.Options{Topology: fiveBackends()})
	zoneMap := filepath.Join(n.Dir(), "zones.map")
	n.must(os.WriteFile(zoneMap, nil, 0o644))
	config := func(replace ...string) string {
		return testConfig(t, "five-backends.yaml", append([]string{
			"region: europe-west1\n", "region: europe-west1\nzoneMapFile: " + zoneMap + "\n",
		}, replace...)...)
	}
	d := n.start(config())
	c := connections{}
	for _, version := range []int{4, 6} {
		for _, s := range []struct{ client, rule, backend string }{
			{"client-b", "web", "b1"}, {"client-b", "web", "b3"}, {"client-x", "plain", "c2"}, {"client-c", "drop", "c1"},
		} {
			_, to := ruleAt(s.rule, version)
			c = append(c, n.stream(s.client, streamAt(to), s.backend))
		}
	}
	d.sub("zones", func(d *device) {
		d.reload(config(rangesOfB, "[]", rangesOfC, rangesOfB))
		d.check(decision{client: "client-b", rule: "web", kind: healthyPrimaries, reason: ratioMet, ratio: "5/5", backends: inC})
		c.live(d)
	})
	d.sub("zonal affinity", func(d *device) {
		d.reload(config(spillAt08, "zonalAffinity: {spillover: DISABLED}"))
		d.check(decision{client: "client-b", rule: "web", kind: healthyPrimaries, reason: affinityOff, backends: inBC})
		c.live(d)
	})
	d.sub("ratios", func(d *device) {
		d.reload(config("spilloverRatio: 0.8", "spilloverRatio: 1", "failoverRatio: 0.5", "failoverRatio: 0.95"))
		d.failing("b5")
		d.check(decision{client: "client-b", rule: "web", kind: healthyFailovers, reason: noMatch, backends: inD})
		c.live(d)
		d.reload(config("spilloverRatio: 0.8", "spilloverRatio: 1"))
		d.check(decision{client: "client-b", rule: "web", kind: healthyPrimaries, reason: ratioNotMet, ratio: "4/5",
			backends: slices.DeleteFunc(slices.Clone(inBC), func(b string) bool { return b == "b5" })})
		d.failing()
		c.live(d)
	})
	d.sub("weights", func(d *device) {
		d.reload(config(backendB1, strings.Replace(backendB1, "}", ", weight: 0}", 1)))
		for _, version := range []int{4, 6} {
			rule, to := ruleAt("web", version)
			client := d.net.Client("client-b")
			d.explained(rule, client.Addr(to.Addr()), decision{kind: healthyPrimaries, reason: ratioMet, ratio: "5/5", backends: inB})
			d.reached("client-b", rule, to, []string{"b2", "b3", "b4", "b5"})
		}
		c.live(d)
	})
	d.sub("session affinity", func(d *device) {
		d.reload(config(webService, webService+"    sessionAffinity: CLIENT_IP\n"))
		for _, version := range []int{4, 6} {
			rule, to := ruleAt("web", version)
			d.onlyOne("client-b", d.net.Client("client-b").Addr(to.Addr()), rule, slices.Repeat([]netip.AddrPort{to}, 8))
		}
		c.live(d)
	})
	d.sub("other backends leave", func(d *device) {
		d.reload(config("      - "+backendB2+"\n", ""))
		d.check(decision{client: "client-b", rule: "web", kind: healthyPrimaries, reason: ratioMet, ratio: "4/4", backends: []string{"b1", "b3", "b4", "b5"}})
		c.live(d)
	})
	d.sub("their own backend leaves and drains", func(d *device) {
		d.reload(config("      - "+backendB1+"\n", ""))
		d.judged() // b2 is back, and new
		d.check(decision{client: "client-b", rule: "web", kind: healthyPrimaries, reason: ratioMet, ratio: "4/4", backends: []string{"b2", "b3", "b4", "b5"}})
		list, err := d.Backends()
		d.net.must(err)
		for _, b := range list {
			if b.Removed != (b.Name == "b1") {
				d.net.Errorf("backend %s of %s: removed %v", b.Name, b.Service, b.Removed)
			}
		}
		c.live(d)
	})
	d.sub("their own backend comes back", func(d *device) {
		d.reload(config())
		d.judged()
		d.check(decision{client: "client-b", rule: "web", kind: healthyPrimaries, reason: ratioMet, ratio: "5/5", backends: inB})
		c.live(d)
	})
	d.sub("a bad configuration", func(d *device) { testRefusedReload(d, config); c.live(d) })
	d.sub("zone map file", func(d *device) { testZoneMapFile(d, zoneMap, c) })
	d.sub("three new backends", func(d *device) { testNewBackends(d, config()) })
	c.live(d)
	d.balanced()
	d.stop()
}

// connections are the streams that must survive.
type connections []*lab.Stream

func (c connections) live(d *device) {
	d.net.Helper()
	for _, s := range c {
		d.lives(s)
	}
}

// reload puts a configuration in force, by SIGHUP.
func (d *device) reload(yaml string) {
	d.net.Helper()
	d.write(yaml)
	const done, refused = "configuration reloaded", "reload refused"
	before, bad := strings.Count(d.process.Output(), done), strings.Count(d.process.Output(), refused)
	d.net.must(d.process.Signal(unix.SIGHUP))
	d.wait("the reload", func() error {
		if log := d.process.Output(); strings.Count(log, refused) > bad {
			d.net.Fatalf("the reload is refused:\n%s", tail(log, 1000))
		} else if strings.Count(log, done) == before {
			return errors.New("not yet")
		}
		return nil
	})
}

// testRefusedReload: a configuration that is wrong, or that needs a restart,
// changes nothing.
func testRefusedReload(d *device, config func(...string) string) {
	generation := d.status().Generation
	for _, wrong := range [][]string{
		{rangesOfB, "[10.1.0.0/33]"},
		{"backends: *all", "backends: []"},
		{"entries: 65536", "entries: 131072"},
	} {
		d.write(config(append(wrong, spillAt08, "zonalAffinity: {spillover: DISABLED}")...))
		if err := d.Reload(); !errors.Is(err, admin.ErrRefused) {
			d.net.Errorf("reload with %s: %v, want it refused", wrong[1], err)
		}
	}
	if g := d.status().Generation; g != generation {
		d.net.Errorf("the snapshot's generation went from %d to %d", generation, g)
	}
	d.check(decision{client: "client-b", rule: "web", kind: healthyPrimaries, reason: ratioMet, ratio: "5/5", backends: inB})
	d.write(config())
	d.net.must(d.Reload())
	d.check(decision{client: "client-b", rule: "web", kind: healthyPrimaries, reason: ratioMet, ratio: "5/5", backends: inB})
}

// testZoneMapFile edits the zone map while the appliance runs.
func testZoneMapFile(d *device, path string, c connections) {
	const x4, x6 = "10.8.0.0/16", "fd00:8::/32" // client-x
	inZone := func(zone string) string { return fmt.Sprintf("# where x is\n%s %s\n%s %s\n", x4, zone, x6, zone) }
	follows := func(zone string, backends []string) {
		d.net.Helper()
		d.wait("client-x to be in zone "+zone, func() error {
			e, err := d.Explain(admin.ExplainRequest{Rule: "web", Tuple: admin.Tuple{Client: "10.8.0.101", Protocol: protoTCP, SrcPort: 1, DstPort: 80}})
			if err == nil && e.ClientZone != zone {
				err = fmt.Errorf("it is in %q", e.ClientZone)
			}
			return err
		})
		d.check(decision{client: "client-x", rule: "web", kind: healthyPrimaries, reason: ratioMet, ratio: "5/5", backends: backends})
		c.live(d)
	}
	d.net.must(os.WriteFile(path, []byte(inZone("b")), 0o644))
	follows("b", inB)
	// Replaced, as careful editors do.
	d.net.must(os.WriteFile(path+".new", []byte(inZone("c")), 0o644))
	d.net.must(os.Rename(path+".new", path))
	follows("c", inC)

	// Mounted, as Kubernetes does: a link to a file in a directory that is a link, which is swapped.
	dir := filepath.Dir(path)
	for _, zone := range []string{"b", "c"} {
		version := filepath.Join(dir, "..version-"+zone)
		d.net.must(os.Mkdir(version, 0o755))
		d.net.must(os.WriteFile(filepath.Join(version, "map"), []byte(inZone(zone)), 0o644))
		d.net.must(os.Symlink(version, filepath.Join(dir, "..new")))
		d.net.must(os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
		if zone == "b" {
			d.net.must(os.Symlink(filepath.Join(dir, "..data", "map"), path+".new"))
			d.net.must(os.Rename(path+".new", path))
		}
		follows(zone, map[string][]string{"b": inB, "c": inC}[zone])
	}

	const refused = "zone map file refused"
	d.net.must(os.WriteFile(path, []byte(inZone("b")+"10.8.0.0 b c\n10.8.0.0/16 nowhere\n"), 0o644))
	d.wait("the bad line to be logged", func() error {
		log := d.process.Output()
		i := strings.Index(log, refused)
		if i < 0 {
			return errors.New("not yet")
		}
		for _, place := range []string{path + ":4:", path + ":5:"} {
			if !strings.Contains(log[i:], place) {
				return fmt.Errorf("the message does not name %s: %s", place, log[i:])
			}
		}
		return nil
	})
	follows("c", inC)
	if err := d.Reload(); !errors.Is(err, admin.ErrRefused) {
		d.net.Errorf("reload with a bad zone map file: %v, want it refused", err)
	}
	follows("c", inC)
	d.net.must(os.WriteFile(path, []byte(inZone("b")), 0o644))
	follows("b", inB)
}

// testNewBackends adds three backends at once to a service of four. Counted
// before their first verdict, 4 of 7 would miss the failover ratio, and 2 of 5
// in the zone the spill-over ratio.
func testNewBackends(d *device, config string) {
	grow := func(more ...string) string {
		list := append([]string{"backends: &grow\n", backendB1, backendB2}, more...)
		return strings.NewReplacer(
			// A check that is patient with backends that do not answer: they stay without a verdict.
			"\nbackendServices:\n", `
  - name: patient
    type: HTTP
    checkIntervalSec: 60
    timeoutSec: 60
    httpHealthCheck: {port: 8080, requestPath: /healthz}
backendServices:
`,
			"\nforwardingRules:\n", `
  - name: grow
    healthChecks: [patient]
    connectionDraining: {drainingTimeoutSec: 30}
    failoverPolicy: {failoverRatio: 0.9}
    `+spillAt08+`
    `+strings.Join(list, "\n      - ")+`
      - {name: c1, zone: c, address: 10.2.0.11, ipv6Address: "fd00:2::11"}
      - {name: c2, zone: c, address: 10.2.0.12, ipv6Address: "fd00:2::12"}
      - {name: d1, zone: d, address: 10.3.0.11, ipv6Address: "fd00:3::11", failover: true}
forwardingRules:
  - {name: grow, IPAddress: 10.0.100.17, ports: [80, 443], backendService: grow}
  - {name: grow6, IPAddress: "fd00:0:100::17", ports: [80, 443], backendService: grow}
`).Replace(config)
	}
	d.write(grow())
	d.net.must(d.Reload())
	d.ready()
	old := []string{"b1", "b2"}
	before := decision{client: "client-b", rule: "grow", kind: healthyPrimaries, reason: ratioMet, ratio: "2/2",
		backends: old, configured: []string{"b1", "b2", "c1", "c2", "d1"}}
	d.check(before)
	c := connections{}
	for _, version := range []int{4, 6} {
		_, to := ruleAt("grow", version)
		c = append(c, d.net.stream("client-b", streamAt(to), "b1"), d.net.stream("client-n", streamAt(to), "b2"))
	}

	fresh := []string{"b3", "b4", "b5"}
	for _, name := range fresh {
		d.net.must(d.net.Backend(name).SetHealth(lab.HealthSlow))
	}
	d.reload(grow(
		`{name: b3, zone: b, address: 10.1.0.13, ipv6Address: "fd00:1::13"}`,
		`{name: b4, zone: b, address: 10.1.0.14, ipv6Address: "fd00:1::14"}`,
		`{name: b5, zone: b, address: 10.1.0.15, ipv6Address: "fd00:1::15"}`,
	))
	growing := func(health string) error {
		list, err := d.Backends()
		for _, b := range list {
			if b.Service == "grow" && slices.Contains(fresh, b.Name) && b.Health != health {
				return fmt.Errorf("%s %s is %s", b.Name, b.Address, b.Health)
			}
		}
		return err
	}
	d.net.must(growing("UNKNOWN"))
	d.check(before)
	d.check(decision{client: "client-n", rule: "grow", kind: healthyPrimaries, reason: incompatible, backends: []string{"b1", "b2", "c1", "c2"}})
	d.net.must(growing("UNKNOWN"))
	c.live(d)

	for _, name := range fresh {
		d.net.must(d.net.Backend(name).SetHealth(lab.HealthOK))
	}
	d.wait("the new backends to be healthy", func() error { return growing("HEALTHY") })
	d.check(decision{client: "client-b", rule: "grow", kind: healthyPrimaries, reason: ratioMet, ratio: "5/5", backends: inB})
	c.live(d)
}

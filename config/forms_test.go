package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// good parses text that has no errors.
func good(t *testing.T, text string) *Config {
	t.Helper()
	c, problems := Parse("f", []byte(text))
	if c == nil {
		t.Fatalf("Parse:\n%s\n%s", problems.Errors(), text)
	}
	return c
}

// TestForms reads the same configuration in its short and its long form.
func TestForms(t *testing.T) {
	const short = `
interfaces: [eth0]
zones: [{name: a, clientRanges: [10.1.0.0/24]}]
backendServices:
  - name: web
    healthChecks: [{type: HTTP, port: 8080, requestPath: /healthz}]
    zonalAffinity: {spillover: SPILL_CROSS_ZONE, spilloverRatio: 0.8}
    backends: [{zone: a, address: 10.1.0.11}]
forwardingRules: [{IPAddress: 10.1.255.10, ports: [80], backendService: web}]
`
	const long = `
region: local
interfaces: [{name: eth0, mode: auto, queues: all, cpus: auto, busyPoll: false}]
zones: [{name: a, clientRanges: [10.1.0.0/24]}]
healthChecks: [{name: "web/HTTP:8080", type: HTTP, checkIntervalSec: 5.0, timeoutSec: 5, httpHealthCheck: {port: "8080", requestPath: /healthz, proxyHeader: NONE}}]
backendServices:
  - name: web
    protocol: UNSPECIFIED
    healthChecks: ["web/HTTP:8080"]
    networkPassThroughLbTrafficPolicy: {zonalAffinity: {spillover: ZONAL_AFFINITY_SPILL_CROSS_ZONE, spilloverRatio: 0.80}}
    symmetryGroup: web
    backends: [{name: web/10.1.0.11, zone: a, address: 10.1.0.11, failover: false, weight: 1}]
forwardingRules: [{name: "10.1.255.10:80/TCP", IPAddress: 10.1.255.10, IPProtocol: TCP, ports: ["80"], backendService: web}]
`
	if diff := cmp.Diff(good(t, short), good(t, long), equal); diff != "" {
		t.Errorf("short and long forms differ (-short +long):\n%s", diff)
	}
}

func TestMadeNames(t *testing.T) {
	c, problems := Load("testdata/every-key.yaml")
	if c == nil {
		t.Fatalf("Load:\n%s", problems)
	}
	var got []string
	for _, h := range c.HealthChecks {
		got = append(got, h.Name)
	}
	for _, s := range c.BackendServices {
		for _, b := range s.Backends {
			got = append(got, b.Name)
		}
	}
	for _, r := range c.ForwardingRules {
		got = append(got, r.Name)
	}
	for _, r := range c.Routes {
		got = append(got, r.Name)
	}
	want := []string{
		"tcp", "http", "short", "ssl", "https", "http2", "grpc", "grpc-tls", "grpc-short", "inspection/TCP:22",
		"web-1", "web-2", "web-3", "inspection/10.1.0.21", "six/fd00:1::31",
		"web-vip", "[fd00:1::100]:443/TCP", "10.0.100.11/L3_DEFAULT",
		"policy", "192.168.0.0/16", "::/0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	many := ForwardingRule{IPAddress: c.ForwardingRules[0].IPAddress, IPProtocol: RuleTCP}
	for p := range uint16(20) {
		many.Ports = append(many.Ports, PortRange{1000 * (p + 1), 1000*(p+1) + 999})
	}
	if n := many.madeName(); n != "10.0.100.10:1000-1999,2000-2999,3000-3999,4000-4999,5000-5999,6000-6999,and-more/TCP" || len(n) > maxName {
		t.Errorf("made name of many ports: %s", n)
	}
}

func TestAnchors(t *testing.T) {
	c, problems := Load("testdata/anchors.yaml")
	if c == nil {
		t.Fatalf("Load:\n%s", problems)
	}
	dns := c.BackendServices[1]
	if dns.Name != "dns" || dns.Protocol != ProtocolUDP || dns.DrainingTimeout != 30*time.Second || dns.Backends[1].Zone != "west-b" ||
		dns.ZonalAffinity != (ZonalAffinity{SpillCrossZone, RatioOne / 2}) || dns.HealthCheck != "dns/TCP:80" || dns.Backends[0].Name != "dns/10.1.0.11" {
		t.Errorf("the merged service is %+v", dns)
	}
	if r := c.ForwardingRules[0]; r.Ports[0] != (PortRange{80, 80}) || r.Interfaces[0] != "eth0" {
		t.Errorf("the rule with aliases is %+v", r)
	}
}

// TestAliasBomb reads files whose aliases multiply, or contain themselves, in bounded time.
func TestAliasBomb(t *testing.T) {
	backends := "&b {zone: a, address: 10.1.0.11}" + strings.Repeat(", *b", 4000)
	services := "&s {name: web, healthChecks: [{type: TCP}], backends: [" + backends + "]}" + strings.Repeat(", *s", 4000)
	laughs := "a: &a0 [x, x, x, x, x, x, x, x, x]\n"
	for i := range 12 {
		laughs += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 8), i)
	}
	for name, text := range map[string]string{
		"multiplied": "interfaces: [eth0]\nzones: [{name: a}]\nbackendServices: [" + services + "]\n",
		"laughs":     laughs + "interfaces: *a12\n",
		"itself":     "interfaces: &i [*i, *i]\ntuning: &t {<<: *t}\n",
		"merged":     "interfaces: [eth0]\ntuning: &t {<<: [" + strings.Repeat("&m {<<: *t}, ", 1000) + "{}]}\n",
		"deep":       "interfaces: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		"deeper":     "interfaces: " + strings.Repeat("{a: ", 20000),
	} {
		t.Run(name, func(t *testing.T) {
			start := cpuTime(t)
			c, problems := Parse("f", []byte(text))
			if c != nil && name != "merged" {
				t.Errorf("Parse accepted it")
			}
			if d := cpuTime(t) - start; d > 20*time.Second {
				t.Errorf("Parse took %v of a CPU", d)
			}
			if name == "multiplied" {
				for _, p := range problems {
					if strings.Contains(p.Text, "once its aliases are followed") {
						return
					}
				}
				t.Errorf("Parse did not say that there are too many values:\n%s", problems)
			}
		})
	}
}

// cpuTime is what this process has used so far, whatever else the machine does.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestUnreadable(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"region: a\nzone: \xff\n", "f:2:7: the byte 0xff is not UTF-8 text; save the file as UTF-8"},
		{"region: \u00e4\x00\n", "f:1:10: the control character U+0000 cannot stand here; remove it"},
		{"region: a\ufeff\n", "f:1:10: the control character U+FEFF cannot stand here; remove it"},
	} {
		got, problems := Parse("f", []byte(c.text))
		if got != nil || problems.String() != c.want {
			t.Errorf("Parse(%q) said\n%s\nwant\n%s", c.text, problems, c.want)
		}
	}
	smallest, err := os.ReadFile("testdata/smallest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"\ufeff" + string(smallest), strings.ReplaceAll(string(smallest), "\n", "\r\n"), "---\n" + string(smallest) + "...\n"} {
		good(t, text)
	}
}

func TestAbsentFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.yaml")
	c, problems := Load(path)
	if want := "read configuration: open " + path + ": no such file or directory"; c != nil || problems.String() != want || problems.Err() == nil {
		t.Errorf("Load(absent) = %v, %q; want nil, %q", c, problems, want)
	}
}

// TestNotYet takes out the rows of what is not supported, which is all it needs to be read.
func TestNotYet(t *testing.T) {
	var text string
	for _, c := range wrongCases(t) {
		if c.name == "parts of the format that nothing acts on yet" {
			text = c.yaml
		}
	}
	c, problems := Parse("f", []byte(text))
	if c != nil || len(problems.Errors()) != 1 {
		t.Errorf("Parse said %d things:\n%s", len(problems.Errors()), problems)
	}
	for _, p := range problems.Errors() {
		if !strings.Contains(p.Text, " is not yet supported; ") {
			t.Errorf("unexpected: %s", p)
		}
	}
	everythingSupported(t)
	if c := good(t, text); c.BackendServices[0].Delivery != DeliveryGENEVE || c.HealthChecks[0].Type != CheckHTTPS {
		t.Errorf("read %+v", c)
	}
}

func TestZoneMap(t *testing.T) {
	c := good(t, "interfaces: [eth0]\nzones: [{name: west-a}, {name: west-b}]\n")
	entries, problems := c.ParseZoneMap("z", []byte("# a comment\n\n10.1.0.0/24 west-a\r\n  fd00::/64\twest-b # more\n10.1.0.0/25 west-b"))
	var got []string
	for _, e := range entries {
		got = append(got, e.Prefix.String()+" "+e.Zone)
	}
	if diff := cmp.Diff([]string{"10.1.0.0/24 west-a", "fd00::/64 west-b", "10.1.0.0/25 west-b"}, got); diff != "" || problems != nil {
		t.Errorf("ParseZoneMap (-want +got):\n%s%s", diff, problems)
	}
	entries, problems = c.ParseZoneMap("z", []byte("10.1.0.0/24\n10.1.0.0/24 west-a too\n10.1.0.5/24 west-a\n10.2.0.0/24 westa\n10.3.0.0/24 west-a\n 10.3.0.0/24 west-b\n"))
	want := `z:1:1: the line has 1 words; use a range and a zone, such as "10.1.0.0/24 a"
z:2:20: the line has 3 words; use a range and a zone, such as "10.1.0.0/24 a"
z:3:1: 10.1.0.5/24 has bits set past its length; write 10.1.0.0/24, or 10.1.0.5/32 for the one address
z:4:13: westa is not the name of a zone; use west-a or west-b, or add it to zones (did you mean west-a?)
z:6:2: 10.3.0.0/24 is already given in line 5; give each range once`
	if entries != nil || problems.String() != want {
		t.Errorf("ParseZoneMap said\n%s\nwant\n%s", problems, want)
	}
	if entries, problems := c.LoadZoneMap(); entries != nil || problems != nil {
		t.Errorf("LoadZoneMap without a file = %v, %v", entries, problems)
	}
	c.ZoneMapFile = filepath.Join(t.TempDir(), "none")
	if _, problems := c.LoadZoneMap(); problems.String() != "read zone map: open "+c.ZoneMapFile+": no such file or directory" {
		t.Errorf("LoadZoneMap(absent) said %s", problems)
	}
}

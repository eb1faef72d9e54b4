package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"zonehop/bench/needs"
	"zonehop/config"
)

const checkedFile = `interfaces: [eth0]
zones: [{name: a, clientRanges: [10.1.0.0/24]}]
backendServices:
  - name: web
    healthChecks: [{type: TCP, port: 80}]
    connectionDraining: {drainingTimeoutSec: 60}
    backends: [{zone: a, address: 10.1.0.11}]
forwardingRules:
  - {IPAddress: 10.1.255.10, ports: [80], backendService: web}
`

// runCheck runs the command on a file of the given text and returns its exit status and both outputs,
// with the directory of the file taken out.
func runCheck(t *testing.T, text string, args ...string) (status int, out, errOut string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "lb.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var o, e bytes.Buffer
	cmd := newCheckCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&o)
	cmd.SetErr(&e)
	cmd.SetArgs(append([]string{"--config", file}, args...))
	switch err := cmd.Execute().(type) {
	case nil:
	case exitStatus:
		status = int(err)
	default:
		t.Fatalf("check: %v", err)
	}
	return status, o.String(), strings.ReplaceAll(e.String(), dir+"/", "")
}

func TestCheck(t *testing.T) {
	warned := strings.Replace(checkedFile, "drainingTimeoutSec: 60", "drainingTimeoutSec: 0", 1)
	const warning = "lb.yaml:6:46: warning: backendServices[0].connectionDraining.drainingTimeoutSec: " +
		"0 cuts the connections of a backend when it is removed; use up to 3600 to let them end\n"
	for _, c := range []struct {
		name, text string
		args       []string
		status     int
		errOut     string
	}{
		{"valid", checkedFile, nil, 0, ""},
		{"valid and strict", checkedFile, []string{"--strict"}, 0, ""},
		{"warned", warned, nil, 0, warning},
		{"warned and strict", warned, []string{"--strict"}, 1, warning},
		{"wrong", strings.Replace(checkedFile, "ports: [80]", "ports: [0]", 1), nil, 1,
			"lb.yaml:9:38: forwardingRules[0].ports[0]: 0 is out of range; use a port from 1 to 65535 or a range such as \"8000-8100\"\n"},
		{"wrong and printed", "interfaces: []", []string{"--print"}, 1, "lb.yaml:1:13: interfaces: has no interfaces; list at least 1\n"},
		{"a zone map that is elsewhere", checkedFile + "zoneMapFile: /nonexistent/zones\n", []string{"--strict"}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, out, errOut := runCheck(t, c.text, c.args...)
			if status != c.status || errOut != c.errOut || out != "" {
				t.Errorf("check %v = %d\n%s%s\nwant %d\n%s", c.args, status, out, errOut, c.status, c.errOut)
			}
		})
	}
}

func TestCheckPrints(t *testing.T) {
	status, out, errOut := runCheck(t, checkedFile, "--print")
	if status != 0 || errOut != "" {
		t.Fatalf("check --print = %d\n%s", status, errOut)
	}
	if !strings.Contains(out, "\n      - name: web/10.1.0.11\n") || !strings.Contains(out, "\n    idleTimeoutSec: 600\n") && !strings.Contains(out, "idleTimeoutSec: 600\n") {
		t.Errorf("the printed configuration lacks made names or defaults:\n%s", out)
	}
	if status, again, errOut := runCheck(t, out, "--print", "--strict"); status != 0 || again != out {
		t.Errorf("check --print of what was printed = %d\n%s%s", status, errOut, cmp.Diff(out, again))
	}
	if status, out, _ := runCheck(t, "", "--schema"); status != 0 || !json.Valid([]byte(out)) {
		t.Errorf("check --schema = %d\n%s", status, out)
	}
}

func TestCheckReadsTheZoneMap(t *testing.T) {
	zones := filepath.Join(t.TempDir(), "zones")
	if err := os.WriteFile(zones, []byte("10.9.0.0/24 a\n10.8.0.0/24 b\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	status, _, errOut := runCheck(t, checkedFile+"zoneMapFile: "+zones+"\n")
	if want := zones + ":2:13: b is not the name of a zone; use a, or add it to zones\n"; status != 1 || errOut != want {
		t.Errorf("check = %d\n%s\nwant 1\n%s", status, errOut, want)
	}
}

func TestCheckAbsentFile(t *testing.T) {
	var out, errOut bytes.Buffer
	o := checkOptions{file: filepath.Join(t.TempDir(), "none.yaml")}
	err := o.run(&out, &errOut)
	if want := "appliance: read configuration: open " + o.file + ": no such file or directory\n"; err != exitStatus(1) || errOut.String() != want {
		t.Errorf("check of an absent file: %v\n%s\nwant\n%s", err, errOut.String(), want)
	}
	if err := new(checkOptions).run(&out, &errOut); err == nil || err.Error() != "check: no file to check; use --config FILE" {
		t.Errorf("check without a file: %v", err)
	}
}

// liveNamespace puts the test into a network namespace of its own.
func liveNamespace(t *testing.T) {
	t.Helper()
	needs.Root(t, "making a network namespace")
	runtime.LockOSThread()
	before, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = ns.Close()
		if err := netns.Set(before); err != nil {
			return // the thread stays locked and ends with the goroutine
		}
		_ = before.Close()
		runtime.UnlockOSThread()
	})
}

func TestCheckLive(t *testing.T) {
	liveNamespace(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	add := func(name string, mtu int, up bool, addresses ...string) netlink.Link {
		attrs := netlink.LinkAttrs{Name: name, MTU: mtu, NumRxQueues: 1, NumTxQueues: 1}
		must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "peer-" + name}))
		link, err := netlink.LinkByName(name)
		must(err)
		for _, text := range addresses {
			a, err := netlink.ParseAddr(text)
			must(err)
			must(netlink.AddrAdd(link, a))
		}
		if up {
			must(netlink.LinkSetUp(link))
			peer, err := netlink.LinkByName("peer-" + name)
			must(err)
			must(netlink.LinkSetUp(peer))
		}
		return link
	}
	eth0 := add("eth0", 3000, true, "10.1.0.1/16", "10.1.255.10/32")
	add("eth1", 9000, false)
	add("eth2", 1500, true, "10.3.0.1/24")
	behind, err := netlink.ParseIPNet("10.2.0.0/16")
	must(err)
	must(netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: behind, Gw: netlink.NewIPNet([]byte{10, 1, 0, 254}).IP}))

	c, problems := config.Parse("lb.yaml", []byte(`
interfaces: [{name: eth0, queues: [0, 7], cpus: [0, 4095]}, eth1, eth9]
backendServices:
  - name: web
    healthChecks: [{type: TCP, port: 80}]
    backends:
      - {name: near, address: 10.1.0.11}
      - {name: behind, address: 10.2.0.11}
      - {name: elsewhere, address: 10.3.0.11}
      - {name: nowhere, address: 10.4.0.11}
      - {name: self, address: 10.1.0.1}
forwardingRules:
  - {name: vip, IPAddress: 10.1.255.10, ports: [80], backendService: web}
  - {name: second, IPAddress: 10.1.255.11, ports: [80], backendService: web}
zoneMapFile: /nonexistent/zones
hashKeyFile: /nonexistent/key
flowTable: {path: /proc/flows}
health: {listen: "192.0.2.1:8080"}
admin: {metricsListen: "10.3.0.1:9109"}
`))
	if c == nil {
		t.Fatal(problems)
	}
	want := []string{
		"interface eth0 has an MTU of 3000, more than the 1770 that tuning.frameSize 2048 has room for; ip link set eth0 mtu 1770, or use tuning.frameSize: 4096",
		"interface eth0 has no queue 7, only 0 to 0; correct queues, or raise their number with ethtool -L eth0",
		"interface eth0: cpus: CPU 4095 does not exist here, or is not allowed; nproc and taskset -p $$ show which are",
		"interface eth1 is down; ip link set eth1 up",
		"interface eth1 has an MTU of 9000, more than the 1770 that tuning.frameSize 2048 has room for; ip link set eth1 mtu 1770",
		"interface eth9: Link not found; correct its name in interfaces (ip link lists them)",
		"forwarding rule vip: 10.1.255.10 is an address of this host on eth0, but the appliance answers for it itself; ip address delete 10.1.255.10/32 dev eth0",
		"health.listen: 192.0.2.1 is not an address of this host; use one that ip address shows, or :8080 for all",
		"backend behind: 10.2.0.11 is behind the gateway 10.1.0.254, where layer 2 cannot deliver; connect the appliance to the backend's segment",
		"backend elsewhere: 10.3.0.11 is reached through eth2, which interfaces does not list; add it, or correct the route",
		"backend nowhere: no route to 10.4.0.11 (network is unreachable); give the interface on its segment an address or a route",
		"backend self: 10.1.0.1 is an address of this host; a backend has to be another machine",
		"zoneMapFile: stat /nonexistent/zones: no such file or directory; create it or remove the key",
		"flowTable.path: /proc/flows is not on a tmpfs; use a path below /run or /dev/shm, or mount one",
		"hashKeyFile: open /nonexistent/key: no such file or directory; create it or use hashKey",
	}
	if diff := cmp.Diff(want, checkLive(c)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}

	var out, errOut bytes.Buffer
	file := filepath.Join(t.TempDir(), "lb.yaml")
	must(os.WriteFile(file, []byte(strings.Replace(checkedFile, "10.1.255.10", "10.1.255.12", 1)+"tuning: {frameSize: 4096}\n"), 0o644))
	if err := (&checkOptions{file: file, live: true, hold: checkLive}).run(&out, &errOut); err != nil || errOut.Len() > 0 {
		t.Errorf("check --live of what fits this host: %v\n%s", err, errOut.String())
	}
	must(netlink.LinkSetDown(eth0))
	err = (&checkOptions{file: file, live: true, hold: checkLive}).run(&out, &errOut)
	if err != exitStatus(1) || !strings.HasPrefix(errOut.String(), "appliance: check against this host: interface eth0 is down; ip link set eth0 up\n") {
		t.Errorf("check --live with the interface down: %v\n%s", err, errOut.String())
	}
}

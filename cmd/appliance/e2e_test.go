package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zonehop/bench/lab"
	"zonehop/bench/needs"
	"zonehop/cmd/appliance/internal/admin"
)

// TestMain runs the test binary as the appliance itself when asked to, so that
// end-to-end tests start the real program, built as the tests were (with the
// race detector, for example).
func TestMain(m *testing.M) {
	if os.Getenv(asAppliance) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

const asAppliance = "ZONEHOP_TEST_AS_APPLIANCE"

// needLab ends a test that cannot build namespaces.
func needLab(t *testing.T) {
	t.Helper()
	needs.Root(t, "an end-to-end test, with network namespaces and AF_XDP sockets,")
}

// cables are the network cards that ZONEHOP_LAB_CABLES names for the appliance, as
// NODE=PORT,…; without them all is veth. scripts/guest has a machine with some.
func cables(t *testing.T) (list []lab.Cable) {
	t.Helper()
	text := os.Getenv("ZONEHOP_LAB_CABLES")
	if text == "" {
		return nil
	}
	for _, pair := range strings.Split(text, ",") {
		node, port, ok := strings.Cut(pair, "=")
		if !ok {
			t.Fatalf("ZONEHOP_LAB_CABLES: %q; use NODE=PORT,…", text)
		}
		list = append(list, lab.Cable{Node: node, Port: port})
	}
	return list
}

// patience is how long a test waits for what must come. It comes at once, or
// after the seconds that a protocol takes, unless the machine has other things
// to do; so this says how busy the machine may be and costs nothing.
const patience = time.Minute

// network is a lab with appliances in it.
type network struct {
	*testing.T
	*lab.Lab
	ctx context.Context
}

func newNetwork(t *testing.T, o lab.Options) *network {
	t.Helper()
	needLab(t)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	o.Cables = cables(t)
	l, err := lab.Build(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	n := &network{T: t, Lab: l, ctx: ctx}
	t.Cleanup(func() {
		if t.Failed() {
			if files, err := l.SaveCaptures(); err == nil && len(files) > 0 {
				t.Log("captures:", files)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// device is a running appliance.
type device struct {
	*admin.Client
	net     *network
	process *lab.Process
	node    string // where it runs
	file    string // configuration
	socket  string
}

// testConfig reads a configuration of testdata, with replacements (old, new, …).
func testConfig(t *testing.T, name string, replace ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	s := string(b)
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(s, replace[i]) {
			t.Fatalf("testdata/%s does not contain %q", name, replace[i])
		}
		s = strings.ReplaceAll(s, replace[i], replace[i+1])
	}
	return s
}

// start runs an appliance in the lab's appliance node and waits until every
// queue is bound and every backend has a verdict.
func (n *network) start(yaml string) *device {
	n.Helper()
	return n.startAt(n.Appliance().Name(), yaml)
}

func (n *network) startAt(node, yaml string) *device {
	n.Helper()
	d := n.prepare(node, yaml)
	d.run()
	d.ready()
	return d
}

// prepare writes an appliance's configuration without starting it.
func (n *network) prepare(node, yaml string) *device {
	n.Helper()
	d := &device{net: n, node: node, file: filepath.Join(n.Dir(), node+".yaml"), socket: filepath.Join(n.Dir(), node+".sock")}
	d.Client = admin.NewClient(d.socket)
	d.write(yaml)
	return d
}

func (d *device) write(yaml string) {
	d.net.Helper()
	yaml += fmt.Sprintf("\nadmin: {socket: %s}\nlogging: {level: debug, format: console}\n", d.socket)
	if err := os.WriteFile(d.file, []byte(yaml), 0o644); err != nil {
		d.net.Fatal(err)
	}
}

func (d *device) run() {
	d.net.Helper()
	cmd := exec.Command(os.Args[0], "run", "--config", d.file)
	cmd.Env = append(os.Environ(), asAppliance+"=1")
	p, err := d.net.Start(d.node, cmd)
	if err != nil {
		d.net.Fatal(err)
	}
	d.process = p
	d.net.Cleanup(func() {
		if d.net.Failed() {
			d.net.Logf("appliance log:\n%s", tail(p.Output(), 12000))
		}
	})
}

// sub runs a subtest with the device and its network bound to it, so that a
// failure ends the subtest alone.
func (d *device) sub(name string, fn func(d *device)) {
	d.net.Helper()
	d.net.T.Run(name, func(t *testing.T) {
		n, part := *d.net, *d
		n.T, part.net = t, &n
		fn(&part)
	})
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// ready waits until everything that is configured works, but for backends that
// are named because they cannot be delivered to.
func (d *device) ready(undeliverable ...string) {
	d.net.Helper()
	d.wait("the appliance to be ready", func() error {
		s, err := d.Status()
		if err != nil {
			return err
		}
		for _, i := range s.Interfaces {
			if !i.Up || i.Problem != "" || len(i.Queues) == 0 {
				return fmt.Errorf("interface %s: up %v, %d queues, problem %q", i.Name, i.Up, len(i.Queues), i.Problem)
			}
			for _, q := range i.Queues {
				if !q.Bound {
					return fmt.Errorf("queue %d of %s: %s", q.Queue, i.Name, q.Problem)
				}
			}
		}
		for _, r := range s.Rules {
			if r.Kind == "forwardingRule" && !r.Announced {
				return fmt.Errorf("rule %s is not announced: %s", r.Name, r.Problem)
			}
		}
		list, err := d.Backends()
		if err != nil {
			return err
		}
		for _, b := range list {
			if b.Health == "UNKNOWN" || b.Deliverable == slices.Contains(undeliverable, b.Name) {
				return fmt.Errorf("backend %s %s: %s, deliverable %v %s", b.Name, b.Address, b.Health, b.Deliverable, b.Reason)
			}
		}
		return nil
	})
}

// status reads the status of an appliance that must be running.
func (d *device) status() admin.Status {
	d.net.Helper()
	s, err := d.Status()
	if err != nil {
		d.net.Fatal(err)
	}
	return s
}

// counted waits until a counter of the accounting has reached want.
func (d *device) counted(what string, of func(a *admin.Accounting) uint64, want uint64) {
	d.net.Helper()
	d.wait(fmt.Sprintf("%d %s", want, what), func() error {
		s, err := d.Status()
		if err != nil {
			return err
		}
		if got := of(&s.Accounting); got < want {
			return fmt.Errorf("%d so far", got)
		}
		return nil
	})
}

// dropped returns a reader of one drop counter.
func dropped(reason string) func(*admin.Accounting) uint64 {
	return func(a *admin.Accounting) uint64 { return a.Dropped[reason] }
}

// answered returns a reader of one answer counter.
func answered(kind string) func(*admin.Accounting) uint64 {
	return func(a *admin.Accounting) uint64 { return a.Answered[kind] }
}

// announced returns an error unless all the named rules are announced.
func (d *device) announced(names ...string) error {
	s, err := d.Status()
	if err != nil {
		return err
	}
	for _, r := range s.Rules {
		if slices.Contains(names, r.Name) && !r.Announced {
			return fmt.Errorf("rule %s is not announced: %s", r.Name, r.Problem)
		}
	}
	return nil
}

// wait polls until cond returns nil.
func (d *device) wait(what string, cond func() error) {
	d.net.Helper()
	err := lab.Wait(d.net.ctx, what, patience, func() (bool, error) {
		select {
		case <-d.process.Done():
			return true, nil
		default:
		}
		err := cond()
		return err == nil, err
	})
	if err != nil {
		d.net.Fatalf("%v", err)
	}
	select {
	case <-d.process.Done():
		d.net.Fatalf("the appliance ended while waiting for %s", what)
	default:
	}
}

// stop ends the appliance with SIGTERM and checks that it stops cleanly.
func (d *device) stop() {
	d.net.Helper()
	if err := d.process.Signal(unix.SIGTERM); err != nil {
		d.net.Fatal(err)
	}
	if status, err := d.process.Wait(d.net.soon()); status != 0 || err != nil {
		d.net.Fatalf("the appliance ended with status %d: %v", status, err)
	}
}

// balanced waits until the accounting adds up, which it must whenever the
// workers are quiet.
func (d *device) balanced() admin.Status {
	d.net.Helper()
	var s admin.Status
	d.wait("the accounting to add up", func() (err error) {
		if s, err = d.Status(); err == nil && !s.Accounting.Balanced {
			text, _ := json.Marshal(s.Accounting)
			err = fmt.Errorf("%s: %s", s.Accounting.Imbalance, text)
		}
		return err
	})
	return s
}

// command runs the appliance's program against the running one, as an operator
// would, and returns what it printed.
func (d *device) command(args ...string) (stdout, stderr string, status int) {
	d.net.Helper()
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(d.net.soon(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asAppliance+"=1", "ZONEHOP_SOCKET="+d.socket)
	cmd.Stdout, cmd.Stderr = &out, &problems
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		d.net.Fatal(err)
	}
	return out.String(), problems.String(), cmd.ProcessState.ExitCode()
}

// stream opens a connection through the appliance that carries data all the
// time; to a backend if one is named.
func (n *network) stream(client string, to netip.AddrPort, backend string) *lab.Stream {
	n.Helper()
	for range 500 {
		s, err := n.Client(client).OpenStream(n.soon(), to, netip.AddrPort{}, 256, 10*time.Millisecond)
		if err != nil {
			n.Fatal(err)
		}
		if backend == "" || s.Backend == backend {
			n.Cleanup(func() { s.Close() })
			return s
		}
		s.Close()
	}
	n.Fatalf("none of 500 connections to %s went to %s", to, backend)
	return nil
}

// flowing waits until a stream has carried more data than it had when asked.
func (n *network) flowing(s *lab.Stream) {
	n.Helper()
	before := s.State().Bytes
	n.eventually(fmt.Sprintf("data on the stream to %s", s.Backend), func() (bool, error) {
		state := s.State()
		return state.Bytes > before || state.Err != nil, nil
	})
	if err := s.State().Err; err != nil {
		n.Fatal(err)
	}
}

// shares counts which backend answers n HTTP requests.
func (n *network) shares(client string, to netip.AddrPort, requests int) map[string]int {
	n.Helper()
	got := make(map[string]int)
	for range requests {
		r, err := n.Client(client).Get(n.soon(), to, "/")
		if err != nil {
			n.Fatal(err)
		}
		got[r.Backend]++
	}
	return got
}

var (
	vip4 = netip.AddrPortFrom(lab.VIPv4, lab.HTTPPort)
	vip6 = netip.AddrPortFrom(lab.VIPv6, lab.HTTPPort)
	far4 = netip.MustParseAddrPort("192.168.7.7:80")
	far6 = netip.MustParseAddrPort("[2001:db8:192::7]:80")
)

// TestPacketGoesThrough is the thinnest path: HTTP to a virtual address and
// through a route, IPv4 and IPv6, with accounts that add up.
func TestPacketGoesThrough(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	d := n.start(testConfig(t, "two-zones.yaml"))
	for _, to := range []netip.AddrPort{vip4, vip6, far4, far6} {
		got := n.shares("client-b", to, 20)
		t.Logf("%s: %v", to, got)
		for name := range got {
			if to == vip4 || to == vip6 {
				if !strings.HasPrefix(name, "web-b") {
					t.Errorf("%s: answered by %s, want a backend of the client's zone", to, name)
				}
			} else if !strings.HasPrefix(name, "fw-") {
				t.Errorf("%s: answered by %s, want a firewall", to, name)
			}
		}
	}
	s := d.balanced()
	if s.Accounting.Forwarded == 0 {
		t.Error("nothing was forwarded")
	}
	d.stop()
}

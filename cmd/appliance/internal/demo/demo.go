// Package demo shows the appliance at work: it builds a network of namespaces
// on this machine, runs the real appliance in it, sends real connections from
// real clients through it to real servers, lets backends fail and recover, and
// compares where connections went with where the rules send them.
package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"zonehop/bench/lab"
	"zonehop/cmd/appliance/internal/admin"
)

//go:embed demo.yaml
var configuration string

const (
	connections = 48          // per client and phase
	settle      = time.Minute // or something is wrong
	firstPort   = 10000       // of the clients' connections; ports of the kernel's choice come later
)

// Options of a demo.
type Options struct {
	Out        io.Writer // what a person reads
	Executable string    // the appliance's own binary
	Args       []string  // in front of "run", for tests
	Env        []string  // added to the environment, for tests
	// Keep leaves the network up after the last phase, until ctx is done.
	Keep bool
}

// demo is a run in progress.
type demo struct {
	Options
	ctx     context.Context
	lab     *lab.Lab
	process *lab.Process
	admin   *admin.Client
	socket  string
	streams map[string]*lab.Stream
	failing map[string]bool
	port    uint16 // of the next connection
	report  Report
}

// Run runs the demo. The error is what kept it from finishing; a report whose
// OK is false is a demo that finished and found something off.
func Run(ctx context.Context, o Options) (_ Report, err error) {
	began := time.Now()
	d := &demo{Options: o, ctx: ctx, streams: make(map[string]*lab.Stream), failing: make(map[string]bool), port: firstPort}
	d.report.Problems = []string{}
	d.say("Building a network of namespaces: clients, a switch, backends with servers, the appliance …")
	if d.lab, err = lab.Build(ctx, lab.Options{}); err != nil {
		return d.report, err
	}
	defer func() { err = errors.Join(err, d.lab.Close()) }()
	if err := d.start(); err != nil {
		return d.report, err
	}
	d.describe()
	for _, step := range []func() error{d.openStreams, d.compareBytes, d.runPhases, d.useRoute, d.closeStreams, d.account} {
		if err := step(); err != nil {
			return d.report, errors.Join(err, d.logOfDead())
		}
	}
	d.report.OK = len(d.report.Problems) == 0
	d.report.Seconds = time.Since(began).Seconds()
	d.conclude()
	if d.Keep {
		d.hold()
	}
	return d.report, d.stop()
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.Out, format+"\n", args...) }

// problem notes that something was not as the rules say.
func (d *demo) problem(format string, args ...any) {
	d.report.Problems = append(d.report.Problems, fmt.Sprintf(format, args...))
}

// start runs the appliance in its namespace and waits until it is ready.
func (d *demo) start() error {
	d.socket = filepath.Join(d.lab.Dir(), "admin.sock")
	file := filepath.Join(d.lab.Dir(), "demo.yaml")
	yaml := configuration + fmt.Sprintf("admin: {socket: %s}\nlogging: {format: console}\n", d.socket)
	if err := os.WriteFile(file, []byte(yaml), 0o644); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	cmd := exec.Command(d.Executable, append(d.Args, "run", "--config", file)...)
	cmd.Env = append(os.Environ(), d.Env...)
	var err error
	if d.process, err = d.lab.Start(d.lab.Appliance().Name(), cmd); err != nil {
		return fmt.Errorf("start the appliance: %w", err)
	}
	d.admin = admin.NewClient(d.socket)
	d.say("Starting the appliance in namespace %s …", d.lab.Appliance().Namespace())
	err = lab.Wait(d.ctx, "the appliance to be ready", settle, d.whileAlive(func() (bool, error) {
		s, err := d.admin.Status()
		if err != nil {
			return false, err
		}
		for _, r := range s.Rules {
			if r.Kind == "forwardingRule" && !r.Announced {
				return false, fmt.Errorf("rule %s is not announced yet; %s", r.Name, r.Problem)
			}
		}
		for _, i := range s.Interfaces {
			for _, q := range i.Queues {
				if !q.Bound {
					return false, fmt.Errorf("queue %d is not bound: %s", q.Queue, q.Problem)
				}
			}
			d.report.Interface = i
		}
		return true, nil
	}))
	if err != nil {
		return errors.Join(err, d.logOfDead())
	}
	return d.await(nil)
}

// whileAlive makes a condition fail at once when the appliance has ended.
func (d *demo) whileAlive(cond func() (bool, error)) func() (bool, error) {
	return func() (bool, error) {
		select {
		case <-d.process.Done():
			return true, nil
		default:
			return cond()
		}
	}
}

// logOfDead is an error with the appliance's log, if it has ended.
func (d *demo) logOfDead() error {
	select {
	case <-d.process.Done():
		return fmt.Errorf("the appliance has ended; its log:\n%s", d.process.Output())
	default:
		return nil
	}
}

func (d *demo) describe() {
	i := d.report.Interface
	d.say("Ready: %s in %s mode, %d queues%s.", i.Name, i.Mode, len(i.Queues), suffix(i.Why))
	d.say("Service web: zone b (web-b1, web-b2), zone c (web-c1, web-c2), failover zone d (web-d1, web-d2);")
	d.say("virtual address %s, spill-over ratio 0.8, failover ratio 0.5. Clients: client-b in zone b, client-c", vip)
	d.say("in zone c, client-x in no zone. Each line below is %d real TCP connections with an HTTP request.\n", connections)
}

func suffix(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// openStreams opens connections that must survive everything that follows.
func (d *demo) openStreams() error {
	for _, name := range clients {
		s, err := d.lab.Client(name).OpenStream(d.ctx, netip.AddrPortFrom(vip, lab.EchoTLS), netip.AddrPort{}, 512, 20*time.Millisecond)
		if err != nil {
			return err
		}
		d.streams[name] = s
	}
	return nil
}

// await waits until the appliance sees the backends' health as it is.
func (d *demo) await(changed []string) error {
	return lab.Wait(d.ctx, "the health checks to notice", settle, d.whileAlive(func() (bool, error) {
		list, err := d.admin.Backends()
		if err != nil {
			return false, err
		}
		for _, b := range list {
			want := "HEALTHY"
			if d.failing[b.Name] {
				want = "UNHEALTHY"
			}
			if b.Health != want || !b.Deliverable {
				return false, fmt.Errorf("%s is %s, deliverable: %v %s", b.Name, b.Health, b.Deliverable, b.Reason)
			}
		}
		return true, nil
	}))
}

func (d *demo) runPhases() error {
	for i, p := range phases {
		if err := d.runPhase(i+1, &p); err != nil {
			return fmt.Errorf("phase %d (%s): %w", i+1, p.title, err)
		}
	}
	return nil
}

func (d *demo) runPhase(number int, p *phase) error {
	d.say("%d. %s", number, p.title)
	d.say("   %s", p.why)
	for _, b := range p.fail {
		d.failing[b] = true
		if err := d.lab.Backend(b).SetHealth(lab.HealthFailing); err != nil {
			return err
		}
	}
	for _, b := range p.heal {
		delete(d.failing, b)
		if err := d.lab.Backend(b).SetHealth(lab.HealthOK); err != nil {
			return err
		}
	}
	if err := d.await(append(p.fail, p.heal...)); err != nil {
		return err
	}
	r := PhaseReport{Title: p.title, Why: p.why, Failed: []string{}, OK: true}
	for b := range d.failing {
		r.Failed = append(r.Failed, b)
	}
	slices.Sort(r.Failed)
	for _, name := range clients {
		got := make(map[string]int)
		for range connections {
			reply, err := d.get(name, netip.AddrPortFrom(vip, lab.HTTPPort))
			if err != nil {
				return err
			}
			got[reply.Backend]++
		}
		r.Shares = append(r.Shares, judge(name, got, p.want[name], zoneOf))
	}
	d.printShares(r.Shares)
	for _, s := range r.Shares {
		if !s.OK {
			r.OK = false
			d.problem("phase %d (%s): %s: %s", number, p.title, s.Client, s.Problem)
		}
	}
	for name, s := range d.streams {
		if st := s.State(); st.Err != nil {
			r.OK = false
			d.problem("phase %d (%s): the established connection of %s broke: %v", number, p.title, name, st.Err)
		}
	}
	d.report.Phases = append(d.report.Phases, r)
	return nil
}

// get asks a server on a connection from a port that no other one has: the
// hash, and so the demo, is the same in every run.
func (d *demo) get(client string, to netip.AddrPort) (lab.Reply, error) {
	from := netip.AddrPortFrom(netip.Addr{}, d.port)
	d.port++
	ctx, cancel := context.WithTimeout(d.ctx, settle)
	defer cancel()
	return d.lab.Client(client).HTTP(ctx, lab.Request{To: to, From: from, Path: "/"})
}

func (d *demo) printShares(list []ShareReport) {
	t := tabwriter.NewWriter(d.Out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(t, "   CLIENT\tEXPECTED BY ZONE\tACTUAL BY ZONE\tWHO ANSWERED\t")
	for _, s := range list {
		verdict := "ok"
		if !s.OK {
			verdict = "WRONG: " + s.Problem
		}
		fmt.Fprintf(t, "   %s\t%s\t%s\t%s\t%s\n", s.Client, shares(s.Expected), shares(s.Actual), backends(s.Backends), verdict)
	}
	t.Flush()
	fmt.Fprintln(d.Out)
}

// useRoute sends connections to many destinations behind the route.
func (d *demo) useRoute() error {
	d.say("%d. as the next hop of a static route", len(phases)+1)
	d.say("   connections to %s pass through the firewalls; one client's connections to one destination stay together", lab.InspectedIPv4)
	for _, name := range clients {
		got := make(map[string]int)
		for i := range connections {
			to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, byte(i), byte(1 + i)}), lab.HTTPPort)
			first, err := d.get(name, to)
			if err != nil {
				return err
			}
			if i < 8 {
				second, err := d.get(name, to)
				if err != nil {
					return err
				}
				if first.Backend != second.Backend {
					d.problem("route: %s reached %s by %s and then by %s", name, to, first.Backend, second.Backend)
				}
			}
			got[first.Backend]++
		}
		r := judge(name, got, []string{"fw-b", "fw-c"}, firewallZone)
		if !r.OK {
			d.problem("route: %s: %s", name, r.Problem)
		}
		d.report.Route = append(d.report.Route, r)
	}
	d.printShares(d.report.Route)
	return nil
}

func (d *demo) closeStreams() error {
	for _, name := range clients {
		s := d.streams[name]
		st := s.Close()
		r := StreamReport{Client: name, Backend: s.Backend, Bytes: st.Bytes, OK: st.Err == nil && st.Bytes > 0}
		if st.Err != nil {
			r.Problem = st.Err.Error()
		}
		if !r.OK {
			d.problem("the established connection of %s to %s broke: %s", name, s.Backend, r.Problem)
		}
		d.report.Streams = append(d.report.Streams, r)
	}
	return nil
}

// account waits until the appliance is quiet and its accounts add up.
func (d *demo) account() error {
	return lab.Wait(d.ctx, "the accounts to add up", settle, d.whileAlive(func() (bool, error) {
		s, err := d.admin.Status()
		if err != nil {
			return false, err
		}
		d.report.Accounting = s.Accounting
		return s.Accounting.Balanced, errors.New(s.Accounting.Imbalance)
	}))
}

func (d *demo) conclude() {
	for _, s := range d.report.Streams {
		d.say("Established connection of %s: on %s throughout, %d KiB echoed.", s.Client, s.Backend, s.Bytes>>10)
	}
	d.say("Bytes: %d frames compared as sent and as received by backends: equal but for the MAC addresses.", d.report.ByteExact.Frames)
	a := d.report.Accounting
	d.say("Accounts: %d frames received = %d forwarded + %d answered + %d dropped; none unaccounted for.",
		a.Received, a.Forwarded, sum(a.Answered), sum(a.Dropped))
	if d.report.OK {
		d.say("\nEverything went as the rules say (%.0f s).", d.report.Seconds)
		return
	}
	d.say("\n%d things did not go as the rules say:", len(d.report.Problems))
	for _, p := range d.report.Problems {
		d.say("  - %s", p)
	}
}

func sum(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}

// hold keeps everything running for a person to look at.
func (d *demo) hold() {
	p := d.lab.Prefix()
	d.say("\nThe network, its servers and the appliance stay up until you press Ctrl-C. Try, in another terminal:")
	d.say("  ip netns exec %s-client-b curl -s http://%s/", p, vip)
	d.say("  ip netns exec %s-client-b curl -s http://192.168.1.1/", p)
	d.say("  ip netns exec %s-lb tcpdump -eni eth0 arp", p)
	d.say("  ZONEHOP_SOCKET=%s %s status", d.socket, d.Executable)
	d.say("  ZONEHOP_SOCKET=%s %s explain --live --rule web-vip --client 10.1.0.101", d.socket, d.Executable)
	<-d.ctx.Done()
}

// stop ends the appliance as an operator would and checks that it ends well.
func (d *demo) stop() error {
	if err := d.process.Signal(unix.SIGTERM); err != nil {
		return fmt.Errorf("stop the appliance: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), settle)
	defer cancel()
	status, err := d.process.Wait(ctx)
	if err == nil && status != 0 {
		err = fmt.Errorf("exit status %d; its log:\n%s", status, d.process.Output())
	}
	if err != nil {
		return fmt.Errorf("stop the appliance: %w", err)
	}
	return nil
}

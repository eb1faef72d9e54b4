package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"zonehop/bench/lab"
	"zonehop/cmd/appliance/internal/admin"
)

// refusedZeroCopy begins the reason to give for copy mode on veth, which has no
// other. The cards of scripts/guest have zero-copy.
const refusedZeroCopy = "zero-copy refused: "

// inMode is a configuration with one interface in a mode.
func inMode(t *testing.T, mode string) string {
	return testConfig(t, "two-zones.yaml", "interfaces: [eth0]", fmt.Sprintf("interfaces: [{name: eth0, mode: %s}]", mode))
}

// obtains returns what becomes of a mode here: the one obtained, or "" where
// there will be no socket, and the beginning of the reason.
func obtains(t *testing.T, mode string) (got, why string) {
	t.Helper()
	zeroCopy := cables(t) != nil
	switch {
	case mode == "auto" && zeroCopy:
		return "zero-copy", ""
	case mode == "auto":
		return "copy", refusedZeroCopy
	case mode == "zero-copy" && !zeroCopy:
		return "", ""
	}
	return mode, ""
}

var everyMode = []string{"auto", "zero-copy", "copy", "generic"}

// TestModes runs the appliance in each mode: what it says of it, what it
// forwards and answers, that its frames add up, and that the next one finds
// interface and queues free, however it ended.
func TestModes(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	for _, mode := range everyMode {
		t.Run(mode, func(t *testing.T) {
			part := *n
			part.T = t
			d := part.prepare(n.Appliance().Name(), inMode(t, mode))
			d.run()
			if got, _ := obtains(t, mode); got == "" {
				d.refusesMode("eth0")
			} else {
				d.ready()
				d.worksInMode(mode)
				part.must(d.process.Kill())
				part.eventually("the program to be gone", func() (bool, error) { return !part.attached("eth0"), nil })
				d.run()
				d.ready()
				d.worksInMode(mode)
			}
			d.stop()
			if part.attached("eth0") {
				t.Error("the program is attached still")
			}
		})
	}
}

// refusesMode waits until every queue of an interface is refused for its mode.
func (d *device) refusesMode(iface string) {
	d.net.Helper()
	d.wait("the refusal of the mode", func() error {
		s, err := d.Status()
		if err != nil {
			return err
		}
		for _, i := range s.Interfaces {
			if i.Name != iface {
				continue
			}
			if i.Mode != "none" || len(i.Queues) == 0 {
				return fmt.Errorf("mode %s, %d queues", i.Mode, len(i.Queues))
			}
			for _, q := range i.Queues {
				if q.Bound || !strings.Contains(q.Problem, "the driver does not support this mode; use mode auto or copy") {
					return fmt.Errorf("queue %d: bound %v, problem %q", q.Queue, q.Bound, q.Problem)
				}
			}
		}
		return nil
	})
}

// worksInMode checks the mode that is told and sends every kind of traffic.
func (d *device) worksInMode(mode string) {
	n := d.net
	n.Helper()
	d.toldMode("eth0", mode)
	client := n.Client("client-b")
	for _, to := range []netip.AddrPort{vip4, vip6, far4, far6} {
		n.shares("client-b", to, 4)
	}
	for _, to := range []netip.Addr{lab.VIPv4, lab.VIPv6, far4.Addr()} {
		for range 16 { // flows for every queue
			_, _, err := client.UDP(n.soon(), netip.AddrPortFrom(to, lab.EchoPort), netip.AddrPort{}, []byte(mode))
			n.must(err)
		}
	}
	for _, to := range []netip.Addr{lab.VIPv4, lab.VIPv6} {
		_, err := client.Ping(n.soon(), to, netip.Addr{}, []byte(mode))
		n.must(err)
	}
	n.longTransfer("client-b", netip.AddrPortFrom(lab.VIPv4, lab.EchoTLS))
	n.longTransfer("client-b", netip.AddrPortFrom(far6.Addr(), lab.EchoTLS))
	d.wholeMemory()
}

// toldMode checks what status says of an interface's mode, for programs and for
// people.
func (d *device) toldMode(iface, mode string) {
	d.net.Helper()
	want, why := obtains(d.net.T, mode)
	found := false
	for _, i := range d.status().Interfaces {
		if i.Name != iface {
			continue
		}
		found = true
		if i.Mode != want || (i.Why == "") != (why == "") || !strings.HasPrefix(i.Why, why) {
			d.net.Errorf("%s with mode: %s is in mode %q because of %q, want %q because of %q…", iface, mode, i.Mode, i.Why, want, why)
		}
		text := d.succeed("status")
		if !strings.Contains(text, want) || !strings.Contains(text, i.Why) {
			d.net.Errorf("status does not say %s and %q:\n%s", want, i.Why, text)
		}
	}
	if !found {
		d.net.Errorf("status does not know %s", iface)
	}
}

// wholeMemory waits until the accounts add up and no frame is under way, and
// checks that each queue's frames are all there and none was lost.
func (d *device) wholeMemory() admin.Status {
	d.net.Helper()
	var s admin.Status
	d.wait("every frame in its place", func() (err error) {
		if s, err = d.Status(); err != nil {
			return err
		}
		if !s.Accounting.Balanced || s.Accounting.InFlight > 0 {
			return fmt.Errorf("%d in flight; %s", s.Accounting.InFlight, s.Accounting.Imbalance)
		}
		// Memory may serve one queue of several interfaces.
		filled := map[int]int{}
		for _, i := range s.Interfaces {
			for _, q := range i.Queues {
				filled[q.Queue] += q.Fill + q.RX + q.TX
			}
		}
		for _, i := range s.Interfaces {
			for _, q := range i.Queues {
				if len(s.Interfaces) == 1 && filled[q.Queue]+q.Free != q.Frames {
					return fmt.Errorf("queue %d has %d frames free and %d in rings of %d", q.Queue, q.Free, filled[q.Queue], q.Frames)
				}
			}
		}
		return nil
	})
	a := s.Accounting
	// Before its sockets are there, the last words of earlier connections may be
	// lost.
	if a.Forwarded == 0 || a.Abandoned+a.Invalid != 0 || a.RXDropped+a.RXRingFull != 0 {
		d.net.Errorf("%d forwarded, %d abandoned, %d invalid, %d dropped before reception; want no loss",
			a.Forwarded, a.Abandoned, a.Invalid, a.RXDropped+a.RXRingFull)
	}
	return s
}

// TestModeReload changes the mode of an interface under traffic, by reload.
func TestModeReload(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	d := n.start(inMode(t, "copy"))
	streams := []*lab.Stream{
		n.stream("client-b", netip.AddrPortFrom(lab.VIPv4, lab.EchoTLS), ""),
		n.stream("client-c", netip.AddrPortFrom(far6.Addr(), lab.EchoTLS), ""),
	}
	stop := n.load("client-b", netip.AddrPortFrom(lab.VIPv4, lab.EchoPort))
	defer func() { stop() }()
	for _, mode := range []string{"auto", "generic", "zero-copy", "copy", "zero-copy", "auto", "copy"} {
		d.reload(inMode(t, mode))
		want, _ := obtains(t, mode)
		if want == "" {
			d.refusesMode("eth0")
			continue
		}
		d.wait("mode "+want, func() error {
			s, err := d.Status()
			if err == nil && s.Interfaces[0].Mode != want {
				err = fmt.Errorf("mode %s, problem %q", s.Interfaces[0].Mode, s.Interfaces[0].Problem)
			}
			return err
		})
		d.ready()
		d.toldMode("eth0", mode)
		for _, s := range streams {
			n.flowing(s)
		}
	}
	stop()
	stop = func() {}
	for _, s := range streams {
		if state := s.Close(); state.Err != nil {
			t.Error(state.Err)
		}
	}
	d.balanced()
	d.stop()
}

// TestModesBesideEachOther gives two interfaces modes that cannot have memory in
// common: each gets its own mode, and frames from one to the other are copied.
func TestModesBesideEachOther(t *testing.T) {
	topology := lab.TwoSegments()
	n := newNetwork(t, lab.Options{Topology: &topology})
	for _, c := range [][2]string{{"zero-copy", "copy"}, {"copy", "zero-copy"}, {"copy", "auto"}, {"auto", "copy"}} {
		t.Run(c[0]+" and "+c[1], func(t *testing.T) {
			part := *n
			part.T = t
			besideEachOther(&part, c[0], c[1])
		})
	}
}

func besideEachOther(n *network, first, second string) {
	interfaces := fmt.Sprintf("interfaces: [{name: eth0, mode: %s}, {name: eth1, mode: %s}]", first, second)
	yaml := testConfig(n.T, "two-zones.yaml", append([]string{"interfaces: [eth0]", interfaces}, onTheOtherSegment...)...)
	got := map[string]bool{}
	for iface, mode := range map[string]string{"eth0": first, "eth1": second} {
		m, _ := obtains(n.T, mode)
		got[m] = true
		if m == "" {
			d := n.prepare(n.Appliance().Name(), yaml)
			d.run()
			d.refusesMode(iface)
			d.stop()
			return
		}
	}
	d := n.start(yaml)
	for range 32 {
		_, _, err := n.Client("client-b").UDP(n.soon(), netip.AddrPortFrom(lab.VIPv4, lab.EchoPort), netip.AddrPort{}, []byte("from eth0 to eth1"))
		n.must(err)
	}
	n.longTransfer("client-b", netip.AddrPortFrom(lab.VIPv6, lab.EchoTLS))
	d.toldMode("eth0", first)
	d.toldMode("eth1", second)
	if s := d.wholeMemory(); (s.Accounting.Copied > 0) != (len(got) > 1) {
		n.Errorf("%d frames were copied, want any: %v", s.Accounting.Copied, len(got) > 1)
	}
	n.must(d.process.Signal(unix.SIGKILL))
	if status, err := d.process.Wait(n.soon()); err != nil || status != -int(unix.SIGKILL) {
		n.must(errors.Join(err, fmt.Errorf("status %d", status)))
	}
}

// These need the kernel's packet generator: scripts/guest has a machine with it.

//go:build guest

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"zonehop/bench/lab"
	"zonehop/cmd/appliance/internal/admin"
)

// needPktgen fails a test on a machine whose kernel has no packet generator.
func needPktgen(t *testing.T) {
	t.Helper()
	needLab(t)
	_ = exec.Command("modprobe", "pktgen").Run() // built in, or not to be had
	if _, err := os.Stat("/proc/net/pktgen"); err != nil {
		t.Fatal("the kernel has no packet generator (CONFIG_NET_PKTGEN); scripts/guest has one")
	}
}

// generatorRun is one run of the script in client-b.
type generatorRun struct {
	net     *network
	process *lab.Process
	out     *bytes.Buffer
}

func (n *network) pktgen(args ...string) *generatorRun {
	n.Helper()
	path, err := filepath.Abs(pktgenScript)
	n.must(err)
	r := &generatorRun{net: n, out: &bytes.Buffer{}}
	cmd := exec.Command(path, append([]string{"-i", "eth0", "-m", n.mac(n.Appliance(), "eth0").String()}, args...)...)
	cmd.Stdout, cmd.Stderr = r.out, r.out
	r.process, err = n.Start("client-b", cmd)
	n.must(err)
	return r
}

// sentByThread reads the script's line of results of each thread.
var sentByThread = regexp.MustCompile(`(?m)^(eth0@\d+): OK: .* usec, (\d+) \((\d+)byte,\d+frags\); (\d+)pps .* errors: (\d+)$`)

// end waits for the end of a run and adds up what its threads say.
func (r *generatorRun) end(threads int) (sent, pps uint64) {
	r.net.Helper()
	ctx, cancel := context.WithTimeout(r.net.ctx, 60*time.Second)
	defer cancel()
	status, err := r.process.Wait(ctx)
	r.net.must(err)
	lines := sentByThread.FindAllStringSubmatch(r.out.String(), -1)
	if status != 0 || len(lines) != threads {
		r.net.Fatalf("status %d, %d lines of results, want %d:\n%s", status, len(lines), threads, r.out)
	}
	for _, l := range lines {
		if l[5] != "0" {
			r.net.Errorf("errors of the generator: %s", l[0])
		}
		n, err1 := strconv.ParseUint(l[2], 10, 64)
		p, err2 := strconv.ParseUint(l[4], 10, 64)
		r.net.must(errors.Join(err1, err2))
		sent, pps = sent+n, pps+p
	}
	return sent, pps
}

// pktgenConfig has rules for the script's default port. The lab's servers do not
// listen there: the load is the appliance's.
func pktgenConfig(t *testing.T, mode string) string {
	return testConfig(t, "two-zones.yaml", "interfaces: [eth0]", fmt.Sprintf("interfaces: [{name: eth0, mode: %s}]", mode),
		"ports: [7]", "ports: [7, 4242]") + "\nflowTable: {entries: 65536, halfOpenShare: 1}\n"
}

// TestPktgen sends with the script through the appliance, as its usage says.
func TestPktgen(t *testing.T) {
	needPktgen(t)
	n := newNetwork(t, lab.Options{})
	d := n.start(pktgenConfig(t, "auto"))
	for _, c := range []struct {
		name    string
		args    string
		threads int
		packets uint64
		flows   [2]int // new ones, at least and at most
		bytes   uint64 // of a frame
	}{
		{"many clients and ports", "-d 10.0.100.10 -r 4000 -n 3000", 1, 3000, [2]int{2900, 3000}, 60},
		{"flows that come again", "-d 10.0.100.10 -r 4000 -n 2000 -s 10.1.77.1-10.1.77.1 -f 5000-5015", 1, 2000, [2]int{16, 16}, 60},
		{"IPv6", "-d fd00:0:100::10 -r 4000 -n 2000 -s fd00:1::77 -f 6000-6031", 1, 2000, [2]int{32, 32}, 78},
		{"two threads, longer frames", "-d 10.0.100.10 -p 7 -t 2 -r 1000 -n 500 -l 1000 -s 10.1.78.1-10.1.78.4", 2, 1000, [2]int{900, 1000}, 1000},
	} {
		d.sub(c.name, func(d *device) {
			n := d.net
			before := d.status()
			sent, pps := n.pktgen(strings.Fields(c.args)...).end(c.threads)
			n.Logf("%d packets at %d a second", sent, pps)
			if sent != c.packets {
				n.Errorf("%d sent, want %d", sent, c.packets)
			}
			d.wait("the packets", func() error {
				s, err := d.Status()
				if err != nil {
					return err
				}
				if got := s.Accounting.Forwarded - before.Accounting.Forwarded; got != c.packets {
					return fmt.Errorf("%d of %d forwarded", got, c.packets)
				}
				return nil
			})
			s := d.wholeMemory()
			if flows := s.FlowTable.Used - before.FlowTable.Used; flows < c.flows[0] || flows > c.flows[1] {
				n.Errorf("%d new flows, want %d to %d", flows, c.flows[0], c.flows[1])
			}
			if size := (forwardedBytes(s) - forwardedBytes(before)) / c.packets; size != c.bytes {
				n.Errorf("frames of %d bytes, want %d", size, c.bytes)
			}
		})
	}
	d.sub("stopped", func(d *device) {
		for name, stop := range map[string]func(r *generatorRun) error{
			"--stop": func(*generatorRun) error {
				_, problems, status, err := d.net.Lab.Run(d.net.soon(), "client-b", pktgenScript, "--stop")
				if status != 0 {
					err = errors.Join(err, fmt.Errorf("status %d: %s", status, problems))
				}
				return err
			},
			"Ctrl-C": func(r *generatorRun) error { return r.process.Signal(syscall.SIGINT) },
		} {
			before := d.status().Accounting.Forwarded
			r := d.net.pktgen("-d", "10.0.100.10", "-r", "2000")
			d.counted("packets of an endless run", func(a *admin.Accounting) uint64 { return a.Forwarded }, before+100)
			d.net.must(stop(r))
			if sent, _ := r.end(1); sent < 100 {
				d.net.Errorf("%s: %d packets, want 100 at least", name, sent)
			}
		}
	})
	d.sub("refused by the kernel", func(d *device) {
		r := d.net.pktgen("-d", "10.0.100.10", "-b", "8", "-n", "8") // veth keeps no packet
		status, err := r.process.Wait(d.net.soon())
		if err != nil || status != 1 || !strings.Contains(r.out.String(), "the kernel refuses 'burst 8' for eth0@0") {
			d.net.Errorf("status %d, %v, output:\n%s\nwant 1 and the refused command", status, err, r.out)
		}
	})
	d.balanced()
	d.stop()
}

func forwardedBytes(s admin.Status) (sum uint64) {
	for _, p := range s.Pairs {
		sum += p.Bytes
	}
	return sum
}

// TestPktgenSaturates sends more than can be forwarded, in each mode: nothing is
// lost without a place in the accounts, and the appliance still answers. The
// rates are for the log; they mean something beside each other only.
func TestPktgenSaturates(t *testing.T) {
	needPktgen(t)
	n := newNetwork(t, lab.Options{})
	for _, mode := range everyMode {
		if got, _ := obtains(t, mode); got == "" {
			continue // refused here: TestModes
		}
		t.Run(mode, func(t *testing.T) {
			part := *n
			part.T = t
			d := part.start(pktgenConfig(t, mode))
			d.toldMode("eth0", mode)
			before := d.balanced()
			begin := time.Now()
			sent, offered := part.pktgen("-d", "10.0.100.10", "-n", "40000", "-s", "10.1.77.0-10.1.77.255", "-f", "5000-5255").end(1)
			took := time.Since(begin)
			after := d.balanced().Accounting
			forwarded := after.Forwarded - before.Accounting.Forwarded
			if forwarded == 0 {
				t.Errorf("none of %d packets was forwarded", sent)
			}
			t.Logf("%s: %d offered at %d/s, %d forwarded (%.0f %%), %d lost before the receive ring, %d dropped after it; %v",
				mode, sent, offered, forwarded, 100*float64(forwarded)/float64(sent),
				after.RXDropped+after.RXRingFull, allDropped(after.Dropped)-allDropped(before.Accounting.Dropped), took.Round(time.Millisecond))
			part.shares("client-b", vip4, 4)
			d.balanced()
			d.stop()
		})
	}
}

func allDropped(m map[string]uint64) (total uint64) {
	for _, n := range m {
		total += n
	}
	return total
}

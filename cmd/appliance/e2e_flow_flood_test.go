package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"zonehop/bench/generator"
	"zonehop/bench/lab"
	"zonehop/cmd/appliance/internal/admin"
)

// floodTime is how long the flood below saturation lasts, unless the
// environment says otherwise (ZONEHOP_FLOOD=5s). Under the race detector it is
// short: the appliance is some fifty times slower then and has memory that is
// not its own, so what a flood does to tables and memory is not judged.
func floodTime(t *testing.T) time.Duration {
	if s := os.Getenv("ZONEHOP_FLOOD"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 {
			t.Fatalf("ZONEHOP_FLOOD=%s: %v; use a duration such as 5s", s, err)
		}
		return d
	}
	if raceEnabled {
		return 3 * time.Second
	}
	return 30 * time.Second
}

// floodSources are what floods come from (RFC 2544 gives the range to tests).
var floodSources = netip.MustParsePrefix("198.18.0.0/16")

// flood is a flowRig that a generator sends to, on the appliance's wire, faster
// than it can receive. What comes of it ends in a sink on the same wire: no
// other host sees any of it.
type flood struct {
	*flowRig
	port lab.Port
	sink *generator.Sink
	to   netip.AddrPort
}

// TestFlood measures how much the appliance can take, floods it with half of
// that beside real connections, and then with more than it can take.
func TestFlood(t *testing.T) {
	lasts := floodTime(t)
	// The flood hits the very ports of the real connections. What it leaves in
	// the table goes soon, so that entries come and go all the time.
	r := newFlowRig(t, "flowTable: {entries: 65536}", "flowTable: {entries: 65536, tcpHalfOpenSec: 3}",
		"IPProtocol: UDP, ports: [7], backendService: web}", "IPProtocol: UDP, ports: [7, 443], backendService: web}")
	for _, c := range r.in {
		c.Stop()
	}
	f := &flood{flowRig: r, to: netip.AddrPortFrom(vip("web", 4), lab.EchoTLS)}
	var err error
	f.port, err = r.net.Appliance().Port("eth0")
	r.net.must(err)
	f.sink, err = generator.NewSourceSink(f.port.Exec, f.port.Name, r.lb, floodSources)
	r.net.must(err)
	t.Cleanup(func() {
		if err := f.sink.Close(); err != nil {
			t.Error(err)
		}
	})
	streams := f.connections(200)
	rate := f.saturate(3 * time.Second)
	f.belowSaturation(streams, rate/2, lasts)
	f.aboveSaturation(5 * time.Second)
	r.stop()
}

// start begins to send; the function it returns ends that and tells how many
// frames were sent.
func (f *flood) start(rateHz int, change func(o *generator.Options)) (end func() uint64) {
	f.net.Helper()
	o := generator.Options{
		Exec: f.port.Exec, Interface: f.port.Name, SourceMAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}, DestinationMAC: f.lb,
		Random: floodSources, Destination: f.to, RateHz: rateHz, CPU: -1,
		Packets: []generator.Packet{generator.SYN, generator.ACK, generator.UDP},
	}
	if change != nil {
		change(&o)
	}
	g, err := generator.New(o)
	f.net.must(err)
	ctx, cancel := context.WithCancel(f.net.ctx)
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	return func() uint64 {
		f.net.Helper()
		cancel()
		f.net.must(<-ended)
		sent, err := g.Sent()
		f.net.must(errors.Join(err, g.Close()))
		return sent
	}
}

// saturate sends flat out and returns how many frames per second were forwarded.
func (f *flood) saturate(lasts time.Duration) int {
	f.net.Helper()
	before := f.balanced().Accounting
	end := f.start(0, nil)
	f.wait("the flood to arrive", func() error {
		if s := f.status(); s.Accounting.Forwarded == before.Forwarded {
			return errors.New("nothing was forwarded")
		}
		return nil
	})
	start, first := time.Now(), f.status().Accounting
	time.Sleep(lasts) // what is measured
	last, took := f.status().Accounting, time.Since(start)
	sent := end()
	after := f.balanced()
	rate := int(float64(last.Forwarded-first.Forwarded) / took.Seconds())
	f.net.Logf("saturated: %d frames per second forwarded; %d sent, %d reached the appliance, %d were received, %v",
		rate, sent, after.Accounting.Redirected-before.Redirected, after.Accounting.Received-before.Received, change(&before, &after.Accounting))
	if rate == 0 {
		f.net.Fatal("nothing was forwarded")
	}
	return rate
}

// heapPlay is by how much the garbage collector lets the heap grow and shrink
// on a busy machine, in KiB. A few bytes kept of each of a flood's millions of
// frames are more.
const heapPlay = 32 << 10

// memory watches the resident memory, which must stay where it was.
type memory struct{ first, least, most int }

func (m *memory) read(f *flood) {
	f.net.Helper()
	now := residentKiB(f.net.T, f.process.Pid())
	if m.first == 0 {
		*m = memory{now, now, now}
	}
	m.least, m.most = min(m.least, now), max(m.most, now)
}

func (m *memory) check(f *flood) {
	f.net.Helper()
	if raceEnabled {
		return
	}
	if m.most > m.first+heapPlay {
		f.net.Errorf("resident memory went from %d to %d KiB, want at most %d more", m.first, m.most, heapPlay)
	}
}

// connections opens connections that carry data, half of them IPv6, and waits
// until all are tracked as such.
func (f *flood) connections(number int) (streams []*lab.Stream) {
	f.net.Helper()
	for i := range number {
		to := netip.AddrPortFrom(vip("web", 4+i%2*2), lab.EchoTLS)
		s, err := f.client.OpenStream(f.net.soon(), to, netip.AddrPort{}, 256, 100*time.Millisecond)
		f.net.must(err)
		f.net.Cleanup(func() { s.Close() })
		streams = append(streams, s)
	}
	f.allAlive(streams)
	return streams
}

// belowSaturation floods beside connections that carry data, and new ones all
// the time.
func (f *flood) belowSaturation(streams []*lab.Stream, rateHz int, lasts time.Duration) {
	f.net.Helper()
	before := f.balanced()
	var m memory
	start := time.Now()
	end := f.start(rateHz, nil)
	requests, slowest, unconfirmed := 0, time.Duration(0), 0
	for tick := time.NewTicker(250 * time.Millisecond); time.Since(start) < lasts; <-tick.C {
		if time.Since(start) > lasts/4 { // warm by then: tables, buffers, heap
			m.read(f)
		}
		asked := time.Now()
		f.net.shares("client", netip.AddrPortFrom(vip("web", 4+requests%2*2), lab.HTTPPort), 1)
		requests, slowest = requests+1, max(slowest, time.Since(asked))
		unconfirmed = max(unconfirmed, f.status().FlowTable.Unconfirmed)
		for _, s := range streams {
			if err := s.State().Err; err != nil {
				f.net.Fatalf("after %v of the flood: %v", time.Since(start), err)
			}
		}
	}
	took := time.Since(start)
	sent := end()
	after := f.balanced()
	f.allAlive(streams)
	var gap time.Duration
	var bytes int64
	for _, s := range streams {
		state := s.Close()
		if state.Err != nil {
			f.net.Error(state.Err)
		}
		gap, bytes = max(gap, state.MaxGap), bytes+state.Bytes
	}
	table := after.FlowTable
	f.net.Logf("%d frames per second for %v: %d sent, %d received, %v", rateHz, took.Round(time.Second), sent,
		after.Accounting.Received-before.Accounting.Received, change(&before.Accounting, &after.Accounting))
	f.net.Logf("%d connections carried %d KiB since they began, the longest pause was %v; %d of %d new ones succeeded, the slowest in %v",
		len(streams), bytes>>10, gap.Round(time.Millisecond), requests, requests, slowest.Round(time.Millisecond))
	f.net.Logf("resident memory %d KiB, between %d and %d; at most %d of %d entries unconfirmed, %d refused by quota",
		m.first, m.least, m.most, unconfirmed, table.Capacity, table.RejectedQuota)
	m.check(f)
	quota := table.Capacity / 2
	if unconfirmed > quota {
		f.net.Errorf("%d entries were unconfirmed, more than the quota of %d", unconfirmed, quota)
	}
	if !raceEnabled && (unconfirmed < quota*9/10 || table.RejectedQuota == before.FlowTable.RejectedQuota) {
		f.net.Errorf("%d entries were unconfirmed at most and none was refused: the quota of %d was not reached", unconfirmed, quota)
	}
}

// allAlive checks that every stream goes on and is tracked where it began.
func (f *flood) allAlive(streams []*lab.Stream) {
	f.net.Helper()
	before := make(map[*lab.Stream]int64)
	for _, s := range streams {
		before[s] = s.State().Bytes
	}
	f.net.eventually("data on every stream", func() (bool, error) {
		still := 0
		for s, bytes := range before {
			state := s.State()
			if state.Err != nil {
				f.net.Fatal(state.Err)
			}
			if state.Bytes == bytes {
				still++
			}
		}
		return still == 0, fmt.Errorf("%d of %d stand still", still, len(streams))
	})
	entries := make(map[string]admin.Flow)
	for _, client := range []netip.Addr{f.client.IPv4(), f.client.IPv6()} {
		list, err := f.Flows(admin.FlowFilter{Client: client.String()})
		f.net.must(err)
		for _, e := range list {
			entries[e.Client+" "+e.Ports] = e
		}
	}
	for _, s := range streams {
		key := fmt.Sprintf("%s %d→%d", s.LocalAddr().Addr(), s.LocalAddr().Port(), lab.EchoTLS)
		if e := entries[key]; e.Backend != s.Backend || e.State != "confirmed" {
			f.net.Errorf("the stream from %s at %s is tracked as %+v", s.LocalAddr(), s.Backend, e)
		}
	}
}

// aboveSaturation sends flat out, and every flow more than once, so that the
// whole table fills with confirmed entries.
func (f *flood) aboveSaturation(lasts time.Duration) {
	f.net.Helper()
	f.wait("the flood's entries to go", func() error {
		if n := f.status().FlowTable.Unconfirmed; n > 1000 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	before := f.balanced()
	wire := f.net.capture(f.client.Node, "eth0")
	var m memory
	m.read(f)
	start := time.Now()
	end := f.start(0, func(o *generator.Options) {
		o.Random, o.Source, o.Flows, o.Packets = netip.Prefix{}, floodSources.Addr(), 1<<17, []generator.Packet{generator.UDP}
	})
	resolved := make(map[netip.Addr]time.Duration)
	full := raceEnabled
	for time.Since(start) < lasts || (len(resolved) < 2 || !full) && time.Since(start) < patience {
		m.read(f)
		full = full || f.status().FlowTable.RejectedFull > before.FlowTable.RejectedFull
		for _, a := range []netip.Addr{vip("web", 4), vip("web", 6)} {
			if _, ok := resolved[a]; !ok {
				if f.resolves(wire, a) {
					resolved[a] = time.Since(start)
				}
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	stopped := time.Now()
	done := make(chan uint64, 1)
	go func() { defer close(done); done <- end() }()
	// A request whose first segment the end of the flood takes along would
	// only come again after a second: so they are short at first.
	requests := 0
	f.wait("a request to succeed", func() error {
		requests++
		ctx, cancel := context.WithTimeout(f.net.ctx, time.Duration(requests)*200*time.Millisecond)
		defer cancel()
		_, err := f.client.Get(ctx, netip.AddrPortFrom(vip("web", 4), lab.HTTPPort), "/")
		return err
	})
	recovered := time.Since(stopped)
	sent := <-done
	after := f.balanced()
	m.read(f)
	table := after.FlowTable
	f.net.Logf("flat out for %v: %d sent, %d reached the appliance, %d were received, %v", stopped.Sub(start).Round(time.Millisecond), sent,
		after.Accounting.Redirected-before.Accounting.Redirected, after.Accounting.Received-before.Accounting.Received, change(&before.Accounting, &after.Accounting))
	f.net.Logf("the addresses were resolved after %v; request %d succeeded %v after the end", resolved, requests, recovered.Round(time.Millisecond))
	f.net.Logf("resident memory %d KiB, between %d and %d; %d of %d entries used, %d confirmed, %d refused as full",
		m.first, m.least, m.most, table.Used, table.Capacity, table.Confirmed, table.RejectedFull)
	m.check(f)
	if len(resolved) != 2 {
		f.net.Errorf("only %v of the addresses resolved", resolved)
	}
	if !raceEnabled && (table.RejectedFull == before.FlowTable.RejectedFull || table.Used < table.Capacity*9/10) {
		f.net.Errorf("the table was not filled: %+v", table)
	}
	for _, version := range []int{4, 6} { // without room for an entry
		f.net.shares("client", netip.AddrPortFrom(vip("web", version), lab.HTTPPort), 20)
	}
}

// resolves asks once for the MAC address of an address, and reports whether the
// answer came soon. A host that got none would ask again.
func (f *flood) resolves(wire *lab.Capture, a netip.Addr) bool {
	f.net.Helper()
	wire.Clear()
	var request []byte
	answer := func(fr lab.Frame) bool { return isARPReply(fr, a) }
	if a.Is4() {
		request = arpRequest(f.net.T, f.own, f.client.IPv4(), a)
	} else {
		request = solicit(f.net.T, f.own, f.client.IPv6(), a)
		answer = func(fr lab.Frame) bool { return isAdvertisement(fr, a) }
	}
	f.net.send(f.client.Node, "eth0", request)
	ctx, cancel := context.WithTimeout(f.net.ctx, time.Second)
	defer cancel()
	_, err := wire.Wait(ctx, going(lab.In, answer))
	return err == nil
}

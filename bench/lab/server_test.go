package lab

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
	"golang.org/x/sys/unix"
)

func TestHealth(t *testing.T) {
	l := build(t, Options{})
	c, b := l.Client("client-b"), l.Backend("web-b1")
	ctx := ctxFor(t, 4*patience)
	health := at(b.IPv4(), HealthPort)
	for _, step := range []struct {
		health Health
		want   int // status; 0 is a timeout, -1 a refused connection
	}{{HealthOK, 200}, {HealthFailing, 503}, {HealthSlow, 0}, {HealthClosed, -1}, {HealthSlow, 0}, {HealthOK, 200}} {
		if err := b.SetHealth(step.health); err != nil {
			t.Fatal(err)
		}
		asked, giveUp := context.WithTimeout(ctx, patience)
		before := b.Probes()
		if step.want == 0 { // given up once it is clear that nothing comes
			go func() {
				defer giveUp()
				if err := Wait(ctx, "the request", patience, func() (bool, error) { return b.Probes() > before, nil }); err != nil {
					t.Error(err)
				}
				time.Sleep(200 * time.Millisecond)
			}()
		}
		reply, err := c.Get(asked, health, "/healthz")
		giveUp()
		if got := statusOf(reply, err); got != step.want {
			t.Errorf("GET /healthz with health %d = %d (%v), want %d", step.health, got, err, step.want)
		}
		if reply, err := c.Get(ctx, at(b.IPv4(), HTTPPort), "/"); err != nil || reply.Status != http.StatusOK {
			t.Errorf("GET / with health %d = %d, %v", step.health, reply.Status, err)
		}
	}
	if n := b.Probes(); n != 5 {
		t.Errorf("Probes() = %d, want 5: one per request that was not refused", n)
	}
	// A slow answer is let go by the next change.
	if err := b.SetHealth(HealthSlow); err != nil {
		t.Fatal(err)
	}
	before := b.Probes()
	answered := make(chan int, 1)
	go func() { answered <- statusOf(c.Get(ctx, health, "/healthz")) }()
	if err := Wait(ctx, "the slow request", patience, func() (bool, error) { return b.Probes() > before, nil }); err != nil {
		t.Fatal(err)
	}
	if err := b.SetHealth(HealthOK); err != nil {
		t.Fatal(err)
	}
	if got := <-answered; got != 503 {
		t.Errorf("a slow request ended with %d, want 503", got)
	}
}

// statusOf is the HTTP status, 0 for a timeout and -1 for a refused
// connection.
func statusOf(r Reply, err error) int {
	switch {
	case err == nil:
		return r.Status
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		return 0
	case errors.Is(err, unix.ECONNREFUSED):
		return -1
	}
	return -2
}

// Stopping the servers breaks what is open and refuses what is new.
func TestStopServers(t *testing.T) {
	l := build(t, Options{})
	c, b := l.Client("client-b"), l.Backend("web-b2")
	ctx := ctxFor(t, 4*patience)
	s, err := c.OpenStream(ctx, at(b.IPv6(), EchoPort), netip.AddrPort{}, 64, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if err := Wait(ctx, "data", patience, func() (bool, error) { return s.State().Bytes > 0, s.State().Err }); err != nil {
		t.Fatal(err)
	}
	b.StopServers()
	b.StopServers()
	if err := Wait(ctx, "the stream to break", patience, func() (bool, error) { return s.State().Err != nil, nil }); err != nil {
		t.Error(err)
	}
	if state := s.Close(); state.Err == nil {
		t.Error("Close of a broken stream has no error")
	}
	if got := statusOf(c.Get(ctx, at(b.IPv6(), HTTPPort), "/")); got != -1 {
		t.Errorf("GET from stopped servers = %d, want a refused connection", got)
	}
	if _, _, err := c.UDP(ctx, at(b.IPv4(), EchoPort), netip.AddrPort{}, nil); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("udp to stopped servers: %v, want a refused one", err)
	}
	for range 2 {
		if err := b.StartServers(); err != nil {
			t.Fatal(err)
		}
	}
	// A socket lives on after an exchange that ran out of time.
	conn, err := c.DialUDP(ctx, at(b.IPv4(), EchoPort), netip.AddrPort{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := b.SetCarrier("eth0", false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ExchangeUDP(ctxFor(t, 50*time.Millisecond), conn, []byte("lost")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("exchange without a carrier: %v", err)
	}
	if err := b.SetCarrier("eth0", true); err != nil {
		t.Fatal(err)
	}
	if name, _, err := ExchangeUDP(ctx, conn, []byte("found")); name != "web-b2" || err != nil {
		t.Errorf("exchange with the carrier back = %s, %v", name, err)
	}
	checkServers(t, c, "web-b2", b.IPv4(), []byte("again"))
}

// A stream that stands still shows in its gap before it breaks.
func TestStreamGap(t *testing.T) {
	l := build(t, Options{})
	c, b := l.Client("client-b"), l.Backend("web-b1")
	ctx := ctxFor(t, 4*patience)
	s, err := c.OpenStream(ctx, at(b.IPv4(), EchoPort), at(c.IPv4(), 33333), 64, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.LocalAddr() != at(c.IPv4(), 33333) {
		t.Errorf("LocalAddr() = %s", s.LocalAddr())
	}
	if err := b.SetCarrier("eth0", false); err != nil {
		t.Fatal(err)
	}
	const gap = 200 * time.Millisecond
	if err := Wait(ctx, "a gap", patience, func() (bool, error) { return s.State().MaxGap > gap, nil }); err != nil {
		t.Error(err)
	}
	if err := b.SetCarrier("eth0", true); err != nil {
		t.Fatal(err)
	}
	before := s.State().Bytes
	err = Wait(ctx, "data again", patience, func() (bool, error) { return s.State().Bytes > before, s.State().Err })
	if err != nil || s.State().MaxGap <= gap {
		t.Errorf("after the gap: %v, %+v", err, s.State())
	}
}

func TestProcess(t *testing.T) {
	l := build(t, Options{Topology: &Topology{Appliance: TwoZones().Appliance}})
	ctx := ctxFor(t, 4*patience)
	out, problems, status, err := l.Run(ctx, "lb", "sh", "-c", "ls /sys/class/net; echo bad >&2; exit 3")
	if err != nil || status != 3 || out != "eth0\nlo\n" || problems != "bad\n" {
		t.Errorf("Run = %q, %q, %d, %v", out, problems, status, err)
	}
	if _, _, _, err := l.Run(ctx, "lb", "/no/such/program"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Run of no program: %v", err)
	}
	if _, _, _, err := l.Run(ctxFor(t, 100*time.Millisecond), "lb", "sleep", "600"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run beyond its time: %v", err)
	}
	p, err := l.Command("lb", "sh", "-c", "echo started; exec sleep 600")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.WaitLog(ctx, "started", patience); err != nil {
		t.Error(err)
	}
	if err := p.WaitLog(ctx, "finished", 50*time.Millisecond); err == nil {
		t.Error("WaitLog found what was not written")
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if err := p.Kill(); err != nil {
		t.Error("second Kill:", err)
	}
	if status, err := p.Wait(ctx); err != nil || status != -int(unix.SIGKILL) {
		t.Errorf("killed process ended with %d, %v", status, err)
	}
}

// A capture shows frames byte for byte, VLAN tags included, at both ends of a
// link, and its file can be read.
func TestCapture(t *testing.T) {
	l := build(t, Options{Topology: &Topology{Appliance: TwoZones().Appliance}})
	lb := l.Appliance()
	ctx := ctxFor(t, 4*patience)
	inside, outside := must(lb.Capture("eth0"))(t), must(lb.CapturePort("eth0"))(t)
	sent := make([]byte, 100)
	Pattern(3, sent)
	copy(sent[12:], []byte{0x81, 0x00, 0x20, 0x05, 0x88, 0xb5}) // priority 1, VLAN 5, experimental type
	sent[0] = 2
	if err := lb.SendFrame("eth0", sent); err != nil {
		t.Fatal(err)
	}
	is := func(d Direction) func(Frame) bool {
		return func(f Frame) bool { return f.Direction == d && string(f.Data) == string(sent) }
	}
	if _, err := inside.Wait(ctx, is(Out)); err != nil {
		t.Error(err)
	}
	f, err := outside.Wait(ctx, is(In))
	if err != nil || time.Since(f.Time).Abs() > time.Minute {
		t.Error(f.Time, err)
	}
	if n := outside.Count(is(In)); n != 1 {
		t.Errorf("Count = %d, want 1", n)
	}
	if n, err := outside.Dropped(); n != 0 || err != nil {
		t.Errorf("Dropped() = %d, %v", n, err)
	}
	outside.Stop()
	outside.Stop()
	paths, err := l.SaveCaptures()
	if err != nil || len(paths) != 2 {
		t.Fatalf("SaveCaptures() = %v, %v", paths, err)
	}
	defer os.RemoveAll(l.Dir())
	file, err := os.Open(paths[1])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := pcapgo.NewReader(file)
	if err != nil || r.LinkType() != layers.LinkTypeEthernet {
		t.Fatal("read pcap:", err)
	}
	for {
		data, _, err := r.ReadPacketData()
		if err != nil {
			t.Fatal("the frame is not in the file: ", err)
		}
		if string(data) == string(sent) {
			break
		}
	}
	outside.Clear()
	if n := len(outside.Frames()); n != 0 {
		t.Errorf("%d frames after Clear", n)
	}
	if _, err := lb.Capture("eth7"); err == nil {
		t.Error("capture at an interface that is not there succeeded")
	}
}

func TestBuildRefuses(t *testing.T) {
	if os.Geteuid() != 0 {
		if _, err := Build(t.Context(), Options{}); !errors.Is(err, ErrPrivilege) {
			t.Errorf("Build without root: %v", err)
		}
		return
	}
	for name, o := range map[string]Options{
		"name too long":   {Topology: &Topology{Appliance: NodeSpec{Name: "a-name-of-14-by"}}},
		"name of switch":  {Topology: &Topology{Appliance: NodeSpec{Name: "sw"}}},
		"name twice":      {Topology: &Topology{Appliance: NodeSpec{Name: "lb"}, Clients: []NodeSpec{{Name: "lb"}}}},
		"no such segment": {Topology: &Topology{Appliance: NodeSpec{Name: "lb", Interfaces: []InterfaceSpec{{Name: "eth0", Segment: 1}}}}},
		"queues":          {Queues: 65},
	} {
		if l, err := Build(t.Context(), o); err == nil {
			t.Errorf("%s: Build succeeded", name)
			l.Close()
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if l, err := Build(ctx, Options{Prefix: "zh-cancelled"}); !errors.Is(err, context.Canceled) {
		t.Errorf("Build with a cancelled context: %v", err)
		l.Close()
	}
	if left := names(t, "zh-cancelled"); len(left) != 0 {
		t.Errorf("a cancelled Build left %v", left)
	}
}

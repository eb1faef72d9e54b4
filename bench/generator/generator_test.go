package generator

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"zonehop/bench/lab"
	"zonehop/bench/needs"
)

// rig is a lab with nothing but the appliance's interface, on which a test
// hangs the program that it sends to.
type rig struct {
	lab  *lab.Lab
	port lab.Port
	mac  net.HardwareAddr // of the appliance
}

func newRig(t *testing.T, forwarder asm.Instructions) *rig {
	t.Helper()
	needs.Root(t, "loading programs and making namespaces")
	l, err := lab.Build(t.Context(), lab.Options{Topology: &lab.Topology{Appliance: lab.TwoZones().Appliance}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{lab: l}
	if r.port, err = l.Appliance().Port("eth0"); err != nil {
		t.Fatal(err)
	}
	if r.mac, err = l.Appliance().MAC("eth0"); err != nil {
		t.Fatal(err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "Apache-2.0", Instructions: forwarder})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	err = l.Appliance().Exec(func() error {
		dev, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		attached, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: dev.Index, Flags: link.XDPDriverMode})
		if err == nil {
			t.Cleanup(func() { attached.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) options() Options {
	return Options{
		Exec: r.port.Exec, Interface: r.port.Name, CPU: -1,
		SourceMAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}, DestinationMAC: r.mac,
		Source: netip.MustParseAddr("10.1.255.255"), Destination: netip.MustParseAddrPort("10.0.100.10:4242"),
	}
}

// run sends until done reports true or the time is over.
func run(t *testing.T, g *Generator, done func() bool) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	err := lab.Wait(t.Context(), "the generator to send enough", time.Minute, func() (bool, error) { return done(), nil })
	stop()
	if runErr := <-ended; err != nil || runErr != nil {
		t.Fatal(err, runErr)
	}
}

// whole runs a paced generator until all the frames of one run have come back.
// The receiving ends have room for a few milliseconds: where the machine has
// other things to do for longer, some frames of a run are lost.
func whole(t *testing.T, g *Generator, s *Sink, frames uint64) Counts {
	t.Helper()
	read := func() (uint64, Counts) {
		sent, err := g.Sent()
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Counts()
		if err != nil {
			t.Fatal(err)
		}
		return sent, got
	}
	var sent uint64
	var got Counts
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		sentBefore, before := read()
		run(t, g, func() bool { n, _ := read(); return n >= sentBefore+frames })
		err := lab.Wait(t.Context(), "all frames back", time.Second, func() (bool, error) {
			sent, got = read()
			sent -= sentBefore
			got = Counts{got.Frames - before.Frames, got.Bytes - before.Bytes}
			return got.Frames >= sent, nil
		})
		if err == nil && got.Frames == sent {
			return got
		}
		if got.Frames > sent {
			break
		}
		t.Logf("%d of %d came back; once more", got.Frames, sent)
	}
	t.Fatalf("of %d frames sent %d came back", sent, got.Frames)
	return got
}

// Every frame is well formed, and the flows are as many as asked for.
func TestFrames(t *testing.T) {
	r := newRig(t, asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()})
	at, err := r.lab.Appliance().Capture("eth0")
	if err != nil {
		t.Fatal(err)
	}
	o := r.options()
	o.Flows, o.FrameLen, o.RateHz = 1<<16, 100, 200_000 // two source addresses, across a carry of the address
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	const frames = 3000
	run(t, g, func() bool { return len(at.Frames()) >= frames })
	at.Stop()
	seen, flows := 0, map[string]bool{}
	for _, f := range at.Frames()[:frames] { // more of them would begin again
		p := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.NoCopy)
		udp, ok := p.TransportLayer().(*layers.UDP)
		if !ok || udp.DstPort != 4242 {
			continue // the kernel's own
		}
		seen++
		ip := p.NetworkLayer().(*layers.IPv4)
		if len(f.Data) != 100 || ip.Length != 86 || udp.Length != 66 || ip.TTL != 64 || !ip.DstIP.Equal(net.IP{10, 0, 100, 10}) {
			t.Fatalf("frame %x", f.Data)
		}
		if got := sum(f.Data[ethLen : ethLen+ipLen]); (got>>16+got)&0xffff != 0xffff {
			t.Fatalf("IP checksum of %x: sum %x, want ffff", f.Data, got)
		}
		if src := ip.SrcIP.String(); src != "10.1.255.255" && src != "10.2.0.0" || udp.SrcPort < firstPort {
			t.Fatalf("source %s:%d", src, udp.SrcPort)
		}
		flows[p.NetworkLayer().NetworkFlow().String()+udp.TransportFlow().String()] = true
	}
	if seen < frames*9/10 || len(flows) != seen {
		t.Errorf("%d frames of %d flows, want nearly %d, each of another flow", seen, len(flows), frames)
	}
}

// Packets of all kinds come by turns, with checksums that are right, from
// random sources.
func TestRandomSegments(t *testing.T) {
	r := newRig(t, asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()})
	at, err := r.lab.Appliance().Capture("eth0")
	if err != nil {
		t.Fatal(err)
	}
	o := r.options()
	o.Source, o.Random, o.RateHz = netip.Addr{}, netip.MustParsePrefix("198.18.7.7/16"), 200_000
	o.Packets = []Packet{SYN, ACK, UDP, SYN}
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	const frames = 4000
	run(t, g, func() bool { return len(at.Frames()) >= frames })
	at.Stop()
	kinds, sources := map[string]int{}, map[string]bool{}
	for _, f := range at.Frames()[:frames] { // more of them would repeat sources
		p := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.NoCopy)
		ip, ok := p.NetworkLayer().(*layers.IPv4)
		if !ok || !ip.DstIP.Equal(net.IP{10, 0, 100, 10}) || ip.Protocol != layers.IPProtocolTCP && ip.Protocol != layers.IPProtocolUDP {
			continue // the kernel's own
		}
		if got := sum(f.Data[ethLen : ethLen+ipLen]); (got>>16+got)&0xffff != 0xffff {
			t.Fatalf("IP checksum of %x: sum %x, want ffff", f.Data, got)
		}
		if !o.Random.Contains(netip.AddrFrom4([4]byte(ip.SrcIP.To4()))) || len(f.Data) != minFrame {
			t.Fatalf("frame %x", f.Data)
		}
		sources[p.NetworkLayer().NetworkFlow().Src().String()] = true
		kind := "UDP"
		if tcp, ok := p.TransportLayer().(*layers.TCP); ok {
			segment := f.Data[ethLen+ipLen : ethLen+ipLen+tcpLen]
			got := sum(f.Data[offSource:offSource+8]) + 6 + tcpLen + sum(segment)
			if got = got>>16 + got&0xffff; (got>>16+got)&0xffff != 0xffff {
				t.Fatalf("TCP checksum of %x: sum %x, want ffff", f.Data, got)
			}
			if tcp.DstPort != 4242 || tcp.SrcPort < firstPort || tcp.SYN == tcp.ACK || int(ip.Length) != ipLen+tcpLen {
				t.Fatalf("frame %x", f.Data)
			}
			kind = map[bool]string{true: "SYN", false: "ACK"}[tcp.SYN]
		}
		kinds[kind]++
	}
	t.Logf("%v from %d sources", kinds, len(sources))
	total := kinds["SYN"] + kinds["ACK"] + kinds["UDP"]
	if total < frames*9/10 || len(sources) < total*9/10 {
		t.Errorf("%v from %d sources, want %d frames or more, nearly all from another one", kinds, len(sources), frames)
	}
	for kind, share := range map[string]int{"SYN": 2, "ACK": 1, "UDP": 1} {
		if want := total * share / 4; kinds[kind] < want*9/10 || kinds[kind] > want*11/10 {
			t.Errorf("%d frames are %s, want about %d", kinds[kind], kind, want)
		}
	}
}

// A sink for sources takes the generator's frames and no others.
func TestSourceSink(t *testing.T) {
	r := newRig(t, hairpin())
	source := netip.MustParsePrefix("198.18.0.0/16")
	s, err := NewSourceSink(r.port.Exec, r.port.Name, r.mac, source)
	if err != nil {
		t.Fatal(err)
	}
	for _, random := range []netip.Prefix{source, netip.MustParsePrefix("198.19.0.0/16")} {
		o := r.options()
		o.Random, o.RateHz, o.Packets = random, 20_000, []Packet{SYN, UDP}
		g, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if random == source {
			whole(t, g, s, 2000)
		} else {
			before, err := s.Counts()
			if err != nil {
				t.Fatal(err)
			}
			run(t, g, func() bool { n, _ := g.Sent(); return n >= 2000 })
			if after, err := s.Counts(); err != nil || after != before {
				t.Errorf("another prefix is counted: %+v, then %+v, %v", before, after, err)
			}
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := NewSourceSink(r.port.Exec, r.port.Name, r.mac, netip.MustParsePrefix("10.0.0.0/9")); err == nil {
		t.Error("NewSourceSink with a prefix of 9 bits succeeded")
	}
}

// hairpin swaps the MAC addresses and sends the frame back.
func hairpin() asm.Instructions {
	const xdpTX = 3
	code := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, mdData, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, mdDataEnd, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, ethLen),
		asm.JGT.Reg(asm.R4, asm.R3, "drop"),
	}
	for at := int16(0); at < 6; at += 2 {
		code = append(code,
			asm.LoadMem(asm.R4, asm.R2, at, asm.Half),
			asm.LoadMem(asm.R5, asm.R2, at+6, asm.Half),
			asm.StoreMem(asm.R2, at, asm.R5, asm.Half),
			asm.StoreMem(asm.R2, at+6, asm.R4, asm.Half))
	}
	return append(code, asm.Mov.Imm(asm.R0, xdpTX), asm.Return(), asm.Mov.Imm(asm.R0, xdpDrop).WithSymbol("drop"), asm.Return())
}

// At a modest pace every frame comes back, and the pace is kept.
func TestPacedRoundTrip(t *testing.T) {
	r := newRig(t, hairpin())
	s, err := NewSink(r.port.Exec, r.port.Name, r.mac, 4242)
	if err != nil {
		t.Fatal(err)
	}
	o := r.options()
	o.Flows, o.RateHz = 1024, 50_000
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	start := time.Now()
	run(t, g, func() bool { n, _ := g.Sent(); return n >= 20_000 })
	took := time.Since(start)
	sent, err := g.Sent()
	if err != nil {
		t.Fatal(err)
	}
	if most := uint64(took.Seconds()*50_000) + 51; sent > most { // and the debt of 1 ms
		t.Errorf("%d frames in %v, want at most %d at 50 kHz", sent, took, most)
	}
	if got := whole(t, g, s, 2000); got.Bytes != got.Frames*minFrame {
		t.Errorf("came back %+v, want frames of %d bytes", got, minFrame)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Flat out, the generator is not what limits a forwarder in user space; and
// the sink leaves the interface as it found it.
func TestFlatOut(t *testing.T) {
	r := newRig(t, hairpin())
	s, err := NewSink(r.port.Exec, r.port.Name, r.mac, 4242)
	if err != nil {
		t.Fatal(err)
	}
	o := r.options()
	o.Flows = 1 << 20
	o.CPU = 0
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	start := time.Now()
	run(t, g, func() bool { n, _ := g.Sent(); return n >= 1<<20 })
	sent, err := g.Sent()
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Counts()
	if err != nil || got.Frames == 0 || got.Frames > sent {
		t.Errorf("sent %d, came back %+v, %v", sent, got, err)
	}
	t.Logf("sent %d, came back %d, in %v", sent, got.Frames, time.Since(start))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	again, err := NewSink(r.port.Exec, r.port.Name, r.mac, 4242)
	if err != nil {
		t.Fatal(err)
	}
	if again.before == nil {
		t.Error("Close of the first sink did not give the interface its program back")
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestNewRefuses(t *testing.T) {
	good := (&rig{mac: net.HardwareAddr{2, 0, 0, 0, 0, 1}}).options()
	good.Flows = 64
	for name, change := range map[string]func(*Options){
		"flows":       func(o *Options) { o.Flows = 65 },
		"short frame": func(o *Options) { o.FrameLen = 59 },
		"long frame":  func(o *Options) { o.FrameLen = 1515 },
		"IPv6":        func(o *Options) { o.Source = netip.IPv6Loopback() },
		"mac":         func(o *Options) { o.SourceMAC = nil },
		"rate":        func(o *Options) { o.RateHz = -1 },
		"prefix":      func(o *Options) { o.Random = netip.MustParsePrefix("fd00::/16") },
		"packet":      func(o *Options) { o.Packets = []Packet{numPackets} },
		"packets":     func(o *Options) { o.Packets = make([]Packet, maxPackets+1) },
		"long SYN":    func(o *Options) { o.Packets, o.FrameLen = []Packet{SYN}, 100 },
	} {
		o := good
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("New with bad %s succeeded", name)
		}
	}
}

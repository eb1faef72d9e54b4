package generator

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Options of New.
type Options struct {
	// Exec runs a function inside the interface's namespace, on one thread:
	// Exec of a lab port.
	Exec func(func() error) error
	// Interface that frames leave by.
	Interface string

	SourceMAC, DestinationMAC net.HardwareAddr
	// Source is the first source address (IPv4). Each 32768 flows use one
	// address more, with ports from 1024 on.
	Source      netip.Addr
	Destination netip.AddrPort // IPv4
	// Flows is the number of distinct flows: a power of two, at most 2^24.
	Flows int
	// Random, if valid, takes the place of Source and Flows: each frame has an
	// address of this prefix (IPv4) and a port from 1024 to 33791, at random.
	Random netip.Prefix
	// Packets are the kinds of packets sent, by turns, up to 8; none means UDP.
	Packets []Packet
	// FrameLen is the length in bytes without FCS, 60 to 1514; 0 means 60, which
	// is what TCP segments have.
	FrameLen int
	// RateHz is the rate in frames per second; 0 means flat out. Time that was
	// missed is made up for at most one millisecond, so that a pause does not
	// turn into a burst that overflows the receiver.
	RateHz int
	// CPU to run on; negative means any.
	CPU int
}

// Packet is a kind of packet. TCP segments are without options and data.
type Packet uint8

// The kinds of packets.
const (
	UDP Packet = iota
	SYN        // the first segment of a connection
	ACK        // a segment from the midst of one
	numPackets
)

// maxDebt is how much missed time a paced generator makes up for.
const maxDebt = time.Millisecond

// Limits of Options.
const (
	minFrame   = 60
	maxFrame   = 1514
	maxFlows   = 1 << 24
	maxPackets = 8
)

// repeat is the number of frames, or of pauses between paced ones, per system
// call. Each call costs 20 to 25 ms beside the frames (seen on a shared
// virtual CPU, Linux 6.18, 2026-11-29); so it is large.
const repeat = 1 << 22

// liveFrames is BPF_F_TEST_XDP_LIVE_FRAMES of linux/bpf.h: the program's
// verdicts are carried out.
const liveFrames = 1 << 1

// Generator is a traffic source. Run may be called by one goroutine at a time;
// the other methods at any time.
type Generator struct {
	o     Options
	state *ebpf.Map // one value: state
	halt  *ebpf.Map // one word, not zero: send nothing
	prog  *ebpf.Program
}

// New loads the program; nothing is sent before Run. The caller closes it.
func New(o Options) (*Generator, error) {
	if o.FrameLen == 0 {
		o.FrameLen = minFrame
	}
	if len(o.Packets) == 0 {
		o.Packets = []Packet{UDP}
	}
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("traffic generator: %w", err)
	}
	g := &Generator{o: o}
	if err := g.load(); err != nil {
		g.Close()
		return nil, fmt.Errorf("traffic generator on %s: %w", o.Interface, err)
	}
	return g, nil
}

func (o *Options) validate() error {
	var problems []error
	if o.FrameLen < minFrame || o.FrameLen > maxFrame {
		problems = append(problems, fmt.Errorf("frame length %d; use %d to %d", o.FrameLen, minFrame, maxFrame))
	}
	if o.Random.IsValid() {
		if !o.Random.Addr().Is4() {
			problems = append(problems, fmt.Errorf("random addresses of %s; use IPv4", o.Random))
		}
	} else {
		if o.Flows < 1 || o.Flows > maxFlows || bits.OnesCount(uint(o.Flows)) != 1 {
			problems = append(problems, fmt.Errorf("%d flows; use a power of two up to %d", o.Flows, maxFlows))
		}
		if !o.Source.Is4() {
			problems = append(problems, fmt.Errorf("source address %s; use IPv4", o.Source))
		}
	}
	if !o.Destination.Addr().Is4() {
		problems = append(problems, fmt.Errorf("destination address %s; use IPv4", o.Destination))
	}
	if len(o.Packets) > maxPackets {
		problems = append(problems, fmt.Errorf("%d packets; use up to %d", len(o.Packets), maxPackets))
	}
	for _, p := range o.Packets {
		switch {
		case p >= numPackets:
			problems = append(problems, fmt.Errorf("packet kind %d; use UDP, SYN or ACK", p))
		case p != UDP && o.FrameLen != minFrame:
			problems = append(problems, fmt.Errorf("frame length %d; use %d for TCP segments", o.FrameLen, minFrame))
		}
	}
	if len(o.SourceMAC) != 6 || len(o.DestinationMAC) != 6 {
		problems = append(problems, errors.New("mac addresses must have 6 bytes"))
	}
	if o.RateHz < 0 || o.RateHz > 1e9 {
		problems = append(problems, fmt.Errorf("rate %d; use up to 1e9 per second", o.RateHz))
	}
	return errors.Join(problems...)
}

func (g *Generator) load() error {
	var err error
	if g.state, err = ebpf.NewMap(&ebpf.MapSpec{Name: "gen_state", Type: ebpf.Array, KeySize: 4, ValueSize: stateLen, MaxEntries: 1}); err != nil {
		return err
	}
	if g.halt, err = ebpf.NewMap(&ebpf.MapSpec{Name: "gen_halt", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}); err != nil {
		return err
	}
	index := 0
	err = g.o.Exec(func() error {
		dev, err := net.InterfaceByName(g.o.Interface)
		if err == nil {
			index = dev.Index
		}
		return err
	})
	if err != nil {
		return err
	}
	g.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "zonehop_gen", Type: ebpf.XDP, License: "Apache-2.0",
		Instructions: program(&g.o, index, g.state.FD(), g.halt.FD()),
	})
	return err
}

// Run sends until ctx ends, which is no error.
func (g *Generator) Run(ctx context.Context) error {
	if err := g.halt.Put(uint32(0), uint64(0)); err != nil {
		return fmt.Errorf("traffic generator: %w", err)
	}
	// Idle repeats run out within a fraction of a second. Should the halt fail,
	// they end no later than a call's repeats do.
	halted := make(chan struct{})
	halt := context.AfterFunc(ctx, func() {
		defer close(halted)
		g.halt.Put(uint32(0), uint64(1))
	})
	defer func() {
		if !halt() {
			<-halted
		}
	}()
	err := g.o.Exec(func() error {
		unpin, err := pin(g.o.CPU)
		if err != nil {
			return err
		}
		defer unpin()
		for ctx.Err() == nil {
			_, err := g.prog.Run(&ebpf.RunOptions{Data: make([]byte, g.o.FrameLen), Repeat: repeat, Flags: liveFrames, BatchSize: 64})
			if err != nil {
				return fmt.Errorf("run program: %w; live frames need Linux 5.18", err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("traffic generator on %s: %w", g.o.Interface, err)
	}
	return nil
}

// Sent is the number of frames handed to the interface so far. The receiving
// end may have had no room for some.
func (g *Generator) Sent() (uint64, error) {
	var s state
	if err := g.state.Lookup(uint32(0), &s); err != nil {
		return 0, fmt.Errorf("traffic generator: %w", err)
	}
	return s.Sent, nil
}

// Close unloads the program. Run must have returned.
func (g *Generator) Close() error {
	var problems []error
	if g.prog != nil {
		problems = append(problems, g.prog.Close())
	}
	for _, m := range []*ebpf.Map{g.state, g.halt} {
		if m != nil {
			problems = append(problems, m.Close())
		}
	}
	return errors.Join(problems...)
}

// pin binds the calling thread to a CPU, if it is not negative.
func pin(cpu int) (unpin func(), err error) {
	if cpu < 0 {
		return func() {}, nil
	}
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("read cpu affinity: %w", err)
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return nil, fmt.Errorf("run on cpu %d: %w", cpu, err)
	}
	// The CPUs were allowed a moment ago; if they no longer are, any will do.
	return func() { unix.SchedSetaffinity(0, &before) }, nil
}

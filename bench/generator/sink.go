package generator

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Sink counts the frames of a forwarder as they come back and drops them; what
// else arrives is passed on. It takes the place of the XDP program that the
// interface has, until Close.
type Sink struct {
	exec   func(func() error) error
	iface  string
	counts *ebpf.Map
	prog   *ebpf.Program
	before *ebpf.Program // what the interface had; nil for nothing
}

// Counts are totals since NewSink.
type Counts struct{ Frames, Bytes uint64 }

// NewSink counts frames that arrive at the interface from a MAC address with
// IPv4 UDP for a port: the generator's frames after a forwarder has written its
// own address into them. exec and iface are as in Options.
func NewSink(exec func(func() error) error, iface string, from net.HardwareAddr, port uint16) (*Sink, error) {
	// Bytes, so that the order of the machine does not matter.
	return newSink(exec, iface, from, map[int16]byte{23: 17, 36: byte(port >> 8), 37: byte(port)})
}

// NewSourceSink counts frames that arrive at the interface from a MAC address
// with IPv4 packets from a prefix of whole bytes: a generator's with Random.
// Others pass, those of real clients among them.
func NewSourceSink(exec func(func() error) error, iface string, from net.HardwareAddr, source netip.Prefix) (*Sink, error) {
	if !source.Addr().Is4() || source.Bits()%8 != 0 {
		return nil, fmt.Errorf("traffic sink: sources of %s; use an IPv4 prefix of whole bytes", source)
	}
	want := map[int16]byte{}
	first := source.Addr().As4()
	for i := range source.Bits() / 8 {
		want[int16(offSource+i)] = first[i]
	}
	return newSink(exec, iface, from, want)
}

// newSink counts IPv4 packets without options, from a MAC address, with these
// bytes in their frames.
func newSink(exec func(func() error) error, iface string, from net.HardwareAddr, want map[int16]byte) (*Sink, error) {
	if len(from) != 6 {
		return nil, errors.New("traffic sink: mac address must have 6 bytes")
	}
	want[12], want[13], want[14] = 0x08, 0x00, 0x45
	for i, b := range from {
		want[int16(6+i)] = b
	}
	s := &Sink{exec: exec, iface: iface}
	if err := s.load(want); err != nil {
		s.free()
		return nil, fmt.Errorf("traffic sink on %s: %w", iface, err)
	}
	return s, nil
}

func (s *Sink) load(want map[int16]byte) error {
	var err error
	s.counts, err = ebpf.NewMap(&ebpf.MapSpec{Name: "sink_counts", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 16, MaxEntries: 1})
	if err != nil {
		return err
	}
	s.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "zonehop_sink", Type: ebpf.XDP, License: "Apache-2.0", Instructions: sinkProgram(want, s.counts.FD()),
	})
	if err != nil {
		return err
	}
	return s.exec(func() error {
		dev, err := netlink.LinkByName(s.iface)
		if err != nil {
			return err
		}
		if xdp := dev.Attrs().Xdp; xdp != nil && xdp.Attached {
			if s.before, err = ebpf.NewProgramFromID(ebpf.ProgramID(xdp.ProgId)); err != nil {
				return fmt.Errorf("take over the program there: %w", err)
			}
		}
		return netlink.LinkSetXdpFdWithFlags(dev, s.prog.FD(), unix.XDP_FLAGS_DRV_MODE)
	})
}

func sinkProgram(want map[int16]byte, countsFD int) asm.Instructions {
	code := asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, mdData, asm.Word),
		asm.LoadMem(asm.R7, asm.R1, mdDataEnd, asm.Word),
		asm.Mov.Reg(asm.R3, asm.R6),
		asm.Add.Imm(asm.R3, headersLen),
		asm.JGT.Reg(asm.R3, asm.R7, "pass"),
	}
	for at := int16(0); at < headersLen; at++ {
		if b, ok := want[at]; ok {
			code = append(code, asm.LoadMem(asm.R2, asm.R6, at, asm.Byte), asm.JNE.Imm(asm.R2, int32(b), "pass"))
		}
	}
	return append(code,
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, countsFD),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Sub.Reg(asm.R7, asm.R6), // the length
		asm.LoadMem(asm.R1, asm.R0, 8, asm.DWord),
		asm.Add.Reg(asm.R1, asm.R7),
		asm.StoreMem(asm.R0, 8, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, xdpDrop), asm.Return(),
		asm.Mov.Imm(asm.R0, xdpPass).WithSymbol("pass"), asm.Return(),
	)
}

// Counts reads the totals. It may be called at any time before Close.
func (s *Sink) Counts() (Counts, error) {
	var perCPU []Counts
	if err := s.counts.Lookup(uint32(0), &perCPU); err != nil {
		return Counts{}, fmt.Errorf("traffic sink: %w", err)
	}
	var sum Counts
	for _, c := range perCPU {
		sum.Frames += c.Frames
		sum.Bytes += c.Bytes
	}
	return sum, nil
}

// Close gives the interface its former program back.
func (s *Sink) Close() error {
	err := s.exec(func() error {
		dev, err := netlink.LinkByName(s.iface)
		if err != nil {
			return err
		}
		fd := -1
		if s.before != nil {
			fd = s.before.FD()
		}
		return netlink.LinkSetXdpFdWithFlags(dev, fd, unix.XDP_FLAGS_DRV_MODE)
	})
	s.free()
	if err != nil {
		return fmt.Errorf("traffic sink on %s: %w", s.iface, err)
	}
	return nil
}

func (s *Sink) free() {
	for _, p := range []*ebpf.Program{s.prog, s.before} {
		if p != nil {
			p.Close()
		}
	}
	if s.counts != nil {
		s.counts.Close()
	}
}

package generator

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"
)

// state is the program's memory between frames, an array map's only value.
type state struct {
	Sent uint64 // frames so far, also the number that makes the next flow
	Next uint64 // when the next frame is due, in ticks of the monotonic clock
}

const (
	stateLen  = 16
	stateSent = 0
	stateNext = 8
)

// tickShift makes ticks of 1/64 ns, so that an interval is exact to 0.01 % at
// 5 million frames per second; a 64-bit count lasts nine years of uptime.
const tickShift = 6

// Offsets in struct xdp_md and verdicts, linux/bpf.h.
const (
	mdData    = 0
	mdDataEnd = 4
	xdpDrop   = 1
	xdpPass   = 2
)

// Offsets in an untagged IPv4 UDP frame.
const (
	offIPLen    = 16
	offIPSum    = 24
	offSource   = 26
	offSrcPort  = 34
	ethLen      = 14
	ipLen       = 20
	udpLen      = 8
	headersLen  = ethLen + ipLen + udpLen
	firstPort   = 1024
	portBits    = 15
	flowScatter = 0x9e3779b1 // odd, so multiplication only reorders the flows
)

// template is a frame with source address, source port and IP checksum 0. The
// UDP checksum is 0, which IPv4 permits (RFC 768).
func template(o *Options) []byte {
	f := make([]byte, minFrame)
	copy(f, o.DestinationMAC)
	copy(f[6:], o.SourceMAC)
	copy(f[12:], []byte{0x08, 0x00, 0x45, 0x00})
	binary.BigEndian.PutUint16(f[offIPLen:], uint16(o.FrameLen-ethLen))
	copy(f[20:], []byte{0x40, 0x00, 64, 17}) // do not fragment, TTL, UDP
	dst := o.Destination.Addr().As4()
	copy(f[30:], dst[:])
	binary.BigEndian.PutUint16(f[36:], o.Destination.Port())
	binary.BigEndian.PutUint16(f[38:], uint16(o.FrameLen-ethLen-ipLen))
	return f
}

// program writes the next flow's frame and redirects it to the interface, or
// drops the page while a paced frame is not due.
func program(o *Options, ifindex, stateFD, haltFD int) asm.Instructions {
	frame := template(o)
	code := asm.Instructions{
		asm.LoadMem(asm.R7, asm.R1, mdData, asm.Word),
		asm.LoadMem(asm.R2, asm.R1, mdDataEnd, asm.Word),
		asm.Mov.Reg(asm.R3, asm.R7),
		asm.Add.Imm(asm.R3, minFrame),
		asm.JGT.Reg(asm.R3, asm.R2, "drop"),
		asm.LoadMapValue(asm.R1, haltFD, 0),
		asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.JNE.Imm(asm.R1, 0, "drop"),
		asm.LoadMapValue(asm.R8, stateFD, 0),
	}
	if o.RateHz > 0 {
		code = append(code, pace(o.RateHz)...)
	}
	for at := 0; at < len(frame); at += 4 {
		word := int64(int32(binary.NativeEndian.Uint32(frame[at:])))
		code = append(code, asm.StoreImm(asm.R7, int16(at), word, asm.Word))
	}
	source := o.Source.As4()
	return append(code,
		// R1: number of the flow.
		asm.LoadMem(asm.R1, asm.R8, stateSent, asm.DWord),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.Add.Imm(asm.R2, 1),
		asm.StoreMem(asm.R8, stateSent, asm.R2, asm.DWord),
		asm.LoadImm(asm.R2, flowScatter, asm.DWord),
		asm.Mul.Reg(asm.R1, asm.R2),
		asm.And.Imm(asm.R1, int32(o.Flows-1)),
		// Its port.
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.And.Imm(asm.R2, 1<<portBits-1),
		asm.Add.Imm(asm.R2, firstPort),
		asm.HostTo(asm.BE, asm.R2, asm.Half),
		asm.StoreMem(asm.R7, offSrcPort, asm.R2, asm.Half),
		// R2: its address.
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, portBits),
		asm.LoadImm(asm.R3, int64(binary.BigEndian.Uint32(source[:])), asm.DWord),
		asm.Add.Reg(asm.R2, asm.R3),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.HostTo(asm.BE, asm.R3, asm.Word),
		asm.StoreMem(asm.R7, offSource, asm.R3, asm.Word),
		// Checksum: that of the template plus the two halves of the address.
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.RSh.Imm(asm.R3, 16),
		asm.And.Imm(asm.R2, 0xffff),
		asm.Add.Reg(asm.R2, asm.R3),
		asm.Add.Imm(asm.R2, int32(sum(frame[ethLen:ethLen+ipLen]))),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.RSh.Imm(asm.R3, 16),
		asm.And.Imm(asm.R2, 0xffff),
		asm.Add.Reg(asm.R2, asm.R3),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.RSh.Imm(asm.R3, 16),
		asm.Add.Reg(asm.R2, asm.R3),
		asm.Xor.Imm(asm.R2, -1),
		asm.HostTo(asm.BE, asm.R2, asm.Half),
		asm.StoreMem(asm.R7, offIPSum, asm.R2, asm.Half),

		asm.Mov.Imm(asm.R1, int32(ifindex)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, xdpDrop).WithSymbol("drop"),
		asm.Return(),
	)
}

// pace drops the page if the next frame is not due yet, and else says when the
// one after it is.
func pace(rateHz int) asm.Instructions {
	interval := int64(1e9<<tickShift) / int64(rateHz)
	debt := int64(maxDebt) << tickShift
	return asm.Instructions{
		asm.FnKtimeGetNs.Call(),
		asm.LSh.Imm(asm.R0, tickShift),
		asm.LoadMem(asm.R1, asm.R8, stateNext, asm.DWord),
		asm.JGT.Reg(asm.R1, asm.R0, "drop"),
		asm.LoadImm(asm.R2, debt, asm.DWord),
		asm.Sub.Reg(asm.R0, asm.R2), // the earliest that is still made up for
		asm.JGE.Reg(asm.R1, asm.R0, "due"),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.LoadImm(asm.R2, interval, asm.DWord).WithSymbol("due"),
		asm.Add.Reg(asm.R1, asm.R2),
		asm.StoreMem(asm.R8, stateNext, asm.R1, asm.DWord),
	}
}

// sum adds up 16-bit words (RFC 1071), folded once so that it stays small.
func sum(b []byte) uint32 {
	total := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		total += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	return total>>16 + total&0xffff
}

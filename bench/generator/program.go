package generator

import (
	"encoding/binary"
	"fmt"

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

// Offsets in an untagged IPv4 frame without options.
const (
	offIPLen    = 16
	offIPSum    = 24
	offSource   = 26
	offSrcPort  = 34
	offTCPSum   = 50
	ethLen      = 14
	ipLen       = 20
	udpLen      = 8
	tcpLen      = 20 // RFC 9293, without options
	headersLen  = ethLen + ipLen + udpLen
	firstPort   = 1024
	portBits    = 15
	flowScatter = 0x9e3779b1 // odd, so multiplication only reorders the flows
)

// template is a frame with source address, source port, IP and TCP checksum 0.
// The UDP checksum is 0, which IPv4 permits (RFC 768).
func template(o *Options, kind Packet) []byte {
	f := make([]byte, minFrame)
	copy(f, o.DestinationMAC)
	copy(f[6:], o.SourceMAC)
	copy(f[12:], []byte{0x08, 0x00, 0x45, 0x00})
	binary.BigEndian.PutUint16(f[offIPLen:], uint16(o.FrameLen-ethLen))
	copy(f[20:], []byte{0x40, 0x00, 64, 17}) // do not fragment, TTL, UDP
	dst := o.Destination.Addr().As4()
	copy(f[30:], dst[:])
	binary.BigEndian.PutUint16(f[36:], o.Destination.Port())
	if kind == UDP {
		binary.BigEndian.PutUint16(f[38:], uint16(o.FrameLen-ethLen-ipLen))
		return f
	}
	binary.BigEndian.PutUint16(f[offIPLen:], ipLen+tcpLen)
	f[23] = 6
	f[38] = 1 // sequence number
	f[46] = tcpLen / 4 << 4
	f[47] = 0x02 // SYN
	if kind == ACK {
		f[47], f[42] = 0x10, 1
	}
	f[48] = 0xff // window
	return f
}

// tcpSum is the sum of a template's segment and pseudo header (RFC 9293 section
// 3.1), but for what is 0 in it.
func tcpSum(frame []byte) uint32 {
	return sum(frame[30:34]) + 6 + tcpLen + sum(frame[ethLen+ipLen:ethLen+ipLen+tcpLen])
}

// program writes the next flow's frame and redirects it to the interface, or
// drops the page while a paced frame is not due. Registers: R7 the frame, R8
// the state, R6 and R9 what a template contributes to the IP and TCP checksums.
func program(o *Options, ifindex, stateFD, haltFD int) asm.Instructions {
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
	code = append(code, templates(o)...)
	code = append(code, source(o)...)
	code = append(code,
		// R2: the two halves of the address, R1: the port.
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.RSh.Imm(asm.R3, 16),
		asm.And.Imm(asm.R2, 0xffff),
		asm.Add.Reg(asm.R2, asm.R3),
		asm.Add.Reg(asm.R6, asm.R2),
	)
	code = append(code, checksum(asm.R6, offIPSum)...)
	code = append(code,
		asm.JEq.Imm(asm.R9, 0, "send"), // UDP
		asm.Add.Reg(asm.R9, asm.R2),
		asm.Add.Reg(asm.R9, asm.R1))
	code = append(code, checksum(asm.R9, offTCPSum)...)
	return append(code,
		asm.Mov.Imm(asm.R1, int32(ifindex)).WithSymbol("send"),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, xdpDrop).WithSymbol("drop"),
		asm.Return(),
	)
}

// templates writes the template whose turn it is into the frame and sets R6 and
// R9: what comes before source address and port are known.
func templates(o *Options) (code asm.Instructions) {
	if len(o.Packets) > 1 {
		code = append(code,
			asm.LoadMem(asm.R1, asm.R8, stateSent, asm.DWord),
			asm.Mod.Imm(asm.R1, int32(len(o.Packets))))
	}
	for i, kind := range o.Packets {
		frame := template(o, kind)
		last := i == len(o.Packets)-1
		if !last {
			code = append(code, asm.JNE.Imm(asm.R1, int32(i), fmt.Sprintf("template%d", i+1)))
		}
		start := len(code)
		for at := 0; at < len(frame); at += 4 {
			word := int64(int32(binary.NativeEndian.Uint32(frame[at:])))
			code = append(code, asm.StoreImm(asm.R7, int16(at), word, asm.Word))
		}
		if i > 0 {
			// The test of the next kind, or the last template, is jumped to.
			if !last {
				start--
			}
			code[start] = code[start].WithSymbol(fmt.Sprintf("template%d", i))
		}
		ofTCP := uint32(0)
		if kind != UDP {
			ofTCP = tcpSum(frame)
		}
		code = append(code,
			asm.Mov.Imm(asm.R6, int32(sum(frame[ethLen:ethLen+ipLen]))),
			asm.Mov.Imm(asm.R9, int32(ofTCP)))
		if !last {
			code = append(code, asm.Ja.Label("written"))
		}
	}
	// An instruction to jump to that does nothing.
	return append(code, asm.Mov.Reg(asm.R6, asm.R6).WithSymbol("written"))
}

// source writes the next source address and port into the frame, and leaves
// the address in R2 and the port in R1.
func source(o *Options) (code asm.Instructions) {
	first := o.Source
	if o.Random.IsValid() {
		first = o.Random.Masked().Addr()
		code = append(code,
			asm.FnGetPrandomU32.Call(),
			asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),
			asm.FnGetPrandomU32.Call(),
			asm.Mov.Reg(asm.R1, asm.R0),
			asm.LoadMem(asm.R2, asm.RFP, -8, asm.DWord),
			asm.LoadImm(asm.R3, 1<<(32-o.Random.Bits())-1, asm.DWord),
			asm.And.Reg(asm.R2, asm.R3))
	} else {
		code = append(code,
			asm.LoadMem(asm.R1, asm.R8, stateSent, asm.DWord), // number of the flow
			asm.LoadImm(asm.R2, flowScatter, asm.DWord),
			asm.Mul.Reg(asm.R1, asm.R2),
			asm.And.Imm(asm.R1, int32(o.Flows-1)),
			asm.Mov.Reg(asm.R2, asm.R1),
			asm.RSh.Imm(asm.R2, portBits))
	}
	base := first.As4()
	return append(code,
		asm.LoadMem(asm.R3, asm.R8, stateSent, asm.DWord),
		asm.Add.Imm(asm.R3, 1),
		asm.StoreMem(asm.R8, stateSent, asm.R3, asm.DWord),
		asm.And.Imm(asm.R1, 1<<portBits-1),
		asm.Add.Imm(asm.R1, firstPort),
		asm.Mov.Reg(asm.R3, asm.R1),
		asm.HostTo(asm.BE, asm.R3, asm.Half),
		asm.StoreMem(asm.R7, offSrcPort, asm.R3, asm.Half),
		asm.LoadImm(asm.R3, int64(binary.BigEndian.Uint32(base[:])), asm.DWord),
		asm.Add.Reg(asm.R2, asm.R3),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.HostTo(asm.BE, asm.R3, asm.Word),
		asm.StoreMem(asm.R7, offSource, asm.R3, asm.Word))
}

// checksum folds a sum of less than 2^31 and writes its complement (RFC 1071).
// It uses R3.
func checksum(total asm.Register, at int16) (code asm.Instructions) {
	for range 2 {
		code = append(code,
			asm.Mov.Reg(asm.R3, total),
			asm.RSh.Imm(asm.R3, 16),
			asm.And.Imm(total, 0xffff),
			asm.Add.Reg(total, asm.R3))
	}
	return append(code,
		asm.Xor.Imm(total, -1),
		asm.HostTo(asm.BE, total, asm.Half),
		asm.StoreMem(asm.R7, at, total, asm.Half))
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

package claim

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/net/bpf"
)

const (
	// maxFiltered is how many addresses the filter compares with: 256 make it
	// some 12 KiB in the kernel's form, within the least limit that a socket's
	// filter has had (net.core.optmem_max, once 20 KiB).
	maxFiltered = 256
	// maxExtensions is how many IPv6 extension headers the filter steps over.
	maxExtensions = 2
	// wholeFrame is returned for a frame that is wanted: its length at most.
	wholeFrame = 0xffff
)

// Where the filter keeps words that it needs later.
const (
	slotNext   = 0 // IPv6 next header
	slotSource = 1 // the low word of the IPv6 source address
)

// Of Ethernet, IPv6 and ICMPv6 (IEEE 802.3, RFC 8200, RFC 4861).
const (
	etherTypeAt                 = 12
	ethernetLen                 = 14
	etherTypeARP, etherTypeIPv6 = 0x0806, 0x86dd
	etherTypeVLAN, etherTypeTag = 0x8100, 0x88a8
	hopByHop, routing, options  = 0, 43, 60
	icmpv6                      = 58
	solicitation, advertisement = 135, 136
)

// program is a classic BPF program (bpf(4); Linux networking/filter) that lets
// through what may claim one of the addresses: ARP requests and replies from
// it, neighbour advertisements of it, neighbour solicitations from it. Only the
// low 32 bits of an IPv6 address are compared. Of more than maxFiltered
// addresses none is: everything of these kinds is let through.
//
// The kernel has taken the outermost VLAN tag out of the frame before it runs
// the program; a second one is still in place. Loads past the end of a frame
// end the program, and the frame is not wanted.
func program(addrs []netip.Addr) []bpf.Instruction {
	v4, v6 := words(addrs)
	arp := slices.Concat([]bpf.Instruction{
		bpf.LoadIndirect{Off: 6, Size: 2}, // operation
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 1, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 2, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.LoadIndirect{Off: 14, Size: 4}, // sender's protocol address
	}, oneOf(v4, len(addrs)))
	ip6 := slices.Concat([]bpf.Instruction{
		bpf.LoadIndirect{Off: 20, Size: 4},
		bpf.StoreScratch{Src: bpf.RegA, N: slotSource},
		bpf.LoadIndirect{Off: 6, Size: 1},
		bpf.StoreScratch{Src: bpf.RegA, N: slotNext},
		bpf.LoadConstant{Dst: bpf.RegA, Val: 40},
		bpf.ALUOpX{Op: bpf.ALUOpAdd},
		bpf.TAX{}, // from here on X is behind the headers walked
	}, extensions(), []bpf.Instruction{
		bpf.LoadIndirect{Off: 0, Size: 1}, // type
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: advertisement, SkipTrue: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: solicitation, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.LoadScratch{Dst: bpf.RegA, N: slotSource},
		bpf.Jump{Skip: 1},
		bpf.LoadIndirect{Off: 20, Size: 4}, // the low word of the target
	}, oneOf(v6, len(addrs)))
	return slices.Concat([]bpf.Instruction{
		bpf.LoadConstant{Dst: bpf.RegX, Val: ethernetLen},
		bpf.LoadAbsolute{Off: etherTypeAt, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: etherTypeVLAN, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: etherTypeTag, SkipFalse: 2},
		bpf.LoadAbsolute{Off: etherTypeAt + tagLen, Size: 2},
		bpf.LoadConstant{Dst: bpf.RegX, Val: ethernetLen + tagLen},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: etherTypeARP, SkipTrue: 1},
		bpf.Jump{Skip: uint32(len(arp))},
	}, arp, []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: etherTypeIPv6, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
	}, ip6)
}

// extensions walks IPv6 extension headers until X is at an ICMPv6 header, and
// ends the program where there is none. Fragments end it too: no node accepts
// neighbour discovery in them (RFC 6980).
func extensions() (out []bpf.Instruction) {
	step := []bpf.Instruction{
		bpf.LoadScratch{Dst: bpf.RegA, N: slotNext},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: icmpv6}, // completed below: leaves the walk
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: hopByHop, SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: options, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: routing, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.LoadIndirect{Off: 0, Size: 1},
		bpf.StoreScratch{Src: bpf.RegA, N: slotNext},
		bpf.LoadIndirect{Off: 1, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpAdd, Val: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpShiftLeft, Val: 3}, // units of 8 bytes
		bpf.ALUOpX{Op: bpf.ALUOpAdd},
		bpf.TAX{},
	}
	const last = 3 // instructions behind the steps
	for i := range maxExtensions {
		s := slices.Clone(step)
		s[1] = bpf.JumpIf{Cond: bpf.JumpEqual, Val: icmpv6, SkipTrue: uint8((maxExtensions-i)*len(step) - 2 + last)}
		out = append(out, s...)
	}
	return append(out,
		bpf.LoadScratch{Dst: bpf.RegA, N: slotNext},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: icmpv6, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
	)
}

// oneOf ends the program: the frame is wanted if A is one of the words, or, if
// there are too many addresses to compare with, in any case.
func oneOf(words []uint32, addrs int) (out []bpf.Instruction) {
	if addrs > maxFiltered {
		return []bpf.Instruction{bpf.RetConstant{Val: wholeFrame}}
	}
	for _, w := range words {
		out = append(out, bpf.JumpIf{Cond: bpf.JumpEqual, Val: w, SkipFalse: 1}, bpf.RetConstant{Val: wholeFrame})
	}
	return append(out, bpf.RetConstant{Val: 0})
}

// words are the low 32 bits of the addresses, by family, each once.
func words(addrs []netip.Addr) (v4, v6 []uint32) {
	for _, a := range addrs {
		b := a.As16()
		w := binary.BigEndian.Uint32(b[12:])
		if a.Unmap().Is4() {
			v4 = append(v4, w)
		} else {
			v6 = append(v6, w)
		}
	}
	slices.Sort(v4)
	slices.Sort(v6)
	return slices.Compact(v4), slices.Compact(v6)
}

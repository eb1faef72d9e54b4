package lab

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// Offsets in struct xdp_md of linux/bpf.h.
const (
	mdData         = 0
	mdDataEnd      = 4
	mdRxQueueIndex = 16
)

// attachXDP loads a program into the appliance's eth0 for the test's time.
func attachXDP(t *testing.T, n *Node, code asm.Instructions) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "Apache-2.0", Instructions: code})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	err = n.Exec(func() error {
		dev, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: dev.Attrs().Index, Flags: link.XDPDriverMode})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal("attach xdp:", err)
	}
}

// Flows spread over all receive queues of the appliance, in native XDP.
func TestEveryQueueReceives(t *testing.T) {
	const queues, flows = 4, 400
	l := build(t, Options{Queues: queues})
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: queues})
	if err != nil {
		t.Fatal(err)
	}
	defer counts.Close()
	attachXDP(t, l.Appliance(), asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, mdRxQueueIndex, asm.Word),
		asm.StoreMem(asm.RFP, -4, asm.R2, asm.Word),
		asm.LoadMapPtr(asm.R1, counts.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, xdpPass).WithSymbol("pass"),
		asm.Return(),
	})
	for _, c := range []*Client{l.Client("client-b"), l.Client("client-c")} {
		for port := uint16(10000); port < 10000+flows/2; port++ {
			conn, err := c.DialUDP(t.Context(), at(ApplianceIPv4, 9), at(c.IPv4(), port))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write([]byte("x")); err != nil {
				t.Error(err)
			}
			conn.Close()
		}
	}
	var got [queues]uint64
	err = Wait(t.Context(), "all datagrams", 5*time.Second, func() (bool, error) {
		sum := uint64(0)
		for q := range got {
			if err := counts.Lookup(uint32(q), &got[q]); err != nil {
				return false, err
			}
			sum += got[q]
		}
		return sum >= flows, nil
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("datagrams per queue: %v", got)
	for q, n := range got {
		if n < flows/queues/2 {
			t.Errorf("queue %d received %d of %d datagrams, want about %d", q, n, flows, flows/queues)
		}
	}
}

// Frames that the appliance sends by XDP arrive on the switch.
func TestXDPTransmitArrives(t *testing.T) {
	l := build(t, Options{})
	c := l.Client("client-b")
	const xdpTX = 3
	code := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, mdData, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, mdDataEnd, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 42),
		asm.JGT.Reg(asm.R4, asm.R3, "pass"),
		asm.LoadMem(asm.R4, asm.R2, 23, asm.Byte), // protocol of an IPv4 packet
		asm.JNE.Imm(asm.R4, 17, "pass"),
	}
	for offset := int16(0); offset < 6; offset += 2 { // swap the MAC addresses
		code = append(code,
			asm.LoadMem(asm.R4, asm.R2, offset, asm.Half),
			asm.LoadMem(asm.R5, asm.R2, offset+6, asm.Half),
			asm.StoreMem(asm.R2, offset, asm.R5, asm.Half),
			asm.StoreMem(asm.R2, offset+6, asm.R4, asm.Half))
	}
	code = append(code,
		asm.Mov.Imm(asm.R0, xdpTX), asm.Return(),
		asm.Mov.Imm(asm.R0, xdpPass).WithSymbol("pass"), asm.Return())
	attachXDP(t, l.Appliance(), code)
	atPort := must(l.Appliance().CapturePort("eth0"))(t)
	atClient := must(c.Capture("eth0"))(t)
	conn, err := c.DialUDP(t.Context(), at(ApplianceIPv4, 9), netip.AddrPort{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("there and back")); err != nil {
		t.Fatal(err)
	}
	isDatagram := func(want Direction) func(Frame) bool {
		return func(f Frame) bool {
			return f.Direction == want && len(f.Data) >= 42 && f.Data[23] == 17 && string(f.Data[12:14]) == "\x08\x00"
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	sent, err := atPort.Wait(ctx, isDatagram(Out))
	if err != nil {
		t.Fatal(err)
	}
	back, err := atPort.Wait(ctx, isDatagram(In))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := atClient.Wait(ctx, isDatagram(In)); err != nil {
		t.Error(err)
	}
	want := append(append(append([]byte(nil), sent.Data[6:12]...), sent.Data[:6]...), sent.Data[12:]...)
	if string(back.Data) != string(want) {
		t.Errorf("came back as\n%x, want\n%x", back.Data, want)
	}
}

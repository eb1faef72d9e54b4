package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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

// countQueues counts the frames on each receive queue of the appliance, in
// native XDP; the function it returns reads the counts.
func countQueues(t *testing.T, n *Node, queues int) (read func() ([]uint64, error)) {
	t.Helper()
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: uint32(queues)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { counts.Close() })
	attachXDP(t, n, asm.Instructions{
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
	return func() ([]uint64, error) {
		got := make([]uint64, queues)
		for q := range got {
			if err := counts.Lookup(uint32(q), &got[q]); err != nil {
				return nil, err
			}
		}
		return got, nil
	}
}

// Flows spread over all receive queues of the appliance. By chance a queue gets
// so little of them as to fail the test less than once in 10^12 runs.
func TestEveryQueueReceives(t *testing.T) {
	const queues, flows = 4, 800
	l := build(t, Options{Queues: queues})
	read := countQueues(t, l.Appliance(), queues)
	for _, c := range []*Client{l.Client("client-b"), l.Client("client-c")} {
		// Of datagrams to an unresolved address the kernel keeps a few only.
		if _, err := c.Ping(ctxFor(t, patience), ApplianceIPv4, netip.Addr{}, nil); err != nil {
			t.Fatal(err)
		}
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
	var got []uint64
	err := Wait(t.Context(), "all datagrams", patience, func() (bool, error) {
		var err error
		got, err = read()
		sum := uint64(0)
		for _, n := range got {
			sum += n
		}
		return sum >= flows, err
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

// Whoever uses a port again gets the queue that the port had before: all of a
// tuple's packets are in one queue, whichever socket they come from.
func TestTupleKeepsItsQueue(t *testing.T) {
	const queues, sockets = 4, 16
	l := build(t, Options{Queues: queues})
	c := l.Client("client-b")
	read := countQueues(t, l.Appliance(), queues)
	for _, to := range []netip.AddrPort{at(ApplianceIPv4, 9), at(ApplianceIPv6, 9)} {
		for port := uint16(30000); port < 30008; port++ {
			from := at(c.Addr(to.Addr()), port)
			for kind, send := range map[string]func() error{
				"udp": func() error {
					conn, err := c.DialUDP(ctxFor(t, patience), to, from)
					if err != nil {
						return err
					}
					// An answer to the socket before this one is no more than an
					// error of the next write.
					for _, err = conn.Write([]byte("x")); errors.Is(err, unix.ECONNREFUSED); _, err = conn.Write([]byte("x")) {
					}
					return errors.Join(err, conn.Close())
				},
				"tcp": func() error {
					conn, err := c.DialTCP(ctxFor(t, patience), to, from)
					if err == nil {
						return errors.Join(errors.New("connected"), conn.Close())
					} else if !errors.Is(err, unix.ECONNREFUSED) { // nobody listens
						return err
					}
					return nil
				},
			} {
				before := must(read())(t)
				for range sockets {
					if err := send(); err != nil {
						t.Fatal(err)
					}
				}
				// There are frames of others too, here and there.
				var got []uint64
				err := Wait(t.Context(), "all packets in one queue", patience, func() (bool, error) {
					var err error
					if got, err = read(); err != nil {
						return false, err
					}
					for q := range got {
						got[q] -= before[q]
					}
					return slices.Max(got) >= sockets, fmt.Errorf("%d on the queues", got)
				})
				if err != nil {
					t.Fatalf("%d sockets, %s from %s to %s: %v", sockets, kind, from, to, err)
				}
			}
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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

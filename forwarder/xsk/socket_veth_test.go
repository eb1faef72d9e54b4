package xsk

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var testVIP = netip.MustParseAddr("192.0.2.80")

// udp4 is a frame to the rule address that carries text.
func udp4(text string) []byte {
	f := []byte{
		0x02, 0, 0, 0, 0, 0x01, // destination MAC
		0x02, 0, 0, 0, 0, 0x02, // source MAC
		0x08, 0x00, // IPv4
		0x45, 0, 0, byte(28 + len(text)), 0, 0, 0, 0, 64, 17, 0, 0, // header; checksum is nobody's concern here
		198, 51, 100, 1, // source
		192, 0, 2, 80, // destination
		0x30, 0x39, 0, 80, 0, byte(8 + len(text)), 0, 0, // UDP
	}
	return append(f, text...)
}

// attachFor attaches the program to the near end, taking frames to testVIP.
func attachFor(t testing.TB, v *veth, s *Socket) *Program {
	t.Helper()
	p, err := Attach(v.index, Native)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	if err := errors.Join(p.SetRuleAddresses([]netip.Addr{testVIP}), p.SetSocket(0, s.FD())); err != nil {
		t.Fatal(err)
	}
	return p
}

func openPrimary(t testing.TB, v *veth) (*UMEM, *Socket) {
	t.Helper()
	u, s, err := OpenPrimary(v.index, 0, smallConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // also where the test failed half-way
		for _, s := range u.sockets {
			if s != nil {
				s.Close()
			}
		}
		u.Close()
	})
	return u, s
}

// receiveOne waits for one frame and returns it.
func receiveOne(t testing.TB, s *Socket) Desc {
	t.Helper()
	var d [4]Desc
	n := 0
	waitFor(t, "frame on the RX ring", func() bool { n = s.Receive(d[:]); return n > 0 })
	if n != 1 {
		t.Fatalf("Receive = %d frames, want 1", n)
	}
	s.Fill()
	return d[0]
}

func transmit(t testing.TB, s *Socket, d Desc) {
	t.Helper()
	if n := s.Transmit([]Desc{d}); n != 1 {
		t.Fatalf("Transmit = %d, want 1", n)
	}
	s.Kick()
	waitFor(t, "completion", func() bool { s.Complete(); n, _ := s.TXPending(); return n == 0 })
}

func checkTotal(t testing.TB, u *UMEM) UMEMCensus {
	t.Helper()
	c := u.Census()
	if sum := c.Free + c.Worker + c.Fill + c.TX; sum != u.cfg.Frames || c.Misuse != 0 {
		t.Fatalf("census %+v sums to %d, want %d and no misuse", c, sum, u.cfg.Frames)
	}
	return c
}

func TestHairpin(t *testing.T) {
	enterNamespace(t)
	v := addVeth(t, "a0", "a1", 1)
	u, s := openPrimary(t, v)
	p := attachFor(t, v, s)
	if s.Mode() != ModeCopy || !strings.Contains(s.ModeReason(), "not supported") {
		t.Errorf("mode %v because of %q, want copy and the driver's refusal", s.Mode(), s.ModeReason())
	}
	for i := range 300 { // more than any ring holds
		text := fmt.Sprintf("frame %d", i)
		v.send(t, udp4(text))
		d := receiveOne(t, s)
		frame := u.Frame(d)
		if string(frame) != string(udp4(text)) {
			t.Fatalf("received %x, want %x", frame, udp4(text))
		}
		if room := u.FrameSize() - Headroom; cap(frame) != room {
			t.Fatalf("cap = %d, want the rest of the chunk, %d", cap(frame), room)
		}
		frame[0] = 0x06
		transmit(t, s, d)
		v.expect(t, string(frame))
	}
	st, err := s.Stats()
	if err != nil || st.Wakes == 0 || st.Kicks < 300 || st.InvalidRX+st.InvalidTX+st.InvalidCompletion+st.TXInvalid+st.RXInvalid != 0 {
		t.Errorf("stats %+v, %v", st, err)
	}
	if c, err := p.Counters(0); err != nil || c.Redirected != 300 || c.NoSocket != 0 {
		t.Errorf("counters %+v, %v; want 300 redirected", c, err)
	}
	if c := checkTotal(t, u); c.Worker != 0 || c.TX != 0 || c.Fill != s.Census().Fill {
		t.Errorf("census %+v, socket %+v", c, s.Census())
	}
}

func TestSharedUMEMAcrossInterfaces(t *testing.T) {
	enterNamespace(t)
	a, b := addVeth(t, "a0", "a1", 1), addVeth(t, "b0", "b1", 1)
	u, sa := openPrimary(t, a)
	sb, err := u.Join(b.index, 0)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := sb.Stats(); err != nil || st.Wakes == 0 {
		t.Errorf("stats %+v, %v: the driver was not woken after bind", st, err)
	}
	attachFor(t, a, sa)
	attachFor(t, b, sb)
	for i := range 100 {
		text := fmt.Sprintf("crossing %d", i)
		in, out, to := sa, sb, b
		if i%2 == 0 {
			in, out, to = sb, sa, a
			b.send(t, udp4(text))
		} else {
			a.send(t, udp4(text))
		}
		transmit(t, out, receiveOne(t, in)) // the same address: no copy in user space
		to.expect(t, string(udp4(text)))
	}
	checkTotal(t, u)

	// The first socket may go; the second keeps working and lets a third one join.
	if err := sa.Close(); err != nil {
		t.Fatal(err)
	}
	u.Reclaim(sa)
	b.send(t, udp4("alone"))
	transmit(t, sb, receiveOne(t, sb))
	b.expect(t, string(udp4("alone")))
	sa, err = u.Join(a.index, 0)
	if err != nil {
		t.Fatal(err)
	}
	transmit(t, sa, func() Desc { b.send(t, udp4("again")); return receiveOne(t, sb) }())
	a.expect(t, string(udp4("again")))
	if err := u.Close(); err == nil {
		t.Error("UMEM closed under open sockets")
	}
	if err := errors.Join(sa.Close(), sb.Close(), u.Close()); err != nil {
		t.Error(err)
	}
}

// Memory in use in copy mode is not shared with a socket that asks for zero-copy,
// and shared with one that would take it, after asking for it in vain.
func TestModesAreNotMixed(t *testing.T) {
	enterNamespace(t)
	a, b := addVeth(t, "a0", "a1", 1), addVeth(t, "b0", "b1", 1)
	cfg := smallConfig()
	cfg.Mode = ModeCopy
	u, sa, err := OpenPrimary(a.index, 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if sa.ModeReason() != "" {
		t.Errorf("copy was asked for, and the reason for it is %q", sa.ModeReason())
	}
	for _, mode := range []Mode{ModeZeroCopy, ModeAuto} {
		cfg.Mode = mode
		s, err := u.Reserve(b.index, 0, cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Bind()
		if mode == ModeZeroCopy {
			if !errors.Is(err, ErrCannotShare) {
				t.Errorf("zero-copy beside copy: %v, want %v", err, ErrCannotShare)
			}
		} else if err != nil || s.Mode() != ModeCopy || !strings.HasPrefix(s.ModeReason(), "zero-copy refused: ") {
			t.Errorf("auto beside copy: %v, mode %v because of %q; want copy and the driver's refusal", err, s.Mode(), s.ModeReason())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		u.Reclaim(s)
	}
	checkTotal(t, u)
	if err := errors.Join(sa.Close(), u.Close()); err != nil {
		t.Error(err)
	}
}

func TestDeviceDeleted(t *testing.T) {
	enterNamespace(t)
	a := addVeth(t, "a0", "a1", 1)
	u, s := openPrimary(t, a)
	attachFor(t, a, s)
	a.send(t, udp4("before"))
	d := receiveOne(t, s)
	run(t, "ip", "link", "del", "a0")
	if n := s.Transmit([]Desc{d}); n != 1 {
		t.Fatalf("Transmit = %d", n)
	}
	s.Kick()
	s.Fill()
	s.Complete()
	s.Receive(make([]Desc, 8))
	st, _ := s.Stats()
	if e := st.KickErrors; e.Other == 0 || e.LastOther != unix.ENXIO {
		t.Errorf("kick errors %+v, want ENXIO", e)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	abandoned, fill := u.Reclaim(s)
	if abandoned != 1 || fill == 0 {
		t.Errorf("Reclaim = %d, %d; want 1 abandoned and the fill ring", abandoned, fill)
	}
	if c := checkTotal(t, u); c.Free != u.cfg.Frames {
		t.Errorf("census %+v, want all free", c)
	}
	// No socket is bound any more: the memory is registered afresh.
	b := addVeth(t, "b0", "b1", 1)
	s, err := u.Join(b.index, 0)
	if err != nil {
		t.Fatal(err)
	}
	attachFor(t, b, s)
	b.send(t, udp4("after"))
	transmit(t, s, receiveOne(t, s))
	b.expect(t, string(udp4("after")))
}

// A socket whose device is gone but which is not closed yet cannot introduce
// another one, and is passed over.
func TestJoinPassesOverUnboundSocket(t *testing.T) {
	enterNamespace(t)
	a, b := addVeth(t, "a0", "a1", 1), addVeth(t, "b0", "b1", 1)
	u, s := openPrimary(t, a)
	run(t, "ip", "link", "del", "a0")
	sb, err := u.Join(b.index, 0)
	if err != nil {
		t.Fatal(err)
	}
	attachFor(t, b, sb)
	b.send(t, udp4("after"))
	transmit(t, sb, receiveOne(t, sb))
	b.expect(t, string(udp4("after")))
	if err := errors.Join(s.Close(), sb.Close(), u.Close()); err != nil {
		t.Error(err)
	}
}

func TestLinkDownUp(t *testing.T) {
	enterNamespace(t)
	v := addVeth(t, "a0", "a1", 1)
	u, s := openPrimary(t, v)
	attachFor(t, v, s)
	v.send(t, udp4("kept"))
	d := receiveOne(t, s)
	run(t, "ip", "link", "set", "a0", "down")
	if n := s.Transmit([]Desc{d}); n != 1 {
		t.Fatalf("Transmit = %d", n)
	}
	s.Kick()
	st, err := s.Stats()
	if err != nil || st.KickErrors.NetDown == 0 {
		t.Fatalf("kick errors %+v, %v; want link down counted", st.KickErrors, err)
	}
	if n, _ := s.TXPending(); n != 1 || s.Complete() != 0 {
		t.Fatalf("pending = %d, want 1 and nothing completed", n)
	}
	run(t, "ip", "link", "set", "a0", "up")
	s.Kick() // the next call sends what stayed on the ring
	v.expect(t, string(udp4("kept")))
	waitFor(t, "completion", func() bool { return s.Complete() == 1 })
	v.send(t, udp4("later"))
	transmit(t, s, receiveOne(t, s))
	v.expect(t, string(udp4("later")))
	checkTotal(t, u)
}

func TestReopen(t *testing.T) {
	enterNamespace(t)
	v := addVeth(t, "a0", "a1", 1)
	for i := range 20 {
		u, s, err := OpenPrimary(v.index, 0, smallConfig())
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := OpenPrimary(v.index, 7, smallConfig()); err == nil {
			t.Fatal("queue 7 of 1 opened")
		}
		if maps, err := ringMappings(); err != nil || len(maps) != 4 {
			t.Fatalf("round %d: %d ring mappings, %v; want the 4 of one socket", i, len(maps), err)
		}
		if err := errors.Join(s.Close(), u.Close()); err != nil {
			t.Fatal(err)
		}
		if maps, err := ringMappings(); err != nil || len(maps) != 0 {
			t.Fatalf("round %d: %d ring mappings after close, %v", i, len(maps), err)
		}
	}
}

func TestOpenErrorsNameTheRemedy(t *testing.T) {
	enterNamespace(t)
	v := addVeth(t, "a0", "a1", 2)
	openPrimary(t, v)
	for _, tt := range []struct {
		name       string
		ifindex, q int
		mode       Mode
		want       []string
		is         error
	}{
		{name: "queue", ifindex: v.index, q: 4, want: []string{"queue 4: a0 has 2 queues (0–1)", "ethtool -L a0"}, is: unix.EINVAL},
		{name: "busy", ifindex: v.index, q: 0, want: []string{"another socket has the queue"}, is: unix.EBUSY},
		{name: "no interface", ifindex: 9999, q: 0, want: []string{"no such interface"}, is: unix.ENODEV},
		{name: "zero-copy", ifindex: v.index, q: 1, mode: ModeZeroCopy, want: []string{"mode auto or copy"}, is: unix.EOPNOTSUPP},
	} {
		cfg := smallConfig() // no subtests: they would leave the namespace's thread
		cfg.Mode = tt.mode
		_, _, err := OpenPrimary(tt.ifindex, tt.q, cfg)
		if !errors.Is(err, tt.is) {
			t.Errorf("%s: error %v, want %v", tt.name, err, tt.is)
			continue
		}
		for _, w := range tt.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %q does not say %q", tt.name, err, w)
			}
		}
		t.Log(err)
	}
}

func TestHugePages(t *testing.T) {
	enterNamespace(t)
	v := addVeth(t, "a0", "a1", 1)
	cfg := smallConfig()
	area, unmap, err := hugeArea(cfg.Frames * cfg.FrameSize)
	available := err == nil
	if available {
		if len(area) != cfg.Frames*cfg.FrameSize {
			t.Errorf("%d bytes, want %d", len(area), cfg.Frames*cfg.FrameSize)
		}
		if err := unmap(); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []HugePages{HugePagesAuto, HugePagesOn} {
		cfg.HugePages = want
		u, s, err := OpenPrimary(v.index, 0, cfg)
		if want == HugePagesOn && !available {
			if err == nil || !strings.Contains(err.Error(), "/proc/sys/vm/nr_hugepages") {
				t.Errorf("without huge pages: %v, want how to reserve them", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if note := u.Note(); (note == "") != available {
			t.Errorf("huge pages available %v, note %q", available, note)
		}
		p := attachFor(t, v, s)
		v.send(t, udp4("huge"))
		transmit(t, s, receiveOne(t, s))
		v.expect(t, string(udp4("huge")))
		if err := errors.Join(p.Close(), s.Close(), u.Close()); err != nil {
			t.Error(err)
		}
	}
	t.Logf("huge pages available: %v", available)
}

// A worker reserves, another goroutine binds, and a failure costs no frame.
func TestBindFromAnotherGoroutine(t *testing.T) {
	ns := enterNamespace(t)
	a, b := addVeth(t, "a0", "a1", 1), addVeth(t, "b0", "b1", 1)
	u, _ := openPrimary(t, a)
	free := len(u.free)
	if _, err := u.Join(b.index, 9); err == nil || len(u.free) != free {
		t.Errorf("join of queue 9 of 1: %v, %d frames free; want an error and %d", err, len(u.free), free)
	}
	s, err := u.Reserve(b.index, 0, u.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if s.FD() != -1 {
		t.Errorf("FD = %d before Bind, want -1", s.FD())
	}
	bound := make(chan error)
	go func() {
		if err := threadToNamespace(ns); err != nil {
			bound <- err
			return
		}
		bound <- errors.Join(s.Bind(), func() error {
			if s.Bind() == nil {
				return errors.New("bound twice")
			}
			return nil
		}())
	}()
	if err := <-bound; err != nil {
		t.Fatal(err)
	}
	attachFor(t, b, s)
	b.send(t, udp4("handed over"))
	transmit(t, s, receiveOne(t, s))
	b.expect(t, string(udp4("handed over")))
	checkTotal(t, u)
}

// A full batch leaves in one kick where the kernel takes the budget, in two
// where it does not, and all of it arrives.
func TestBatchInOneKick(t *testing.T) {
	enterNamespace(t)
	v := addVeth(t, "a0", "a1", 1)
	cfg := smallConfig()
	cfg.Batch = 64
	u, s, err := OpenPrimary(v.index, 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var d []Desc
	for i := range 64 {
		addr, _ := u.Alloc()
		frame := udp4(fmt.Sprintf("frame %02d", i))
		d = append(d, Desc{Addr: addr, Len: uint32(copy(u.Frame(Desc{Addr: addr, Len: uint32(len(frame))}), frame))})
	}
	if n := s.Transmit(d); n != 64 {
		t.Fatalf("Transmit = %d, want 64", n)
	}
	s.Kick()
	waitFor(t, "completions", func() bool { s.Complete(); n, _ := s.TXPending(); return n == 0 })
	for i := range 64 {
		v.expect(t, string(udp4(fmt.Sprintf("frame %02d", i))))
	}
	budget := unix.SetsockoptInt(s.FD(), unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, 64)
	want := uint64(2)
	if budget == nil {
		want = 1
	}
	if st, err := s.Stats(); err != nil || st.Kicks > want {
		t.Errorf("%d kicks for 64 frames, want %d (%v)", st.Kicks, want, err)
	}
	if err := errors.Join(s.Close(), u.Close()); err != nil {
		t.Error(err)
	}
}

package xsk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"golang.org/x/sys/unix"
)

// Addresses of the probes in these tests. The rule's are those of the classifier's.
var (
	probeRule4, probeRule6       = netip.MustParseAddr("192.0.2.80"), netip.MustParseAddr("2001:db8::80")
	probeBackend4, probeBackend6 = netip.MustParseAddr("10.20.30.41"), netip.MustParseAddr("2001:db8:20::41")
	probeOwn4, probeOwn6         = netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("2001:db8:9::1")
	probeOther4, probeOther6     = netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8:ffff::7")
)

const (
	probeLocal = 40001
	probePort  = 8080
)

// segment is a TCP packet to build; the zero value of a field is the usual.
type segment struct {
	src, dst         netip.Addr
	srcPort, dstPort uint16
	tags             int
	options          []byte // IPv4
	fragment         uint16
	payload          string
	udp              bool
}

// bytes returns the frame with checksums that are right.
func (s segment) bytes(t testing.TB) []byte {
	t.Helper()
	out := []gopacket.SerializableLayer{}
	next := layers.EthernetTypeIPv4
	if s.src.Is6() {
		next = layers.EthernetTypeIPv6
	}
	eth := &layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 255}, DstMAC: []byte{2, 0, 0, 0, 0, 1}, EthernetType: next}
	out = append(out, eth)
	for i := range s.tags {
		out = append(out, &layers.Dot1Q{VLANIdentifier: uint16(100 + i), Type: next})
		if i == 0 {
			eth.EthernetType = layers.EthernetTypeDot1Q
		} else {
			out[i].(*layers.Dot1Q).Type = layers.EthernetTypeDot1Q
		}
	}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(s.srcPort), DstPort: layers.TCPPort(s.dstPort), Seq: 0x01020304, SYN: true, Window: 64240}
	udp := &layers.UDP{SrcPort: layers.UDPPort(s.srcPort), DstPort: layers.UDPPort(s.dstPort)}
	proto := layers.IPProtocolTCP
	if s.udp {
		proto = layers.IPProtocolUDP
	}
	if s.src.Is4() {
		ip := &layers.IPv4{Version: 4, TTL: 64, Id: 7, Protocol: proto, SrcIP: s.src.AsSlice(), DstIP: s.dst.AsSlice(), FragOffset: s.fragment}
		if s.options != nil {
			ip.Options = []layers.IPv4Option{{OptionType: 7, OptionLength: uint8(len(s.options) + 2), OptionData: s.options}}
		}
		out = append(out, ip)
		_, _ = tcp.SetNetworkLayerForChecksum(ip), udp.SetNetworkLayerForChecksum(ip)
	} else {
		ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: s.src.AsSlice(), DstIP: s.dst.AsSlice()}
		out = append(out, ip)
		_, _ = tcp.SetNetworkLayerForChecksum(ip), udp.SetNetworkLayerForChecksum(ip)
	}
	if s.udp {
		out = append(out, udp)
	} else {
		out = append(out, tcp)
	}
	out = append(out, gopacket.Payload(s.payload))
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, out...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// loadProbing returns programs that know two probes in flight, one per family, and
// one of each that is over, on the next local port.
func loadProbing(t testing.TB) *Program {
	t.Helper()
	p := loadForTest(t)
	configure(t, p)
	p.settings.Probing = 1
	var now unix.Timespec
	if err := errors.Join(p.writeSettings(), unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)); err != nil {
		t.Fatal(err)
	}
	for i, a := range [][2]netip.Addr{{probeBackend4, probeRule4}, {probeBackend6, probeRule6}} {
		e := probeEntry{Backend: a[0].As16(), Rule: a[1].As16(), Cookie: 1, PortBE: bigEndian(probePort), UntilNanos: uint64(now.Nano()) + uint64(time.Hour)}
		over := e
		over.UntilNanos = uint64(now.Nano()) - 1
		if err := errors.Join(
			p.objects.Probes.Put(probeKey{PortBE: bigEndian(probeLocal), IP6: uint16(i)}, e),
			p.objects.Probes.Put(probeKey{PortBE: bigEndian(probeLocal + 1), IP6: uint16(i)}, over),
		); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// compareFrames fails unless a program made of a frame what it should.
func compareFrames(t testing.TB, name string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\n got %x\nwant %x", name, got, want)
	}
}

func TestProbeOut(t *testing.T) {
	p := loadProbing(t)
	const next = ^uint32(0) // TCX_NEXT
	probe4 := segment{src: probeOwn4, dst: probeBackend4, srcPort: probeLocal, dstPort: probePort}
	probe6 := segment{src: probeOwn6, dst: probeBackend6, srcPort: probeLocal, dstPort: probePort}
	for _, tt := range []struct {
		name      string
		of        segment
		change    func(*segment)
		rewritten bool
	}{
		{"probe", probe4, func(*segment) {}, true},
		{"probe6", probe6, func(*segment) {}, true},
		{"with data", probe4, func(s *segment) { s.payload = "GET / HTTP/1.1\r\n\r\n" }, true},
		{"with data6", probe6, func(s *segment) { s.payload = "odd" }, true},
		{"tagged", probe4, func(s *segment) { s.tags = 1 }, true},
		{"two tags6", probe6, func(s *segment) { s.tags = 2 }, true},
		{"three tags", probe4, func(s *segment) { s.tags = 3 }, false},
		{"options", probe4, func(s *segment) { s.options = []byte{4, 0, 0, 0, 0, 0} }, true},
		{"other local port", probe4, func(s *segment) { s.srcPort = 40003 }, false},
		{"other local port6", probe6, func(s *segment) { s.srcPort = 40003 }, false},
		{"probe that is over", probe4, func(s *segment) { s.srcPort = probeLocal + 1 }, false},
		{"probe that is over6", probe6, func(s *segment) { s.srcPort = probeLocal + 1 }, false},
		{"other destination port", probe4, func(s *segment) { s.dstPort = 80 }, false},
		{"other destination port6", probe6, func(s *segment) { s.dstPort = 80 }, false},
		{"other backend", probe4, func(s *segment) { s.dst = probeOther4 }, false},
		{"other backend6", probe6, func(s *segment) { s.dst = probeOther6 }, false},
		{"forwarded", probe4, func(s *segment) { s.src = probeOther4 }, false},
		{"forwarded6", probe6, func(s *segment) { s.src = probeOther6 }, false},
		{"udp", probe4, func(s *segment) { s.udp, s.payload = true, "long enough for a TCP header" }, false},
		{"udp6", probe6, func(s *segment) { s.udp, s.payload = true, "long enough for a TCP header" }, false},
		{"fragment", probe4, func(s *segment) { s.fragment = 3 }, false},
	} {
		tt.change(&tt.of)
		want := tt.of
		if tt.rewritten {
			want.dst = probeRule4
			if want.src.Is6() {
				want.dst = probeRule6
			}
		}
		action, got, err := p.objects.ProbeOut.Test(tt.of.bytes(t))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if action != next {
			t.Errorf("%s: action %d, want next", tt.name, int32(action))
		}
		compareFrames(t, tt.name, got, want.bytes(t))
	}
}

func TestProbeReply(t *testing.T) {
	p := loadProbing(t)
	reply4 := segment{src: probeRule4, dst: probeOwn4, srcPort: probePort, dstPort: probeLocal}
	reply6 := segment{src: probeRule6, dst: probeOwn6, srcPort: probePort, dstPort: probeLocal}
	back4 := segment{src: probeOwn4, dst: probeRule4, srcPort: probeLocal, dstPort: probePort}
	back6 := segment{src: probeOwn6, dst: probeRule6, srcPort: probeLocal, dstPort: probePort}
	before, err := p.Counters(0)
	if err != nil {
		t.Fatal(err)
	}
	want := before
	for _, tt := range []struct {
		name   string
		of     segment
		change func(*segment)
		what   string // rewritten, passed, taken (no socket), returned
	}{
		{"reply", reply4, func(*segment) {}, "rewritten"},
		{"reply6", reply6, func(*segment) {}, "rewritten"},
		{"with data", reply4, func(s *segment) { s.payload = "HTTP/1.1 200 OK\r\n\r\n" }, "rewritten"},
		{"with data6", reply6, func(s *segment) { s.payload = "odd" }, "rewritten"},
		{"tagged", reply6, func(s *segment) { s.tags = 1 }, "rewritten"},
		{"two tags", reply4, func(s *segment) { s.tags = 2 }, "rewritten"},
		{"three tags", reply4, func(s *segment) { s.tags = 3 }, "passed"},
		{"options", reply4, func(s *segment) { s.options = []byte{4, 0, 0, 0, 0, 0} }, "rewritten"},
		{"no probe", reply4, func(s *segment) { s.dstPort = 40003 }, "passed"},
		{"no probe6", reply6, func(s *segment) { s.dstPort = 40003 }, "passed"},
		{"too late", reply4, func(s *segment) { s.dstPort = probeLocal + 1 }, "passed"},
		{"too late6", reply6, func(s *segment) { s.dstPort = probeLocal + 1 }, "passed"},
		{"other port", reply4, func(s *segment) { s.srcPort = 80 }, "passed"},
		{"other port6", reply6, func(s *segment) { s.srcPort = 80 }, "passed"},
		{"backend's own address", reply4, func(s *segment) { s.src = probeBackend4 }, "passed"},
		{"backend's own address6", reply6, func(s *segment) { s.src = probeBackend6 }, "passed"},
		{"udp", reply4, func(s *segment) { s.udp, s.payload = true, "long enough for a TCP header" }, "passed"},
		{"udp6", reply6, func(s *segment) { s.udp, s.payload = true, "long enough for a TCP header" }, "passed"},
		{"fragment", reply4, func(s *segment) { s.fragment = 3 }, "passed"},
		{"to a client outside", reply4, func(s *segment) { s.dst = probeOther4 }, "passed"},
		{"to a client in a route", reply4, func(s *segment) { s.dst = netip.MustParseAddr("10.1.2.3") }, "taken"},
		{"to a client in a route6", reply6, func(s *segment) { s.dst = netip.MustParseAddr("2001:db8:1::1") }, "taken"},

		{"came back", back4, func(*segment) {}, "returned"},
		{"came back6", back6, func(*segment) {}, "returned"},
		{"came back tagged", back4, func(s *segment) { s.tags = 1 }, "returned"},
		{"client with that port", back4, func(s *segment) { s.src = probeOther4 }, "taken"},
		{"client with that port6", back6, func(s *segment) { s.src = probeOther6 }, "taken"},
		{"host, but no probe", back4, func(s *segment) { s.srcPort = 40003 }, "taken"},
		{"host, but no probe6", back6, func(s *segment) { s.srcPort = 40003 }, "taken"},
		{"host, probe over", back4, func(s *segment) { s.srcPort = probeLocal + 1 }, "taken"},
		{"host, other port", back4, func(s *segment) { s.dstPort = 80 }, "taken"},
		{"host, other rule", back4, func(s *segment) { s.dst = netip.MustParseAddr("192.0.2.83") }, "taken"},
		{"host, udp", back4, func(s *segment) { s.udp, s.payload = true, "long enough for a TCP header" }, "taken"},
	} {
		tt.change(&tt.of)
		frame := tt.of
		action := uint32(xdpPass)
		switch tt.what {
		case "rewritten":
			frame.src = probeBackend4
			if frame.dst.Is6() {
				frame.src = probeBackend6
			}
			want.Passed++
		case "passed":
			want.Passed++
		case "taken":
			action = xdpDrop // the queue has no socket
			want.NoSocket++
		case "returned":
			action = xdpDrop
			want.Returned++
		}
		got, out, err := p.objects.Classifier.Test(tt.of.bytes(t))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got != action {
			t.Errorf("%s: action %d, want %d", tt.name, got, action)
		}
		compareFrames(t, tt.name, out, frame.bytes(t))
	}
	if got, err := p.Counters(0); err != nil || got != want {
		t.Errorf("counters %+v, %v; want %+v", got, err, want)
	}
	// While nothing is probed, nothing is looked at.
	p.settings.Probing = 0
	if err := p.writeSettings(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []segment{reply4, reply6} {
		if _, out, err := p.objects.Classifier.Test(s.bytes(t)); err != nil || !bytes.Equal(out, s.bytes(t)) {
			t.Errorf("reply while nothing is probed: %v, %x", err, out)
		}
	}
}

// Incremental checksums over checksums of all sizes, with and without a carry into
// the upper and the lower byte.
func TestProbeReplyChecksums(t *testing.T) {
	p := loadProbing(t)
	for _, s := range []segment{
		{src: probeRule4, dst: probeOwn4, srcPort: probePort, dstPort: probeLocal},
		{src: probeRule6, dst: probeOwn6, srcPort: probePort, dstPort: probeLocal},
	} {
		want := s
		want.src = probeBackend4
		if s.src.Is6() {
			want.src = probeBackend6
		}
		for i := 0; i < 1<<16; i += 257 {
			for _, n := range []int{i, i + 1} {
				var data [2]byte
				binary.BigEndian.PutUint16(data[:], uint16(n))
				s.payload, want.payload = string(data[:]), string(data[:])
				_, got, err := p.objects.Classifier.Test(s.bytes(t))
				if err != nil {
					t.Fatal(err)
				}
				compareFrames(t, "payload "+s.payload, got, want.bytes(t))
			}
		}
	}
}

package forwarder

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// narrowRig is a rig of two interfaces whose backends are behind the second,
// which takes packets of 1400 bytes.
func narrowRig(t *testing.T) *rig {
	r := newRig(t, rigOptions{backends: 2, ports: []string{"eth0", "eth1"}})
	ports := slices.Clone(r.builder.Current().Ports)
	ports[1].MTU = 1400
	r.builder.SetPorts(ports)
	for i := range 2 {
		r.deliverable(i, 1)
	}
	r.builder.Publish(r.clock)
	return r
}

// sized is a UDP packet of n bytes in a frame, from the client; change works on
// the header of an IPv4 packet.
func sized(dst netip.Addr, n int, change func(*layers.IPv4)) []byte {
	u := &layers.UDP{SrcPort: 4000, DstPort: 80}
	if dst.Is6() {
		ip := ip6(client6, dst, layers.IPProtocolUDP)
		u.SetNetworkLayerForChecksum(ip)
		return frame(ip, u, gopacket.Payload(make([]byte, n-48)))
	}
	ip := ip4(client4, dst, layers.IPProtocolUDP)
	if change != nil {
		change(ip)
	}
	u.SetNetworkLayerForChecksum(ip)
	return frame(ip, u, gopacket.Payload(make([]byte, n-28)))
}

// TestTooBig: a packet that is longer than the next link takes is dropped, and
// its sender told how long it may be, by rule and by route, within a tag and
// without, whether or not IPv4 lets routers cut it.
func TestTooBig(t *testing.T) {
	far4, far6 := netip.MustParseAddr("192.168.1.1"), netip.MustParseAddr("fd99::1")
	dontFragment := func(ip *layers.IPv4) { ip.Flags = layers.IPv4DontFragment }
	tagged := func(f []byte) []byte { return slices.Concat(f[:12], []byte{0x81, 0, 0, 7}, f[12:]) }
	for _, tt := range []struct {
		name  string
		frame []byte
		told  bool
	}{
		{"rule", sized(vip4, 1401, dontFragment), true},
		{"rule, may be fragmented", sized(vip4, 1500, nil), true},
		{"rule, in a tag", tagged(sized(vip4, 1401, dontFragment)), true},
		{"route", sized(far4, 1500, dontFragment), true},
		{"route, IPv6", sized(far6, 1401, nil), true},
		{"route, IPv6 in a tag", tagged(sized(far6, 1500, nil)), true},
		{"bytes behind a packet that fits", append(sized(vip4, 1400, dontFragment), 0, 0, 0), false},
		{"an error about one of ours", unreachable(client4, vip4, tcpFrame(vip4, client4, 80, 1000, "A")), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := narrowRig(t)
			f := tt.frame
			if len(f) < 1400 { // an error: errors are not cut, nor is anybody told of them
				f = append(slices.Clone(f), make([]byte, 1450-len(f))...)
				putHeader(f, uint16(len(f)-14), 0, 0)
			}
			out := r.run(0, f)
			totals := r.totals()
			if totals.Dropped[ReasonTooBig] != 1 || totals.DroppedTotal() != 1 {
				t.Errorf("dropped %v, want one too_big", byReason(&totals))
			}
			told := len(out) == 1
			if told != tt.told || totals.Originated[OriginTooBig] != uint64(len(out)) {
				t.Fatalf("%d frames left, %d errors are counted; want one: %v", len(out), totals.Originated[OriginTooBig], tt.told)
			}
			if told {
				checkTooBig(t, out[0], f, 1400)
			}
			r.checkAccounts()
		})
	}
	r := narrowRig(t)
	fits := [][]byte{sized(vip4, 1400, dontFragment), tagged(sized(vip4, 1400, nil)), sized(far6, 1400, nil), tagged(sized(far6, 1400, nil))}
	if out := r.run(0, fits...); len(out) != len(fits) {
		t.Errorf("%d of %d packets of 1400 bytes left", len(out), len(fits))
	}
	// Replies of the backends' side leave by the wider interface.
	r.deliverable(0, 0)
	r.deliverable(1, 0)
	r.builder.Publish(r.clock)
	if out := r.run(0, sized(vip4, 1500, dontFragment)); len(out) != 1 {
		t.Error("a packet of 1500 bytes did not leave by an interface that takes it")
	}
	r.checkAccounts()
}

// checkTooBig decodes an error with gopacket.
func checkTooBig(t *testing.T, out, about []byte, mtu int) {
	t.Helper()
	p := gopacket.NewPacket(out, layers.LayerTypeEthernet, gopacket.Default)
	eth := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	if [6]byte(eth.DstMAC) != clientMAC || [6]byte(eth.SrcMAC) != applianceMAC {
		t.Errorf("the error goes from %v to %v", eth.SrcMAC, eth.DstMAC)
	}
	var quote []byte
	network := p.NetworkLayer().NetworkFlow()
	switch {
	case p.Layer(layers.LayerTypeICMPv4) != nil:
		icmp := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		if icmp.TypeCode != layers.CreateICMPv4TypeCode(3, 4) || icmp.Id != 0 || int(icmp.Seq) != mtu {
			t.Errorf("the error is %v, %d, %d; want fragmentation needed, 0, %d", icmp.TypeCode, icmp.Id, icmp.Seq, mtu)
		}
		if src, dst := network.Endpoints(); src.String() != "10.0.0.2" || dst.String() != client4.String() {
			t.Errorf("the error goes from %v to %v", src, dst)
		}
		quote = icmp.Payload
	case p.Layer(layers.LayerTypeICMPv6) != nil:
		icmp := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
		if icmp.TypeCode != layers.CreateICMPv6TypeCode(2, 0) || int(binary.BigEndian.Uint32(icmp.Payload)) != mtu {
			t.Errorf("the error is %v, %x; want packet too big, %d", icmp.TypeCode, icmp.Payload[:4], mtu)
		}
		if src, dst := network.Endpoints(); src.String() != "fd00::2" || dst.String() != client6.String() {
			t.Errorf("the error goes from %v to %v", src, dst)
		}
		quote = icmp.Payload[4:]
	default:
		t.Fatalf("no ICMP message left: %v", p)
	}
	packet := about[14:]
	if about[12] == 0x81 {
		packet = about[18:]
	}
	if len(quote) < 500 || !slices.Equal(quote, packet[:len(quote)]) {
		t.Errorf("the error quotes\n%x, want the start of\n%x", quote, packet)
	}
}

// TestErrorsAreLimited: each kind of error to a rate of its own, and packets
// that no error may be sent about use none of it up.
func TestErrorsAreLimited(t *testing.T) {
	r := narrowRig(t)
	big := sized(vip4, 1500, nil)
	later := sized(vip4, 1500, func(ip *layers.IPv4) { ip.FragOffset, ip.Id = 100, 7 })
	r.run(0, fragments(bigUDP(vip4, 4000, 80, 1000), 7, 800)[0]) // so that later has somewhere to go
	expired := sized(netip.MustParseAddr("192.168.1.1"), 500, func(ip *layers.IPv4) { ip.TTL = 1 })
	for range 300 {
		r.run(0, expired, later)
	}
	for range 300 {
		r.run(0, big)
	}
	totals := r.totals()
	if totals.Originated[OriginTimeExceeded] != 20 || totals.Originated[OriginTooBig] != 20 {
		t.Errorf("%d and %d errors were sent, want the burst of 20 of each", totals.Originated[OriginTimeExceeded], totals.Originated[OriginTooBig])
	}
	if totals.Dropped[ReasonTooBig] != 600 || totals.Dropped[ReasonTTLExpired] != 300 {
		t.Errorf("dropped %v, want 600 too_big and 300 ttl_expired", byReason(&totals))
	}
	r.clock += int64(time.Second)
	if out := r.run(0, big); len(out) != 1 {
		t.Error("nobody is told any more a second later")
	}
	r.checkAccounts()
}

// TestTooBigWithoutAddress: an interface without an own address of the packet's
// family cannot say so.
func TestTooBigWithoutAddress(t *testing.T) {
	r := narrowRig(t)
	ports := slices.Clone(r.builder.Current().Ports)
	ports[0].Addrs = ports[0].Addrs[:1]
	r.builder.SetPorts(ports)
	r.builder.Publish(r.clock)
	if out := r.run(0, sized(netip.MustParseAddr("fd99::1"), 1500, nil)); len(out) != 0 {
		t.Errorf("%d frames left, want none", len(out))
	}
	if out := r.run(0, sized(vip4, 1500, nil)); len(out) != 1 {
		t.Errorf("%d frames left, want an error by IPv4", len(out))
	}
	r.checkAccounts()
}

// TestLimiter: errors are limited to a rate, whatever the clock started from.
func TestLimiter(t *testing.T) {
	for _, start := range []time.Duration{0, time.Second, 20000 * 24 * time.Hour} {
		l := limiter{perSecond: 100, burst: 20}
		now, allowed := int64(start)+int64(time.Second), 0
		for range 3000 { // three seconds
			now += int64(time.Millisecond)
			if l.allow(now) {
				allowed++
			}
		}
		if allowed < 300 || allowed > 320 {
			t.Errorf("from %v: %d allowed in 3 s, want 100 a second and a burst of 20", start, allowed)
		}
	}
}

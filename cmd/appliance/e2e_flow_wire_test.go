package main

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zonehop/bench/lab"
)

// wireCase is a frame and what becomes of it: "forwarded", or a drop reason.
type wireCase struct {
	name, want string
	frame      []byte
}

// TestRestOfTheWire sends everything that is rare, odd or broken, one by one,
// and looks what it is counted as, and that it arrives unchanged or not at all.
func TestRestOfTheWire(t *testing.T) {
	r := newFlowRig(t)
	for name, cases := range map[string][]wireCase{
		"IPv4": r.oddIPv4(), "IPv6": r.oddIPv6(), "TCP": r.oddTCP(), "tags": r.taggedFrames(),
	} {
		r.part(name, func(r *flowRig) {
			for i, c := range cases {
				r.forgetFrames()
				got := r.counting(1, func() { r.queues[i%2].send(c.frame) })
				if !maps.Equal(got, map[string]uint64{c.want: 1}) {
					r.net.Errorf("%s: counted as %v, want one %s\n%x", c.name, got, c.want, c.frame)
					continue
				}
				if c.want == "forwarded" {
					r.arrives(c.frame, "")
				} else if at := r.got(c.frame, false); len(at) > 0 {
					r.net.Errorf("%s: was dropped and reached %v", c.name, at)
				}
			}
		})
	}
	r.part("over the MTU", func(r *flowRig) { r.overMTU() })
	r.part("more tags than two are the kernel's", func(r *flowRig) { r.tooManyTags() })
	r.part("zero UDP checksum is answered", func(r *flowRig) { r.zeroChecksum() })
	r.part("any bytes", func(r *flowRig) { r.anyBytes() })
	r.balanced()
	r.stop()
}

// flow is a tuple of its own, of an address that nobody has: a client that does
// not know of the flow would answer what comes back with errors.
func (r *flowRig) flow(version int, host string, port uint16) (from, to netip.AddrPort) {
	source := netip.MustParseAddr("10.8.0.200")
	if version == 6 {
		source = netip.MustParseAddr("fd00:8::200")
	}
	identification++
	return netip.AddrPortFrom(source, uint16(10_000+identification%20_000)), netip.AddrPortFrom(vip(host, version), port)
}

// udp is a frame of a flow of its own to the UDP rule; change works on the IP
// header, then edit on the packet, whose IPv4 header checksum is made anew.
func (r *flowRig) udp(version int, host string, change func(h *ipHead), edit func(p []byte) []byte) []byte {
	from, to := r.flow(version, host, lab.EchoPort)
	h := ipHead{src: from.Addr(), dst: to.Addr(), proto: protoUDP}
	if change != nil {
		change(&h)
	}
	p := h.packet(udpHeader(from, to, []byte("sixteen bytes of")))
	if edit != nil {
		p = edit(p)
	}
	return r.frame(p)
}

// sumIPv4 makes the checksum of an IPv4 header anew.
func sumIPv4(p []byte) []byte {
	p[10], p[11] = 0, 0
	binary.BigEndian.PutUint16(p[10:], internetSum(0, p[:min(len(p), max(20, int(p[0]&15)*4))]))
	return p
}

func (r *flowRig) oddIPv4() []wireCase {
	udp := func(name, want string, change func(h *ipHead), edit func(p []byte) []byte) wireCase {
		return wireCase{name, want, r.udp(4, "web", change, edit)}
	}
	set := func(at int, v uint16) func(p []byte) []byte {
		return func(p []byte) []byte { binary.BigEndian.PutUint16(p[at:], v); return sumIPv4(p) }
	}
	return []wireCase{
		udp("plain", "forwarded", nil, nil),
		udp("options: no operation", "forwarded", func(h *ipHead) { h.ext = []byte{1, 1, 1, 0} }, nil),
		udp("options: record route", "forwarded", func(h *ipHead) { h.ext = []byte{7, 7, 4, 0, 0, 0, 0, 0} }, nil),
		udp("options: all 40 bytes, end first", "forwarded", func(h *ipHead) { h.ext = make([]byte, 40) }, nil),
		udp("options: a length past the header", "forwarded", func(h *ipHead) { h.ext = []byte{7, 200, 4, 0} }, nil),
		udp("zero UDP checksum", "forwarded", nil, func(p []byte) []byte { p[26], p[27] = 0, 0; return p }),
		udp("wrong UDP checksum", "forwarded", nil, func(p []byte) []byte { p[26] ^= 1; return p }),
		udp("UDP length above the packet's", "forwarded", nil, func(p []byte) []byte { p[24], p[25] = 9, 9; return p }),
		udp("UDP length below its header's", "forwarded", nil, func(p []byte) []byte { p[24], p[25] = 0, 3; return p }),
		udp("bytes behind the packet", "forwarded", nil, func(p []byte) []byte { return append(p, make([]byte, 200)...) }),
		udp("reserved bit", "forwarded", func(h *ipHead) { h.frag = 0x8000 }, nil),
		udp("TTL 0", "forwarded", nil, func(p []byte) []byte { p[8] = 0; return sumIPv4(p) }),
		udp("header length 4", "bad_header_length", nil, func(p []byte) []byte { p[0] = 0x44; return sumIPv4(p) }),
		udp("header length past the packet", "bad_length", nil, func(p []byte) []byte { p[0] = 0x4f; return sumIPv4(p) }),
		udp("total length below the header's", "bad_length", nil, set(2, 19)),
		udp("total length 0", "bad_length", nil, set(2, 0)),
		udp("total length above the frame's", "truncated", nil, set(2, 45)),
		udp("total length of 64 KiB", "truncated", nil, set(2, 0xffff)),
		udp("cut in the transport header", "short_transport", nil, set(2, 27)),
		udp("nothing but a header", "short_transport", nil, set(2, 20)),
		udp("wrong header checksum", "bad_checksum", nil, func(p []byte) []byte { p[10] ^= 0xff; return p }),
		udp("first fragment of 4 bytes", "bad_fragment", nil, func(p []byte) []byte { p[6] = 0x20; p[3] = 24; return sumIPv4(p) }),
		udp("fragment of nothing", "bad_fragment", nil, func(p []byte) []byte { p[7] = 4; p[3] = 20; return sumIPv4(p) }),
		udp("fragment past 64 KiB", "bad_fragment", nil, func(p []byte) []byte { p[6], p[7] = 0x1f, 0xff; return sumIPv4(p) }),
		{"a protocol without a rule", "no_rule", r.portless(4, "web", lab.RawProtocol)},
		{"any protocol where one rule takes all", "forwarded", r.portless(4, "any", lab.RawProtocol)},
		{"ICMP that is neither echo nor error", "no_rule", r.icmpMessage(4, "web", 13)},
		{"echo request under an L3_DEFAULT rule", "forwarded", r.icmpMessage(4, "any", echoRequest4)},
		{"SCTP to an L3_DEFAULT rule", "forwarded", r.portless(4, "any", 132)},
		{"SCTP to a rule for UDP", "no_rule", r.portless(4, "web", 132)},
	}
}

// portless is a packet of some other protocol.
func (r *flowRig) portless(version int, host string, proto uint8) []byte {
	from, to := r.flow(version, host, 0)
	return r.frame(ipHead{src: from.Addr(), dst: to.Addr(), proto: proto}.packet(make([]byte, 32)))
}

// icmpMessage is an ICMP message with a word that identifies it.
func (r *flowRig) icmpMessage(version int, host string, kind byte) []byte {
	from, to := r.flow(version, host, 0)
	return r.frame(icmpAbout(from.Addr(), to.Addr(), kind, 0, identification, make([]byte, 16)))
}

func (r *flowRig) oddIPv6() []wireCase {
	udp := func(name, want string, change func(h *ipHead), edit func(p []byte) []byte) wireCase {
		return wireCase{name, want, r.udp(6, "web", change, edit)}
	}
	// chain puts extension headers of 8 bytes (AH: of 24) before the transport.
	chain := func(kinds ...byte) func(h *ipHead) {
		return func(h *ipHead) {
			next := h.proto
			for _, kind := range slices.Backward(kinds) {
				ext := []byte{next, 0, 1, 4, 0, 0, 0, 0} // PadN
				switch kind {
				case protoAH: // RFC 4302 section 2
					ext = append([]byte{next, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, make([]byte, 12)...)
				case protoRouting: // segments left: 0
					ext = []byte{next, 0, 4, 0, 0, 0, 0, 0}
				case protoFragment: // atomic, RFC 6946
					ext = []byte{next, 0, 0, 0, 0, 0, 0, 7}
				}
				h.ext = append(ext, h.ext...)
				next = kind
			}
			h.proto = next
		}
	}
	eight := []byte{protoHopByHop, protoDstOpts, protoDstOpts, protoDstOpts, protoDstOpts, protoDstOpts, protoDstOpts, protoDstOpts}
	set := func(at int, v uint16) func(p []byte) []byte {
		return func(p []byte) []byte { binary.BigEndian.PutUint16(p[at:], v); return p }
	}
	return []wireCase{
		udp("plain", "forwarded", nil, nil),
		udp("hop-by-hop options", "forwarded", chain(protoHopByHop), nil),
		udp("destination options", "forwarded", chain(protoDstOpts), nil),
		udp("routing header", "forwarded", chain(protoRouting), nil),
		udp("authentication header", "forwarded", chain(protoAH), nil),
		udp("atomic fragment", "forwarded", chain(protoFragment), nil),
		udp("all of them", "forwarded", chain(protoHopByHop, protoDstOpts, protoRouting, protoFragment, protoAH, protoDstOpts), nil),
		udp("8 extension headers", "forwarded", chain(eight...), nil),
		udp("9 extension headers hide the ports", "fragment_unmatched", chain(append(eight, protoDstOpts)...), nil),
		udp("two fragment headers hide the ports", "fragment_unmatched", chain(protoFragment, protoFragment), nil),
		{"9 extension headers where one rule takes all", "forwarded", r.udp(6, "any", chain(append(eight, protoDstOpts)...), nil)},
		udp("an extension header past the packet", "bad_header_length", chain(protoDstOpts), func(p []byte) []byte { p[41] = 100; return p }),
		udp("zero UDP checksum", "forwarded", nil, set(46, 0)), // RFC 6935; between the endpoints
		udp("bytes behind the packet", "forwarded", nil, func(p []byte) []byte { return append(p, make([]byte, 200)...) }),
		udp("payload length above the frame's", "truncated", nil, set(4, 25)),
		udp("payload length 0", "short_transport", nil, set(4, 0)),
		udp("jumbogram", "bad_length", chain(protoHopByHop), set(4, 0)),
		udp("cut in the transport header", "short_transport", nil, set(4, 7)),
		udp("an IPv4-mapped source", "bad_address", nil, func(p []byte) []byte {
			copy(p[8:], []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 8, 0, 101})
			return p
		}),
		udp("fragment of no multiple of 8", "bad_fragment", func(h *ipHead) {
			h.ext, h.proto = []byte{protoUDP, 0, 0, 1, 0, 0, 0, 8}, protoFragment
		}, func(p []byte) []byte { binary.BigEndian.PutUint16(p[4:], 8+12); return p[:40+8+12] }),
		{"no next header", "no_rule", r.portless(6, "web", 59)},
		{"ESP, where one rule takes all", "forwarded", r.portless(6, "any", 50)},
		{"echo request under an L3_DEFAULT rule", "forwarded", r.icmpMessage(6, "any", echoRequest6)},
	}
}

func (r *flowRig) oddTCP() (cases []wireCase) {
	tcp := func(version int, name, want string, flags byte, edit func(s []byte) []byte) {
		from, to := r.flow(version, "web", lab.HTTPPort)
		segment := tcpHeader(from, to, flags)
		if edit != nil {
			segment = edit(segment)
		}
		packet := ipHead{src: from.Addr(), dst: to.Addr(), proto: protoTCP}.packet(segment)
		cases = append(cases, wireCase{fmt.Sprintf("IPv%d %s", version, name), want, r.frame(packet)})
	}
	for _, version := range []int{4, 6} {
		tcp(version, "null", "forwarded", 0, nil)
		tcp(version, "xmas", "forwarded", tcpFIN|tcpPSH|tcpURG, nil)
		tcp(version, "SYN+FIN", "forwarded", tcpSYN|tcpFIN, nil)
		tcp(version, "SYN+RST", "forwarded", tcpSYN|tcpRST, nil)
		tcp(version, "SYN+ACK", "forwarded", tcpSYN|tcpACK, nil)
		tcp(version, "all flags", "forwarded", 0xff, nil)
		tcp(version, "RST", "forwarded", tcpRST, nil)
		tcp(version, "wrong checksum", "forwarded", tcpACK, func(s []byte) []byte { s[16] ^= 1; return s })
		tcp(version, "options of nonsense", "forwarded", tcpSYN, func(s []byte) []byte { s[12] = 0x60; return append(s, 2, 0, 9, 200) })
		tcp(version, "data offset below 5", "short_transport", tcpACK, func(s []byte) []byte { s[12] = 0x40; return s })
		tcp(version, "data offset past the packet", "short_transport", tcpACK, func(s []byte) []byte { s[12] = 0xf0; return s })
		tcp(version, "19 bytes", "short_transport", tcpACK, func(s []byte) []byte { return s[:19] })
	}
	// Fragments that hide flags, or write over them (RFC 1858, RFC 3128).
	from, to := r.flow(4, "web", lab.HTTPPort)
	h := ipHead{src: from.Addr(), dst: to.Addr(), proto: protoTCP}
	segment := append(tcpHeader(from, to, tcpSYN), make([]byte, 28)...)
	return append(cases,
		wireCase{"a first fragment of 8 bytes", "tiny_fragment", r.frame(h.fragment(identification, segment, 0, 8))},
		wireCase{"a fragment at offset 8", "tiny_fragment", r.frame(h.fragment(identification, segment, 8, 24))})
}

func (r *flowRig) taggedFrames() (cases []wireCase) {
	outer, inner := vlanTag{unix.ETH_P_8021AD, 200}, vlanTag{unix.ETH_P_8021Q, 0x6000 | 42} // priority 3
	for _, version := range []int{4, 6} {
		for name, tags := range map[string][]vlanTag{
			"802.1Q": {inner}, "802.1ad": {outer}, "QinQ": {outer, inner}, "two 802.1Q": {inner, inner}, "priority only": {{unix.ETH_P_8021Q, 0xe000}},
		} {
			from, to := r.flow(version, "web", lab.EchoPort)
			packet := ipHead{src: from.Addr(), dst: to.Addr(), proto: protoUDP}.packet(udpHeader(from, to, []byte(name)))
			cases = append(cases, wireCase{fmt.Sprintf("IPv%d in %s", version, name), "forwarded", ethernet(r.lb, r.own, packet, tags...)})
		}
	}
	from, to := r.flow(4, "web", lab.EchoPort)
	packet := ipHead{src: from.Addr(), dst: to.Addr(), proto: protoUDP}.packet(udpHeader(from, to, make([]byte, 1500-28)))
	cases = append(cases, wireCase{"the whole MTU in 802.1Q", "forwarded", ethernet(r.lb, r.own, packet, inner)})
	packet = ipHead{src: from.Addr(), dst: to.Addr(), proto: protoUDP}.packet(udpHeader(from, to, nil))
	packet[3] = 200
	return append(cases, wireCase{"tagged and truncated", "truncated", ethernet(r.lb, r.own, sumIPv4(packet), inner)})
}

// overMTU sends frames that are longer than the link they would leave by takes.
func (r *flowRig) overMTU() {
	for _, version := range []int{4, 6} {
		from, to := r.flow(version, "web", lab.EchoPort)
		h := ipHead{src: from.Addr(), dst: to.Addr(), proto: protoUDP}
		for size, want := range map[int]string{1500: "forwarded", 1501: "too_big", 1504: "too_big"} {
			frame := r.frame(h.packet(udpHeader(from, to, make([]byte, size-8-headerLen(version)))))
			if got := r.counting(1, func() { r.queues[0].send(frame) }); !maps.Equal(got, map[string]uint64{want: 1}) {
				r.net.Errorf("a packet of %d bytes is counted as %v, want %s", size, got, want)
			}
		}
	}
}

// tooManyTags sends a frame with three tags, which is not ours to judge.
func (r *flowRig) tooManyTags() {
	tag := vlanTag{unix.ETH_P_8021Q, 7}
	from, to := r.flow(4, "web", lab.EchoPort)
	packet := ipHead{src: from.Addr(), dst: to.Addr(), proto: protoUDP}.packet(udpHeader(from, to, nil))
	frame := ethernet(r.lb, r.own, packet, tag, tag, tag)
	plain := r.frame(packet)
	if got := r.counting(1, func() { r.queues[0].send(frame, plain) }); !maps.Equal(got, map[string]uint64{"forwarded": 1}) {
		r.net.Errorf("counted as %v, want the untagged one alone", got)
	}
	if at := r.got(frame, false); len(at) > 0 {
		r.net.Errorf("the frame with three tags reached %v", at)
	}
}

// zeroChecksum has a server answer a datagram without a checksum (RFC 768).
func (r *flowRig) zeroChecksum() {
	conn := r.dialUDP(netip.AddrPortFrom(vip("web", 4), lab.EchoPort))
	from, to := ends(conn)
	payload := []byte("unchecked")
	datagram := udpHeader(from, to, payload)
	datagram[6], datagram[7] = 0, 0
	r.queues[1].send(r.frame(ipHead{src: from.Addr(), dst: to.Addr(), proto: protoUDP}.packet(datagram)))
	if _, err := readEcho(conn, payload, patience); err != nil {
		r.net.Error(err)
	}
}

// anyBytes sends thousands of frames that are slightly wrong, beside a
// connection that must not notice.
func (r *flowRig) anyBytes() {
	seed := uint64(time.Now().UnixNano())
	r.net.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var good [][]byte
	for _, c := range slices.Concat(r.oddIPv4(), r.oddIPv6(), r.oddTCP(), r.taggedFrames()) {
		good = append(good, c.frame)
	}
	client := r.net.mac(r.client.Node, "eth0")
	good = append(good, arpRequest(r.net.T, client, r.client.IPv4(), vip("web", 4)), solicit(r.net.T, client, r.client.IPv6(), vip("web", 6)))
	s := r.net.stream("client", netip.AddrPortFrom(vip("web", 6), lab.EchoTLS), "")
	before := r.balanced().Accounting
	for batch := range 400 {
		var frames [][]byte
		for range 32 {
			f := slices.Clone(good[random.IntN(len(good))])
			for range 1 + random.IntN(4) { // behind the addresses of the frame
				f[12+random.IntN(len(f)-12)] = byte(random.Uint32())
			}
			if random.IntN(4) == 0 {
				f = f[:14+random.IntN(len(f)-14)]
			}
			frames = append(frames, f)
		}
		r.queues[batch%2].send(frames...)
	}
	r.net.flowing(s)
	r.wait("nothing to be held", func() error {
		if held := r.status().Accounting.Held; held != 0 {
			return fmt.Errorf("%d held", held)
		}
		return nil
	})
	if state := s.Close(); state.Err != nil {
		r.net.Error(state.Err)
	}
	after := r.balanced().Accounting
	got := change(&before, &after)
	r.net.Logf("of 12800 frames %d were ours: %v", after.Received-before.Received, got)
	if len(got) < 8 {
		r.net.Errorf("only %d kinds of outcome: %v", len(got), got)
	}
}

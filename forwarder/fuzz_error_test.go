package forwarder

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// FuzzErrorPath has a router complain about any packet of a server: it arrives
// where gopacket's reading of that packet says that the client's packets go,
// however little is quoted, with the flow in the table and without.
func FuzzErrorPath(f *testing.F) {
	far4, far6 := netip.MustParseAddr("192.168.1.1"), netip.MustParseAddr("fd99::1")
	add := func(frame []byte, route bool) { f.Add(frame[14:], frame[12] == 0x86, route, uint8(0), uint8(0)) }
	add(tcpFrame(vip4, client4, 80, 1000, "A"), false)
	add(udpFrame(vip4, client4, 53, 1000), false)
	add(tcpFrame(vip6, client6, 80, 1000, "A"), false)
	add(tcpFrame(far4, client4, 22, 1000, "A"), true)
	add(tcpFrame(far6, client6, 22, 1000, "A"), true)
	options := ip4(vip4, client4, layers.IPProtocolUDP)
	options.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
	u := &layers.UDP{SrcPort: 53, DstPort: 1000}
	u.SetNetworkLayerForChecksum(options)
	add(frame(options, u, gopacket.Payload("payload")), false)
	six := tcpFrame(far6, client6, 22, 1000, "A")
	six[14+6] = 60 // destination options
	six[14+5] += 8
	six = bytes.Join([][]byte{six[:54], {6, 0, 1, 4, 0, 0, 0, 0}, six[54:]}, nil)
	add(six, true)
	router4, router6 := netip.MustParseAddr("10.200.0.1"), netip.MustParseAddr("fd00:200::1")
	r := newRig(f, rigOptions{backends: 10})
	f.Fuzz(func(t *testing.T, packet []byte, v6, route bool, kind, cut uint8) {
		r.TB, r.ports[0].t = t, t
		r.clock += int64(time.Hour) // whatever the last input left behind is over
		// Quote a packet that one of ours sent: only then is there anything to find.
		packet = bytes.Clone(packet)
		server, router := vip4, router4
		switch {
		case v6 && len(packet) >= 40:
			server, router = vip6, router6
			if route {
				server = far6
			}
			copy(packet[8:24], server.AsSlice())
		case !v6 && len(packet) >= 20:
			if route {
				server = far4
			}
			copy(packet[12:16], server.AsSlice())
		default:
			return
		}
		flow, behind := clientsPacket(packet, v6)
		if flow != nil {
			packet = packet[:min(len(packet), behind+8+int(cut))]
		}
		report := errorOfKind(router, server, packet, kind)
		if len(report) > 1514 {
			return
		}
		inserted := r.table.Stats().Inserted
		out := r.run(0, report)
		if n := r.table.Stats().Inserted - inserted; n != 0 {
			t.Errorf("an error made %d entries", n)
		}
		for _, f := range out {
			if want := passedOn(t, report, route); !bytes.Equal(f[12:], want[12:]) {
				t.Errorf("the error left as\n%x, want\n%x", f[12:], want[12:])
			}
		}
		if flow != nil {
			want := r.run(0, flow)
			again := r.run(0, report)
			if len(out) != len(want) || len(again) != len(want) {
				t.Fatalf("of errors about %x %d and %d were forwarded, of the client's packets %d; dropped %v", packet, len(out), len(again), len(want), byReason(ptr(r.totals())))
			}
			if len(want) == 1 && (chosen(out[0]) != chosen(want[0]) || chosen(again[0]) != chosen(want[0])) {
				t.Fatalf("errors about %x went to backends %d and %d, the client's packets go to %d", packet, chosen(out[0]), chosen(again[0]), chosen(want[0]))
			}
		}
		r.checkAccounts()
	})
}

// passedOn is a frame as it leaves, but for its MAC addresses.
func passedOn(t *testing.T, f []byte, route bool) []byte {
	if route {
		return decremented(t, bytes.Clone(f))
	}
	return f
}

// clientsPacket is a packet of the flow that gopacket finds a server's packet to
// belong to, and where the transport header of that packet begins; nil if it
// finds none.
func clientsPacket(packet []byte, v6 bool) (f []byte, l4 int) {
	first := layers.LayerTypeIPv4
	if v6 {
		first = layers.LayerTypeIPv6
	}
	if packet[0]>>4 != map[bool]byte{false: 4, true: 6}[v6] || !v6 && packet[2] == 0 && packet[3] == 0 {
		return nil, 0 // gopacket minds neither the version nor a length of 0
	}
	var client, server netip.Addr
	for i, layer := range gopacket.NewPacket(packet, first, gopacket.NoCopy).Layers() {
		var sport, dport uint16
		udp := false
		switch v := layer.(type) {
		case *layers.IPv4:
			if i > 0 || v.Protocol != layers.IPProtocolTCP && v.Protocol != layers.IPProtocolUDP {
				return nil, 0 // gopacket looks into tunnels
			}
			server, client = netip.AddrFrom4([4]byte(v.SrcIP)), netip.AddrFrom4([4]byte(v.DstIP))
		case *layers.IPv6:
			if i > 0 {
				return nil, 0
			}
			server, client = netip.AddrFrom16([16]byte(v.SrcIP)), netip.AddrFrom16([16]byte(v.DstIP))
			if client.Is4In6() {
				return nil, 0 // refused, as no honest host sends it
			}
		case *layers.IPv6HopByHop, *layers.IPv6Destination, *layers.IPv6Routing, *layers.IPSecAH:
			if !v6 || i > 8 {
				return nil, 0
			}
		case *layers.TCP:
			sport, dport = uint16(v.SrcPort), uint16(v.DstPort)
		case *layers.UDP:
			sport, dport, udp = uint16(v.SrcPort), uint16(v.DstPort), true
		default:
			return nil, 0
		}
		switch layer.(type) {
		case *layers.TCP, *layers.UDP:
			if len(layer.LayerContents()) < 8 {
				return nil, 0 // gopacket lists what it could not read as well
			}
		default:
			l4 += len(layer.LayerContents())
			continue
		}
		if !udp {
			return tcpFrame(client, server, dport, sport, "A"), l4
		}
		if !v6 {
			return udpFrame(client, server, dport, sport), l4
		}
		ip, u := ip6(client, server, layers.IPProtocolUDP), &layers.UDP{SrcPort: layers.UDPPort(dport), DstPort: layers.UDPPort(sport)}
		u.SetNetworkLayerForChecksum(ip)
		return frame(ip, u, gopacket.Payload("payload")), l4
	}
	return nil, 0
}

// errorOfKind is one of the ICMP errors from a router about a packet.
func errorOfKind(router, to netip.Addr, quote []byte, kind uint8) []byte {
	f := unreachable(router, to, append(make([]byte, 14), quote...))
	if to.Is6() {
		f[54] = []byte{1, 2, 3, 4}[kind%4] // the checksum is for the endpoints
	} else {
		f[34] = []byte{3, 4, 11, 12}[kind%4]
	}
	return f
}

package packet

import (
	"bytes"
	"net"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

const clientMACWord, vipMACWord = 0x020000000001, 0x020000000002

func arpFrame(t *testing.T, op uint16, sender, target net.IP) []byte {
	return serialize(t, &layers.Ethernet{SrcMAC: clientMAC, DstMAC: layers.EthernetBroadcast, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation: op, SourceHwAddress: clientMAC, SourceProtAddress: sender.To4(), DstHwAddress: make([]byte, 6), DstProtAddress: target.To4()})
}

func TestARPClaims(t *testing.T) {
	zero := net.IPv4zero
	tests := []struct {
		name           string
		op             uint16
		sender, target net.IP
		addr           net.IP
		probe, claim   bool
	}{
		{"probe", 1, zero, vip4, vip4, true, false},
		{"announcement", 1, vip4, vip4, vip4, false, true},
		{"announcement as a reply", 2, vip4, vip4, vip4, false, true},
		{"request from its owner", 1, client4, vip4, client4, false, true},
		{"reply", 2, vip4, client4, vip4, false, true},
		{"reply from nobody", 2, zero, vip4, nil, false, false},
		{"probe for nothing", 1, zero, zero, nil, false, false},
		{"reverse ARP", 3, vip4, vip4, nil, false, false},
	}
	for _, test := range tests {
		frame := arpFrame(t, test.op, test.sender, test.target)
		var p Parsed
		if got := p.Parse(frame); got != OK {
			t.Fatalf("%s: Parse = %v, want ok", test.name, got)
		}
		var want [2]uint64
		var wantMAC uint64
		if test.addr != nil {
			want, wantMAC = words(test.addr), clientMACWord
		}
		addr, mac, probe, claim := ARPClaims(frame, &p)
		if addr != want || mac != wantMAC || probe != test.probe || claim != test.claim {
			t.Errorf("%s: ARPClaims = %v, %x, %v, %v, want %v, %x, %v, %v", test.name, Netip(addr), mac, probe, claim, Netip(want), wantMAC, test.probe, test.claim)
		}
	}
}

func TestARPRequestTarget(t *testing.T) {
	var p Parsed
	frame := arpFrame(t, 1, client4, vip4)
	p.Parse(frame)
	sender, target, mac, ok := ARPRequestTarget(frame, &p)
	if !ok || sender != words(client4) || target != words(vip4) || mac != clientMACWord {
		t.Errorf("ARPRequestTarget = %v, %v, %x, %v, want %v, %v, %x, true", Netip(sender), Netip(target), mac, ok, client4, vip4, clientMACWord)
	}
	frame = arpFrame(t, 2, client4, vip4)
	p.Parse(frame)
	if _, _, _, ok := ARPRequestTarget(frame, &p); ok {
		t.Error("ARPRequestTarget(reply) is ok, want not")
	}
	frame = udp4Frame(t, 20)
	p.Parse(frame)
	if _, _, _, ok := ARPRequestTarget(frame, &p); ok {
		t.Error("ARPRequestTarget(datagram) is ok, want not")
	}
}

func TestNeighborClaims(t *testing.T) {
	unspecified, solicitedNode, all := net.IPv6unspecified, net.ParseIP("ff02::1:ff00:1"), net.IPv6linklocalallnodes
	link := func(option layers.ICMPv6Opt) layers.ICMPv6Options {
		return layers.ICMPv6Options{{Type: option, Data: vipMAC}}
	}
	solicit := func(o layers.ICMPv6Options) gopacket.SerializableLayer {
		return &layers.ICMPv6NeighborSolicitation{TargetAddress: vip6, Options: o}
	}
	advert := func(flags uint8, o layers.ICMPv6Options) gopacket.SerializableLayer {
		return &layers.ICMPv6NeighborAdvertisement{Flags: flags, TargetAddress: vip6, Options: o}
	}
	tests := []struct {
		name         string
		typ          uint8
		src, dst     net.IP
		message      gopacket.SerializableLayer
		mac          uint64
		probe, claim bool
	}{
		{"probe", 135, unspecified, solicitedNode, solicit(nil), clientMACWord, true, false},
		{"probe with an option", 135, unspecified, solicitedNode, solicit(link(layers.ICMPv6OptSourceAddress)), 0, false, false},
		{"solicitation by the address", 135, vip6, solicitedNode, solicit(link(layers.ICMPv6OptSourceAddress)), vipMACWord, false, true},
		{"the same without option", 135, vip6, solicitedNode, solicit(nil), clientMACWord, false, true},
		{"advertisement", 136, vip6, all, advert(0x20, link(layers.ICMPv6OptTargetAddress)), vipMACWord, false, true},
		{"advertisement without option", 136, vip6, client6, advert(0x60, nil), clientMACWord, false, true},
		{"solicited to all nodes", 136, vip6, all, advert(0x60, link(layers.ICMPv6OptTargetAddress)), 0, false, false},
	}
	for _, test := range tests {
		ip := ip6(layers.IPProtocolICMPv6)
		ip.SrcIP, ip.DstIP, ip.HopLimit = test.src, test.dst, 255
		frame := serialize(t, ethernet(layers.EthernetTypeIPv6), ip, &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(test.typ, 0)}, test.message)
		var p Parsed
		if got := p.Parse(frame); got != OK {
			t.Fatalf("%s: Parse = %v, want ok", test.name, got)
		}
		var want [2]uint64
		if test.probe || test.claim {
			want = words(vip6)
		}
		addr, mac, probe, claim := NeighborClaims(frame, &p)
		if addr != want || mac != test.mac || probe != test.probe || claim != test.claim {
			t.Errorf("%s: NeighborClaims = %v, %x, %v, %v, want %v, %x, %v, %v", test.name, Netip(addr), mac, probe, claim, Netip(want), test.mac, test.probe, test.claim)
		}
		if target, ok := NeighborSolicitTarget(frame, &p); ok != (test.typ == 135 && want != [2]uint64{}) || ok && target != words(vip6) {
			t.Errorf("%s: NeighborSolicitTarget = %v, %v", test.name, Netip(target), ok)
		}
	}
}

// Announcements are compared with what gopacket builds.
func TestAnnouncements(t *testing.T) {
	dirty := bytes.Repeat([]byte{0xa5}, 128)
	want := serialize(t, &layers.Ethernet{SrcMAC: vipMAC, DstMAC: layers.EthernetBroadcast, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation: 1, SourceHwAddress: vipMAC, SourceProtAddress: vip4, DstHwAddress: make([]byte, 6), DstProtAddress: vip4})
	want = append(want, make([]byte, 60-len(want))...)
	if out := GratuitousARP(dirty[:0], words(vip4), &ownMAC); !bytes.Equal(out, want) {
		t.Errorf("GratuitousARP =\n%x, want\n%x", out, want)
	}
	ip := ip6(layers.IPProtocolICMPv6)
	ip.SrcIP, ip.DstIP, ip.HopLimit = vip6, net.IPv6linklocalallnodes, 255
	want = serialize(t, &layers.Ethernet{SrcMAC: vipMAC, DstMAC: net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, EthernetType: layers.EthernetTypeIPv6},
		ip, &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(136, 0)},
		&layers.ICMPv6NeighborAdvertisement{Flags: 0x20, TargetAddress: vip6, Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: vipMAC}}})
	if out := UnsolicitedNA(dirty[:0], words(vip6), &ownMAC); !bytes.Equal(out, want) {
		t.Errorf("UnsolicitedNA =\n%x, want\n%x", out, want)
	}
	if out := GratuitousARP(make([]byte, 59), words(vip4), &ownMAC); out != nil {
		t.Errorf("GratuitousARP(59 bytes) = %x, want nil", out)
	}
	if out := UnsolicitedNA(make([]byte, 85), words(vip6), &ownMAC); out != nil {
		t.Errorf("UnsolicitedNA(85 bytes) = %x, want nil", out)
	}
	if out := GratuitousARP(dirty, words(vip6), &ownMAC); out != nil {
		t.Errorf("GratuitousARP(IPv6) = %x, want nil", out)
	}
	if out := UnsolicitedNA(dirty, words(vip4), &ownMAC); out != nil {
		t.Errorf("UnsolicitedNA(IPv4) = %x, want nil", out)
	}
}

// Every answer that the vectors expect is refused where the chunk lacks a byte for it.
func TestAnswersNeedRoom(t *testing.T) {
	tried := 0
	for _, v := range readVectors(t) {
		if v.Output == "" {
			continue
		}
		tried++
		need := len(v.Output) / 2
		frame := unhex(t, v.Frame)
		if need <= len(frame) {
			continue // the frame itself is room enough
		}
		var p Parsed
		p.Parse(frame)
		received := bytes.Clone(frame)
		if out := answers[v.Call](frame[:len(frame):len(frame)], &p); out != nil || !bytes.Equal(frame, received) {
			t.Errorf("%s: answered in %d bytes, or changed them; needs %d", v.Name, len(frame), need)
		}
		short := append(make([]byte, 0, need-1), frame...)[: len(frame) : need-1]
		if out := answers[v.Call](short, &p); out != nil {
			t.Errorf("%s: answered in %d bytes, needs %d", v.Name, need-1, need)
		}
	}
	if tried == 0 {
		t.Fatal("no vector has an answer")
	}
}

package packet

import (
	"encoding/binary"
	"net"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// Frames for tests are built by gopacket, so that our own code is not its own witness.

var (
	clientMAC = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x01}
	vipMAC    = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x02}
	ownMAC    = [6]byte(vipMAC)
	client4   = net.IP{192, 0, 2, 10}
	vip4      = net.IP{198, 51, 100, 1}
	client6   = net.ParseIP("2001:db8::10")
	vip6      = net.ParseIP("2001:db8:1::1")
)

// serialize builds a frame, with lengths and checksums computed by gopacket.
func serialize(t testing.TB, l ...gopacket.SerializableLayer) []byte {
	t.Helper()
	var network gopacket.NetworkLayer
	for _, layer := range l {
		switch v := layer.(type) {
		case *layers.IPv4:
			network = v
		case *layers.IPv6:
			network = v
		case *layers.TCP:
			must(t, v.SetNetworkLayerForChecksum(network))
		case *layers.UDP:
			must(t, v.SetNetworkLayerForChecksum(network))
		case *layers.ICMPv6:
			must(t, v.SetNetworkLayerForChecksum(network))
		}
	}
	b := gopacket.NewSerializeBuffer()
	must(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, l...))
	return append([]byte(nil), b.Bytes()...)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// chunk copies a frame to the start of a buffer with room behind it, as a UMEM chunk has.
func chunk(frame []byte) []byte {
	b := make([]byte, 2048)
	for i := range b {
		b[i] = 0xa5 // what an earlier frame left
	}
	return b[:copy(b, frame)]
}

func ethernet(t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: clientMAC, DstMAC: vipMAC, EthernetType: t}
}

func ip4(proto layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 61, Id: 0x1234, Protocol: proto, SrcIP: client4, DstIP: vip4}
}

func ip6(next layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 61, NextHeader: next, SrcIP: client6, DstIP: vip6}
}

func udp4Frame(t testing.TB, n int) []byte {
	return serialize(t, ethernet(layers.EthernetTypeIPv4), ip4(layers.IPProtocolUDP),
		&layers.UDP{SrcPort: 4242, DstPort: 53}, gopacket.Payload(make([]byte, n)))
}

func words(ip net.IP) [2]uint64 {
	b := ip.To16()
	return [2]uint64{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

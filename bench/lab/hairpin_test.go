package lab

import (
	"bytes"
	"hash/fnv"
	"net"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// hairpin is the least that can stand in for the appliance: it answers ARP and
// neighbour solicitations for the VIPs and sends what arrives for them, and
// for the inspected ranges, to a backend's MAC address, all from user space.
type hairpin struct {
	t     *testing.T
	lb    *Node
	mac   net.HardwareAddr
	webs  []net.HardwareAddr
	fws   []net.HardwareAddr
	group int // socket that holds the membership in the VIP's group
	out   int // packet socket on eth0
}

func startHairpin(t *testing.T, l *Lab, webs, fws []string) *hairpin {
	t.Helper()
	h := &hairpin{t: t, lb: l.Appliance(), group: -1}
	macs := func(names []string) (list []net.HardwareAddr) {
		for _, name := range names {
			list = append(list, must(l.Node(name).MAC("eth0"))(t))
		}
		return list
	}
	h.mac, h.webs, h.fws = must(h.lb.MAC("eth0"))(t), macs(webs), macs(fws)
	h.join(VIPv6)
	// The kernel sees the frames as well and would answer them with ICMPv6
	// unreachable.
	if err := h.lb.netlink.RouteReplace(&netlink.Route{Dst: ipNet(InspectedIPv6), Type: unix.RTN_BLACKHOLE}); err != nil {
		t.Fatal(err)
	}
	h.out = h.open()
	c := must(h.lb.Capture("eth0"))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for seen := 0; ; {
			c.mu.Lock()
			frames, more := c.frames, c.more
			c.mu.Unlock()
			for ; seen < len(frames); seen++ {
				if frames[seen].Direction == In {
					h.handle(bytes.Clone(frames[seen].Data))
				}
			}
			select {
			case <-more:
			case <-t.Context().Done(): // before the clean-up functions run
				return
			}
		}
	}()
	t.Cleanup(func() {
		<-done
		unix.Close(h.group)
		unix.Close(h.out)
	})
	return h
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// solicitedNode is the multicast group of an address (RFC 4291, section 2.7.1).
func solicitedNode(a netip.Addr) netip.Addr {
	ip := a.As16()
	return netip.AddrFrom16([16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: ip[13], 14: ip[14], 15: ip[15]})
}

// join makes the appliance's kernel report membership in an address's group.
func (h *hairpin) join(a netip.Addr) {
	h.t.Helper()
	err := h.lb.Exec(func() error {
		dev, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		h.group, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.SetsockoptIPv6Mreq(h.group, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP,
			&unix.IPv6Mreq{Multiaddr: solicitedNode(a).As16(), Interface: uint32(dev.Index)})
	})
	if err != nil {
		h.t.Fatal("join group of", a, err)
	}
}

func (h *hairpin) handle(frame []byte) {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	if arp, ok := p.Layer(layers.LayerTypeARP).(*layers.ARP); ok {
		if arp.Operation == layers.ARPRequest && netip.AddrFrom4([4]byte(arp.DstProtAddress)) == VIPv4 {
			h.send(&layers.Ethernet{SrcMAC: h.mac, DstMAC: arp.SourceHwAddress, EthernetType: layers.EthernetTypeARP},
				&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
					Operation: layers.ARPReply, SourceHwAddress: h.mac, SourceProtAddress: arp.DstProtAddress,
					DstHwAddress: arp.SourceHwAddress, DstProtAddress: arp.SourceProtAddress})
		}
		return
	}
	if ns, ok := p.Layer(layers.LayerTypeICMPv6NeighborSolicitation).(*layers.ICMPv6NeighborSolicitation); ok {
		if from := p.NetworkLayer().(*layers.IPv6); ns.TargetAddress.Equal(VIPv6.AsSlice()) {
			ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: ns.TargetAddress, DstIP: from.SrcIP}
			head := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborAdvertisement, 0)}
			head.SetNetworkLayerForChecksum(ip)
			h.send(&layers.Ethernet{SrcMAC: h.mac, DstMAC: p.LinkLayer().(*layers.Ethernet).SrcMAC, EthernetType: layers.EthernetTypeIPv6}, ip, head,
				&layers.ICMPv6NeighborAdvertisement{Flags: 0x60, TargetAddress: ns.TargetAddress,
					Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: h.mac}}})
		}
		return
	}
	if p.NetworkLayer() == nil {
		return
	}
	src, dst := p.NetworkLayer().NetworkFlow().Endpoints()
	to, _ := netip.AddrFromSlice(dst.Raw())
	backends := h.webs
	if to != VIPv4 && to != VIPv6 {
		if backends = h.fws; !InspectedIPv4.Contains(to) && !InspectedIPv6.Contains(to) {
			return
		}
	}
	hash := fnv.New32a()
	hash.Write(src.Raw())
	if p.TransportLayer() != nil {
		hash.Write(p.TransportLayer().TransportFlow().Src().Raw())
	}
	copy(frame, backends[hash.Sum32()%uint32(len(backends))])
	copy(frame[6:], h.mac)
	h.sendBytes(frame)
}

func (h *hairpin) send(parts ...gopacket.SerializableLayer) {
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, parts...); err != nil {
		h.t.Error("build answer:", err)
	}
	h.sendBytes(buf.Bytes())
}

func (h *hairpin) open() (fd int) {
	h.t.Helper()
	err := h.lb.Exec(func() error {
		dev, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: dev.Index})
	})
	if err != nil {
		h.t.Fatal("open packet socket:", err)
	}
	return fd
}

func (h *hairpin) sendBytes(frame []byte) {
	if _, err := unix.Write(h.out, frame); err != nil && h.t.Context().Err() == nil {
		h.t.Error("send frame:", err)
	}
}

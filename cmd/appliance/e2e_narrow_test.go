package main

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"

	"zonehop/bench/lab"
)

// narrowerMTU is that of the link to the backends in TestNarrowInterface.
const narrowerMTU = 1400

// TestNarrowInterface has the appliance pass from one link to another that takes
// only shorter packets. Clients on the first do not know of the second until
// the appliance tells them.
func TestNarrowInterface(t *testing.T) {
	topology := lab.TwoSegments()
	topology.Appliance.Interfaces[1].MTU = narrowerMTU
	n := newNetwork(t, lab.Options{Topology: &topology})
	d := n.start(testConfig(t, "two-zones.yaml", append([]string{
		"interfaces: [eth0]", "interfaces: [eth0, eth1]",
		"address: 10.1.0.21", "address: 172.20.1.21", "address: 10.2.0.21", "address: 172.20.2.21",
		`ipv6Address: "fd00:1::21"`, `ipv6Address: "fd20:1::21"`, `ipv6Address: "fd00:2::21"`, `ipv6Address: "fd20:2::21"`,
	}, onTheOtherSegment...)...))
	wire, leaves := n.capture(n.Client("client-c").Node, "eth0"), n.port(n.Appliance(), "eth1")
	for name, to := range map[string]netip.Addr{"rule": lab.VIPv4, "rule6": lab.VIPv6, "route": far4.Addr(), "route6": far6.Addr()} {
		d.sub(name, func(d *device) {
			d.tellsSender(wire, leaves, to)
			d.uploads("client-b", to)
		})
	}
	d.stop()
}

// tellsSender sends packets by hand, the longest that fits and longer ones, and
// looks at what comes back.
func (d *device) tellsSender(wire, leaves *lab.Capture, to netip.Addr) {
	d.net.Helper()
	client := d.net.Client("client-c")
	own, mac := d.net.mac(client.Node, "eth0"), d.net.mac(d.net.Appliance(), "eth0")
	version := 4
	from, source := client.Addr(to), lab.ApplianceIPv4
	if to.Is6() {
		version, source = 6, lab.ApplianceIPv6
	}
	head := ipHead{src: from, dst: to, proto: protoUDP}
	packet := func(size int, change func(h *ipHead)) []byte {
		h := head
		if change != nil {
			change(&h)
		}
		src, dst := netip.AddrPortFrom(from, 4000), netip.AddrPortFrom(to, lab.EchoPort)
		return h.packet(udpHeader(src, dst, make([]byte, size-headerLen(version)-8)))
	}
	isError := func(f lab.Frame) bool {
		p, ok := readIP(f)
		return ok && p.src == source && p.dst == from && (p.proto == protoICMP || p.proto == protoICMPv6 && p.l4[0] == tooBig6)
	}
	cases := map[string][]byte{"too big": packet(narrowerMTU+1, nil), "the MTU of this side": packet(1500, nil)}
	if version == 4 {
		cases["don't fragment"] = packet(1500, func(h *ipHead) { h.frag = dontFragment })
	}
	for name, p := range cases {
		wire.Clear()
		before := d.balanced().Accounting
		d.net.send(client.Node, "eth0", ethernet(mac, own, p))
		f := d.net.see(wire, name, going(lab.In, isError))
		e, _ := readIP(f)
		most, word := 576, uint32(narrowerMTU)
		want := []byte{unreachable4, fragmentationNeeded}
		sum := uint32(0)
		if version == 6 {
			most, want = 1280, []byte{tooBig6, 0}
			sum = pseudoSum(e.src, e.dst, len(e.l4), protoICMPv6)
		}
		quote := p[:min(len(p), most-headerLen(version)-8)]
		if !bytes.Equal(e.l4[:2], want) || binary.BigEndian.Uint32(e.l4[4:]) != word || !bytes.Equal(e.l4[8:], quote) {
			d.net.Errorf("%s: the error is\n%x\nwant %x, %d and the quote\n%x", name, e.l4, want, word, quote)
		}
		if e.from != mac.String() || e.to != own.String() || internetSum(sum, e.l4) != 0 {
			d.net.Errorf("%s: the error goes from %s to %s, its checksum is off by %#x", name, e.from, e.to, internetSum(sum, e.l4))
		}
		after := d.balanced().Accounting
		got := change(&before, &after)
		delete(got, "forwarded") // ends of connections that were, and errors about echoes that nobody waits for
		if got["too_big"] != 1 || len(got) != 1 {
			d.net.Errorf("%s: counted as %v, want one too_big", name, got)
		}
		if got := after.Originated["packet_too_big"] - before.Originated["packet_too_big"]; got != 1 {
			d.net.Errorf("%s: %d errors are counted, want 1", name, got)
		}
	}
	// The longest that fits is passed on, and many too long ones are told of as
	// time allows.
	d.net.send(client.Node, "eth0", ethernet(mac, own, packet(narrowerMTU, nil)))
	d.net.see(leaves, "the packet that fits", func(f lab.Frame) bool {
		p, ok := readIP(f)
		return ok && p.src == from && p.dst == to && len(p.l3) == narrowerMTU
	})
	before := d.balanced().Accounting
	const many = 300
	start := time.Now()
	for range many {
		d.net.send(client.Node, "eth0", ethernet(mac, own, cases["too big"]))
	}
	d.counted("packets dropped as too_big", dropped("too_big"), before.Dropped["too_big"]+many)
	after := d.balanced().Accounting
	// Two workers send at most 20 at once, and 100 in a second.
	most := 2 * uint64(20+time.Since(start).Seconds()*100)
	if told := after.Originated["packet_too_big"] - before.Originated["packet_too_big"]; told == 0 || told > most {
		d.net.Errorf("%d of %d errors were sent, want some, and at most %d", told, many, most)
	}
}

// uploads has a client's kernel send what needs more than one packet: by TCP,
// which comes to a stop unless it learns how long packets may be, and by UDP,
// which is cut into fragments once the client knows.
func (d *device) uploads(client string, to netip.Addr) {
	d.net.Helper()
	before := d.balanced().Accounting
	payload := []byte(strings.Repeat("twelve bytes", 120)) // 1440
	tries := 0
	d.net.eventually("a datagram to be echoed", func() (bool, error) {
		tries++
		conn, err := d.net.Client(client).DialUDP(d.net.soon(), netip.AddrPortFrom(to, lab.EchoPort), netip.AddrPort{})
		if err != nil {
			return false, err
		}
		defer conn.Close()
		if _, err := conn.Write(payload); err != nil {
			return false, err
		}
		_, err = readEcho(conn, payload, 500*time.Millisecond)
		return err == nil, err
	})
	if tries == 1 {
		d.net.Error("the first datagram came through: the link is not narrow, and the test tests nothing")
	}
	d.net.longTransfer(client, netip.AddrPortFrom(to, lab.EchoTLS))
	after := d.balanced().Accounting
	d.net.Logf("%d datagrams, then a megabyte; counted %v, told %d times", tries, change(&before, &after),
		after.Originated["packet_too_big"]-before.Originated["packet_too_big"])
}

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"zonehop/bench/lab"
)

// arpMessage is an ARP message for IPv4 over Ethernet (RFC 826).
type arpMessage struct {
	to, from             net.HardwareAddr // of the frame
	op                   uint16
	senderMAC, targetMAC net.HardwareAddr
	sender, target       netip.Addr
}

func readARP(f lab.Frame) (m arpMessage, ok bool) {
	b := f.Data
	if len(b) < 42 || !bytes.Equal(b[12:20], []byte{8, 6, 0, 1, 8, 0, 6, 4}) {
		return m, false
	}
	return arpMessage{
		to: b[:6], from: b[6:12], op: binary.BigEndian.Uint16(b[20:]),
		senderMAC: b[22:28], sender: netip.AddrFrom4([4]byte(b[28:])),
		targetMAC: b[32:38], target: netip.AddrFrom4([4]byte(b[38:])),
	}, true
}

const arpAsks, arpReplies = 1, 2

func isARPReply(f lab.Frame, about netip.Addr) bool {
	m, ok := readARP(f)
	return ok && m.op == arpReplies && m.sender == about
}

// isGratuitousARP matches an announcement (RFC 5227 section 2.3).
func isGratuitousARP(f lab.Frame, about netip.Addr, by net.HardwareAddr) bool {
	m, ok := readARP(f)
	return ok && m.op == arpAsks && m.sender == about && m.target == about && bytes.Equal(m.senderMAC, by) &&
		bytes.Equal(m.from, by) && bytes.Equal(m.to, broadcastMAC)
}

func isAdvertisement(f lab.Frame, about netip.Addr) bool {
	p, ok := readIP(f)
	return ok && p.proto == protoICMPv6 && len(p.l4) >= 24 && p.l4[0] == advertisement && netip.AddrFrom16([16]byte(p.l4[8:])) == about
}

// checkAdvertisement compares an advertisement with the one that RFC 4861
// section 7.2.4 asks for, field by field.
func checkAdvertisement(t *testing.T, f lab.Frame, about, to netip.Addr, toMAC, mac net.HardwareAddr, flags byte) {
	t.Helper()
	p, _ := readIP(f)
	if p.to != toMAC.String() || p.from != mac.String() {
		t.Errorf("the advertisement goes from %s to %s, want %s to %s", p.from, p.to, mac, toMAC)
	}
	if p.src != about || p.dst != to || p.ttl != 255 {
		t.Errorf("the advertisement goes from %s to %s with hop limit %d, want %s to %s with 255", p.src, p.dst, p.ttl, about, to)
	}
	want := append([]byte{advertisement, 0, p.l4[2], p.l4[3], flags, 0, 0, 0}, about.AsSlice()...)
	want = append(append(want, 2, 1), mac...) // target link-layer address
	if !bytes.Equal(p.l4, want) {
		t.Errorf("the advertisement is\n%x\nwant\n%x", p.l4, want)
	}
	if sum := internetSum(pseudoSum(p.src, p.dst, len(p.l4), protoICMPv6), p.l4); sum != 0 {
		t.Errorf("the advertisement's checksum is off by %#x", sum)
	}
}

const answerRules = `
  - {name: standby, IPAddress: 10.0.100.30, ports: [80], backendService: web, announce: STANDBY}
  - {name: standby6, IPAddress: "fd00:0:100::30", ports: [80], backendService: web, announce: STANDBY}
  - {name: never, IPAddress: 10.0.100.40, ports: [80], backendService: web, announce: NEVER}
  - {name: never6, IPAddress: "fd00:0:100::40", ports: [80], backendService: web, announce: NEVER}
routes:`

var (
	standby4 = netip.MustParseAddr("10.0.100.30")
	standby6 = netip.MustParseAddr("fd00:0:100::30")
	never4   = netip.MustParseAddr("10.0.100.40")
	never6   = netip.MustParseAddr("fd00:0:100::40")
	hop4     = netip.MustParseAddr("10.0.100.50")
	hop6     = netip.MustParseAddr("fd00:0:100::50")

	allNodes    = netip.IPv6LinkLocalAllNodes()
	allNodesMAC = net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
)

// TestAnswersForAddresses checks every word the appliance says about whose
// addresses are where.
func TestAnswersForAddresses(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	for _, b := range n.Backends()[:6] {
		n.must(b.AddVIP(never4))
	}
	client := n.Client("client-b")
	wire := n.capture(client.Node, "eth0") // before the start: it announces
	own, mac := n.mac(client.Node, "eth0"), n.mac(n.Appliance(), "eth0")
	d := n.prepare(n.Appliance().Name(), testConfig(t, "two-zones.yaml", "\nroutes:", answerRules,
		"destRange: 192.168.0.0/16,", "destRange: 192.168.0.0/16, nextHopAddress: 10.0.100.50,",
		`destRange: "2001:db8:192::/48",`, `destRange: "2001:db8:192::/48", nextHopAddress: "fd00:0:100::50",`))
	d.run()
	d.wait("the rules to be announced", func() error { return d.announced("web-tcp", "web-tcp6") })

	d.sub("announced at start", func(d *device) {
		for _, a := range []netip.Addr{lab.VIPv4, hop4} {
			d.net.see(wire, a.String(), going(lab.In, func(f lab.Frame) bool { return isGratuitousARP(f, a, mac) }))
		}
		for _, a := range []netip.Addr{lab.VIPv6, hop6} {
			f := d.net.see(wire, a.String(), going(lab.In, func(f lab.Frame) bool { return isAdvertisement(f, a) }))
			checkAdvertisement(d.net.T, f, a, allNodes, allNodesMAC, mac, 0x20)
		}
		d.wait("both announcements of each", func() error {
			if k := wire.Count(func(f lab.Frame) bool { return isGratuitousARP(f, lab.VIPv4, mac) }); k < 2 {
				return fmt.Errorf("%d of 2", k)
			}
			return nil
		})
	})
	d.sub("ARP", func(d *device) {
		for _, a := range []netip.Addr{lab.VIPv4, hop4} {
			wire.Clear()
			d.net.send(client.Node, "eth0", arpRequest(d.net.T, own, client.IPv4(), a))
			f := d.net.see(wire, "the reply", going(lab.In, func(f lab.Frame) bool { return isARPReply(f, a) }))
			m, _ := readARP(f)
			want := arpMessage{to: own, from: mac, op: arpReplies, senderMAC: mac, sender: a, targetMAC: own, target: client.IPv4()}
			if !sameARP(m, want) {
				d.net.Errorf("the reply is %+v, want %+v", m, want)
			}
		}
	})
	d.sub("ARP probe", func(d *device) {
		wire.Clear()
		d.net.send(client.Node, "eth0", arpRequest(d.net.T, own, netip.IPv4Unspecified(), lab.VIPv4))
		f := d.net.see(wire, "the reply", going(lab.In, func(f lab.Frame) bool { return isARPReply(f, lab.VIPv4) }))
		m, _ := readARP(f)
		want := arpMessage{to: own, from: mac, op: arpReplies, senderMAC: mac, sender: lab.VIPv4, targetMAC: own, target: netip.IPv4Unspecified()}
		if !sameARP(m, want) {
			d.net.Errorf("the reply is %+v, want %+v", m, want)
		}
	})
	d.sub("neighbour solicitation", func(d *device) {
		for _, a := range []netip.Addr{lab.VIPv6, hop6} {
			wire.Clear()
			d.net.send(client.Node, "eth0", solicit(d.net.T, own, client.IPv6(), a))
			f := d.net.see(wire, "the advertisement", going(lab.In, func(f lab.Frame) bool { return isAdvertisement(f, a) }))
			checkAdvertisement(d.net.T, f, a, client.IPv6(), own, mac, 0x60)
		}
	})
	d.sub("duplicate address detection", func(d *device) {
		wire.Clear()
		d.net.send(client.Node, "eth0", solicit(d.net.T, own, netip.IPv6Unspecified(), lab.VIPv6))
		f := d.net.see(wire, "the advertisement", going(lab.In, func(f lab.Frame) bool { return isAdvertisement(f, lab.VIPv6) }))
		checkAdvertisement(d.net.T, f, lab.VIPv6, allNodes, allNodesMAC, mac, 0x20)
	})
	d.sub("the kernel's own discovery", func(d *device) {
		// The switch forwards a solicitation only to who joined its group.
		for range 3 {
			d.net.forget(client.Node, "eth0")
			for _, to := range []netip.Addr{lab.VIPv4, lab.VIPv6} {
				_, err := client.Ping(d.net.soon(), to, netip.Addr{}, nil)
				d.net.must(err)
			}
		}
	})
	d.sub("standby and never", func(d *device) {
		// All by one queue, where the last answer of each kind comes after any
		// to the others.
		queue := d.net.queueSender(0)
		ask := func() (heard []netip.Addr) {
			wire.Clear()
			for _, a := range []netip.Addr{standby4, never4, lab.VIPv4} {
				queue.send(arpRequest(d.net.T, own, client.IPv4(), a))
			}
			for _, a := range []netip.Addr{standby6, never6, lab.VIPv6} {
				queue.send(solicit(d.net.T, own, client.IPv6(), a))
			}
			d.net.see(wire, "the last reply", going(lab.In, func(f lab.Frame) bool { return isARPReply(f, lab.VIPv4) }))
			d.net.see(wire, "the last advertisement", going(lab.In, func(f lab.Frame) bool { return isAdvertisement(f, lab.VIPv6) }))
			for _, a := range []netip.Addr{standby4, never4, standby6, never6} {
				if wire.Count(going(lab.In, func(f lab.Frame) bool { return isARPReply(f, a) || isAdvertisement(f, a) })) > 0 {
					heard = append(heard, a)
				}
			}
			return heard
		}
		if heard := ask(); len(heard) != 0 {
			d.net.Fatalf("%v are answered for, want neither", heard)
		}
		if out, problems, status := d.command("announce", "on"); status != 0 || out != "" {
			d.net.Fatalf("announce on: status %d, %q, %q", status, out, problems)
		}
		d.net.see(wire, "the announcement", going(lab.In, func(f lab.Frame) bool { return isGratuitousARP(f, standby4, mac) }))
		d.net.see(wire, "the announcement", going(lab.In, func(f lab.Frame) bool { return isAdvertisement(f, standby6) }))
		// A switch is in force when its command returns: no waiting here.
		for i, c := range slices.Repeat([]struct {
			on   bool
			want []netip.Addr
		}{{true, []netip.Addr{standby4, standby6}}, {false, nil}}, 5) {
			d.net.must(d.SetAnnounce("", c.on))
			if heard := ask(); !slices.Equal(heard, c.want) {
				d.net.Fatalf("right after switch %d, to %v, %v are answered for", i, c.on, heard)
			}
		}
		d.net.must(d.SetAnnounce("", true))
		if _, problems, status := d.command("announce", "on", "never"); status != 1 || !strings.Contains(problems, "STANDBY") {
			d.net.Errorf("announce on never: status %d, %q, want a refusal", status, problems)
		}
		if _, problems, status := d.command("announce", "off", "standby"); status != 0 {
			d.net.Fatalf("announce off: status %d, %q", status, problems)
		}
		if heard := ask(); !slices.Equal(heard, []netip.Addr{standby6}) {
			d.net.Errorf("with standby off, %v are answered for", heard)
		}
	})
	d.sub("never forwards what routing brings", func(d *device) {
		d.net.must(client.Exec(func() error {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			return netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, Family: unix.AF_INET, State: netlink.NUD_PERMANENT, IP: never4.AsSlice(), HardwareAddr: mac})
		}))
		d.net.shares("client-b", netip.AddrPortFrom(never4, 80), 1)
	})
	d.balanced()
	d.stop()
}

// announcedAll waits until there were so many announcements, and none for longer
// than the time between two of one address.
func (d *device) announcedAll(want uint64) {
	d.net.Helper()
	const quiet = 2500 * time.Millisecond
	last, since := uint64(0), time.Now()
	d.wait("the announcements to be over", func() error {
		got := d.status().Accounting.Originated["announcement"]
		if got != last {
			last, since = got, time.Now()
		}
		if got < want || time.Since(since) < quiet {
			return fmt.Errorf("%d announcements, the last %v ago", got, time.Since(since))
		}
		return nil
	})
}

func sameARP(a, b arpMessage) bool {
	return bytes.Equal(a.to, b.to) && bytes.Equal(a.from, b.from) && a.op == b.op && bytes.Equal(a.senderMAC, b.senderMAC) &&
		bytes.Equal(a.targetMAC, b.targetMAC) && a.sender == b.sender && a.target == b.target
}

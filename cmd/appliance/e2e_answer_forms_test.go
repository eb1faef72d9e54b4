package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"zonehop/bench/lab"
)

// answerRig is a network whose client asks in every form there is.
type answerRig struct {
	*device
	client    *lab.Client
	wire      *lab.Capture
	queue     *queueSender // past the switch, for what a bridge would change
	own, ours net.HardwareAddr
}

func (r *answerRig) part(name string, fn func(r *answerRig)) {
	r.sub(name, func(d *device) {
		part := *r
		part.device = d
		fn(&part)
	})
}

// question is something that the appliance answers, within VLANs.
type question struct {
	name   string
	frame  []byte // untagged
	answer func(lab.Frame) bool
	check  func(t *testing.T, f lab.Frame) // nil: the match says it all
}

// TestAnswersInEveryForm: requests to one station, in VLANs, with options,
// damaged; and what changes of interfaces do to announcements.
func TestAnswersInEveryForm(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	r := &answerRig{client: n.Client("client-b")}
	r.own, r.ours = n.mac(r.client.Node, "eth0"), n.mac(n.Appliance(), "eth0")
	r.device = n.start(testConfig(t, "two-zones.yaml",
		"destRange: 192.168.0.0/16,", "destRange: 192.168.0.0/16, nextHopAddress: 10.0.100.50,",
		`destRange: "2001:db8:192::/48",`, `destRange: "2001:db8:192::/48", nextHopAddress: "fd00:0:100::50",`))
	r.announcedAll(2 * 4) // they look like some answers
	r.wire = n.capture(r.client.Node, "eth0")
	r.queue = n.queueSender(0)

	inner, outer := vlanTag{unix.ETH_P_8021Q, 7}, vlanTag{unix.ETH_P_8021AD, 100}
	for _, v := range []struct {
		name string
		tags []vlanTag
	}{{"untagged", nil}, {"802.1Q", []vlanTag{inner}}, {"QinQ", []vlanTag{outer, inner}}} {
		r.part(v.name, func(r *answerRig) {
			// Links take one tag beside the MTU, and a second one out of it.
			for _, q := range r.questions(1500 - 4*max(0, len(v.tags)-1)) {
				r.ask(q, v.tags...)
			}
		})
	}
	r.part("more than a frame", (*answerRig).bigPings)
	r.part("not to be answered", (*answerRig).badSolicitations)
	r.part("cable pulled", func(r *answerRig) { r.announcedAfter((*answerRig).pullCable) })
	r.part("another MAC", func(r *answerRig) {
		mac := net.HardwareAddr{2, 0x7a, 0x68, 0, 0xff, 1}
		r.announcedAfter(func(r *answerRig) { r.net.must(r.net.Appliance().SetMAC("eth0", mac, true)); r.ours = mac })
		for _, q := range r.questions(1500) {
			r.ask(q)
		}
	})
	r.part("group lost", (*answerRig).groupLost)
	r.balanced()
	r.stop()
}

// neighbourSolicitation is one to dst, with a checksum that is right for it.
func (r *answerRig) neighbourSolicitation(src, dst, target netip.Addr, options ...byte) []byte {
	m := append([]byte{solicitation, 0, 0, 0, 0, 0, 0, 0}, target.AsSlice()...)
	m = append(m, options...)
	binary.BigEndian.PutUint16(m[2:], internetSum(pseudoSum(src, dst, len(m), protoICMPv6), m))
	p := ipHead{src: src, dst: dst, proto: protoICMPv6}.packet(m)
	p[7] = 255
	to := r.ours
	if g := dst.As16(); dst.IsMulticast() {
		to = net.HardwareAddr{0x33, 0x33, g[12], g[13], g[14], g[15]}
	}
	return ethernet(to, r.own, p)
}

// sourceLink is the option that says who asks (RFC 4861 section 4.6.1).
func (r *answerRig) sourceLink() []byte { return append([]byte{1, 1}, r.own...) }

// echo is an echo request.
func (r *answerRig) echo(to netip.Addr, id uint16, size int, h ipHead) []byte {
	h.src, h.dst = r.client.Addr(to), to
	kind := byte(echoRequest4)
	if to.Is6() {
		kind = echoRequest6
	}
	if h.ext == nil {
		h.proto = icmpOf(to)
	}
	m := binary.BigEndian.AppendUint16([]byte{kind, 0, 0, 0}, id)
	m = binary.BigEndian.AppendUint16(m, 1)
	for i := range size {
		m = append(m, byte(7*i))
	}
	sum := uint32(0)
	if to.Is6() {
		sum = pseudoSum(h.src, h.dst, len(m), protoICMPv6)
	}
	binary.BigEndian.PutUint16(m[2:], internetSum(sum, m))
	return ethernet(r.ours, r.own, h.packet(m))
}

// pingQuestion is an echo request with the one reply that is right.
func (r *answerRig) pingQuestion(name string, to netip.Addr, id uint16, size int, h ipHead) question {
	frame := r.echo(to, id, size, h)
	request := frame[len(frame)-size-8:]
	kind := byte(echoReply4)
	if to.Is6() {
		kind = echoReply6
	}
	return question{
		name:  name,
		frame: frame,
		answer: func(f lab.Frame) bool {
			p, ok := readIP(f)
			return ok && p.src == to && p.proto == icmpOf(to) && len(p.l4) >= 8 && p.l4[0] == kind && binary.BigEndian.Uint16(p.l4[4:]) == id
		},
		check: func(t *testing.T, f lab.Frame) {
			t.Helper()
			p, _ := readIP(f)
			if p.dst != r.client.Addr(to) || p.ttl != 64 || p.from != r.ours.String() || p.to != r.own.String() {
				t.Errorf("%s: the reply goes from %s to %s, %s, with TTL %d", name, p.from, p.to, p.dst, p.ttl)
			}
			if !bytes.Equal(p.l4[4:], request[4:]) {
				t.Errorf("%s: the reply carries %d bytes %x, want those of the request", name, len(p.l4), p.l4)
			}
			sum := uint32(0)
			if to.Is6() {
				sum = pseudoSum(p.src, p.dst, len(p.l4), protoICMPv6)
			} else if p.l3[0] != 0x45 || internetSum(0, p.l3[:20]) != 0 {
				t.Errorf("%s: the header of the reply is %x", name, p.l3[:20])
			}
			if internetSum(sum, p.l4) != 0 {
				t.Errorf("%s: the checksum of the reply is wrong", name)
			}
		},
	}
}

// The addresses that questions come from are nobody's: the client's kernel asks
// by itself, with its own, when it likes.
var (
	asker4 = netip.MustParseAddr("10.1.0.222")
	asker6 = netip.MustParseAddr("fd00:1::222")
)

// questions are all that is asked of the appliance, in packets of at most mtu bytes.
func (r *answerRig) questions(mtu int) (list []question) {
	for _, a := range []netip.Addr{lab.VIPv4, hop4} {
		arp := arpRequest(r.net.T, r.own, asker4, a)
		direct := slices.Concat(r.ours, arp[6:])
		want := arpMessage{to: r.own, from: r.ours, op: arpReplies, senderMAC: r.ours, sender: a, targetMAC: r.own, target: asker4}
		answer := func(f lab.Frame) bool { m, ok := readARP(f); return ok && sameARP(m, want) }
		list = append(list, question{"ARP for " + a.String(), arp, answer, nil}, question{"ARP to us alone for " + a.String(), direct, answer, nil})
	}
	for _, a := range []netip.Addr{lab.VIPv6, hop6} {
		src := asker6
		to := func(dst netip.Addr) func(lab.Frame) bool {
			return func(f lab.Frame) bool { p, _ := readIP(f); return isAdvertisement(f, a) && p.dst == dst }
		}
		answer := to(src)
		solicited := func(t *testing.T, f lab.Frame) {
			t.Helper()
			checkAdvertisement(t, f, a, src, r.own, r.ours, 0x60)
		}
		list = append(list,
			question{"solicitation for " + a.String(), r.neighbourSolicitation(src, solicitedNode(a), a, r.sourceLink()...), answer, solicited},
			// Neighbour unreachability detection (RFC 4861 section 7.3.3), with and without an option.
			question{"solicitation to " + a.String(), r.neighbourSolicitation(src, a, a, r.sourceLink()...), answer, solicited},
			question{"solicitation without option to " + a.String(), r.neighbourSolicitation(src, a, a), answer, solicited},
			question{"unknown option", r.neighbourSolicitation(src, a, a, append([]byte{14, 1, 1, 2, 3, 4, 5, 6}, r.sourceLink()...)...), answer, solicited},
			question{"detection of " + a.String(), r.neighbourSolicitation(netip.IPv6Unspecified(), solicitedNode(a), a), to(allNodes), func(t *testing.T, f lab.Frame) {
				t.Helper()
				checkAdvertisement(t, f, a, allNodes, allNodesMAC, r.ours, 0x20)
			}},
		)
	}
	recordRoute := []byte{7, 7, 4, 0, 0, 0, 0, 0} // RFC 791 section 3.1, and the end of options
	timestamp := append([]byte{68, 12, 5, 0}, make([]byte, 36)...)
	hopByHop := []byte{protoICMPv6, 0, 1, 4, 0, 0, 0, 0} // RFC 8200 section 4.3, padding
	both := append([]byte{protoDstOpts, 0, 1, 4, 0, 0, 0, 0}, append([]byte{protoICMPv6, 1, 1, 12}, make([]byte, 12)...)...)
	atomic := []byte{protoICMPv6, 0, 0, 0, 1, 2, 3, 4} // RFC 6946
	return append(list,
		r.pingQuestion("ping", lab.VIPv4, 1, 56, ipHead{}),
		r.pingQuestion("empty ping", lab.VIPv4, 2, 0, ipHead{}),
		r.pingQuestion("odd ping", lab.VIPv4, 3, 33, ipHead{frag: dontFragment}),
		r.pingQuestion("ping of the whole MTU", lab.VIPv4, 4, mtu-28, ipHead{}),
		r.pingQuestion("ping with a recorded route", lab.VIPv4, 5, 56, ipHead{proto: protoICMP, ext: recordRoute}),
		r.pingQuestion("ping with 40 bytes of options", lab.VIPv4, 6, mtu-68, ipHead{proto: protoICMP, ext: timestamp}),
		r.pingQuestion("ping6", lab.VIPv6, 7, 56, ipHead{}),
		r.pingQuestion("empty ping6", lab.VIPv6, 8, 0, ipHead{}),
		r.pingQuestion("odd ping6", lab.VIPv6, 9, 33, ipHead{}),
		r.pingQuestion("ping6 of the whole MTU", lab.VIPv6, 10, mtu-48, ipHead{}),
		r.pingQuestion("ping6 behind hop-by-hop options", lab.VIPv6, 11, 56, ipHead{proto: protoHopByHop, ext: hopByHop}),
		r.pingQuestion("ping6 behind two headers", lab.VIPv6, 12, mtu-72, ipHead{proto: protoHopByHop, ext: both}),
		r.pingQuestion("ping6 in an atomic fragment", lab.VIPv6, 13, 56, ipHead{proto: protoFragment, ext: atomic}),
	)
}

// ask sends a question and checks its one answer, which must have its tags.
func (r *answerRig) ask(q question, tags ...vlanTag) {
	r.net.Helper()
	r.wire.Clear()
	if len(tags) == 0 {
		r.net.send(r.client.Node, "eth0", q.frame)
	} else {
		r.queue.send(tagged(q.frame, tags...))
	}
	match := going(lab.In, func(f lab.Frame) bool { return q.answer(untagged(f, tags...)) })
	f := r.net.see(r.wire, q.name, match)
	if q.check != nil {
		q.check(r.net.T, untagged(f, tags...))
	}
	if k := r.wire.Count(match); k != 1 {
		r.net.Errorf("%s: %d answers, want 1", q.name, k)
	}
}

// badSolicitations sends what RFC 4861 section 7.1.1 has a node ignore.
func (r *answerRig) badSolicitations() {
	a, src, group := lab.VIPv6, r.client.IPv6(), solicitedNode(lab.VIPv6)
	option, unspecified := r.sourceLink(), netip.IPv6Unspecified()
	good := r.neighbourSolicitation(src, group, a, option...)
	edit := func(at int, to byte) []byte {
		b := slices.Clone(good)
		b[at] = to
		return b
	}
	toVIP := r.neighbourSolicitation(src, a, a, option...)
	toVIP[14+40+1] = 1 // code
	fragment := ipHead{src: src, dst: a, proto: protoICMPv6}.fragments(1, good[54:], 24)
	for _, f := range fragment {
		f[7] = 255
	}
	group4 := arpRequest(r.net.T, net.HardwareAddr{1, 0, 0x5e, 0, 0, 1}, r.client.IPv4(), lab.VIPv4)
	copy(group4[6:], r.own) // the frame's sender is a station, the message's is none
	bad := []struct {
		name  string
		frame []byte
	}{
		{"checksum", edit(14+40+2, good[14+40+2]^1)},
		{"hop limit", edit(14+7, 254)},
		{"code", toVIP},
		{"option of length 0", r.neighbourSolicitation(src, group, a, 1, 0, 2, 0, 0, 0, 0, 9)},
		{"option past the end", r.neighbourSolicitation(src, group, a, 1, 2, 2, 0, 0, 0, 0, 9)},
		{"half an option", r.neighbourSolicitation(src, group, a, 1, 1, 2, 0)},
		{"second option of length 0", r.neighbourSolicitation(src, group, a, append(slices.Clone(option), 14, 0, 0, 0, 0, 0, 0, 0)...)},
		{"detection with an option", r.neighbourSolicitation(unspecified, group, a, option...)},
		{"detection to one station", r.neighbourSolicitation(unspecified, a, a)},
		{"from a group", r.neighbourSolicitation(allNodes, group, a, option...)},
		{"option with a group's address", r.neighbourSolicitation(src, group, a, 1, 1, 0x33, 0x33, 0, 0, 0, 1)},
		{"fragment", ethernet(r.ours, r.own, fragment[0])},
		{"ARP from a group's address", group4},
	}
	r.wire.Clear()
	for i, b := range bad {
		before := r.status().Accounting
		r.net.send(r.client.Node, "eth0", b.frame)
		r.wait(fmt.Sprintf("%s to be dropped", b.name), func() error {
			s := r.status().Accounting
			if got := change(&before, &s)["bad_neighbour"]; got != 1 {
				return fmt.Errorf("frame %d is counted as %v", i, change(&before, &s))
			}
			return nil
		})
	}
	good = r.neighbourSolicitation(src, group, a, option...)
	r.net.send(r.client.Node, "eth0", good)
	match := going(lab.In, func(f lab.Frame) bool { return isAdvertisement(f, a) || isARPReply(f, lab.VIPv4) })
	r.net.see(r.wire, "the advertisement", match)
	if k := r.wire.Count(match); k != 1 {
		r.net.Errorf("%d answers, want the one to the last question", k)
	}
}

func (r *answerRig) pullCable() {
	r.net.must(r.net.Appliance().SetCarrier("eth0", false))
	r.interfaceIs("eth0", false)
	r.net.must(r.net.Appliance().SetCarrier("eth0", true))
	r.interfaceIs("eth0", true)
}

// announcedAfter changes something, after which all addresses must be announced
// anew, twice, and clients find them.
func (r *answerRig) announcedAfter(change func(r *answerRig)) {
	r.net.Helper()
	r.wire.Clear()
	change(r)
	r.wait("two announcements of each address", func() error {
		for _, a := range []netip.Addr{lab.VIPv4, hop4, lab.VIPv6, hop6} {
			if k := r.wire.Count(isDefence(a, r.ours)); k < 2 { // which looks the same
				return fmt.Errorf("%d of %s by %s", k, a, r.ours)
			}
		}
		return nil
	})
	r.found()
}

// found has the client's kernel resolve the addresses anew.
func (r *answerRig) found() {
	r.net.Helper()
	r.net.forget(r.client.Node, "eth0")
	for _, to := range []netip.Addr{lab.VIPv4, lab.VIPv6} {
		_, err := r.client.Ping(r.net.soon(), to, netip.Addr{}, nil)
		r.net.must(err)
	}
}

// groupLost makes the kernel forget the groups of an interface: a switch that
// snoops passes no solicitation on any more, until they are joined again.
func (r *answerRig) groupLost() {
	host := r.net.Appliance()
	joined := func() error {
		return host.Exec(func() error {
			groups, err := os.ReadFile("/proc/thread-self/net/igmp6")
			g := solicitedNode(lab.VIPv6).As16()
			if want := fmt.Sprintf("%x", g); err == nil && !strings.Contains(string(groups), want) {
				err = fmt.Errorf("%s is not joined", want)
			}
			return err
		})
	}
	r.net.must(joined())
	var addrs []netlink.Addr
	r.net.must(host.Exec(func() (err error) {
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			addrs, err = netlink.AddrList(link, netlink.FAMILY_V6)
		}
		return err
	}))
	// An MTU below 1280 takes IPv6, and with it all groups, from the interface.
	r.net.must(host.SetMTU("eth0", 1000))
	if joined() == nil {
		r.net.Fatal("the group is not lost")
	}
	r.net.must(host.SetMTU("eth0", 1500))
	for _, a := range addrs {
		if !a.IP.IsLinkLocalUnicast() { // that comes by itself
			ones, _ := a.Mask.Size()
			r.net.must(host.AddAddress("eth0", netip.PrefixFrom(netip.AddrFrom16([16]byte(a.IP.To16())), ones)))
		}
	}
	r.wait("the group to be joined", joined)
	r.found()
}

// bigPings has the client's kernel ask with more than fits a frame.
func (r *answerRig) bigPings() {
	before := r.balanced().Accounting.Answered["vip_ping"]
	for _, to := range []netip.Addr{lab.VIPv4, lab.VIPv6} {
		for _, size := range []int{1500 - headerLen(6) - 8, 2000, 9000, 60000} {
			data := make([]byte, size)
			for i := range data {
				data[i] = byte(i ^ i>>8)
			}
			if _, err := r.client.Ping(r.net.soon(), to, netip.Addr{}, data); err != nil {
				r.net.Errorf("%d bytes: %v", size, err)
			}
		}
	}
	if k := r.balanced().Accounting.Answered["vip_ping"]; k < before+2*(1+2+7+41) {
		r.net.Errorf("%d frames are counted as answered", k-before)
	}
}

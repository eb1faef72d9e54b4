package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"zonehop/bench/lab"
	"zonehop/cmd/appliance/internal/admin"
)

// manyVIPs are addresses for one claim each, since an address is defended once
// in ten seconds: 10.0.100.41 and on, fd00:0:100::41 and on.
func manyVIPs() (rules string) {
	for i := range 8 {
		rules += fmt.Sprintf("  - {name: c%d, IPAddress: %s, ports: [80], backendService: web}\n", i, nthVIP(4, i))
		rules += fmt.Sprintf("  - {name: d%d, IPAddress: \"%s\", ports: [80], backendService: web}\n", i, nthVIP(6, i))
	}
	return "\n" + rules + `
  - {name: standby, IPAddress: 10.0.100.30, ports: [80], backendService: web, announce: STANDBY}
  - {name: standby6, IPAddress: "fd00:0:100::30", ports: [80], backendService: web, announce: STANDBY}
routes:`
}

func nthVIP(version, n int) netip.Addr {
	if version == 4 {
		return netip.AddrFrom4([4]byte{10, 0, 100, byte(41 + n)})
	}
	return netip.MustParseAddr(fmt.Sprintf("fd00:0:100::4%d", 1+n))
}

// arpClaim is an ARP message about sender at mac, from the host at from.
func arpClaim(t *testing.T, op uint16, from, mac net.HardwareAddr, sender, target netip.Addr) []byte {
	t.Helper()
	return build(t,
		&layers.Ethernet{DstMAC: broadcastMAC, SrcMAC: from, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation: op, SourceHwAddress: mac, SourceProtAddress: sender.AsSlice(),
			DstHwAddress: make([]byte, 6), DstProtAddress: target.AsSlice()})
}

// advertise is an unsolicited neighbour advertisement (RFC 4861 section 4.4)
// that target is at mac; without mac it has no option.
func advertise(t *testing.T, from, mac net.HardwareAddr, target netip.Addr, flags uint8) []byte {
	t.Helper()
	ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: target.AsSlice(), DstIP: allNodes.AsSlice()}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(advertisement, 0)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	na := &layers.ICMPv6NeighborAdvertisement{Flags: flags, TargetAddress: target.AsSlice()}
	if mac != nil {
		na.Options = layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: mac}}
	}
	return build(t, &layers.Ethernet{DstMAC: allNodesMAC, SrcMAC: from, EthernetType: layers.EthernetTypeIPv6}, ip, icmp, na)
}

// tagged puts an untagged frame into VLANs, outermost first.
func tagged(frame []byte, tags ...vlanTag) []byte {
	out := append([]byte{}, frame[:12]...)
	for _, t := range tags {
		out = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(out, t.kind), t.id)
	}
	return append(out, frame[12:]...)
}

// untagged returns a captured frame without its first tags, if it has those.
func untagged(f lab.Frame, tags ...vlanTag) lab.Frame {
	want := tagged(make([]byte, 14), tags...)[12 : 12+4*len(tags)]
	if len(f.Data) < 14+len(want) || string(f.Data[12:12+len(want)]) != string(want) {
		return lab.Frame{}
	}
	f.Data = append(append([]byte{}, f.Data[:12]...), f.Data[12+len(want):]...)
	return f
}

// isDefence matches our announcement of an address, in a VLAN if tags are given.
func isDefence(about netip.Addr, mac net.HardwareAddr, tags ...vlanTag) func(lab.Frame) bool {
	return going(lab.In, func(f lab.Frame) bool {
		if f = untagged(f, tags...); about.Is4() {
			return isGratuitousARP(f, about, mac)
		}
		p, ok := readIP(f)
		return ok && isAdvertisement(f, about) && p.from == mac.String() && p.dst == allNodes && p.to == allNodesMAC.String() && p.l4[4] == 0x20
	})
}

// conflictRig is a network where client-b misbehaves.
type conflictRig struct {
	*device
	client    *lab.Client
	wire      *lab.Capture
	own, ours net.HardwareAddr
}

func (r *conflictRig) part(name string, fn func(r *conflictRig)) {
	r.sub(name, func(d *device) {
		part := *r
		part.device = d
		fn(&part)
	})
}

func newConflictRig(t *testing.T, replace ...string) *conflictRig {
	t.Helper()
	n := newNetwork(t, lab.Options{})
	r := &conflictRig{client: n.Client("client-b")}
	r.own, r.ours = n.mac(r.client.Node, "eth0"), n.mac(n.Appliance(), "eth0")
	d := n.prepare(n.Appliance().Name(), testConfig(t, "two-zones.yaml", append([]string{"\nroutes:", manyVIPs()}, replace...)...))
	d.run()
	r.device = d
	r.wait("the rules to be announced", func() error { return d.announced("web-tcp", "c7", "d7") })
	r.wire = n.capture(r.client.Node, "eth0")
	r.settled(0)
	return r
}

// settled waits until every address was announced since there had been so many
// announcements: on the wire defences look the same.
func (r *conflictRig) settled(announced uint64) {
	r.net.Helper()
	r.announcedAll(announced + 2*(8+8+2))
	r.net.forget(r.client.Node, "eth0")
	_, err := r.client.Ping(r.net.soon(), lab.VIPv4, netip.Addr{}, nil)
	r.net.must(err)
	r.wire.Clear()
}

// found is the entry of an address in a list of the status.
func found(list []admin.AddressClaim, about netip.Addr) (out admin.AddressClaim) {
	for _, c := range list {
		if c.Address == about.String() {
			out = c
		}
	}
	return out
}

// claimed sends a claim three times: it must be counted three times, shown, and
// answered with one defence.
func (r *conflictRig) claimed(frame []byte, about netip.Addr, tags ...vlanTag) {
	r.net.Helper()
	before := r.status().Claims
	for range 3 {
		r.net.send(r.client.Node, "eth0", frame)
	}
	var c admin.AddressClaim
	r.wait("three claims to "+about.String(), func() error {
		if c = found(r.status().Conflicts, about); c.Count != 3 {
			return fmt.Errorf("conflicts: %+v", r.status().Conflicts)
		}
		return nil
	})
	vlan := ""
	if len(tags) > 0 {
		vlan = fmt.Sprint(tags[0].id)
	}
	want := admin.AddressClaim{Address: about.String(), MAC: r.own.String(), Interface: "eth0", VLAN: vlan, Count: 3, Defences: 1, AgoSec: c.AgoSec, FirstAgoSec: c.FirstAgoSec}
	if c != want || c.AgoSec > patience.Seconds() || c.FirstAgoSec < c.AgoSec {
		r.net.Errorf("the status shows %+v, want %+v", c, want)
	}
	after := r.status().Claims
	after.Conflicts -= before.Conflicts
	after.Defences -= before.Defences
	after.Missed -= before.Missed
	if want := (admin.Claims{Conflicts: 3, Probes: before.Probes, Defences: 1}); after != want {
		r.net.Errorf("counted %+v, want %+v", after, want)
	}
	match := isDefence(about, r.ours, tags...)
	f := r.net.see(r.wire, "the defence", match)
	if about.Is6() {
		checkAdvertisement(r.net.T, untagged(f, tags...), about, allNodes, allNodesMAC, r.ours, 0x20)
	}
	r.sentinel()
	if k := r.wire.Count(match); k != 1 {
		r.net.Errorf("%d defences were sent, want 1 within ten seconds", k)
	}
}

// sentinel returns when whatever the appliance had to send before has arrived.
func (r *conflictRig) sentinel() {
	r.net.Helper()
	asked := time.Now()
	r.net.send(r.client.Node, "eth0", arpRequest(r.net.T, r.own, r.client.IPv4(), lab.VIPv4))
	r.net.see(r.wire, "the reply", going(lab.In, func(f lab.Frame) bool { return isARPReply(f, lab.VIPv4) && f.Time.After(asked) }))
}

// TestAddressConflicts: whatever another host says to have an address of ours
// is seen, told, counted and defended once.
func TestAddressConflicts(t *testing.T) {
	r := newConflictRig(t)
	other4, host := netip.MustParseAddr("10.1.0.77"), r.net.Appliance().IPv6() // a group that the switch forwards to
	unspecified4, unspecified6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()
	r.part("probe by a kernel", (*conflictRig).kernelDetects)
	r.part("ARP probe", func(r *conflictRig) {
		about := nthVIP(4, 7)
		r.net.send(r.client.Node, "eth0", arpRequest(r.net.T, r.own, unspecified4, about))
		r.probed(about, 1)
		r.net.see(r.wire, "the reply", going(lab.In, func(f lab.Frame) bool { return isARPReply(f, about) }))
	})
	r.part("duplicate address detection", func(r *conflictRig) {
		about := nthVIP(6, 7)
		for range 2 {
			r.net.send(r.client.Node, "eth0", solicit(r.net.T, r.own, unspecified6, about))
		}
		r.probed(about, 2)
		f := r.net.see(r.wire, "the advertisement", going(lab.In, func(f lab.Frame) bool { return isAdvertisement(f, about) }))
		checkAdvertisement(r.net.T, f, about, allNodes, allNodesMAC, r.ours, 0x20)
	})
	vlan := vlanTag{unix.ETH_P_8021Q, 7}
	for _, tt := range []struct {
		name  string
		about netip.Addr
		frame func(t *testing.T, about netip.Addr) []byte
		tags  []vlanTag
	}{
		{"ARP reply", nthVIP(4, 0), func(t *testing.T, a netip.Addr) []byte { return arpClaim(t, arpReplies, r.own, r.own, a, other4) }, nil},
		{"gratuitous ARP reply", nthVIP(4, 1), func(t *testing.T, a netip.Addr) []byte { return arpClaim(t, arpReplies, r.own, r.own, a, a) }, nil},
		{"gratuitous ARP request", nthVIP(4, 2), func(t *testing.T, a netip.Addr) []byte { return arpClaim(t, arpAsks, r.own, r.own, a, a) }, nil},
		{"ARP request for another host", nthVIP(4, 3), func(t *testing.T, a netip.Addr) []byte { return arpClaim(t, arpAsks, r.own, r.own, a, other4) }, nil},
		{"ARP request for another address of ours", nthVIP(4, 4), func(t *testing.T, a netip.Addr) []byte { return arpClaim(t, arpAsks, r.own, r.own, a, lab.VIPv4) }, nil},
		{"ARP reply in a VLAN", nthVIP(4, 5), func(t *testing.T, a netip.Addr) []byte {
			return tagged(arpClaim(t, arpReplies, r.own, r.own, a, a), vlan)
		}, []vlanTag{vlan}},
		{"gratuitous ARP request in a VLAN", nthVIP(4, 6), func(t *testing.T, a netip.Addr) []byte {
			return tagged(arpClaim(t, arpAsks, r.own, r.own, a, a), vlan)
		}, []vlanTag{vlan}},
		{"advertisement", nthVIP(6, 0), func(t *testing.T, a netip.Addr) []byte { return advertise(t, r.own, r.own, a, 0x20) }, nil},
		{"advertisement without option and override", nthVIP(6, 1), func(t *testing.T, a netip.Addr) []byte { return advertise(t, r.own, nil, a, 0) }, nil},
		{"solicitation for another host", nthVIP(6, 2), func(t *testing.T, a netip.Addr) []byte { return solicit(t, r.own, a, host) }, nil},
		{"solicitation for another address of ours", nthVIP(6, 3), func(t *testing.T, a netip.Addr) []byte { return solicit(t, r.own, a, lab.VIPv6) }, nil},
		{"advertisement in a VLAN", nthVIP(6, 4), func(t *testing.T, a netip.Addr) []byte {
			return tagged(advertise(t, r.own, r.own, a, 0x20), vlan)
		}, []vlanTag{vlan}},
	} {
		r.part(tt.name, func(r *conflictRig) { r.claimed(tt.frame(r.net.T, tt.about), tt.about, tt.tags...) })
	}
	r.part("no conflicts", (*conflictRig).noConflicts)
	r.part("told", (*conflictRig).told)
	r.part("backend", (*conflictRig).backendClaims)
	r.part("again after ten seconds", (*conflictRig).defendedAgain)
	r.part("flood", (*conflictRig).flooded)
	r.part("interface comes back", (*conflictRig).interfaceReturns)
	r.balanced()
	r.stop()
}

// TestAddressConflictsGeneric does some of it where XDP comes later in the
// kernel's path.
func TestAddressConflictsGeneric(t *testing.T) {
	r := newConflictRig(t, "interfaces: [eth0]", "interfaces: [{name: eth0, mode: generic}]")
	r.claimed(arpClaim(t, arpReplies, r.own, r.own, nthVIP(4, 0), nthVIP(4, 0)), nthVIP(4, 0))
	r.claimed(advertise(t, r.own, r.own, nthVIP(6, 0), 0x20), nthVIP(6, 0))
	r.claimed(arpClaim(t, arpAsks, r.own, r.own, nthVIP(4, 1), nthVIP(4, 1)), nthVIP(4, 1))
	r.balanced()
	r.stop()
}

// probed waits until so many probes for an address are shown.
func (r *conflictRig) probed(about netip.Addr, count uint64) {
	r.net.Helper()
	r.wait("the probe for "+about.String(), func() error {
		s := r.status()
		if c := found(s.AddressProbes, about); c.Count < count || c.MAC != r.own.String() || c.Interface != "eth0" {
			return fmt.Errorf("probes: %+v", s.AddressProbes)
		}
		return nil
	})
	s := r.status()
	if c := found(s.AddressProbes, about); c.Count != count || c.Defences != 0 || found(s.Conflicts, about).Count != 0 {
		r.net.Errorf("shown as %+v and conflicts %+v, want %d probes", c, s.Conflicts, count)
	}
}

// kernelDetects gives a client an address of ours: its kernel must find out
// and not use it (RFC 4862 section 5.4).
func (r *conflictRig) kernelDetects() {
	r.net.must(r.client.Sysctl("net/ipv6/conf/eth0/accept_dad", "1"))
	about := lab.VIPv6
	r.net.must(r.client.Exec(func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: about.AsSlice(), Mask: net.CIDRMask(128, 128)}}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return err
		}
		defer netlink.AddrDel(link, addr)
		for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			list, err := netlink.AddrList(link, netlink.FAMILY_V6)
			if err != nil {
				return err
			}
			for _, a := range list {
				switch {
				case !a.IP.Equal(addr.IP):
				case a.Flags&unix.IFA_F_DADFAILED != 0:
					return nil
				case a.Flags&unix.IFA_F_TENTATIVE == 0:
					return fmt.Errorf("the client's kernel uses %s", about)
				}
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("the client's kernel does not give %s up", about)
			}
		}
	}))
	r.probed(about, 1)
	r.net.must(r.process.WaitLog(r.net.ctx, "another host asked whether an address is free", patience))
}

// noConflicts sends what is none.
func (r *conflictRig) noConflicts() {
	t := r.net.T
	before := r.status().Claims
	for _, f := range [][]byte{
		// Our own announcements, reflected; the switch must not learn our MAC here.
		arpClaim(t, arpReplies, r.own, r.ours, lab.VIPv4, lab.VIPv4),
		arpClaim(t, arpAsks, r.own, r.ours, lab.VIPv4, lab.VIPv4),
		advertise(t, r.own, r.ours, lab.VIPv6, 0x20),
		// A peer has what we only stand by for.
		arpClaim(t, arpReplies, r.own, r.own, standby4, standby4),
		arpClaim(t, arpAsks, r.own, r.own, standby4, standby4),
		advertise(t, r.own, r.own, standby6, 0x20),
		// Hosts have addresses of their own.
		arpClaim(t, arpAsks, r.own, r.own, r.client.IPv4(), r.client.IPv4()),
		advertise(t, r.own, r.own, r.client.IPv6(), 0x20),
	} {
		r.net.send(r.client.Node, "eth0", f)
	}
	// What is one is seen after all of these.
	r.net.send(r.client.Node, "eth0", arpClaim(t, arpReplies, r.own, r.own, nthVIP(4, 0), nthVIP(4, 0)))
	r.net.send(r.client.Node, "eth0", arpClaim(t, arpAsks, r.own, r.own, nthVIP(4, 2), nthVIP(4, 2)))
	r.wait("the conflicts", func() error {
		if s := r.status(); found(s.Conflicts, nthVIP(4, 0)).Count != 4 || found(s.Conflicts, nthVIP(4, 2)).Count != 4 {
			return fmt.Errorf("conflicts: %+v", s.Conflicts)
		}
		return nil
	})
	if after := r.status().Claims; after.Conflicts != before.Conflicts+2 || after.Probes != before.Probes {
		r.net.Errorf("counted %+v, then %+v, want 2 more conflicts", before, after)
	}
}

// told looks at the log, the metrics and the status as people see it.
func (r *conflictRig) told() {
	s := r.status()
	about := nthVIP(4, 0)
	r.net.must(r.process.WaitLog(r.net.ctx, "another host claims an address that is answered for here", patience))
	lines := 0
	for line := range strings.Lines(r.process.Output()) {
		if strings.Contains(line, "another host claims") && strings.Contains(line, fmt.Sprintf("%q", about.String())) {
			lines++
			for _, part := range []string{"WARN", r.own.String(), `"interface": "eth0"`, `"defended": true`} {
				if !strings.Contains(line, part) {
					r.net.Errorf("the log does not say %s: %s", part, line)
				}
			}
		}
	}
	if lines != 1 {
		r.net.Errorf("%d lines of the log tell of four claims to %s, want 1", lines, about)
	}
	metrics := r.metrics()
	for _, want := range []string{
		fmt.Sprintf(`zonehop_address_claims_total{kind="conflict"} %d`, s.Claims.Conflicts),
		fmt.Sprintf(`zonehop_address_claims_total{kind="probe"} %d`, s.Claims.Probes),
		"zonehop_address_claims_missed_total 0",
		fmt.Sprintf(`zonehop_originated_packets_total{kind="address_defence"} %d`, s.Claims.Defences),
	} {
		if !strings.Contains(metrics, want+"\n") {
			r.net.Errorf("the metrics have no %q", want)
		}
	}
	out, _, _ := r.command("status")
	for _, want := range []string{
		fmt.Sprintf("address claims by others: %d conflicts (%d defences), %d probes, 0 missed\n", s.Claims.Conflicts, s.Claims.Defences, s.Claims.Probes),
		fmt.Sprintf("address conflict: %s claimed by %s on eth0, 4 times, last ", about, r.own),
		fmt.Sprintf("address conflict: %s claimed by %s on eth0 in VLAN 7, 3 times, last ", nthVIP(6, 4), r.own),
		fmt.Sprintf("address probe: %s wanted by %s on eth0, 1 times, last ", lab.VIPv6, r.own),
	} {
		if !strings.Contains(out, want) {
			r.net.Errorf("status does not say %q:\n%s", want, out)
		}
	}
}

// backendClaims has a backend say what one says whose arp_announce is not set.
func (r *conflictRig) backendClaims() {
	b := r.net.Backend("web-b1")
	mac := r.net.mac(b.Node, "eth0")
	r.wait("the backend's claim", func() error {
		r.net.send(b.Node, "eth0", arpClaim(r.net.T, arpAsks, mac, mac, lab.VIPv4, r.client.IPv4()))
		if c := found(r.status().Conflicts, lab.VIPv4); c.MAC != mac.String() || c.Backend != "web-b1" {
			return fmt.Errorf("conflicts: %+v", r.status().Conflicts)
		}
		if !strings.Contains(r.process.Output(), "net.ipv4.conf.all.arp_announce=2") { // maybe after a claim that is told
			return errors.New("the log does not name the remedy")
		}
		return nil
	})
}

// defendedAgain claims an address until it is defended a second time.
func (r *conflictRig) defendedAgain() {
	t, about := r.net.T, nthVIP(6, 5)
	r.wire.Clear()
	r.wait("two defences", func() error {
		r.net.send(r.client.Node, "eth0", advertise(t, r.own, r.own, about, 0x20))
		if k := r.wire.Count(isDefence(about, r.ours)); k < 2 {
			return fmt.Errorf("%d so far", k)
		}
		return nil
	})
	var at []time.Time
	for _, f := range r.wire.Frames() {
		if isDefence(about, r.ours)(f) {
			at = append(at, f.Time)
		}
	}
	// A busy machine may hand over the first one late, or be slow to claim.
	if d := at[1].Sub(at[0]); d < 5*time.Second {
		t.Errorf("the second defence came after %v, want 10 s", d)
	}
}

// flooded sends claims as fast as the lab can: neither log nor wire is filled,
// and the appliance goes on answering.
func (r *conflictRig) flooded() {
	const rounds, each = 100, 200
	reply, request := arpClaim(r.net.T, arpReplies, r.own, r.own, nthVIP(4, 0), nthVIP(4, 0)), arpClaim(r.net.T, arpAsks, r.own, r.own, nthVIP(4, 0), nthVIP(4, 0))
	lines := strings.Count(r.process.Output(), "another host claims")
	before, began := r.status(), time.Now()
	r.wire.Clear()
	q := r.net.queueSender(0)
	for range rounds {
		var frames [][]byte
		for range each / 2 {
			frames = append(frames, reply, request)
		}
		q.send(frames...)
	}
	// Every request that a worker received, and every reply that the packet socket
	// was given, is counted or missed; what the kernel dropped before is neither.
	after, last := before, uint64(0)
	seen := func(s *admin.Status) uint64 { return s.Claims.Conflicts + s.Claims.Missed }
	r.wait("no more claims to be counted", func() error {
		after = r.status()
		got, requests := seen(&after)-seen(&before), after.Accounting.Dropped["address_claim"]-before.Accounting.Dropped["address_claim"]
		if got != last || requests == 0 || got <= requests {
			last = got
			return fmt.Errorf("%d of which %d are requests", got, requests)
		}
		return nil
	})
	if got := seen(&after) - seen(&before); got > rounds*each {
		r.net.Errorf("%d claims are counted or missed, %d were sent", got, rounds*each)
	}
	r.net.Logf("of %d claims %d were looked at and %d missed", rounds*each, after.Claims.Conflicts-before.Claims.Conflicts, after.Claims.Missed-before.Claims.Missed)
	most := 2 + int(time.Since(began)/(10*time.Second))
	if k := r.wire.Count(isDefence(nthVIP(4, 0), r.ours)); k > most {
		r.net.Errorf("%d defences were sent, want %d at most", k, most)
	}
	if k := strings.Count(r.process.Output(), "another host claims") - lines; k > most {
		r.net.Errorf("%d lines were logged, want %d at most", k, most)
	}
	_, err := r.client.Ping(r.net.soon(), lab.VIPv4, netip.Addr{}, nil)
	r.net.must(err)
}

// interfaceReturns takes the interface away and brings another one under its
// name: claims are seen there too.
func (r *conflictRig) interfaceReturns() {
	host := r.net.Appliance()
	announced := r.status().Accounting.Originated["announcement"]
	r.net.must(host.DeleteLink("eth0"))
	r.interfaceIs("eth0", false)
	r.net.must(host.CreateLink("eth0"))
	r.interfaceIs("eth0", true)
	r.ours = r.net.mac(host, "eth0")
	r.settled(announced)
	r.claimed(advertise(r.net.T, r.own, r.own, nthVIP(6, 6), 0x20), nthVIP(6, 6))
	r.claimed(arpClaim(r.net.T, arpReplies, r.own, r.own, nthVIP(4, 7), r.client.IPv4()), nthVIP(4, 7))
}

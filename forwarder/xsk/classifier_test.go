package xsk

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// Actions of an XDP program (enum xdp_action in linux/bpf.h).
const (
	xdpDrop     = 1
	xdpPass     = 2
	xdpRedirect = 4
)

// packet puts a frame together from hexadecimal pieces; blanks are ignored.
func packet(pieces ...string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(strings.Join(pieces, ""), " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// Pieces of the golden packets. Addresses: 192.0.2.80 (c0000250) and 2001:db8::80
// are rule addresses, 192.0.2.81 and 2001:db8::81 are answered for without being
// one, 10.9.0.1 and 2001:db8:9::1 are the host's own inside of routes
// 10.0.0.0/8 and 2001:db8::/32.
const (
	own   = "020000000001 0200000000ff " // to our MAC
	other = "020000000002 0200000000ff " // to another machine
	bcast = "ffffffffffff 0200000000ff "
	mcast = "3333ff000080 0200000000ff "

	ip, ip6, arp = "0800 ", "86dd ", "0806 "
	tag, stag    = "8100 0064 ", "88a8 0064 "
	// Twenty bytes of IPv4 header up to the source, by what is special about them.
	udp4Head   = "45 00 001c 0001 0000 40 11 0000 c6336401 "
	tcp4Head   = "45 00 0028 0001 4000 40 06 0000 c6336401 "
	icmp4Head  = "45 00 001c 0001 0000 40 01 0000 c6336401 "
	first4Head = "45 00 001c 0001 2000 40 11 0000 c6336401 "
	later4Head = "45 00 001c 0001 00b9 40 11 0000 c6336401 "
	opts4Head  = "47 00 0024 0001 0000 40 11 0000 c6336401 "
	gre4Head   = "45 00 001c 0001 0000 40 2f 0000 c6336401 "
	vip4       = "c0000250 "
	ports      = "3039 0050 0008 0000 "

	udp6Head  = "60000000 0008 11 40 20010db8000000000000000000000001 "
	frag6Head = "60000000 0010 2c 40 20010db8000000000000000000000001 "
	icmp6Head = "60000000 0020 3a ff 20010db8000000000000000000000001 "
	vip6      = "20010db8000000000000000000000080 "
	node6     = "ff0200000000000000000001ff000080 " // its solicited-node group
	ns        = "87 00 0000 00000000 "
	na        = "88 00 0000 60000000 "
	option    = "01 01 0200000000ff "

	arpRequest = "0001 0800 06 04 0001 0200000000ff c6336401 000000000000 "
	arpReply   = "0001 0800 06 04 0002 0200000000ff c6336401 020000000001 "
)

var classifierCases = []struct {
	name  string
	frame []byte
	taken bool
}{
	// (a) a forwarding rule's address, whatever the rest
	{"udp4 to rule", packet(own, ip, udp4Head, vip4, ports), true},
	{"tcp4 to rule", packet(own, ip, tcp4Head, vip4, ports), true},
	{"icmp4 to rule", packet(own, ip, icmp4Head, vip4, ports), true},
	{"gre to rule", packet(own, ip, gre4Head, vip4, ports), true},
	{"first fragment to rule", packet(own, ip, first4Head, vip4, ports), true},
	{"later fragment to rule", packet(own, ip, later4Head, vip4, ports), true},
	{"options to rule", packet(own, ip, opts4Head, vip4, "01010100 01010100", ports), true},
	{"bare header to rule", packet(own, ip, udp4Head, vip4), true},
	{"rule at another mac", packet(other, ip, udp4Head, vip4, ports), true},
	{"udp6 to rule", packet(own, ip6, udp6Head, vip6, ports), true},
	{"fragment6 to rule", packet(own, ip6, frag6Head, vip6, "11000000 00000001", ports), true},
	{"icmp6 error to rule", packet(own, ip6, icmp6Head, vip6, "02000000 000005dc"), true},
	{"tagged to rule", packet(own, tag, ip, udp4Head, vip4, ports), true},
	{"802.1ad to rule", packet(own, stag, ip, udp4Head, vip4, ports), true},
	{"qinq to rule", packet(own, stag, tag, ip, udp4Head, vip4, ports), true},
	{"two 802.1q to rule", packet(own, tag, tag, ip6, udp6Head, vip6, ports), true},
	{"three tags to rule", packet(own, stag, tag, tag, ip, udp4Head, vip4, ports), false},
	{"rule as source", packet(own, ip, "45 00 001c 0001 0000 40 11 0000 c0000250 c6336401", ports), false},
	{"other address", packet(own, ip, udp4Head, "c0000252", ports), false},
	{"other address6", packet(own, ip6, udp6Head, "20010db9000000000000000000000082", ports), false},
	{"answered address is no rule", packet(own, ip, udp4Head, "c0000251", ports), false},

	// (b) who has an address we answer for?
	{"arp for rule", packet(bcast, arp, arpRequest, vip4), true},
	{"arp for answered", packet(bcast, arp, arpRequest, "c0000251"), true},
	{"arp tagged", packet(bcast, tag, arp, arpRequest, vip4), true},
	{"arp qinq", packet(bcast, stag, tag, arp, arpRequest, vip4), true},
	{"arp unicast probe", packet(own, arp, arpRequest, vip4), true},
	{"arp for rule not answered", packet(bcast, arp, arpRequest, "c0000253"), false},
	{"arp for own", packet(bcast, arp, arpRequest, "0a090001"), false},
	{"arp in route", packet(bcast, arp, arpRequest, "0a010203"), false},
	{"arp reply", packet(own, arp, arpReply, vip4), false},
	{"arp reply about rule", packet(own, arp, "0001 0800 06 04 0002 0200000000ff c0000250 020000000001 c6336401"), false},
	{"arp other hardware", packet(bcast, arp, "0006", arpRequest[5:], vip4), false},
	{"arp other protocol", packet(bcast, arp, "0001 86dd 06 04 0001 0200000000ff c6336401 000000000000", vip4), false},
	{"arp odd lengths", packet(bcast, arp, "0001 0800 08 04 0001 0200000000ff c6336401 000000000000", vip4), false},
	{"ns for rule", packet(mcast, ip6, icmp6Head, node6, ns, vip6, option), true},
	{"ns without option", packet(mcast, ip6, icmp6Head, node6, ns, vip6), true},
	{"ns for answered", packet(mcast, ip6, icmp6Head, node6, ns, "20010db8000000000000000000000081", option), true},
	{"ns tagged", packet(mcast, tag, ip6, icmp6Head, node6, ns, vip6, option), true},
	{"ns unicast to host about answered", packet(own, ip6, icmp6Head, "20010db8000900000000000000000001", ns, "20010db8000000000000000000000081", option), true},
	{"ns for own", packet(mcast, ip6, icmp6Head, node6, ns, "20010db8000900000000000000000001", option), false},
	{"ns in route", packet(mcast, ip6, icmp6Head, node6, ns, "20010db8000100000000000000000001", option), false},
	{"ns code 1", packet(mcast, ip6, icmp6Head, node6, "87 01 0000 00000000", vip6, option), false},
	{"na to group", packet(mcast, ip6, icmp6Head, "ff020000000000000000000000000001", na, vip6, option), false},
	{"router solicit", packet(mcast, ip6, icmp6Head, "ff020000000000000000000000000002", "85 00 0000 00000000", vip6), false},
	{"solicit in udp", packet(mcast, ip6, udp6Head, node6, ns, vip6), false},

	// (c) routes, to our MAC only, the host's own and local ones excepted
	{"in route", packet(own, ip, udp4Head, "0a010203", ports), true},
	{"in route6", packet(own, ip6, udp6Head, "20010db8000100000000000000000001", ports), true},
	{"in route tagged", packet(own, tag, ip, udp4Head, "0a010203", ports), true},
	{"in route qinq", packet(own, stag, tag, ip6, udp6Head, "20010db8000100000000000000000001", ports), true},
	{"in host route", packet(own, ip, udp4Head, "cb007105", ports), true},
	{"beside host route", packet(own, ip, udp4Head, "cb007106", ports), false},
	{"in route, fragment", packet(own, ip, later4Head, "0a010203", ports), true},
	{"in route, other mac", packet(other, ip, udp4Head, "0a010203", ports), false},
	{"in route6, other mac", packet(other, ip6, udp6Head, "20010db8000100000000000000000001", ports), false},
	{"in route, broadcast mac", packet(bcast, ip, udp4Head, "0a010203", ports), false},
	{"own in route", packet(own, ip, udp4Head, "0a090001", ports), false},
	{"own in route6", packet(own, ip6, udp6Head, "20010db8000900000000000000000001", ports), false},
	{"in no route", packet(own, ip, udp4Head, "0b010203", ports), false},
	{"in no route6", packet(own, ip6, udp6Head, "20010db9000100000000000000000001", ports), false},

	// what is cut short is the kernel's
	{"ethernet alone", packet(own, ip), false},
	{"ipv4 cut", packet(own, ip, udp4Head, "c00002"), false},
	{"ipv6 cut", packet(own, ip6, udp6Head, "20010db80000000000000000000000"), false},
	{"arp cut", packet(bcast, arp, arpRequest, "c00002"), false},
	{"ns cut", packet(mcast, ip6, icmp6Head, node6, ns, "20010db80000000000000000000000"), false},
	{"tag cut", packet(own, "8100 00"), false},
	{"second tag cut", packet(own, stag, "8100 00"), false},
	{"ipv4 of version 6", packet(own, ip, "65", udp4Head[2:], vip4, ports), false},
	{"ipv6 of version 4", packet(own, ip6, "40", udp6Head[2:], vip6, ports), false},
	{"ipv4 as ipv6", packet(own, ip6, udp4Head, vip4, ports), false},
	{"llc", packet(own, "0010 424203", "00000000000000000000000000"), false},
	{"lldp", packet("0180c200000e 0200000000ff 88cc 0207040200000000ff"), false},
}

// everywhere routes take everything, so that only the exceptions are left.
var everywhereCases = []struct {
	name  string
	frame []byte
	taken bool
}{
	{"anything", packet(own, ip, udp4Head, "08080808", ports), true},
	{"anything6", packet(own, ip6, udp6Head, "2a000000000000000000000000000001", ports), true},
	{"link-local", packet(own, ip, udp4Head, "a9fe0001", ports), false},
	{"beside link-local", packet(own, ip, udp4Head, "a9fd0001", ports), true},
	{"multicast", packet(own, ip, udp4Head, "e0000005", ports), false},
	{"last multicast", packet(own, ip, udp4Head, "efffffff", ports), false},
	{"class e", packet(own, ip, udp4Head, "f0000001", ports), true},
	{"broadcast", packet(own, ip, udp4Head, "ffffffff", ports), false},
	{"loopback", packet(own, ip, udp4Head, "7f000001", ports), false},
	{"unspecified", packet(own, ip, udp4Head, "00000000", ports), false},
	{"link-local6", packet(own, ip6, udp6Head, "fe800000000000000000000000000001", ports), false},
	{"last link-local6", packet(own, ip6, udp6Head, "febf0000000000000000000000000001", ports), false},
	{"site-local6", packet(own, ip6, udp6Head, "fec00000000000000000000000000001", ports), true},
	{"multicast6", packet(own, ip6, udp6Head, "ff020000000000000000000000000001", ports), false},
	{"loopback6", packet(own, ip6, udp6Head, "00000000000000000000000000000001", ports), false},
	{"unspecified6", packet(own, ip6, udp6Head, "00000000000000000000000000000000", ports), false},
	{"beside loopback6", packet(own, ip6, udp6Head, "00000000000000000000000000000002", ports), true},
	{"own", packet(own, ip, udp4Head, "0a090001", ports), false},
	{"own6", packet(own, ip6, udp6Head, "20010db8000900000000000000000001", ports), false},
}

func loadForTest(t testing.TB) *Program {
	t.Helper()
	needRoot(t)
	p, err := load(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func addrs(s ...string) (out []netip.Addr) {
	for _, a := range s {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func prefixes(s ...string) (out []netip.Prefix) {
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func classify(t testing.TB, p *Program, frame []byte) uint32 {
	t.Helper()
	action, _, err := p.objects.Classifier.Test(frame)
	if err != nil {
		t.Fatalf("test run: %v", err)
	}
	return action
}

// configure sets what classifierCases assume.
func configure(t testing.TB, p *Program) {
	t.Helper()
	err := errors.Join(
		p.SetMAC([6]byte{2, 0, 0, 0, 0, 1}),
		p.SetRuleAddresses(addrs("192.0.2.80", "2001:db8::80", "192.0.2.83")),
		p.SetAnswers(addrs("192.0.2.80", "2001:db8::80", "192.0.2.81", "2001:db8::81")),
		p.SetOwn(addrs("10.9.0.1", "2001:db8:9::1")),
		p.SetRoutes(prefixes("10.0.0.0/8", "2001:db8::/32", "203.0.113.5/32")),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// What both sides of the object must agree on, and what it must not hold.
func TestClassifierObject(t *testing.T) {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(classifierObject))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sockets", "queue_counters"} {
		if m := spec.Maps[name]; m == nil || m.MaxEntries != MaxQueues {
			t.Errorf("map %s: %+v, want %d entries", name, m, MaxQueues)
		}
	}
	if dir, err := os.Getwd(); err != nil || bytes.Contains(classifierObject, []byte(dir)) {
		t.Errorf("the object names the folder it was built in, %s (%v)", dir, err)
	}
}

func TestClassifier(t *testing.T) {
	p := loadForTest(t)
	configure(t, p)
	var want QueueCounters
	for _, tt := range classifierCases {
		action := uint32(xdpPass)
		if tt.taken {
			action = xdpDrop // the queue has no socket
			want.NoSocket++
		} else {
			want.Passed++
		}
		if got := classify(t, p, tt.frame); got != action {
			t.Errorf("%s: action %d, want %d", tt.name, got, action)
		}
	}
	if got, err := p.Counters(0); err != nil || got != want {
		t.Errorf("counters %+v, %v; want %+v", got, err, want)
	}
}

func TestClassifierDefaultRoutes(t *testing.T) {
	p := loadForTest(t)
	configure(t, p)
	if err := p.SetRoutes(prefixes("0.0.0.0/0", "::/0")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range everywhereCases {
		if got := classify(t, p, tt.frame) != xdpPass; got != tt.taken {
			t.Errorf("%s: taken %v, want %v", tt.name, got, tt.taken)
		}
	}
	// A default route of one family leaves the other alone.
	if err := p.SetRoutes(prefixes("::/0")); err != nil {
		t.Fatal(err)
	}
	if got := classify(t, p, everywhereCases[0].frame); got != xdpPass {
		t.Errorf("IPv4 under ::/0: action %d, want pass", got)
	}
}

func TestClassifierUnconfigured(t *testing.T) {
	p := loadForTest(t)
	for _, tt := range classifierCases {
		if got := classify(t, p, tt.frame); got != xdpPass {
			t.Errorf("%s: action %d before anything was set, want pass", tt.name, got)
		}
	}
	// Routes without a MAC take nothing, not even for the MAC of all zeros.
	if err := p.SetRoutes(prefixes("0.0.0.0/0")); err != nil {
		t.Fatal(err)
	}
	if got := classify(t, p, packet("000000000000 0200000000ff", ip, udp4Head, "08080808", ports)); got != xdpPass {
		t.Errorf("route before the mac is known: action %d, want pass", got)
	}
}

// Replacing a set touches only what differs, in the kernel too.
func TestProgramSetsAreDiffs(t *testing.T) {
	p := loadForTest(t)
	configure(t, p)
	vip := classifierCases[0].frame
	if err := p.SetRuleAddresses(addrs("192.0.2.90")); err != nil {
		t.Fatal(err)
	}
	if got := classify(t, p, vip); got != xdpPass {
		t.Errorf("removed rule: action %d, want pass", got)
	}
	if got := classify(t, p, packet(bcast, arp, arpRequest, vip4)); got != xdpDrop {
		t.Errorf("removed rule is still answered for: action %d, want drop", got)
	}
	if err := p.SetRuleAddresses(addrs("192.0.2.80", "192.0.2.90")); err != nil {
		t.Fatal(err)
	}
	if err := p.SetOwn(addrs("192.0.2.80")); err != nil { // rules win over own addresses
		t.Fatal(err)
	}
	if got := classify(t, p, vip); got != xdpDrop {
		t.Errorf("rule that is an own address: action %d, want drop", got)
	}
	// Nothing unchanged is written again: an entry deleted behind the program's back
	// stays away.
	if err := p.objects.Addresses.Delete(addressKey(testVIP.As16())); err != nil {
		t.Fatal(err)
	}
	if err := p.SetRuleAddresses(addrs("192.0.2.80", "192.0.2.91")); err != nil {
		t.Fatal(err)
	}
	if got := classify(t, p, vip); got != xdpPass {
		t.Errorf("unchanged entry was written again: action %d", got)
	}
	// Two spellings of one prefix are one entry, which must not vanish with the old.
	for _, route := range []string{"10.1.2.3/8", "10.0.0.0/8"} {
		if err := p.SetRoutes(prefixes(route)); err != nil {
			t.Fatal(err)
		}
		if got := classify(t, p, packet(own, ip, udp4Head, "0a010203", ports)); got != xdpDrop {
			t.Errorf("route %s: action %d, want drop", route, got)
		}
	}
	for _, bad := range []error{
		p.SetRoutes(prefixes("::ffff:10.0.0.0/104")),
		p.SetRuleAddresses([]netip.Addr{{}}),
		p.SetRoutes([]netip.Prefix{{}}),
		p.SetSocket(MaxQueues, 0),
		p.SetSocket(0, -1),
	} {
		if bad == nil {
			t.Error("an invalid value was accepted")
		}
	}
}

// While sets are replaced, an address in all of them is taken by every frame.
func TestProgramUpdateKeepsUnchangedEntries(t *testing.T) {
	p := loadForTest(t)
	configure(t, p)
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for i := 0; err == nil; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			other := netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
			set := []netip.Addr{other, testVIP}
			err = errors.Join(p.SetRuleAddresses(set), p.SetAnswers(set), p.SetOwn([]netip.Addr{other}),
				p.SetRoutes([]netip.Prefix{netip.PrefixFrom(other, 32), netip.MustParsePrefix("10.0.0.0/8")}))
		}
		done <- err
	}()
	for _, frame := range [][]byte{
		packet(own, ip, udp4Head, vip4, ports),
		packet(bcast, arp, arpRequest, vip4),
		packet(own, ip, udp4Head, "0a010203", ports),
	} {
		for range 3000 {
			if got := classify(t, p, frame); got != xdpDrop {
				t.Errorf("%x: action %d during an update, want drop", frame, got)
				break
			}
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestClassifierRedirectsToSocket(t *testing.T) {
	enterNamespace(t)
	p := loadForTest(t)
	configure(t, p)
	v := addVeth(t, "a0", "a1", 1)
	_, s := openPrimary(t, v)
	steps := []struct {
		do   func() error
		want uint32
	}{
		{func() error { return p.SetSocket(0, s.FD()) }, xdpRedirect},
		{func() error { return p.ClearSocket(0) }, xdpDrop},
		{func() error { return p.ClearSocket(0) }, xdpDrop}, // again: no error
		{func() error { return p.SetSocket(0, s.FD()) }, xdpRedirect},
		{s.Close, xdpDrop}, // the kernel takes a closed socket out
	}
	for i, st := range steps {
		if err := st.do(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if got := classify(t, p, classifierCases[0].frame); got != st.want {
			t.Errorf("step %d: action %d, want %d", i, got, st.want)
		}
	}
	if c, err := p.Counters(0); err != nil || c.Redirected != 2 || c.NoSocket != 3 {
		t.Errorf("counters %+v, %v; want 2 redirected, 3 without a socket", c, err)
	}
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"zonehop/bench/lab"
	"zonehop/cmd/appliance/internal/admin"
	"zonehop/forwarder/xsk"
)

// flowHosts are the virtual addresses of testdata/flow.yaml: 10.0.100.N and
// fd00:0:100::N.
var flowHosts = map[string]int{"web": 10, "session": 11, "never": 12, "always": 13, "ports": 14, "any": 15}

// vip is a virtual address of testdata/flow.yaml in an IP version.
func vip(name string, version int) netip.Addr {
	if version == 6 {
		return netip.MustParseAddr(fmt.Sprintf("fd00:0:100::%d", flowHosts[name]))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.0.100.%d", flowHosts[name]))
}

// narrowMTU is that of the link between the router and the clients behind it:
// the least that IPv6 allows (RFC 8200 section 5).
const narrowMTU = 1280

// Clients that nobody is.
var (
	madeUp4 = netip.MustParsePrefix("10.200.0.0/16")
	madeUp6 = netip.MustParsePrefix("fd00:c8::/32")
)

// flowTopology has three servers, two firewalls and a client on the appliance's
// segment, and another client behind a router with a narrow link. Only the
// router knows of the narrow link; its neighbours find out as hosts do.
//
//	client ── appliance, web-1…3, fw-1…2 ── router ──1280── far
func flowTopology() *lab.Topology {
	at := func(segment, net, host int) lab.InterfaceSpec {
		return lab.InterfaceSpec{Name: "eth0", Segment: segment, Addresses: []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("10.%d.0.%d/8", net, host)),
			netip.MustParsePrefix(fmt.Sprintf("fd00:%d::%d/16", net, host)),
		}}
	}
	behind := func(host int) []netip.Prefix {
		return []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("172.21.0.%d/16", host)), netip.MustParsePrefix(fmt.Sprintf("fd21::%d/16", host))}
	}
	toFar := []lab.RouteSpec{
		{Destination: netip.MustParsePrefix("172.21.0.0/16"), Via: netip.MustParseAddr("10.4.0.1")},
		{Destination: netip.MustParsePrefix("fd21::/16"), Via: netip.MustParseAddr("fd00:4::1")},
	}
	toInspected := []lab.RouteSpec{
		{Destination: lab.InspectedIPv4, Via: lab.ApplianceIPv4}, {Destination: lab.InspectedIPv6, Via: lab.ApplianceIPv6},
	}
	t := &lab.Topology{Segments: 2, Appliance: lab.NodeSpec{Name: "lb", Interfaces: []lab.InterfaceSpec{at(0, 0, 2)}}}
	var vips []netip.Addr
	for name := range flowHosts {
		vips = append(vips, vip(name, 4), vip(name, 6))
	}
	for i, name := range []string{"web-1", "web-2", "web-3"} {
		t.Backends = append(t.Backends, lab.BackendSpec{
			NodeSpec: lab.NodeSpec{Name: name, Interfaces: []lab.InterfaceSpec{at(0, 1, 11+i)}, Routes: toFar}, VIPs: vips,
		})
	}
	for i, name := range []string{"fw-1", "fw-2"} {
		t.Backends = append(t.Backends, lab.BackendSpec{
			NodeSpec: lab.NodeSpec{Name: name, Interfaces: []lab.InterfaceSpec{at(0, 1, 21+i)}},
			AnyIP:    []netip.Prefix{lab.InspectedIPv4, lab.InspectedIPv6},
		})
	}
	t.Clients = []lab.NodeSpec{
		{Name: "client", Interfaces: []lab.InterfaceSpec{at(0, 8, 101)}, Routes: toInspected},
		{Name: "router", Interfaces: []lab.InterfaceSpec{at(0, 4, 1), {Name: "eth1", Segment: 1, Addresses: behind(1), MTU: narrowMTU}}},
		{Name: "far", Interfaces: []lab.InterfaceSpec{{Name: "eth0", Segment: 1, Addresses: behind(101)}}, Routes: []lab.RouteSpec{
			{Destination: netip.MustParsePrefix("10.0.0.0/8"), Via: netip.MustParseAddr("172.21.0.1")},
			{Destination: netip.MustParsePrefix("fd00::/16"), Via: netip.MustParseAddr("fd21::1")},
		}},
	}
	return t
}

// flowRig is an appliance in flowTopology whose backends are watched, with a
// way to put frames on any of its receive queues.
type flowRig struct {
	*device
	yaml    string
	client  *lab.Client
	own, lb net.HardwareAddr        // of the client and of the appliance
	in      map[string]*lab.Capture // at each backend
	queues  [2]*queueSender
}

// newFlowRig starts an appliance with testdata/flow.yaml; replace is as for testConfig.
func newFlowRig(t *testing.T, replace ...string) *flowRig {
	t.Helper()
	n := newNetwork(t, lab.Options{Topology: flowTopology()})
	for _, path := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		n.must(n.Node("router").Sysctl(path, "1"))
	}
	r := &flowRig{yaml: testConfig(t, "flow.yaml", replace...), client: n.Client("client"), in: make(map[string]*lab.Capture)}
	r.own, r.lb = n.mac(r.client.Node, "eth0"), n.mac(n.Appliance(), "eth0")
	for _, b := range n.Backends() {
		r.in[b.Name()] = n.capture(b.Node, "eth0")
		// Answers to the made-up clients of floods end here: resolving thousands
		// of addresses that nobody has would fill the kernel's neighbour table,
		// which all namespaces share.
		n.must(b.Exec(func() error {
			var problems error
			for _, p := range []netip.Prefix{madeUp4, madeUp6} {
				dst := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
				problems = errors.Join(problems, netlink.RouteAdd(&netlink.Route{Dst: dst, Type: unix.RTN_BLACKHOLE}))
			}
			return problems
		}))
	}
	for q := range r.queues {
		r.queues[q] = n.queueSender(q)
	}
	r.device = n.start(r.yaml)
	return r
}

// part runs a subtest, as sub of device does.
func (r *flowRig) part(name string, fn func(r *flowRig)) {
	r.net.Helper()
	r.sub(name, func(d *device) {
		p := *r
		p.device = d
		fn(&p)
	})
}

// weigh reloads the configuration with other weights: those given, and 1.
func (r *flowRig) weigh(weights map[string]int) {
	r.net.Helper()
	yaml := r.yaml
	for name, weight := range weights {
		yaml = strings.ReplaceAll(yaml, "name: "+name+",", fmt.Sprintf("name: %s, weight: %d,", name, weight))
	}
	r.write(yaml)
	r.net.must(r.Reload())
	r.wait("the weights to be in force", func() error {
		list, err := r.Backends()
		for _, b := range list {
			want, ok := weights[b.Name]
			if !ok {
				want = 1
			}
			if b.Weight != want {
				return fmt.Errorf("the weight of %s is %d, want %d", b.Name, b.Weight, want)
			}
		}
		return err
	})
}

// frame is what the client would send to the appliance.
func (r *flowRig) frame(packet []byte) []byte { return ethernet(r.lb, r.own, packet) }

// got lists the backends that received a frame in the form in which the
// appliance passes it on, once for each time.
func (r *flowRig) got(frame []byte, router bool) (names []string) {
	r.net.Helper()
	for _, name := range slices.Sorted(maps.Keys(r.in)) {
		want := forwardedForm(frame, r.net.mac(r.net.Backend(name).Node, "eth0"), r.lb, router)
		for _, f := range r.in[name].Frames() {
			if f.Direction == lab.In && bytes.Equal(f.Data, want) {
				names = append(names, name)
			}
		}
	}
	return names
}

// arrives waits until a frame has arrived, and checks that it has at this
// backend only, and only once. An empty name stands for any; the one it was is
// returned.
func (r *flowRig) arrives(frame []byte, at string) string {
	r.net.Helper()
	var names []string
	r.net.eventually("a frame to arrive", func() (bool, error) {
		names = r.got(frame, routed(frame))
		return len(names) > 0, nil
	})
	if len(names) != 1 || at != "" && names[0] != at {
		r.net.Fatalf("frame %x arrived at %v, want %q once", frame, names, at)
	}
	return names[0]
}

// routed reports whether a frame goes by a route, not to an address of a rule.
func routed(frame []byte) bool {
	p, ok := readIP(lab.Frame{Data: frame})
	if !ok {
		return false // tagged: to a rule
	}
	for name := range flowHosts {
		if p.dst == vip(name, 4) || p.dst == vip(name, 6) {
			return false
		}
	}
	return true
}

// forgetFrames empties the captures.
func (r *flowRig) forgetFrames() {
	for _, c := range r.in {
		c.Clear()
	}
}

// tracked lists the entries of a client's flow.
func (r *flowRig) tracked(client netip.AddrPort) (out []admin.Flow) {
	r.net.Helper()
	flows, err := r.Flows(admin.FlowFilter{Client: client.Addr().String()})
	r.net.must(err)
	for _, f := range flows {
		if strings.HasPrefix(f.Ports, fmt.Sprintf("%d→", client.Port())) {
			out = append(out, f)
		}
	}
	return out
}

// change is what the accounting counted between two readings.
func change(before, after *admin.Accounting) map[string]uint64 {
	out := map[string]uint64{"forwarded": after.Forwarded - before.Forwarded}
	for reason, n := range after.Dropped {
		out[reason] = n - before.Dropped[reason]
	}
	for reason, n := range out {
		if n == 0 {
			delete(out, reason)
		}
	}
	return out
}

// quiet waits until nothing has been received for half a second: the last words
// of a connection that was closed are over then, also those said again.
func (r *flowRig) quiet() {
	r.net.Helper()
	last, since := uint64(0), time.Now()
	r.wait("silence", func() error {
		if got := r.status().Accounting.Received; got != last {
			last, since = got, time.Now()
		}
		if time.Since(since) < 500*time.Millisecond {
			return fmt.Errorf("%d frames, the last %v ago", last, time.Since(since))
		}
		return nil
	})
}

// counting runs something that has the appliance forward or drop a number of
// frames, and returns what it counted them as. What it answers meanwhile does
// not count.
func (r *flowRig) counting(frames uint64, fn func()) map[string]uint64 {
	r.net.Helper()
	before := r.balanced().Accounting
	fn()
	r.wait(fmt.Sprintf("%d frames to be received", frames), func() error {
		s, err := r.Status()
		if err != nil {
			return err
		}
		got := uint64(0)
		for _, k := range change(&before, &s.Accounting) {
			got += k
		}
		if got < frames || s.Accounting.Held > 0 {
			return fmt.Errorf("%d counted, %d held", got, s.Accounting.Held)
		}
		return nil
	})
	after := r.balanced().Accounting
	return change(&before, &after)
}

// queueSender puts frames on one receive queue of the appliance, whatever is in
// them: an AF_XDP socket on the switch's end of the appliance's interface, whose
// transmit queue of that number veth connects to the receive queue.
type queueSender struct {
	net    *network
	memory *xsk.UMEM
	socket *xsk.Socket
}

func (n *network) queueSender(queue int) *queueSender {
	n.Helper()
	port, err := n.Appliance().Port("eth0")
	n.must(err)
	q := &queueSender{net: n}
	n.must(port.Exec(func() error {
		dev, err := net.InterfaceByName(port.Name)
		if err != nil {
			return err
		}
		q.memory, q.socket, err = xsk.OpenPrimary(dev.Index, queue, xsk.Config{
			FrameSize: 2048, Frames: 1024, Fill: 128, RX: 64, TX: 512, Batch: 64, Mode: xsk.ModeCopy,
		})
		return err
	}))
	n.Cleanup(func() {
		if err := q.socket.Close(); err != nil {
			n.Error(err)
		}
		q.memory.Reclaim(q.socket)
		if err := q.memory.Close(); err != nil {
			n.Error(err)
		}
	})
	return q
}

// send puts frames on the queue, in order, and returns when all are there. The
// caller leaves the receiver time: beyond its rings frames are lost.
func (q *queueSender) send(frames ...[]byte) {
	q.net.Helper()
	deadline := time.Now().Add(patience)
	for _, frame := range frames {
		addr, ok := q.memory.Alloc()
		if !ok {
			q.net.Fatal("no memory for a frame to send")
		}
		d := xsk.Desc{Addr: addr, Len: uint32(len(frame))}
		copy(q.memory.Frame(d), frame)
		for q.socket.Transmit([]xsk.Desc{d}) == 0 {
			q.flush(deadline)
		}
	}
	for q.socket.Census().TX > 0 {
		q.flush(deadline)
	}
}

func (q *queueSender) flush(deadline time.Time) {
	q.net.Helper()
	q.socket.Kick()
	if q.socket.Complete() == 0 && time.Now().After(deadline) {
		q.net.Fatal("the switch's port takes no frames")
	}
}

// residentKiB is how much memory a process has at the moment.
func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	kib := 0
	if _, err := fmt.Sscan(rest, &kib); err != nil || kib == 0 {
		t.Fatalf("no resident memory of process %d: %v", pid, err)
	}
	return kib
}

package neigh

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"zonehop/bench/needs"
)

// patience is how long tests wait for what must come: far longer than it takes
// on a machine that is busy with other things.
const patience = time.Minute

// TestMain looks for goroutines left behind, for a while: one that has done its
// work ends when the scheduler lets it.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		var err error
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
			if err = goleak.Find(); err == nil {
				os.Exit(0)
			}
		}
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func needRoot(t testing.TB) {
	t.Helper()
	needs.Root(t, "making network namespaces")
}

// node is a network namespace without a name: it ends with the test process
// even if that crashes.
type node struct {
	t  testing.TB
	ns netns.NsHandle
	*netlink.Handle
}

func newNode(t testing.TB) *node {
	t.Helper()
	needRoot(t)
	n := &node{t: t}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends in the new namespace
		var err error
		n.ns, err = netns.New()
		result <- err
	}()
	if err := <-result; err != nil {
		t.Fatalf("new network namespace: %v", err)
	}
	var err error
	if n.Handle, err = netlink.NewHandleAt(n.ns, unix.NETLINK_ROUTE); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Handle.Close(); n.ns.Close() })
	// Without a usable link-local address the kernel sends no solicitations;
	// duplicate address detection would hold it back for two seconds.
	n.sysctl("ipv6/conf/default/accept_dad", "0")
	n.up("lo")
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) link(name string) netlink.Link {
	n.t.Helper()
	l, err := n.LinkByName(name)
	if err != nil {
		n.t.Fatalf("link %s: %v", name, err)
	}
	return l
}

func (n *node) up(name string)   { n.t.Helper(); n.must(n.LinkSetUp(n.link(name))) }
func (n *node) down(name string) { n.t.Helper(); n.must(n.LinkSetDown(n.link(name))) }

// addr gives name an address such as "10.0.0.1/24", without duplicate address
// detection.
func (n *node) addr(name, cidr string) {
	n.t.Helper()
	a, err := netlink.ParseAddr(cidr)
	n.must(err)
	a.Flags = unix.IFA_F_NODAD
	n.must(n.AddrAdd(n.link(name), a))
}

func (n *node) mac(name string) [6]byte {
	n.t.Helper()
	return [6]byte(n.link(name).Attrs().HardwareAddr)
}

func (n *node) route(cidr, gateway string) {
	n.t.Helper()
	_, dst, err := net.ParseCIDR(cidr)
	n.must(err)
	n.must(n.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(gateway)}))
}

// sysctl writes a file below /proc/sys/net as seen in the namespace.
func (n *node) sysctl(path, value string) {
	n.t.Helper()
	n.must(inNamespace(n.ns, func() error { return os.WriteFile("/proc/sys/net/"+path, []byte(value), 0) }))
}

// wire connects a and b with a veth pair, up on both ends.
func wire(a *node, aName string, b *node, bName string, queues int) {
	a.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.NumRxQueues, attrs.NumTxQueues = aName, queues, queues
	a.must(a.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: bName, PeerNamespace: netlink.NsFd(b.ns)}))
	a.up(aName)
	b.up(bName)
}

// follower runs a Watcher and keeps its last View.
type follower struct {
	t testing.TB
	*Watcher

	mu      sync.Mutex
	view    View          // guarded by mu
	changed chan struct{} // guarded by mu; closed by the next View
}

func follow(t testing.TB, n *node, o Options) *follower {
	t.Helper()
	o.Namespace = n.ns
	w, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{t: t, Watcher: w, changed: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx, f.take) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
	return f
}

func (f *follower) take(v View) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.view = v
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *follower) last() (View, chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.view, f.changed
}

// wait returns the first View that satisfies ok.
func (f *follower) wait(what string, ok func(View) bool) View {
	f.t.Helper()
	deadline := time.After(patience)
	for {
		v, changed := f.last()
		if ok(v) {
			return v
		}
		select {
		case <-changed:
		case <-deadline:
			f.t.Fatalf("waited in vain: %s; last view: %+v", what, v)
		}
	}
}

// waitTarget waits until addr is in the wanted state, and returns it.
func (f *follower) waitTarget(addr string, want State) Target {
	f.t.Helper()
	key := netip.MustParseAddr(addr)
	v := f.wait(fmt.Sprintf("%s %v", addr, want), func(v View) bool {
		got, ok := v.Targets[key]
		return ok && got.State == want
	})
	return v.Targets[key]
}

func addrsOf(texts ...string) []netip.Addr {
	addrs := make([]netip.Addr, len(texts))
	for i, text := range texts {
		addrs[i] = netip.MustParseAddr(text)
	}
	return addrs
}

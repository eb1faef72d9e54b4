package neigh

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

func permanent(host *node, addr string, mac [6]byte) {
	host.t.Helper()
	host.must(host.NeighSet(&netlink.Neigh{
		LinkIndex: host.link("zhnb0").Attrs().Index, IP: net.ParseIP(addr),
		State: netlink.NUD_PERMANENT, HardwareAddr: net.HardwareAddr(mac[:]),
	}))
}

// Events that the kernel had to drop are made up for by reading everything.
func TestOverrun(t *testing.T) {
	host, _ := pair(t)
	w, err := New(Options{Interfaces: []string{"zhnb0"}, Namespace: host.ns, receiveBufferLen: 4096})
	if err != nil {
		t.Fatal(err)
	}
	w.SetTargets(addrsOf("10.9.0.50"))
	permanent(host, "10.9.0.50", [6]byte{2, 0, 0, 0, 0, 1})
	ctx, cancel := context.WithCancel(context.Background())
	entered, gate, views, ended := make(chan bool), make(chan bool), make(chan View, 100), make(chan error)
	first := true
	go func() {
		ended <- w.Run(ctx, func(v View) {
			if first {
				first = false
				close(entered)
				<-gate
			}
			views <- v
		})
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	}()
	<-entered // nobody takes events now
	for i := range 600 {
		permanent(host, netip.AddrFrom4([4]byte{10, 9, 0, 51 + byte(i%100)}).String(), [6]byte{2, 0, 0, 0, 1, byte(i / 100)})
	}
	want := [6]byte{2, 0, 0, 0, 0, 2}
	permanent(host, "10.9.0.50", want)
	close(gate)
	for deadline := time.After(patience); ; {
		select {
		case v := <-views:
			if v.Targets[netip.MustParseAddr("10.9.0.50")].MAC == want {
				if got := w.Stats().Overruns; got == 0 {
					t.Error("no overrun counted; the test did not overrun the socket")
				}
				return
			}
		case <-deadline:
			t.Fatalf("a change lost in an overrun was not made up for; overruns: %d", w.Stats().Overruns)
		}
	}
}

// A socket that fails is replaced, and what happened meanwhile is read.
func TestLostSubscription(t *testing.T) {
	host, _ := pair(t)
	f := follow(t, host, Options{Interfaces: []string{"zhnb0"}})
	f.wait("a first view", func(v View) bool { return len(v.Links) == 1 })
	f.events.mu.Lock()
	f.events.socket.Close()
	f.events.mu.Unlock()
	host.must(host.LinkSetMTU(host.link("zhnb0"), 1400))
	f.wait("a change made while the socket was lost", func(v View) bool { return v.Links[0].MTU == 1400 })
	f.wait("the loss counted", func(View) bool { return f.Stats().Overruns == 1 })
	start := time.Now()
	for mtu := 1300; mtu < 1304; mtu++ {
		host.must(host.LinkSetMTU(host.link("zhnb0"), mtu))
		f.wait("a change after it", func(v View) bool { return v.Links[0].MTU == mtu })
	}
	if took := time.Since(start); took > 2*relinkInterval {
		t.Errorf("4 changes seen after %v: by the periodic reading, not by events", took)
	}
}

// A route change is also noticed without its event.
func TestMissedRouteEvent(t *testing.T) {
	t.Parallel() // mostly waits
	host, _ := pair(t)
	f := follow(t, host, Options{Interfaces: []string{"zhnb0"}})
	f.SetTargets(addrsOf("192.0.2.7"))
	f.waitTarget("192.0.2.7", NoRoute)
	// The subscription is gone, and its replacement is kept out.
	f.events.mu.Lock()
	defer f.events.mu.Unlock()
	f.events.socket.Close()
	host.route("192.0.2.0/24", "10.9.0.2")
	f.waitTarget("192.0.2.7", NotOnLink)
}

// A storm of changes makes few views, and the last one has the last state.
func TestChangesAreGathered(t *testing.T) {
	host, _ := pair(t)
	f := follow(t, host, Options{Interfaces: []string{"zhnb0"}})
	permanent(host, "10.9.0.50", [6]byte{2})
	f.SetTargets(addrsOf("10.9.0.50"))
	f.waitTarget("10.9.0.50", Deliverable)
	before, start := f.Stats().Views, time.Now()
	last := [6]byte{2, 0, 0, 0, 1, 255}
	for i := range 256 {
		permanent(host, "10.9.0.50", [6]byte{2, 0, 0, 0, 1, byte(i)})
	}
	f.wait("the last MAC", func(v View) bool { return v.Targets[netip.MustParseAddr("10.9.0.50")].MAC == last })
	views, most := f.Stats().Views-before, uint64(time.Since(start)/gatherTime)+2
	if views > most {
		t.Errorf("%d views in %v, want %d at most", views, time.Since(start), most)
	}
}

func TestCloseWithoutRun(t *testing.T) {
	w, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	w.Close()
}

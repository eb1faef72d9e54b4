package claim

import (
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"zonehop/bench/needs"
	"zonehop/forwarder/packet"
)

// cable is a network namespace with two interfaces: what is sent by one comes
// in by the other.
type cable struct {
	*testing.T
	*netlink.Handle
	*Listener
	sender int          // packet socket
	index  atomic.Int64 // of the interface that receives
	from   int          // of the one that sends
	heard  chan Claim
	ended  chan error
}

// newCable makes one with a Listener that looks for addrs and calls the
// receiving interface port 5.
func newCable(t *testing.T, addrs ...netip.Addr) *cable {
	t.Helper()
	needs.Root(t, "making network namespaces")
	c := &cable{T: t, heard: make(chan Claim, 1000), ended: make(chan error, 1)}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends in the new namespace
		result <- func() error {
			ns, err := netns.New()
			if err != nil {
				return err
			}
			defer ns.Close()
			if c.Handle, err = netlink.NewHandleAt(ns, unix.NETLINK_ROUTE); err != nil {
				return err
			}
			if c.sender, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
				return err
			}
			c.Listener, err = Listen(addrs)
			return err
		}()
	}()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	c.connect()
	t.Cleanup(func() {
		c.Listener.Close()
		<-c.ended
		c.Handle.Close()
		unix.Close(c.sender)
	})
	go func() {
		for {
			_, err := c.Receive(func(index int) int {
				if int64(index) == c.index.Load() {
					return 5
				}
				return -1
			}, func(h Claim) { c.heard <- h })
			if err != nil {
				c.ended <- err
				return
			}
		}
	}()
	return c
}

// connect makes the pair of interfaces.
func (c *cable) connect() {
	c.Helper()
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: "send"})
	veth.PeerName = "receive"
	if err := c.LinkAdd(veth); err != nil {
		c.Fatal(err)
	}
	for _, name := range []string{"receive", "send"} {
		l := c.link(name)
		if err := c.LinkSetUp(l); err != nil {
			c.Fatal(err)
		}
		c.index.Store(int64(c.link("receive").Attrs().Index))
		c.from = c.link("send").Attrs().Index
	}
	// The kernel lets frames out a moment after the carrier is there.
	for deadline := time.Now().Add(time.Minute); c.link("send").Attrs().OperState != netlink.OperUp; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			c.Fatal("the interfaces do not come up")
		}
	}
}

func (c *cable) link(name string) netlink.Link {
	c.Helper()
	l, err := c.LinkByName(name)
	if err != nil {
		c.Fatal(err)
	}
	return l
}

func (c *cable) send(frame []byte) {
	c.Helper()
	if err := unix.Sendto(c.sender, frame, 0, &unix.SockaddrLinklayer{Ifindex: c.from}); err != nil {
		c.Fatal(err)
	}
}

// hears waits for the next claim.
func (c *cable) hears(want Claim) {
	c.Helper()
	select {
	case got := <-c.heard:
		if got != want {
			c.Errorf("heard %+v, want %+v", got, want)
		}
	case <-time.After(time.Minute):
		c.Fatalf("nothing was heard, want %+v", want)
	}
}

func claimOf(a netip.Addr, tags ...uint32) Claim {
	c := Claim{Addr: packet.Addr(a), MAC: 0x0200000000aa, Port: 5}
	copy(c.Tags[:], tags)
	return c
}

// TestListener sends real frames: what is heard, from where, in which VLAN.
func TestListener(t *testing.T) {
	c := newCable(t, addr4, addr6)
	for _, h := range heard {
		if h.frame == nil {
			continue
		}
		c.send(h.frame)
	}
	for _, h := range heard {
		if !h.claim {
			continue
		}
		var p packet.Parsed
		p.Parse(h.frame)
		want, _ := Of(h.frame, &p, 5)
		t.Log(h.name)
		c.hears(want)
	}
	// In two VLANs, of which the kernel keeps the outer one beside the frame.
	c.send(inTag(inTag(arp(2, addr4, other4), 0x8100, 7), 0x88a8, 100))
	c.hears(claimOf(addr4, 0x88a8_0064, 0x8100_0007))
	// Other addresses from now on.
	if err := c.Look([]netip.Addr{other4}); err != nil {
		t.Fatal(err)
	}
	c.send(arp(2, addr4, other4))
	c.send(arp(2, other4, other4))
	c.hears(claimOf(other4))
	// As many as the filter takes; the kernel limits its size.
	var many []netip.Addr
	for i := range maxFiltered - 1 {
		many = append(many, netip.AddrFrom4([4]byte{200, 0, 0, byte(i)}))
	}
	if err := c.Look(append(many, addr6)); err != nil {
		t.Fatal(err)
	}
	c.send(neighbour(advertisement, other6, all6, addr6))
	c.hears(claimOf(addr6))
	if n := len(c.heard); n != 0 {
		t.Errorf("%d more were heard: what is sent is not to be", n)
	}
}

// TestListenerSurvives: interfaces come and go.
func TestListenerSurvives(t *testing.T) {
	c := newCable(t, addr4)
	for range 3 {
		c.send(arp(2, addr4, other4))
		c.hears(claimOf(addr4))
		if err := c.LinkDel(c.link("send")); err != nil {
			t.Fatal(err)
		}
		c.connect()
	}
	c.send(arp(2, addr4, other4))
	c.hears(claimOf(addr4))
}

// TestListenerFlood: nobody reads, so the kernel drops, and that is counted.
func TestListenerFlood(t *testing.T) {
	c := newCable(t, addr4)
	const sent = 5000 // beyond the socket's buffer and the channel
	f := arp(2, addr4, other4)
	for range sent {
		c.send(f)
	}
	heard := 0
	for deadline := time.After(time.Minute); heard+int(c.Missed()) < sent; {
		select {
		case <-c.heard:
			heard++
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("%d were heard and %d missed of %d", heard, c.Missed(), sent)
		}
	}
	if missed := c.Missed(); missed == 0 || heard+int(missed) != sent {
		t.Errorf("%d were heard and %d missed of %d", heard, missed, sent)
	}
}

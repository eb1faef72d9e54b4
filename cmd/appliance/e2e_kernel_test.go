package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"zonehop/bench/lab"
)

// forget empties a node's neighbour cache, as `ip neigh flush all` does.
func (n *network) forget(node *lab.Node, iface string) {
	n.Helper()
	n.must(node.Exec(func() error {
		link, err := netlink.LinkByName(iface)
		if err != nil {
			return err
		}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			list, err := netlink.NeighList(link.Attrs().Index, family)
			if err != nil {
				return err
			}
			for i := range list {
				if list[i].State&netlink.NUD_PERMANENT == 0 && list[i].State != netlink.NUD_NOARP {
					_ = netlink.NeighDel(&list[i]) // gone already
				}
			}
		}
		return nil
	}))
}

// listen opens a TCP server inside a node that returns what it gets.
func (n *network) listen(node *lab.Node, address string) netip.AddrPort {
	n.Helper()
	var l net.Listener
	n.must(node.Exec(func() (err error) {
		l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", address)
		return err
	}))
	n.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }() // the client judges what comes back
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// transfer sends size bytes to an echo and compares what comes back.
func (n *network) transfer(from *lab.Client, to netip.AddrPort, size int) {
	n.Helper()
	conn, err := from.DialTCP(n.soon(), to, netip.AddrPort{})
	n.must(err)
	defer conn.Close()
	n.must(conn.SetDeadline(time.Now().Add(patience)))
	sent := make([]byte, size)
	lab.Pattern(1, sent)
	failed := make(chan error, 1)
	go func() {
		_, err := conn.Write(sent)
		failed <- err
		if err == nil {
			_ = conn.CloseWrite()
		}
	}()
	got, err := io.ReadAll(conn)
	n.must(err)
	n.must(<-failed)
	if !bytes.Equal(got, sent) {
		n.Fatalf("%d bytes came back of %d, or they differ", len(got), len(sent))
	}
}

// TestKernelKeepsItsOwn checks that everything addressed to the appliance's
// host stays the kernel's, beside forwarding.
func TestKernelKeepsItsOwn(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	d := n.start(testConfig(t, "two-zones.yaml"))
	client, host := n.Client("client-b"), n.Appliance()
	vip := n.stream("client-b", netip.AddrPortFrom(lab.VIPv4, lab.EchoTLS), "")
	before := d.status().Accounting

	d.sub("TCP to the host", func(d *device) {
		for _, at := range []string{"10.0.0.2:22", "[fd00::2]:22"} {
			d.net.transfer(client, d.net.listen(host, at), 8<<20)
		}
	})
	d.sub("TCP from the host", func(d *device) {
		self := &lab.Client{Node: host}
		for _, at := range []string{client.IPv4().String() + ":9000", "[" + client.IPv6().String() + "]:9000"} {
			d.net.transfer(self, d.net.listen(client.Node, at), 1<<20)
		}
	})
	d.sub("ping of the host", func(d *device) {
		for _, to := range []netip.Addr{lab.ApplianceIPv4, lab.ApplianceIPv6} {
			_, err := client.Ping(d.net.soon(), to, netip.Addr{}, []byte("host"))
			d.net.must(err)
		}
	})
	d.sub("neighbour discovery of the host", func(d *device) {
		// The kernel's frames pass a capture inside the host, those of an
		// AF_XDP socket do not.
		inside, mac := d.net.capture(host, "eth0"), d.net.mac(client.Node, "eth0")
		d.net.send(client.Node, "eth0", arpRequest(d.net.T, mac, client.IPv4(), lab.ApplianceIPv4))
		d.net.see(inside, "the kernel's ARP reply", going(lab.Out, func(f lab.Frame) bool {
			return isARPReply(f, lab.ApplianceIPv4)
		}))
		d.net.send(client.Node, "eth0", solicit(d.net.T, mac, client.IPv6(), lab.ApplianceIPv6))
		d.net.see(inside, "the kernel's advertisement", going(lab.Out, func(f lab.Frame) bool {
			return isAdvertisement(f, lab.ApplianceIPv6)
		}))
	})
	n.flowing(vip)
	s := d.balanced()
	for _, kind := range []string{"arp", "neighbour", "vip_ping"} {
		if s.Accounting.Answered[kind] != before.Answered[kind] {
			t.Errorf("the appliance answered %s for its host: %d, then %d", kind, before.Answered[kind], s.Accounting.Answered[kind])
		}
	}
	for reason, k := range s.Accounting.Dropped {
		if k != before.Dropped[reason] {
			t.Errorf("%d of the host's frames were taken and dropped: %s", k-before.Dropped[reason], reason)
		}
	}
	if state := vip.Close(); state.Err != nil {
		t.Error(state.Err)
	}
	d.stop()
}

// TestVIPIsNoHost checks that nothing but the rules answers on a rule's address.
func TestVIPIsNoHost(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	d := n.start(testConfig(t, "two-zones.yaml", "failoverRatio: 0.5", "failoverRatio: 0.5, dropTrafficIfUnhealthy: true"))
	client := n.Client("client-b")
	wire, mac := n.capture(client.Node, "eth0"), n.mac(n.Appliance(), "eth0")

	d.sub("port without a rule", func(d *device) {
		// A server of the host on all its addresses: it must not be reached.
		d.net.listen(n.Appliance(), ":81")
		var want uint64
		for _, vip := range []netip.Addr{lab.VIPv4, lab.VIPv6} {
			ctx, cancel := context.WithTimeout(d.net.ctx, 300*time.Millisecond)
			conn, err := client.DialTCP(ctx, netip.AddrPortFrom(vip, 81), netip.AddrPort{})
			cancel()
			if err == nil {
				conn.Close()
				d.net.Fatalf("port 81 of %s is open", vip)
			}
			udp, err := client.DialUDP(d.net.soon(), netip.AddrPortFrom(vip, 81), netip.AddrPort{})
			d.net.must(err)
			_, err = udp.Write([]byte("anybody?"))
			d.net.must(err)
			defer udp.Close()
			want += 2
		}
		d.counted("frames dropped as no_rule", dropped("no_rule"), want)
		// What was answered after them has overtaken any answer to them.
		d.net.shares("client-b", vip4, 1)
		d.net.shares("client-b", vip6, 1)
		if k := wire.Count(going(lab.In, func(f lab.Frame) bool {
			p, ok := readIP(f)
			return ok && (p.src == lab.VIPv4 || p.src == lab.VIPv6) && (p.proto == protoTCP || p.proto == protoUDP) && p.l4[0] == 0 && p.l4[1] == 81 ||
				ok && p.proto == protoICMP && p.l4[0] == 3 || ok && p.proto == protoICMPv6 && p.l4[0] == 1
		})); k != 0 {
			d.net.Errorf("%d frames came back from a port without a rule, want silence", k)
		}
	})
	d.sub("ping", func(d *device) {
		before := d.status().Accounting.Answered["vip_ping"]
		for _, vip := range []netip.Addr{lab.VIPv4, lab.VIPv6} {
			_, err := client.Ping(d.net.soon(), vip, netip.Addr{}, []byte("are you there"))
			d.net.must(err)
			c := between(icmpOf(vip), netip.AddrPortFrom(client.Addr(vip), 0), netip.AddrPortFrom(vip, 0))
			f := d.net.see(wire, "the reply", going(lab.In, c.back))
			if p, _ := readIP(f); p.from != mac.String() {
				d.net.Errorf("%s: the reply came from %s, want the appliance's %s", vip, p.from, mac)
			}
		}
		d.counted("pings answered", answered("vip_ping"), before+2)
	})
	d.sub("ping without an eligible backend", func(d *device) {
		d.setHealth(lab.HealthFailing, "UNHEALTHY")
		before := d.status().Accounting
		for i, vip := range []netip.Addr{lab.VIPv4, lab.VIPv6} {
			d.wait("pings to be dropped", func() error { // a ping may have no time left to be sent
				ctx, cancel := context.WithTimeout(d.net.ctx, 300*time.Millisecond)
				defer cancel()
				if _, err := client.Ping(ctx, vip, netip.Addr{}, nil); err == nil {
					d.net.Fatalf("ping of %s is answered without any backend", vip)
				}
				if got := d.status().Accounting.Dropped["vip_ping_unavailable"] - before.Dropped["vip_ping_unavailable"]; got < uint64(i)+1 {
					return fmt.Errorf("%d so far", got)
				}
				return nil
			})
			d.refused("client-b", netip.AddrPortFrom(vip, 80), "unhealthy")
		}
		d.setHealth(lab.HealthOK, "HEALTHY")
		for _, vip := range []netip.Addr{lab.VIPv4, lab.VIPv6} {
			_, err := client.Ping(d.net.soon(), vip, netip.Addr{}, nil)
			d.net.must(err)
		}
	})
	d.balanced()
	d.stop()
}

func icmpOf(a netip.Addr) uint8 {
	if a.Is4() {
		return protoICMP
	}
	return protoICMPv6
}

// setHealth changes what all backends of web tell, and waits for the verdicts.
func (d *device) setHealth(h lab.Health, want string) {
	d.net.Helper()
	for _, b := range d.net.Lab.Backends()[:6] {
		d.net.must(b.SetHealth(h))
	}
	d.wait("all of web to be "+want, func() error {
		list, err := d.Backends()
		for _, b := range list {
			if b.Service == "web" && b.Health != want {
				return fmt.Errorf("%s %s is %s", b.Name, b.Address, b.Health)
			}
		}
		return err
	})
}

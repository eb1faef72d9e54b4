package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"zonehop/bench/lab"
	"zonehop/forwarder/xsk"
)

// TestInterfaceAppearsLater starts the appliance before its interface exists.
func TestInterfaceAppearsLater(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	n.must(n.Appliance().DeleteLink("eth0"))
	d := n.prepare(n.Appliance().Name(), testConfig(t, "two-zones.yaml"))
	d.run()
	d.wait("the problem to be told", func() error {
		s, err := d.Status()
		if err == nil && !strings.Contains(s.Interfaces[0].Problem, "eth0 does not exist; it is used as soon as it appears") {
			err = fmt.Errorf("problem %q", s.Interfaces[0].Problem)
		}
		return err
	})
	n.must(n.Appliance().CreateLink("eth0"))
	d.ready()
	n.shares("client-b", vip4, 4)
	n.shares("client-b", vip6, 4)
	d.balanced()
	d.stop()
}

// TestQueueIsTaken starts the appliance while another socket has one of its
// queues.
func TestQueueIsTaken(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	var memory *xsk.UMEM
	var socket *xsk.Socket
	n.must(n.Appliance().Exec(func() error {
		dev, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		cfg := xsk.DefaultConfig()
		cfg.Mode = xsk.ModeCopy
		memory, socket, err = xsk.OpenPrimary(dev.Index, 1, cfg)
		return err
	}))
	free := func() {
		n.Helper()
		n.must(socket.Close()) // a second time does nothing
		memory.Reclaim(socket)
	}
	defer free()

	d := n.prepare(n.Appliance().Name(), testConfig(t, "two-zones.yaml"))
	d.run()
	d.wait("queue 0 alone to be bound", func() error {
		s, err := d.Status()
		if err != nil {
			return err
		}
		q := s.Interfaces[0].Queues
		if len(q) != 2 || !q[0].Bound || q[1].Bound || !strings.Contains(q[1].Problem, "another socket has the queue") || !strings.Contains(q[1].Problem, "ss --xdp") {
			return fmt.Errorf("queues %+v", q)
		}
		return d.announced("web-tcp", "web-udp")
	})
	d.sub("the other queue forwards", func(d *device) {
		// Connections whose tuple leads to queue 1 get no answer.
		served, tried := 0, 0
		d.wait("connections on queue 0 alone", func() error {
			ctx, cancel := context.WithTimeout(d.net.ctx, 300*time.Millisecond)
			defer cancel()
			tried++
			if _, err := d.net.Client("client-b").Get(ctx, vip4, "/"); err == nil {
				served++
			}
			s, err := d.Status()
			if err != nil {
				return err
			}
			if q := s.Interfaces[0].Queues; served == 0 || served == tried || q[0].Received == 0 || q[1].Received > 0 || q[1].NoSocket == 0 {
				return fmt.Errorf("%d of %d connections were served; queues %+v", served, tried, q)
			}
			return nil
		})
		if p := d.status().Interfaces[0].Problem; p != "" {
			d.net.Errorf("the interface as a whole has the problem %q", p)
		}
	})
	d.sub("nobody waits for the kernel's answer", func(d *device) {
		// The queue is tried again every two seconds, for up to 0.3 seconds.
		var took []time.Duration
		for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			began := time.Now()
			d.status()
			took = append(took, time.Since(began))
		}
		began := time.Now()
		d.net.must(d.Reload())
		d.net.Logf("%d answers of status took %v at most, a reload %v", len(took), slices.Max(took), time.Since(began))
	})
	d.balanced()
	free()
	d.ready()
	n.shares("client-b", vip4, 16)
	d.balanced()
	d.stop()
}

// TestQueueLeftOut uses one queue of two: what comes by the other is lost, and
// counted.
func TestQueueLeftOut(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	d := n.start(testConfig(t, "two-zones.yaml", "interfaces: [eth0]", "interfaces: [{name: eth0, queues: [0]}]"))
	answered := uint64(0)
	for range 32 {
		ctx, cancel := context.WithTimeout(n.ctx, 50*time.Millisecond)
		if _, _, err := n.Client("client-b").UDP(ctx, netip.AddrPortFrom(lab.VIPv4, lab.EchoPort), netip.AddrPort{}, []byte("queue")); err == nil {
			answered++
		}
		cancel()
	}
	s := d.balanced()
	a := s.Accounting
	if answered == 0 || answered == 32 || a.NoSocket == 0 || a.Redirected != a.Received+a.NoSocket {
		t.Errorf("%d of 32 were answered; %d redirected, %d received, %d without a socket", answered, a.Redirected, a.Received, a.NoSocket)
	}
	if p := s.Interfaces[0].Problem; p != "" {
		t.Errorf("the queue is left out on purpose, and the interface has the problem %q", p)
	}
	d.stop()
}

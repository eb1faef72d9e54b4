package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"zonehop/bench/lab"
)

// TestTimeToLeaveRotation measures, under continuous new connections, how long
// a backend that fails still gets some.
func TestTimeToLeaveRotation(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	d := n.start(testConfig(t, "two-zones.yaml",
		"checkIntervalSec: 0.2", "checkIntervalSec: 0.1", "timeoutSec: 0.2", "timeoutSec: 0.1", "unhealthyThreshold: 5", "unhealthyThreshold: 3"))
	backend := n.Backend("web-b1")
	wire := n.capture(backend.Node, "eth0")
	for _, how := range []struct {
		name   string
		health lab.Health
	}{
		{"fails its check", lab.HealthFailing},
		{"refuses connections", lab.HealthClosed},
		{"answers nothing", lab.HealthSlow},
	} {
		d.sub(how.name, func(d *device) {
			stop := d.net.keepConnecting("client-b", vip4, vip6)
			defer stop()
			d.net.eventually("new connections on web-b1", func() (bool, error) {
				return !lastSYN(wire, lab.VIPv4).IsZero() && !lastSYN(wire, lab.VIPv6).IsZero(), nil
			})
			began := time.Now()
			d.net.must(backend.SetHealth(how.health))
			var judged map[string]time.Time
			d.wait("both addresses to be judged", func() (err error) {
				judged, err = d.transitions("web-b1", "UNHEALTHY", began)
				return err
			})
			for address, vip := range map[string]netip.Addr{"10.1.0.11": lab.VIPv4, "fd00:1::11": lab.VIPv6} {
				d.net.quiet(wire, vip)
				last, verdict := lastSYN(wire, vip), judged[address]
				t.Logf("%s, %s: verdict %v after the failure (aim: 450 ms), last new connection %v after the verdict (aim: 50 ms)",
					how.name, address, verdict.Sub(began).Round(10*time.Microsecond), last.Sub(verdict).Round(10*time.Microsecond))
				if verdict.Before(began) {
					d.net.Errorf("the verdict on %s is dated %v before the failure", address, began.Sub(verdict))
				}
			}
			d.net.must(backend.SetHealth(lab.HealthOK))
			d.judged()
			wire.Clear()
		})
	}
	d.stop()
}

// TestPortsAreUsedAgain opens connections from four ports only, each of which
// is given back by a reset a moment before. None may meet a remainder of an
// earlier one: neither the appliance nor the network lets a packet of a tuple
// overtake another.
func TestPortsAreUsedAgain(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	d := n.start(testConfig(t, "two-zones.yaml"))
	n.must(n.Client("client-b").Sysctl("net/ipv4/ip_local_port_range", "40000 40003"))
	before := d.status().Accounting.Forwarded
	stop := n.keepConnecting("client-b", vip4, vip6)
	d.wait("thousands of packets", func() error {
		if got := d.status().Accounting.Forwarded - before; got < 6000 { // three for each connection
			return fmt.Errorf("%d so far", got)
		}
		return nil
	})
	stop()
	d.balanced()
	d.stop()
}

// keepConnecting opens TCP connections to all the addresses, one after the
// other, until it is told to stop. Each must be accepted; it is given up by a
// reset.
func (n *network) keepConnecting(client string, to ...netip.AddrPort) (stop func()) {
	ctx, cancel := context.WithCancel(n.ctx)
	var group sync.WaitGroup
	for _, to := range to {
		group.Go(func() {
			for tries := 1; ctx.Err() == nil; tries++ {
				conn, err := n.Client(client).DialTCP(ctx, to, netip.AddrPort{})
				if err == nil {
					err = errors.Join(conn.SetLinger(0), conn.Close())
				}
				if err != nil && ctx.Err() == nil {
					n.Errorf("connection %d: %v", tries, err)
					return
				}
			}
		})
	}
	return sync.OnceFunc(func() { cancel(); group.Wait() })
}

// lastSYN is when the last attempt to connect to an address arrived.
func lastSYN(c *lab.Capture, to netip.Addr) (last time.Time) {
	for _, f := range c.Frames() {
		p, ok := readIP(f)
		if ok && f.Direction == lab.In && p.proto == protoTCP && p.dst == to && p.l4[13]&0x12 == 0x02 { // SYN without ACK
			last = f.Time
		}
	}
	return last
}

// quiet waits until no attempt to connect has arrived for 300 ms, while others
// are going on: until then the last one is not known.
func (n *network) quiet(c *lab.Capture, to netip.Addr) {
	n.Helper()
	n.eventually(fmt.Sprintf("new connections to %s to stay away", to), func() (bool, error) {
		since := time.Since(lastSYN(c, to))
		return since > 300*time.Millisecond, fmt.Errorf("the last one came %v ago", since)
	})
}

// transitions returns when each address of a backend last turned to a state,
// which must be after a given time for all of them.
func (d *device) transitions(backend, to string, after time.Time) (map[string]time.Time, error) {
	h, err := d.Health()
	if err != nil {
		return nil, err
	}
	at := make(map[string]time.Time)
	for _, b := range h.Backends {
		if b.Backend != backend {
			continue
		}
		address, err := netip.ParseAddrPort(b.Address)
		if err != nil {
			return nil, err
		}
		if b.State != to {
			return nil, fmt.Errorf("%s is %s", b.Address, b.State)
		}
		for _, t := range b.Transitions {
			moment, err := time.Parse(time.RFC3339Nano, t.At)
			if err != nil {
				return nil, err
			}
			if t.To == to && moment.After(at[address.Addr().String()]) {
				at[address.Addr().String()] = moment
			}
		}
	}
	for address, moment := range at {
		if moment.Before(after) {
			return nil, fmt.Errorf("%s turned %s before", address, to)
		}
	}
	if len(at) != 2 {
		return nil, fmt.Errorf("%d addresses turned %s", len(at), to)
	}
	return at, nil
}

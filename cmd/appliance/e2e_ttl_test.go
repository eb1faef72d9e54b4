package main

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"zonehop/bench/lab"
)

// TestTimeExceeded sends packets through routes whose time to live ends at the
// appliance.
func TestTimeExceeded(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	d := n.start(testConfig(t, "two-zones.yaml"))
	client := n.Client("client-b")
	own, mac := n.mac(client.Node, "eth0"), n.mac(n.Appliance(), "eth0")
	wire := n.capture(client.Node, "eth0")
	arrives := []*lab.Capture{n.capture(n.Backend("fw-b").Node, "eth0"), n.capture(n.Backend("fw-c").Node, "eth0")}
	payload := make([]byte, 1300)
	lab.Pattern(0, payload)

	for _, c := range []struct {
		name     string
		to, from netip.Addr
		kind     byte
		header   int // of the error's IP header
		most     int // of the error's packet
	}{
		{"IPv4", far4.Addr(), lab.ApplianceIPv4, timeExceeded4, 20, 576},
		{"IPv6", far6.Addr(), lab.ApplianceIPv6, timeExceeded6, 40, 1280},
	} {
		d.sub(c.name, func(d *device) {
			before := d.status().Accounting
			isError := func(f lab.Frame) bool {
				p, ok := readIP(f)
				return ok && p.proto == icmpOf(c.to) && p.l4[0] == c.kind && p.dst == client.Addr(c.to)
			}
			frame := datagram(d.net.T, mac, own, netip.AddrPortFrom(client.Addr(c.to), 4000), netip.AddrPortFrom(c.to, 4000), 1, payload)
			d.net.send(client.Node, "eth0", frame)
			p, _ := readIP(d.net.see(wire, "the error", going(lab.In, isError)))
			if p.from != mac.String() || p.to != own.String() || p.src != c.from {
				d.net.Errorf("the error came from %s (%s) to %s, want %s (%s) to %s", p.src, p.from, p.to, c.from, mac, own)
			}
			quote := frame[14:min(len(frame), 14+c.most-c.header-8)]
			if p.l4[1] != 0 || !bytes.Equal(p.l4[4:8], make([]byte, 4)) || !bytes.Equal(p.l4[8:], quote) {
				d.net.Errorf("the error is\n%x\nwant code 0, four unused bytes and the quote\n%x", p.l4, quote)
			}
			sum := uint32(0)
			if c.to.Is6() {
				sum = pseudoSum(p.src, p.dst, len(p.l4), protoICMPv6)
			} else if internetSum(0, p.l3[:20]) != 0 {
				d.net.Error("the checksum of the error's IP header is wrong")
			}
			if internetSum(sum, p.l4) != 0 {
				d.net.Error("the error's checksum is wrong")
			}

			// Many at once: all are dropped, some are told: a burst of 20, and 100 a
			// second.
			const many = 400
			start := time.Now()
			for range many {
				d.net.send(client.Node, "eth0", frame)
			}
			d.counted("packets dropped as ttl_expired", dropped("ttl_expired"), before.Dropped["ttl_expired"]+many+1)
			a := d.balanced().Accounting
			if got := a.Dropped["ttl_expired"] - before.Dropped["ttl_expired"]; got != many+1 {
				d.net.Errorf("%d packets are dropped as ttl_expired, want %d", got, many+1)
			}
			told := a.Originated["time_exceeded"] - before.Originated["time_exceeded"]
			if most := 1 + 20 + uint64(100*time.Since(start).Seconds()) + 1; told < 2 || told > most {
				d.net.Errorf("%d of %d errors were sent within %v, want at most %d", told, many+1, time.Since(start), most)
			}
			d.net.eventually("the errors at the client", func() (bool, error) {
				return uint64(wire.Count(going(lab.In, isError))) == told, nil
			})
			if a.Forwarded != before.Forwarded {
				d.net.Errorf("%d expired packets were forwarded", a.Forwarded-before.Forwarded)
			}
		})
	}
	for _, c := range arrives {
		if k := c.Count(going(lab.In, func(f lab.Frame) bool {
			p, ok := readIP(f)
			return ok && p.proto == protoUDP
		})); k != 0 {
			t.Errorf("%d expired packets arrived at a firewall", k)
		}
	}
	d.stop()
}

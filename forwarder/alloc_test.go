// The race detector allocates.

//go:build !race

package forwarder

import (
	"net/netip"
	"testing"
)

// TestNoAllocations: nothing on the packet path allocates.
func TestNoAllocations(t *testing.T) {
	far := netip.MustParseAddr("192.168.1.1")
	for name, f := range map[string][]byte{
		"hit":     tcpFrame(client4, vip4, 1, 80, "A"),
		"route":   tcpFrame(client4, far, 1, 80, "A"),
		"select":  tcpFrame(client4, vip4, 2, 80, "S"),
		"no rule": tcpFrame(client4, vip4, 1, 81, "S"),
		"arp":     arpRequest(client4, vip4, clientMAC),
		"probe":   arpRequest(netip.IPv4Unspecified(), vip4, clientMAC),
		"claim":   arpRequest(vip4, vip4, clientMAC),
		"ping":    ping(vip4),
		"nd":      solicitation(client6, vip6, clientMAC),
		"short":   f20,
		"too big": bigFrame(1600),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{backends: 10})
			p := r.ports[0]
			p.keep, p.loop = false, false
			p.rx, p.tx = make([]xskDesc, 0, 256), make([]xskDesc, 0, 256)
			n := testing.AllocsPerRun(100, func() {
				for range 64 {
					p.deliver(f)
				}
				for r.Pass() > 0 {
				}
			})
			if n != 0 {
				t.Errorf("%v allocations for 64 packets, want 0", n)
			}
		})
	}
}

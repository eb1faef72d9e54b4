package probe

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"testing"
)

// A target with a rule's address connects to the backend and names the rule.
func TestRuleTarget(t *testing.T) {
	hosts := make(chan string, 100)
	addr := serve(t, func(c net.Conn) {
		if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			hosts <- r.Host
			_, _ = fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n") // the probe judges what arrives
		}
	})
	target := NewRuleTarget(addr.Addr(), netip.MustParseAddr("192.0.2.80"), fastCheck(HTTP, addr.Port()))
	p := startPool(t, Options{})
	update(t, p, target)
	if got := <-hosts; got != "192.0.2.80" {
		t.Errorf("host %q, want the rule's address", got)
	}
	waitFor(t, "healthy", func() bool { s, _ := p.State(target.Key); return s.State == Healthy })
}

// An error of Control that wraps ErrInconclusive does not count against a backend.
func TestErrInconclusive(t *testing.T) {
	target := NewTarget(netip.MustParseAddr("127.0.0.1"), fastCheck(TCP, 1))
	p := startPool(t, Options{Control: func(Target, int) error { return fmt.Errorf("%w: not yet", ErrInconclusive) }})
	update(t, p, target)
	waitFor(t, "five probes", func() bool { return p.Stats().Inconclusive >= 5 })
	if s, _ := p.State(target.Key); s.State != Unknown || s.Last.Text != "open socket: probe not made: not yet" {
		t.Errorf("status %+v", s)
	}
}

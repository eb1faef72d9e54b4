package probe

import (
	"crypto/tls"
	"net"
	"net/netip"
)

// tlsChecker completes a TLS handshake and runs the inner checker inside.
//
// The certificate is not verified and no server name is sent: a probe goes to
// an address, and an expired certificate is no reason to take every backend
// out at once. The handshake runs on the probe's goroutine under the deadline
// of the connection. The session is never closed with an alert: the caller
// closes the connection, and an alert would be one more write that can block.
type tlsChecker struct {
	inner  Checker
	config *tls.Config
	proto  string // ALPN protocol that must be agreed on; empty: none
}

func newTLSChecker(c *Check, inner Checker) *tlsChecker {
	t := &tlsChecker{inner: inner, config: &tls.Config{
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true,
	}}
	switch c.Type {
	case HTTPS:
		t.config.NextProtos = []string{"http/1.1"}
	case HTTP2, GRPCWithTLS:
		t.proto = "h2" // RFC 9113 section 3.2
		t.config.NextProtos = []string{t.proto}
	}
	return t
}

func (t *tlsChecker) Probe(conn net.Conn, addr netip.AddrPort) Result {
	session := tls.Client(conn, t.config)
	if err := session.Handshake(); err != nil {
		return failed("tls handshake", err)
	}
	if got := session.ConnectionState().NegotiatedProtocol; t.proto != "" && got != t.proto {
		return Result{Text: "tls handshake: the backend did not choose " + t.proto}
	}
	res := t.inner.Probe(session, addr)
	if res.OK && res.Text == connectedText {
		res.Text = "tls handshake completed"
	}
	return res
}

package probe

import (
	"net"
	"net/netip"
	"strconv"
)

// proxyChecker sends a PROXY protocol version 1 line before the protocol of
// the inner checker (The PROXY protocol, versions 1 & 2, section 2.1). The
// line states the connection's own addresses, since nothing is proxied.
type proxyChecker struct{ inner Checker }

func (p proxyChecker) Probe(conn net.Conn, addr netip.AddrPort) Result {
	if _, err := conn.Write(proxyLine(conn.LocalAddr(), addr)); err != nil {
		return failed("send proxy header", err)
	}
	return p.inner.Probe(conn, addr)
}

// proxyLine returns the header line. The families of both ends must agree; a
// local address that is not TCP (a test's pipe) gives the UNKNOWN form, which
// the protocol has for such cases.
func proxyLine(local net.Addr, to netip.AddrPort) []byte {
	tcp, ok := local.(*net.TCPAddr)
	if !ok {
		return []byte("PROXY UNKNOWN\r\n")
	}
	from := tcp.AddrPort()
	src, dst := from.Addr().Unmap().WithZone(""), to.Addr().Unmap().WithZone("")
	line := make([]byte, 0, 107) // longest line by the specification
	line = append(line, "PROXY TCP4 "...)
	if dst.Is6() {
		line[len(line)-2] = '6'
	}
	line = append(src.AppendTo(line), ' ')
	line = append(dst.AppendTo(line), ' ')
	line = append(strconv.AppendUint(line, uint64(from.Port()), 10), ' ')
	line = strconv.AppendUint(line, uint64(to.Port()), 10)
	return append(line, "\r\n"...)
}

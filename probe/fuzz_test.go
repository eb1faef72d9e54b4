package probe

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

// bytesConn is a connection on which the backend has sent data and closed.
// What the probe writes is dropped.
type bytesConn struct {
	net.Conn
	data *bytes.Reader
}

func (c bytesConn) Read(b []byte) (int, error)      { return c.data.Read(b) }
func (c bytesConn) Write(b []byte) (int, error)     { return len(b), nil }
func (c bytesConn) LocalAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }
func (c bytesConn) SetDeadline(time.Time) error     { return nil }
func (c bytesConn) SetReadDeadline(time.Time) error { return nil }

// FuzzCheckers feeds arbitrary bytes to every protocol. No bytes may panic or
// hang a probe, and none may succeed without saying what success requires.
func FuzzCheckers(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nhealthy",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Load-Balancing-Endpoint-Weight: 3\r\n\r\n7\r\nhealthy\r\n0\r\n\r\n",
		"HTTP/1.1 103 x\r\n\r\nHTTP/1.1 200 OK\r\n\r\nhealthy",
		"healthy",
		// SETTINGS; HEADERS :status 200; DATA "healthy", END_STREAM
		"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88" + "\x00\x00\x07\x00\x01\x00\x00\x00\x01healthy",
		// SERVING in DATA, grpc-status 0 in trailers
		"\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88" + "\x00\x00\x07\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x02\x08\x01" +
			"\x00\x00\x0f\x01\x05\x00\x00\x00\x01\x00\x0bgrpc-status\x010",
		"\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678", // PING
	} {
		f.Add([]byte(seed))
	}
	addr := netip.MustParseAddrPort("192.0.2.2:80")
	checkers := map[Type]Checker{}
	for _, typ := range []Type{TCP, HTTP, HTTP2, GRPC} {
		c := fastCheck(typ, 80)
		if typ != GRPC {
			c.Response, c.ReportWeight = "healthy", typ != TCP
		}
		checker, err := NewChecker(c)
		if err != nil {
			f.Fatal(err)
		}
		if t, ok := checker.(*tlsChecker); ok {
			checker = t.inner
		}
		checkers[typ] = checker
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for typ, checker := range checkers {
			res := checker.Probe(bytesConn{data: bytes.NewReader(data)}, addr)
			if res.Text == "" {
				t.Errorf("%s: no text: %+v", typ, res)
			}
			if !res.OK {
				continue
			}
			switch {
			case typ == TCP && string(data) != "healthy",
				typ == HTTP && !bytes.Contains(data, []byte(" 200")),
				typ == GRPC && !bytes.Contains(data, []byte{0x08, 0x01}) && !bytes.Contains(data, []byte{0x08, 0x81}):
				t.Errorf("%s: accepted %q: %+v", typ, data, res)
			}
		}
	})
}

// The seeds must reach the far end of each protocol, or the fuzzing is blind.
func TestFuzzSeedsSucceed(t *testing.T) {
	addr := netip.MustParseAddrPort("192.0.2.2:80")
	for typ, data := range map[Type]string{
		HTTP2: "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88" + "\x00\x00\x07\x00\x01\x00\x00\x00\x01healthy",
		GRPC: "\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88" + "\x00\x00\x07\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x02\x08\x01" +
			"\x00\x00\x0f\x01\x05\x00\x00\x00\x01\x00\x0bgrpc-status\x010",
	} {
		var res Result
		conn := bytesConn{data: bytes.NewReader([]byte(data))}
		if typ == GRPC {
			res = newGRPCChecker(fastCheck(GRPC, 80)).Probe(conn, addr)
		} else {
			c := fastCheck(HTTP2, 80)
			c.Response = "healthy"
			res = newHTTP2Checker(c).Probe(conn, addr)
		}
		if rest, _ := io.ReadAll(conn); !res.OK {
			t.Errorf("%s: %+v, %d bytes left", typ, res, len(rest))
		}
	}
}

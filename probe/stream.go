package probe

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
)

// connectedText describes a success without any data.
const connectedText = "connected"

// streamChecker checks TCP and SSL: the connection itself, then optionally a
// request and its exact answer.
type streamChecker struct {
	request  []byte
	response string
}

func newStreamChecker(c *Check) *streamChecker {
	return &streamChecker{request: []byte(c.Request), response: c.Response}
}

func (s *streamChecker) Probe(conn net.Conn, _ netip.AddrPort) Result {
	if len(s.request) > 0 {
		if _, err := conn.Write(s.request); err != nil {
			return failed("send request", err)
		}
	}
	if s.response == "" {
		return Result{OK: true, Text: connectedText}
	}
	return s.awaitResponse(conn)
}

// awaitResponse reads until the answer is complete or differs. A byte stream
// has no end of message, so "exactly" means: nothing else in front, and no
// further byte received by the time the answer is complete.
func (s *streamChecker) awaitResponse(conn net.Conn) Result {
	var buf [maxTextBytes + 1]byte
	room := buf[:len(s.response)+1]
	for n := 0; ; {
		m, err := conn.Read(room[n:])
		n += m
		got := string(room[:n])
		switch {
		case got == s.response:
			return Result{OK: true, Text: "response matched"}
		case n >= len(s.response) || got != s.response[:n]:
			return Result{Text: "response differs: " + quote(got)}
		case err == io.EOF:
			return Result{Text: fmt.Sprintf("response incomplete: closed after %d bytes", n)}
		case err != nil:
			return failed("read response", err)
		}
	}
}

// quote returns the beginning of what a backend sent, safe to log.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "…"
	}
	return strconv.QuoteToASCII(s)
}

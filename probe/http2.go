package probe

import (
	"bytes"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/http2/hpack"
)

// http2Checker asks like httpChecker, over HTTP/2.
type http2Checker struct {
	path     string
	host     string // empty: the destination address
	response []byte
	weight   bool
}

func newHTTP2Checker(c *Check) *http2Checker {
	path := c.RequestPath
	if path == "" {
		path = defaultPath
	}
	path, _, _ = strings.Cut(path, "#")
	return &http2Checker{path: path, host: c.Host, response: []byte(c.Response), weight: c.ReportWeight}
}

func (h *http2Checker) Probe(conn net.Conn, addr netip.AddrPort) Result {
	request := h2Request([]hpack.HeaderField{
		{Name: ":method", Value: "GET"},
		{Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: string(appendHost(nil, h.host, addr.Addr()))},
		{Name: ":path", Value: h.path},
		{Name: "user-agent", Value: userAgentText},
		{Name: "accept", Value: "*/*"},
	}, nil)
	if _, err := conn.Write(request); err != nil {
		return failed("send request", err)
	}
	x := newH2Exchange(conn)
	head, err := x.header()
	if err != nil {
		return failed("read response header", err)
	}
	if status := head.value(":status"); status != "200" {
		return Result{Text: "status " + quoteUnlessNumber(status)}
	}
	res := Result{OK: true, Text: "status 200"}
	if h.weight {
		res.Weight = parseWeight(head.values(strings.ToLower(weightHeader)))
	}
	if len(h.response) > 0 {
		h.search(x, head.end, &res)
	}
	return res
}

// header returns the fields of the final response (RFC 9110 section 15.2).
func (x *h2Exchange) header() (h2Event, error) {
	for {
		e, err := x.next()
		if err != nil {
			return e, err
		}
		if status := e.value(":status"); e.fields != nil && (len(status) != 3 || status[0] != '1' || e.end) {
			return e, nil
		}
	}
}

// search looks for the response text as httpChecker does.
func (h *http2Checker) search(x *h2Exchange, ended bool, res *Result) {
	var body []byte
	for !ended && len(body) < maxBodyBytes {
		e, err := x.next()
		if err != nil {
			*res = failed("read response body", err)
			return
		}
		ended = e.end
		body = append(body, e.data...)
		body = body[:min(len(body), maxBodyBytes)]
		if bytes.Contains(body, h.response) {
			res.Text = foundText
			return
		}
	}
	*res = Result{Text: notFoundText}
}

// quoteUnlessNumber returns a status for people.
func quoteUnlessNumber(s string) string {
	if s != "" && strings.Trim(s, "0123456789") == "" && len(s) <= 3 {
		return s
	}
	return quote(s)
}

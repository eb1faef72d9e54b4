package probe

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"strings"
	"sync"
)

// maxHeaderBytes bounds status line and header fields together, so that a
// backend that sends fields without end fails before the timeout.
const maxHeaderBytes = 64 << 10

// maxBodyBytes is how much of a body is searched for the response text.
const maxBodyBytes = 1024

// Texts of results that depend on the body.
const (
	foundText    = "status 200, response found"
	notFoundText = "status 200, response not found in the first 1024 bytes of the body"
)

// httpChecker speaks HTTP/1.1 (RFC 9112) over a connection of its own. Package
// net/http costs twice the processor time per probe and two goroutines; here
// the request is a prepared byte string and reading stops at the verdict.
type httpChecker struct {
	beforeHost []byte // request up to and including "Host: "
	host       string // empty: the destination address
	afterHost  []byte
	response   []byte
	weight     bool
}

func newHTTPChecker(c *Check) *httpChecker {
	path := c.RequestPath
	if path == "" {
		path = defaultPath
	}
	path, _, _ = strings.Cut(path, "#") // a fragment is never sent, RFC 9110 section 7.1
	return &httpChecker{
		beforeHost: []byte("GET " + path + " HTTP/1.1\r\nHost: "),
		host:       c.Host,
		afterHost:  []byte("\r\nUser-Agent: " + userAgentText + "\r\nAccept: */*\r\nConnection: close\r\n\r\n"),
		response:   []byte(c.Response),
		weight:     c.ReportWeight,
	}
}

// readers are kept between probes: at 10 000 probes a second a new buffer for
// each would be 40 MB/s of garbage.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4096) }}

func (h *httpChecker) Probe(conn net.Conn, addr netip.AddrPort) Result {
	request := make([]byte, 0, 512)
	request = append(request, h.beforeHost...)
	request = appendHost(request, h.host, addr.Addr())
	request = append(request, h.afterHost...)
	if _, err := conn.Write(request); err != nil {
		return failed("send request", err)
	}
	r := readers.Get().(*bufio.Reader)
	r.Reset(conn)
	defer func() { r.Reset(nil); readers.Put(r) }()
	return h.read(r)
}

// appendHost appends the Host header's value (RFC 9110 section 7.2).
func appendHost(b []byte, host string, addr netip.Addr) []byte {
	if host != "" {
		return append(b, host...)
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is4() {
		return addr.AppendTo(b)
	}
	return append(addr.AppendTo(append(b, '[')), ']')
}

// header is what a probe needs to know of a response's header section.
type header struct {
	status  int
	length  int64 // Content-Length, -1 if absent
	chunked bool
	weight  string
	weights int // how often the weight field occurred
}

func (h *httpChecker) read(r *bufio.Reader) Result {
	budget := maxHeaderBytes
	for {
		head, err := readHeader(r, &budget)
		if err != nil {
			return failed("read response header", err)
		}
		if head.status >= 100 && head.status < 200 && head.status != 101 {
			continue // interim response, RFC 9110 section 15.2: the final one follows
		}
		if head.status != 200 {
			return Result{Text: "status " + strconv.Itoa(head.status)}
		}
		res := Result{OK: true, Text: "status 200"}
		if h.weight {
			res.Weight = parseWeight(head.weight, head.weights)
		}
		if len(h.response) > 0 {
			h.search(r, &head, &res)
		}
		return res
	}
}

// search reads up to maxBodyBytes of the body and fails res unless the
// response text is in them. It stops at the match, so a body that never ends
// costs nothing.
func (h *httpChecker) search(r *bufio.Reader, head *header, res *Result) {
	var body io.Reader = r // ends with the connection, RFC 9112 section 6.3 rule 8
	switch {
	case head.chunked:
		body = httputil.NewChunkedReader(r)
	case head.length >= 0:
		body = io.LimitReader(r, head.length)
	}
	var buf [maxBodyBytes]byte
	for n := 0; n < len(buf); {
		m, err := body.Read(buf[n:])
		n += m
		if bytes.Contains(buf[:n], h.response) {
			res.Text = foundText
			return
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			*res = failed("read response body", err)
			return
		}
	}
	*res = Result{Text: notFoundText}
}

// readHeader reads one status line and its fields.
func readHeader(r *bufio.Reader, budget *int) (header, error) {
	head := header{length: -1}
	line, err := readLine(r, budget)
	if err != nil {
		return head, err
	}
	if head.status, err = parseStatus(line); err != nil {
		return head, err
	}
	for {
		line, err := readLine(r, budget)
		if err != nil {
			return head, err
		}
		if len(line) == 0 {
			return head, nil
		}
		name, value, found := bytes.Cut(line, []byte{':'})
		if !found {
			continue // folded or broken line; nothing we look for
		}
		head.note(name, bytes.TrimSpace(value))
	}
}

// note remembers a field if the probe needs it.
func (head *header) note(name, value []byte) {
	switch {
	case bytes.EqualFold(name, []byte("Content-Length")):
		if n, err := strconv.ParseInt(string(value), 10, 64); err == nil && n >= 0 {
			head.length = n
		}
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		head.chunked = bytes.EqualFold(value, []byte("chunked"))
	case bytes.EqualFold(name, []byte(weightHeader)):
		head.weight = string(value)
		head.weights++
	}
}

// readLine returns the next line without its end, valid until the next read.
// Lines longer than the buffer are dropped whole: a part of one could look
// like the empty line that ends the header section.
func readLine(r *bufio.Reader, budget *int) ([]byte, error) {
	for long := false; ; {
		line, err := r.ReadSlice('\n')
		if *budget -= len(line); *budget < 0 {
			return nil, fmt.Errorf("longer than %d bytes", maxHeaderBytes)
		}
		switch {
		case err == bufio.ErrBufferFull:
			long = true
		case err != nil:
			return nil, err
		case long:
			long = false
		default:
			return bytes.TrimRight(line, "\r\n"), nil
		}
	}
}

// parseStatus returns the status code of a status line (RFC 9112 section 4).
func parseStatus(line []byte) (int, error) {
	const shortest = len("HTTP/1.1 200")
	if len(line) < shortest || !bytes.HasPrefix(line, []byte("HTTP/1.")) || line[8] != ' ' ||
		(len(line) > shortest && line[shortest] != ' ') {
		return 0, fmt.Errorf("not HTTP/1: %s", quote(string(line)))
	}
	code, err := strconv.Atoi(string(line[9:shortest]))
	if err != nil || code < 100 {
		return 0, fmt.Errorf("bad status line: %s", quote(string(line)))
	}
	return code, nil
}

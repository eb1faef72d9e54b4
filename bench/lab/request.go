package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// answerTime bounds helpers whose context has no deadline of its own: long
// enough for four retransmissions of a SYN, on a machine that is busy.
const answerTime = 30 * time.Second

func withAnswerTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, answerTime)
}

// Request is one HTTP request on a connection of its own.
type Request struct {
	To   netip.AddrPort
	From netip.AddrPort // as for DialTCP
	Path string         // "" means /
	Body []byte         // a POST if not nil, else a GET
	// MaxBody bounds the body that is read; 0 means 64 MiB.
	MaxBody int64
}

// Reply is the answer to a Request.
type Reply struct {
	Backend string // name of the backend that answered
	Status  int
	Body    []byte
	Client  netip.AddrPort // source as the backend saw it
	Local   netip.AddrPort // destination as the backend saw it
}

// Get asks for a path on a fresh connection.
func (c *Client) Get(ctx context.Context, to netip.AddrPort, path string) (Reply, error) {
	return c.HTTP(ctx, Request{To: to, Path: path})
}

// HTTP sends one request on a fresh connection and closes it. Without a
// deadline in ctx it takes 30 s at most.
func (c *Client) HTTP(ctx context.Context, r Request) (Reply, error) {
	ctx, cancel := withAnswerTime(ctx)
	defer cancel()
	reply, err := c.http(ctx, r)
	if err != nil {
		return Reply{}, fmt.Errorf("http %s%s from %s: %w", r.To, r.Path, c.name, err)
	}
	return reply, nil
}

func (c *Client) http(ctx context.Context, r Request) (Reply, error) {
	transport := &http.Transport{
		DisableKeepAlives:  true,
		DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return c.DialTCP(ctx, r.To, r.From)
		},
	}
	defer transport.CloseIdleConnections()
	method, path := http.MethodGet, r.Path
	if r.Body != nil {
		method = http.MethodPost
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+r.To.String()+path, bytes.NewReader(r.Body))
	if err != nil {
		return Reply{}, err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return Reply{}, err
	}
	defer resp.Body.Close()
	limit := r.MaxBody
	if limit == 0 {
		limit = 64 << 20
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil {
		return Reply{}, fmt.Errorf("read body: %w", err)
	}
	reply := Reply{Backend: resp.Header.Get(HeaderBackend), Status: resp.StatusCode, Body: body}
	// Servers that are not ours have no such headers.
	reply.Client, _ = netip.ParseAddrPort(resp.Header.Get(HeaderClient))
	reply.Local, _ = netip.ParseAddrPort(resp.Header.Get(HeaderLocal))
	return reply, nil
}

// UDP sends one datagram from a fresh socket to a UDP echo and waits for its
// answer: the backend's name and the payload as it came back. Nothing is sent
// twice.
func (c *Client) UDP(ctx context.Context, to, from netip.AddrPort, payload []byte) (backend string, echo []byte, err error) {
	ctx, cancel := withAnswerTime(ctx)
	defer cancel()
	conn, err := c.DialUDP(ctx, to, from)
	if err != nil {
		return "", nil, err
	}
	defer conn.Close()
	backend, echo, err = exchange(ctx, conn, payload)
	if err != nil {
		return "", nil, fmt.Errorf("udp %s from %s: %w", to, c.name, err)
	}
	return backend, echo, nil
}

// ExchangeUDP sends one datagram on a socket of DialUDP and waits for the
// answer, for flows of many datagrams.
func ExchangeUDP(ctx context.Context, conn *net.UDPConn, payload []byte) (backend string, echo []byte, err error) {
	ctx, cancel := withAnswerTime(ctx)
	defer cancel()
	return exchange(ctx, conn, payload)
}

func exchange(ctx context.Context, conn net.Conn, payload []byte) (backend string, echo []byte, err error) {
	defer endWith(ctx, conn)()
	if _, err := conn.Write(payload); err != nil {
		return "", nil, err
	}
	buf := make([]byte, maxDatagram)
	n, err := conn.Read(buf)
	if err != nil {
		return "", nil, err
	}
	return splitName(buf[:n])
}

// endWith ends reads and writes of conn when ctx ends. The function it returns
// takes the watch away again and leaves conn without a deadline.
func endWith(ctx context.Context, conn interface{ SetDeadline(time.Time) error }) (stop func()) {
	ended := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(ended)
		conn.SetDeadline(time.Unix(1, 0))
	})
	return func() {
		if !unwatch() {
			<-ended
			conn.SetDeadline(time.Time{})
		}
	}
}

// splitName takes an echo apart: name, newline, payload.
func splitName(answer []byte) (backend string, echo []byte, err error) {
	name, rest, ok := bytes.Cut(answer, []byte{'\n'})
	if !ok {
		return "", nil, fmt.Errorf("answer of %d bytes carries no name", len(answer))
	}
	return string(name), rest, nil
}

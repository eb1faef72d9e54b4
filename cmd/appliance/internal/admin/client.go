package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

// DefaultSocket is where the appliance listens unless told otherwise.
const DefaultSocket = "/run/zonehop/admin.sock"

// answerWithin is how long an appliance may take to begin its answer: longer
// than any command waits there for the kernel. Tests have less.
var answerWithin = 30 * time.Second

// Client talks to a running appliance. Safe for concurrent use.
type Client struct {
	path string
	http http.Client
}

// NewClient makes a client of the appliance at path; if path is empty, of the
// one named by the environment variable ZONEHOP_SOCKET, or of DefaultSocket.
func NewClient(path string) *Client {
	if path == "" {
		path = os.Getenv("ZONEHOP_SOCKET")
	}
	if path == "" {
		path = DefaultSocket
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	return &Client{path: path, http: http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true, ResponseHeaderTimeout: answerWithin}}}
}

// Status asks for the state of the appliance.
func (c *Client) Status() (s Status, err error) { err = c.get("/status", &s); return s, err }

// Backends asks for all backends.
func (c *Client) Backends() (b []Backend, err error) { err = c.get("/backends", &b); return b, err }

// Health asks for probe results.
func (c *Client) Health() (h Health, err error) { err = c.get("/health", &h); return h, err }

// Explain asks which backend a packet gets, and why.
func (c *Client) Explain(q ExplainRequest) (e Explanation, err error) {
	err = c.post("/explain", q, &e)
	return e, err
}

// SetDrain stops or resumes new connections to a backend.
func (c *Client) SetDrain(backend string, on bool) error {
	return c.post("/drain", switchRequest{backend, on}, &struct{}{})
}

// SetAnnounce answers or stops answering for a standby rule.
func (c *Client) SetAnnounce(rule string, on bool) error {
	return c.post("/announce", switchRequest{rule, on}, &struct{}{})
}

// Reload makes the appliance read its configuration again. The error wraps
// ErrRefused if the old configuration is still in force.
func (c *Client) Reload() error { return c.post("/reload", struct{}{}, &struct{}{}) }

func (c *Client) get(path string, into any) error {
	return c.do(http.MethodGet, path, http.NoBody, into)
}

func (c *Client) post(path string, body, into any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	return c.do(http.MethodPost, path, bytes.NewReader(b), into)
}

func (c *Client) do(method, path string, body io.Reader, into any) error {
	resp, err := c.request(method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("read the appliance's answer: %w", err)
	}
	return nil
}

// request returns an answer that is not a refusal.
func (c *Client) request(method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequest(method, "http://appliance"+path, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	return resp, nil
}

// unreachable says that a request got no answer.
func (c *Client) unreachable(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return fmt.Errorf("connect to the appliance at %s: %w; is it running? give --socket or ZONEHOP_SOCKET if it uses another path", c.path, op.Err)
	}
	var of *url.Error
	if errors.As(err, &of) {
		if of.Timeout() {
			return fmt.Errorf("ask the appliance at %s: no answer within %v; its process may be stopped, or without CPU time", c.path, answerWithin)
		}
		err = of.Err
	}
	return fmt.Errorf("ask the appliance at %s: %w; it ended, or what answers there is no appliance", c.path, err)
}

// refusal is the error in an answer that is one.
func refusal(resp *http.Response) error {
	var f failure
	if err := json.NewDecoder(resp.Body).Decode(&f); err != nil {
		return fmt.Errorf("the appliance answered %s", resp.Status)
	}
	switch resp.StatusCode {
	case http.StatusNotFound:
		return remote{f.Error, ErrNotFound}
	case http.StatusConflict:
		return remote{f.Error, ErrRefused}
	}
	return errors.New(f.Error)
}

// remote is an error that came over the socket.
type remote struct {
	text string
	kind error
}

func (r remote) Error() string { return r.text }
func (r remote) Unwrap() error { return r.kind }

package probe

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"zonehop/bench/needs"
)

// probeOnce runs one probe over a real socket, outside a schedule.
func probeOnce(t testing.TB, addr netip.AddrPort, edit func(*Check)) Result {
	t.Helper()
	c := &Check{
		Name: "once", Type: TCP, Port: addr.Port(), Interval: 10 * time.Second, Timeout: 10 * time.Second,
		HealthyThreshold: 1, UnhealthyThreshold: 1,
	}
	edit(c)
	checker, err := NewChecker(c)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &spec{target: Target{Addr: addr, Check: c}, checker: checker}
	return p.execute(&worker{ctx: context.Background()}, s, time.Now())
}

// serve runs handle for every connection until the test ends.
func serve(t testing.TB, handle func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", ownLoopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		running := make(chan struct{}, 1024)
		n := 0
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			n++
			stop := context.AfterFunc(ctx, func() { c.Close() })
			go func() {
				defer func() { stop(); c.Close(); running <- struct{}{} }()
				handle(c)
			}()
		}
		for range n {
			<-running
		}
	}()
	t.Cleanup(func() { cancel(); l.Close(); <-done })
	return addrOf(l)
}

// answer returns a handler that reads one piece and answers with parts, one
// write each.
func answer(parts ...string) func(net.Conn) {
	return func(c net.Conn) {
		var buf [4096]byte
		if _, err := c.Read(buf[:]); err != nil {
			return
		}
		for _, p := range parts {
			if _, err := io.WriteString(c, p); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func TestStreamChecker(t *testing.T) {
	request := func(req, resp string) func(*Check) {
		return func(c *Check) { c.Request, c.Response = req, resp }
	}
	for _, tc := range []struct {
		name   string
		server func(net.Conn)
		check  func(*Check)
		ok     bool
		text   string
	}{
		{"connect only", func(net.Conn) {}, request("", ""), true, "connected"},
		{"request only", answer(), request("hi", ""), true, "connected"},
		{"exact", answer("PONG\r\n"), request("PING\r\n", "PONG\r\n"), true, "response matched"},
		{"exact in pieces", answer("PO", "NG"), request("PING", "PONG"), true, "response matched"},
		{"banner, nothing sent", func(c net.Conn) { io.WriteString(c, "220 ready") }, request("", "220 ready"), true, "response matched"},
		{"more", answer("PONGS"), request("PING", "PONG"), false, `response differs: "PONGS"`},
		{"other", answer("PANG"), request("PING", "PONG"), false, `response differs: "PANG"`},
		{"other, prefix decides", answer("X"), request("PING", "PONG"), false, `response differs: "X"`},
		{"short", answer("PO"), request("PING", "PONG"), false, "response incomplete: closed after 2 bytes"},
		{"closed at once", answer(), request("PING", "PONG"), false, "response incomplete: closed after 0 bytes"},
		{"longest", answer(strings.Repeat("x", 1024)), request("a", strings.Repeat("x", 1024)), true, "response matched"},
	} {
		res := probeOnce(t, serve(t, tc.server), tc.check)
		if res.OK != tc.ok || res.Text != tc.text {
			t.Errorf("%s: %v %q, want %v %q", tc.name, res.OK, res.Text, tc.ok, tc.text)
		}
	}
}

// A request whose answer nobody reads must reach the backend all the same.
func TestRequestOnlyArrives(t *testing.T) {
	got := make(chan string, 1)
	addr := serve(t, func(c net.Conn) {
		time.Sleep(50 * time.Millisecond) // by now the probe has closed
		b, err := io.ReadAll(c)
		got <- fmt.Sprintf("%q %v", b, err)
	})
	probeOnce(t, addr, func(c *Check) { c.Request = "note\n" })
	if g := <-got; g != `"note\n" <nil>` {
		t.Errorf("the backend received %s", g)
	}
}

func TestHTTPResponses(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	long := strings.Repeat("x", 1020)
	for _, tc := range []struct {
		name, response string // wanted text of the check
		parts          []string
		ok             bool
		text           string
	}{
		{"200", "", []string{ok + "\r\n"}, true, "status 200"},
		{"200 without reason", "", []string{"HTTP/1.1 200\r\n\r\n"}, true, "status 200"},
		{"http 1.0", "", []string{"HTTP/1.0 200 OK\r\n\r\n"}, true, "status 200"},
		{"bare line feeds", "", []string{"HTTP/1.1 200 OK\n\n"}, true, "status 200"},
		{"byte by byte", "", strings.Split(ok+"\r\n", ""), true, "status 200"},
		{"interim", "", []string{"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", ok + "\r\n"}, true, "status 200"},
		{"201", "", []string{"HTTP/1.1 201 Created\r\n\r\n"}, false, "status 201"},
		{"204", "", []string{"HTTP/1.1 204 No Content\r\n\r\n"}, false, "status 204"},
		{"redirect", "", []string{"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n"}, false, "status 302"},
		{"503", "", []string{"HTTP/1.1 503 Service Unavailable\r\n\r\n"}, false, "status 503"},
		{"2000", "", []string{"HTTP/1.1 2000 OK\r\n\r\n"}, false, `read response header: not HTTP/1: "HTTP/1.1 2000 OK"`},
		{"not http", "", []string{"SSH-2.0-OpenSSH_9.9\r\n"}, false, `read response header: not HTTP/1: "SSH-2.0-OpenSSH_9.9"`},
		{"header cut", "", []string{ok + "Content-"}, false, "read response header: closed by the backend"},
		{"nothing", "", nil, false, "read response header: closed by the backend"},
		{"long field", "", []string{ok + "X: " + strings.Repeat("y", 10_000) + "\r\n\r\n"}, true, "status 200"},
		{"long field of buffer size", "", []string{ok + strings.Repeat("y", 4096) + "\r\nZ: 1\r\n\r\n"}, true, "status 200"},
		{"fields without end", "", []string{ok + strings.Repeat("X: y\r\n", 12_000)}, false, "read response header: longer than 65536 bytes"},

		{"body", "ok", []string{ok + "Content-Length: 5\r\n\r\nit ok"}, true, "status 200, response found"},
		{"body in pieces", "needle", []string{ok + "Content-Length: 8\r\n\r\n", "xnee", "dlex"}, true, "status 200, response found"},
		{"body beyond its length", "ok", []string{ok + "Content-Length: 2\r\n\r\nnook"}, false, notFoundText},
		{"body until close", "ok", []string{ok + "\r\n", "o", "k"}, true, "status 200, response found"},
		{"empty body", "ok", []string{ok + "Content-Length: 0\r\n\r\n"}, false, notFoundText},
		{"at byte 1024", "abcd", []string{ok + "\r\n" + long + "abcd" + "more"}, true, "status 200, response found"},
		{"past byte 1024", "abcd", []string{ok + "\r\n" + long + "_abcd"}, false, notFoundText},
		{"chunked", "needle", []string{ok + "Transfer-Encoding: chunked\r\n\r\n3\r\nnee\r\n", "3;x=y\r\ndle\r\n0\r\n\r\n"}, true, "status 200, response found"},
		{"chunk framing is not content", "3", []string{ok + "Transfer-Encoding: chunked\r\n\r\n3\r\nnee\r\n0\r\n\r\n"}, false, notFoundText},
		{"bad chunk", "x", []string{ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"}, false, "read response body: invalid byte in chunk length"},
		{"error page with the text", "ok", []string{"HTTP/1.1 500 x\r\nContent-Length: 2\r\n\r\nok"}, false, "status 500"},
	} {
		res := probeOnce(t, serve(t, answer(tc.parts...)), func(c *Check) { c.Type, c.Response = HTTP, tc.response })
		if res.OK != tc.ok || res.Text != tc.text {
			t.Errorf("%s: %v %q, want %v %q", tc.name, res.OK, res.Text, tc.ok, tc.text)
		}
	}
}

// The request as net/http, an independent implementation, understands it.
func TestHTTPRequest(t *testing.T) {
	for _, typ := range []Type{HTTP, HTTPS, HTTP2} {
		seen := make(chan *http.Request, 1)
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen <- r
			w.Header().Set(weightHeader, "12.5")
			io.WriteString(w, strings.Repeat("-", 1000)+"healthy")
		}))
		srv.EnableHTTP2 = typ == HTTP2
		if typ == HTTP {
			srv.Start()
		} else {
			srv.StartTLS()
		}
		defer srv.Close()
		addr := addrOf(srv.Listener)

		res := probeOnce(t, addr, func(c *Check) {
			c.Type, c.RequestPath, c.Response, c.ReportWeight = typ, "/healthz?full=1", "healthy", true
		})
		if !res.OK || res.Weight != (Weight{WeightValid, 12.5}) || res.Latency <= 0 {
			t.Errorf("%s: result = %+v", typ, res)
			continue
		}
		r := <-seen
		if r.Method != "GET" || r.RequestURI != "/healthz?full=1" || r.Host != "127.0.0.1" || !strings.HasPrefix(r.UserAgent(), "zonehop/") {
			t.Errorf("%s: request = %s %s, host %s, agent %s", typ, r.Method, r.RequestURI, r.Host, r.UserAgent())
		}
		if typ == HTTP2 != (r.ProtoMajor == 2) {
			t.Errorf("%s: protocol %s", typ, r.Proto)
		}
		res = probeOnce(t, addr, func(c *Check) { c.Type, c.Host, c.Response = typ, "shop.example:8080", "absent" })
		if r := <-seen; r.Host != "shop.example:8080" || r.URL.Path != "/" || res.OK || res.Text != notFoundText {
			t.Errorf("%s: host %s, path %s, result %+v", typ, r.Host, r.URL.Path, res)
		}
	}
}

func TestIPv6(t *testing.T) {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		needs.Missing(t, "no IPv6 loopback: "+err.Error())
	}
	got := make(chan string, 1)
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Host })}}
	srv.Start()
	defer srv.Close()
	if res := probeOnce(t, addrOf(l), func(c *Check) { c.Type = HTTP }); !res.OK {
		t.Fatalf("result = %+v", res)
	}
	if host := <-got; host != "[::1]" {
		t.Errorf("Host = %q, want [::1]", host)
	}
}

func TestProxyHeader(t *testing.T) {
	line := make(chan string, 1)
	peer := make(chan string, 1)
	addr := serve(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		s, _ := r.ReadString('\n')
		line <- s
		peer <- c.RemoteAddr().String()
		http.ReadRequest(r)
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	})
	res := probeOnce(t, addr, func(c *Check) { c.Type, c.ProxyV1 = HTTP, true })
	if !res.OK {
		t.Fatalf("result = %+v", res)
	}
	from := netip.MustParseAddrPort(<-peer)
	want := fmt.Sprintf("PROXY TCP4 %s %s %d %d\r\n", from.Addr(), addr.Addr(), from.Port(), addr.Port())
	if got := <-line; got != want {
		t.Errorf("line = %q, want %q", got, want)
	}
	six := proxyLine(&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 1}, netip.MustParseAddrPort("[2001:db8::2]:443"))
	if string(six) != "PROXY TCP6 2001:db8::1 2001:db8::2 1 443\r\n" {
		t.Errorf("IPv6 line = %q", six)
	}
}

func TestTLS(t *testing.T) {
	srv := httptest.NewTLSServer(http.NotFoundHandler()) // HTTP/1.1 only
	defer srv.Close()
	srv.Config.ErrorLog = nil
	addr := addrOf(srv.Listener)
	if res := probeOnce(t, addr, func(c *Check) { c.Type = SSL }); !res.OK || res.Text != "tls handshake completed" {
		t.Errorf("SSL: %+v", res)
	}
	if res := probeOnce(t, addr, func(c *Check) { c.Type = HTTPS }); res.OK || res.Text != "status 404" {
		t.Errorf("HTTPS: %+v", res)
	}
	if res := probeOnce(t, addr, func(c *Check) { c.Type = HTTP2 }); res.OK || !strings.HasPrefix(res.Text, "tls handshake: ") {
		t.Errorf("HTTP2 against HTTP/1.1: %+v", res)
	}
	plain := serve(t, answer("HTTP/1.1 200 OK\r\n\r\n"))
	if res := probeOnce(t, plain, func(c *Check) { c.Type = SSL }); res.OK || !strings.HasPrefix(res.Text, "tls handshake: ") {
		t.Errorf("SSL against plain: %+v", res)
	}
}

// grpcServer speaks the health protocol through net/http.
func grpcServer(t *testing.T, withTLS bool, handle func(service string) (status int, rpcStatus string)) netip.AddrPort {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		service := ""
		if len(body) < 5 || int(binary.BigEndian.Uint32(body[1:])) != len(body)-5 {
			t.Errorf("request body = %x", body)
		} else if len(body) > 5 {
			_, _, n := protowire.ConsumeTag(body[5:])
			service, _ = protowire.ConsumeString(body[5+n:])
		}
		if r.URL.Path != "/grpc.health.v1.Health/Check" || r.Method != "POST" || r.Header.Get("TE") != "trailers" || r.Header.Get("Content-Type") != "application/grpc" {
			t.Errorf("request = %s %s %v", r.Method, r.URL, r.Header)
		}
		status, rpc := handle(service)
		w.Header().Set("Content-Type", "application/grpc")
		if status >= 0 {
			w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
			msg := protowire.AppendTag(nil, 7, protowire.BytesType) // a field we do not know
			msg = protowire.AppendString(msg, "future")
			msg = protowire.AppendTag(msg, 1, protowire.VarintType)
			msg = protowire.AppendVarint(msg, uint64(status))
			w.Write(append([]byte{0, 0, 0, 0, byte(len(msg))}, msg...))
		}
		if rpc != "" {
			w.Header().Set("Grpc-Status", rpc)
			w.Header().Set("Grpc-Message", "because")
		}
	}))
	if withTLS {
		srv.EnableHTTP2 = true
		srv.StartTLS()
	} else {
		srv.Config.Protocols = new(http.Protocols)
		srv.Config.Protocols.SetUnencryptedHTTP2(true)
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return addrOf(srv.Listener)
}

func TestGRPC(t *testing.T) {
	for _, tc := range []struct {
		name, service string
		status        int // -1: trailers only
		rpc           string
		ok            bool
		text          string
	}{
		{"serving", "", 1, "0", true, "SERVING"},
		{"serving service", "shop.Cart", 1, "0", true, "SERVING"},
		{"not serving", "", 2, "0", false, "health status NOT_SERVING"},
		{"unknown", "", 0, "0", false, "health status UNKNOWN"},
		{"unknown service", "x", -1, "5", false, `rpc status 5 "because"`},
		{"unimplemented", "", -1, "12", false, `rpc status 12 "because"`},
		{"serving but failed", "", 1, "13", false, `rpc status 13 "because"`},
		{"no status", "", 1, "", false, "rpc ended without a status"},
	} {
		for _, typ := range []Type{GRPC, GRPCWithTLS} {
			addr := grpcServer(t, typ == GRPCWithTLS, func(service string) (int, string) {
				if service != tc.service {
					t.Errorf("%s: service = %q", tc.name, service)
				}
				return tc.status, tc.rpc
			})
			res := probeOnce(t, addr, func(c *Check) { c.Type, c.GRPCServiceName = typ, tc.service })
			if res.OK != tc.ok || res.Text != tc.text {
				t.Errorf("%s %s: %v %q, want %v %q", typ, tc.name, res.OK, res.Text, tc.ok, tc.text)
			}
		}
	}
}

func TestParseWeight(t *testing.T) {
	for _, tc := range []struct {
		text string
		n    int
		want Weight
	}{
		{"", 0, Weight{State: WeightMissing}},
		{"0", 1, Weight{WeightValid, 0}},
		{"1000", 1, Weight{WeightValid, 1000}},
		{"0.5", 1, Weight{WeightValid, 0.5}},
		{"", 1, Weight{State: WeightInvalid}},
		{"-1", 1, Weight{State: WeightInvalid}},
		{"+1", 1, Weight{State: WeightInvalid}},
		{"NaN", 1, Weight{State: WeightInvalid}},
		{"inf", 1, Weight{State: WeightInvalid}},
		{"1e99", 1, Weight{State: WeightInvalid}},
		{"0x10", 1, Weight{State: WeightInvalid}},
		{"0x1p4", 1, Weight{State: WeightInvalid}},
		{"1e2", 1, Weight{WeightValid, 100}},
		{".5", 1, Weight{WeightValid, 0.5}},
		{"5 6", 1, Weight{State: WeightInvalid}},
		{"5", 2, Weight{State: WeightInvalid}},
	} {
		if got := parseWeight(tc.text, tc.n); got != tc.want {
			t.Errorf("parseWeight(%q, %d) = %v, want %v", tc.text, tc.n, got, tc.want)
		}
	}
}

package probe

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openDescriptors counts this process's descriptors.
func openDescriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// blackHole returns an address that answers nothing: a listener that accepts
// nobody, with its queue full, so the kernel drops every further SYN.
func blackHole(t testing.TB) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(sa.(*unix.SockaddrInet4).Port))
	failed := 0
	for range 16 {
		c, err := net.DialTimeout("tcp", addr.String(), 100*time.Millisecond)
		if err == nil {
			failed = 0
			t.Cleanup(func() { c.Close() })
		} else if failed++; failed == 2 { // once may be the machine's fault
			return addr // full
		}
	}
	t.Fatal("the listener's queue does not fill up")
	return addr
}

// refused returns an address where nobody listens.
func refused(t testing.TB) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", ownLoopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return addrOf(l)
}

// untilClosed reads until the peer is gone.
func untilClosed(c net.Conn) { io.Copy(io.Discard, c) }

// trickle sends s over and over, one byte at a time.
func trickle(s string, pause time.Duration) func(net.Conn) {
	return func(c net.Conn) {
		for i := 0; ; i++ {
			if _, err := c.Write([]byte{s[i%len(s)]}); err != nil {
				return
			}
			time.Sleep(pause)
		}
	}
}

// flood answers with head and then sends data as fast as it is taken.
func flood(head string) func(net.Conn) {
	return func(c net.Conn) {
		io.WriteString(c, head)
		junk := []byte(strings.Repeat("junk ", 13_000))
		for {
			if _, err := c.Write(junk); err != nil {
				return
			}
		}
	}
}

func reset(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
}

// Whatever a server does: the probe fails in time, with the right words, and
// leaves neither a descriptor nor (goleak in TestMain) a goroutine behind.
func TestMisbehavingServers(t *testing.T) {
	// What a server ends itself has long enough on any machine.
	const short, long = 250 * time.Millisecond, 10 * time.Second
	all := []Type{TCP, SSL, HTTP, HTTPS, HTTP2, GRPC, GRPCWithTLS}
	for _, tc := range []struct {
		name   string
		types  []Type // nil: all
		server func(net.Conn)
		addr   func(testing.TB) netip.AddrPort // instead of server
		text   string                          // part of the result; empty: anything
		waits  bool                            // only the timeout ends the probe
		may    bool                            // or may end it
	}{
		{name: "refuses", addr: refused, text: "connect: connection refused"},
		{name: "black hole", addr: blackHole, text: "connect: timed out", waits: true},
		{name: "accepts and stays silent", server: untilClosed, text: "timed out", waits: true},
		{name: "trickles valid http", types: []Type{HTTP}, server: trickle("HTTP/1.1 200 OK\r\nX: y\r\n", 20*time.Millisecond), text: "timed out", waits: true},
		{name: "trickles a field without end", types: []Type{HTTP}, server: func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nX: ")
			trickle("y", 5*time.Millisecond)(c)
		}, text: "timed out", waits: true},
		{name: "trickles the body", types: []Type{HTTP}, server: func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			trickle("y", 5*time.Millisecond)(c)
		}, text: "timed out", waits: true},
		{name: "trickles the answer", types: []Type{TCP}, server: trickle("PONG", 100*time.Millisecond), text: "timed out", waits: true},
		{name: "answers late", types: []Type{HTTP}, server: func(c net.Conn) {
			time.Sleep(short + 100*time.Millisecond)
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nhealthy")
		}, text: "timed out", waits: true},
		{name: "redirects", types: []Type{HTTP}, server: answer("HTTP/1.1 301 Moved Permanently\r\nLocation: http://127.0.0.1/\r\n\r\n"), text: "status 301"},
		{name: "closes at once", server: func(net.Conn) {}},
		{name: "closes after the request", types: []Type{HTTP, TCP, GRPC}, server: answer(), text: "closed"},
		{name: "resets", server: reset, text: ""},
		{name: "resets within the body", types: []Type{HTTP}, server: func(c net.Conn) {
			answer("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")(c)
			time.Sleep(20 * time.Millisecond)
			reset(c)
		}, text: "read response body: connection reset by peer"},
		{name: "megabytes of junk", server: flood(""), may: true},
		{name: "megabytes of body", types: []Type{HTTP}, server: flood("HTTP/1.1 200 OK\r\n\r\n"), text: notFoundText},
		{name: "megabytes in one chunk", types: []Type{HTTP}, server: flood("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n"), text: notFoundText},
		{name: "megabytes of chunk extension", types: []Type{HTTP}, server: flood("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;"), text: "read response body: "},
		{name: "settings without end", types: []Type{GRPC}, server: trickle("\x00\x00\x00\x04\x00\x00\x00\x00\x00", 0), text: "", may: true},
		{name: "large frame", types: []Type{GRPC}, server: flood("\xff\xff\xff\x00\x00\x00\x00\x00\x01"), text: "frame of 16777215 bytes"},
		{name: "goaway", types: []Type{GRPC}, server: answer("\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0b"), text: "connection refused by the backend (error code 0xb)"},
		{name: "resets the stream", types: []Type{GRPC}, server: answer("\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x07"), text: "stream reset by the backend (error code 0x7)"},
		{name: "padding past the frame", types: []Type{GRPC}, server: answer("\x00\x00\x02\x01\x0d\x00\x00\x00\x01\x09\x88"), text: "padding is longer"},
		{name: "empty padded frame", types: []Type{GRPC}, server: answer("\x00\x00\x00\x00\x09\x00\x00\x00\x01"), text: "unexpected EOF"},
		{name: "continuation without end", types: []Type{GRPC}, server: func(c net.Conn) {
			io.WriteString(c, "\x00\x00\x00\x01\x00\x00\x00\x00\x01")
			trickle("\x00\x00\x00\x09\x00\x00\x00\x00\x01", time.Millisecond)(c)
		}, text: "timed out", waits: true},
	} {
		types := tc.types
		if types == nil {
			types = all
		}
		for _, typ := range types {
			t.Run(tc.name+"/"+string(typ), func(t *testing.T) {
				addr := netip.AddrPort{}
				if tc.addr != nil {
					addr = tc.addr(t)
				} else {
					addr = serve(t, tc.server)
				}
				timeout := long
				if tc.waits || tc.may {
					timeout = short
				}
				begin := time.Now()
				res := unlessStalled(t, false, func() Result {
					begin = time.Now()
					return probeOnce(t, addr, func(c *Check) {
						c.Type, c.Timeout = typ, timeout
						if typ == TCP {
							c.Request, c.Response = "PING", "PONG"
						} else if typ != SSL && typ != GRPC && typ != GRPCWithTLS {
							c.Response = "healthy"
						}
					})
				})
				took := time.Since(begin)
				if res.OK || res.Text == "" || !strings.Contains(res.Text, tc.text) {
					t.Errorf("result = %+v, want a failure with %q", res, tc.text)
				}
				if tc.waits && took < timeout {
					t.Errorf("gave up after %v of %v", took, timeout)
				}
				if !tc.waits && !tc.may && took >= timeout {
					t.Errorf("waited for the timeout")
				}
			})
		}
	}
}

// The same through a pool, many times, with the pool stopped in the middle.
func TestNoLeaks(t *testing.T) {
	servers := []netip.AddrPort{
		blackHole(t), refused(t), serve(t, untilClosed), serve(t, reset),
		serve(t, flood("HTTP/1.1 200 OK\r\n\r\n")), serve(t, trickle("HTTP/1.1 200 OK\r\n", time.Millisecond)),
	}
	before := openDescriptors(t)
	var targets []Target
	for i, addr := range servers {
		for _, typ := range []Type{TCP, HTTP, HTTPS, GRPC} {
			c := fastCheck(typ, addr.Port())
			c.Name = string(typ) + string(rune('a'+i))
			c.Interval, c.Timeout = time.Second, time.Second
			if typ == HTTP {
				c.Response = "absent"
			}
			targets = append(targets, NewTarget(addr.Addr(), c))
		}
	}
	t.Run("pool", func(t *testing.T) {
		p := startPool(t, Options{})
		update(t, p, targets...)
		waitFor(t, "probes of every target", func() bool {
			for _, s := range p.States() {
				if s.Probes == 0 {
					return false
				}
			}
			return true
		})
		if s := p.Stats(); s.InFlight == 0 {
			t.Errorf("nothing is in flight when the pool stops: %+v", s)
		}
	})
	// The servers' ends close when they notice.
	waitFor(t, "descriptors closed", func() bool { return openDescriptors(t) <= before })
}

// Closing with a reset must leave nothing in TIME_WAIT, or 10 000 probes a
// second would run this host out of ports and memory.
func TestNoTimeWait(t *testing.T) {
	addr := serve(t, func(c net.Conn) { answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")(c); untilClosed(c) })
	for range 20 {
		for _, typ := range []Type{TCP, HTTP} {
			if res := probeOnce(t, addr, func(c *Check) { c.Type = typ }); !res.OK {
				t.Fatalf("%s: %+v", typ, res)
			}
		}
	}
	b, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	ip := addr.Addr().As4()
	server := fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(ip[:]), addr.Port())
	n := 0
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) > 3 && f[3] == "06" && (f[1] == server || f[2] == server) { // TIME_WAIT
			n++
		}
	}
	if n > 0 {
		t.Errorf("%d connections in TIME_WAIT after 40 probes", n)
	}
}

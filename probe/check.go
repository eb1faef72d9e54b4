package probe

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Type is the protocol of a check.
type Type string

// The protocols a check can speak.
const (
	TCP         Type = "TCP"
	SSL         Type = "SSL"
	HTTP        Type = "HTTP"
	HTTPS       Type = "HTTPS"
	HTTP2       Type = "HTTP2" // over TLS, negotiated by ALPN
	GRPC        Type = "GRPC"  // HTTP/2 with prior knowledge, no TLS
	GRPCWithTLS Type = "GRPC_WITH_TLS"
)

// Limits of a check's fields.
const (
	minInterval   = 100 * time.Millisecond
	maxInterval   = 300 * time.Second
	maxThreshold  = 10
	maxTextBytes  = 1024 // request and response
	maxNameBytes  = 1024 // gRPC service name
	maxPathBytes  = 2048
	maxHostBytes  = 255
	defaultPath   = "/"
	userAgentText = "zonehop/1.0"
)

// Check says how a backend is probed. It is plain, comparable data: two checks
// are the same if they are equal with ==. Every field that the Type does not
// use must be zero. A Check must not be changed once it is in a Target.
type Check struct {
	Name string // names the check in a Key
	Type Type

	Interval           time.Duration // from the start of one probe to the start of the next, 100 ms to 300 s
	Timeout            time.Duration // for a whole probe from connect to verdict, 100 ms to Interval
	HealthyThreshold   int           // successes in a row that make a target Healthy, 1 to 10
	UnhealthyThreshold int           // failures in a row that make a target Unhealthy, 1 to 10

	Port    uint16 // destination port of the probe, 1 to 65535
	ProxyV1 bool   // begin with a PROXY protocol version 1 line; not with GRPC

	Request  string // TCP, SSL: sent after the connection is up, up to 1024 ASCII bytes
	Response string // TCP, SSL: must be answered exactly; HTTP types: must be within the first 1024 bytes of the body

	Host         string // HTTP types: Host header; empty means the destination address of the probe
	RequestPath  string // HTTP types: path and query; empty means "/"
	ReportWeight bool   // HTTP types: read X-Load-Balancing-Endpoint-Weight from the answer

	GRPCServiceName string // GRPC types: service to ask about; empty means the whole server
}

// http, stream and grpc classify types by what they speak.
func (t Type) http() bool   { return t == HTTP || t == HTTPS || t == HTTP2 }
func (t Type) stream() bool { return t == TCP || t == SSL }
func (t Type) grpc() bool   { return t == GRPC || t == GRPCWithTLS }

// Validate reports every field that is out of range or not used by the type of
// the check, joined into one error.
func (c *Check) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if !c.Type.stream() && !c.Type.http() && !c.Type.grpc() {
		fail("type: %q is unknown; use TCP, SSL, HTTP, HTTPS, HTTP2, GRPC or GRPC_WITH_TLS", string(c.Type))
	}
	if c.Interval < minInterval || c.Interval > maxInterval {
		fail("interval: %v is out of range; use %v to %v", c.Interval, minInterval, maxInterval)
	}
	if c.Timeout < minInterval || c.Timeout > c.Interval {
		fail("timeout: %v is out of range; use %v to the interval (%v)", c.Timeout, minInterval, c.Interval)
	}
	for _, t := range []struct {
		name  string
		value int
	}{{"healthy threshold", c.HealthyThreshold}, {"unhealthy threshold", c.UnhealthyThreshold}} {
		if t.value < 1 || t.value > maxThreshold {
			fail("%s: %d is out of range; use 1 to %d", t.name, t.value, maxThreshold)
		}
	}
	if c.Port == 0 {
		fail("port: 0 is out of range; use 1 to 65535")
	}
	if c.ProxyV1 && c.Type.grpc() {
		fail("proxy header: not used by %s checks", c.Type)
	}
	c.validateText(fail)
	return errors.Join(errs...)
}

// validateText checks the fields that end up on the wire. Control characters
// in a path or a host would let a configuration value forge header lines.
func (c *Check) validateText(fail func(string, ...any)) {
	unused := func(name, value string, used bool) {
		if value != "" && !used {
			fail("%s: not used by %s checks", name, c.Type)
		}
	}
	unused("request", c.Request, c.Type.stream())
	unused("response", c.Response, c.Type.stream() || c.Type.http())
	unused("host", c.Host, c.Type.http())
	unused("request path", c.RequestPath, c.Type.http())
	unused("grpc service name", c.GRPCServiceName, c.Type.grpc())
	if c.ReportWeight && !c.Type.http() {
		fail("weight report: not used by %s checks", c.Type)
	}

	for _, f := range []struct {
		name, value string
		max         int
		ok          func(rune) bool
	}{
		{"request", c.Request, maxTextBytes, isASCII},
		{"response", c.Response, maxTextBytes, isASCII},
		{"host", c.Host, maxHostBytes, isVisible},
		{"request path", c.RequestPath, maxPathBytes, isVisible},
		{"grpc service name", c.GRPCServiceName, maxNameBytes, isVisible},
	} {
		if len(f.value) > f.max {
			fail("%s: %d bytes are too many; use at most %d", f.name, len(f.value), f.max)
		}
		if i := strings.IndexFunc(f.value, func(r rune) bool { return !f.ok(r) }); i >= 0 {
			fail("%s: character %q at byte %d is not allowed", f.name, f.value[i], i)
		}
	}
	if c.RequestPath != "" && c.RequestPath[0] != '/' {
		fail("request path: %q does not begin with /", c.RequestPath)
	}
}

func isASCII(r rune) bool   { return r < 0x80 }
func isVisible(r rune) bool { return r > 0x20 && r < 0x7f }

// Lingers reports whether connections of the check outlive their probe: they are
// closed in order and stay in TIME_WAIT for a minute, while all others are reset.
func (c *Check) Lingers() bool {
	return c.Type.stream() && c.Request != "" && c.Response == ""
}

// Key names a target. It does not contain a service: services that share a
// backend and a check share the target.
type Key struct {
	Backend netip.Addr // the machine
	Rule    netip.Addr // destination of the probe where that is a rule's address; else the zero Addr
	Check   string     // name of the check
}

// String returns backend/check, or backend@rule/check.
func (k Key) String() string {
	if k.Rule.IsValid() {
		return k.Backend.String() + "@" + k.Rule.String() + "/" + k.Check
	}
	return k.Backend.String() + "/" + k.Check
}

// Target is one thing to probe.
type Target struct {
	Key   Key
	Addr  netip.AddrPort // where the connection goes
	Check *Check         // shared, never changed

	// After is the target whose state this one has until its own first verdict, if it is new and that one
	// is known: the same backend, probed by another check or as another rule's address. Else it is zero.
	After Key
}

// destination is what the backend sees as the destination of the connection.
func (t *Target) destination() netip.AddrPort {
	if t.Key.Rule.IsValid() {
		return netip.AddrPortFrom(t.Key.Rule, t.Addr.Port())
	}
	return t.Addr
}

// NewTarget returns the target for a backend probed at its own address.
func NewTarget(backend netip.Addr, c *Check) Target {
	return Target{
		Key:   Key{Backend: backend, Check: c.Name},
		Addr:  netip.AddrPortFrom(backend, c.Port),
		Check: c,
	}
}

// NewRuleTarget returns the target for a backend probed as a rule's address. The
// socket connects to the backend's own address all the same: Options.Control or
// Options.Dial must see to it that the packets carry the rule's.
func NewRuleTarget(backend, rule netip.Addr, c *Check) Target {
	t := NewTarget(backend, c)
	t.Key.Rule = rule
	return t
}

package probe

import (
	"strings"
	"testing"
	"time"
)

func TestCheckValidate(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*Check)
		want string // part of the error; empty: valid
	}{
		{"plain", func(*Check) {}, ""},
		{"decimal interval", func(c *Check) { c.Interval, c.Timeout = 100*time.Millisecond, 100*time.Millisecond }, ""},
		{"every http field", func(c *Check) { c.ProxyV1, c.Response, c.Host, c.RequestPath = true, "ok", "a.example", "/x?y=1" }, ""},
		{"stream fields", func(c *Check) { c.Type, c.Request, c.Response = TCP, "ping\r\n", "pong\r\n" }, ""},
		{"type", func(c *Check) { c.Type = "UDP" }, `type: "UDP"`},
		{"interval low", func(c *Check) { c.Interval = time.Millisecond }, "interval: 1ms"},
		{"interval high", func(c *Check) { c.Interval = 301 * time.Second }, "interval: 5m1s"},
		{"timeout over interval", func(c *Check) { c.Timeout = 2 * c.Interval }, "timeout: "},
		{"healthy threshold", func(c *Check) { c.HealthyThreshold = 0 }, "healthy threshold: 0"},
		{"unhealthy threshold", func(c *Check) { c.UnhealthyThreshold = 11 }, "unhealthy threshold: 11"},
		{"port", func(c *Check) { c.Port = 0 }, "port: 0"},
		{"request on http", func(c *Check) { c.Request = "x" }, "request: not used by HTTP"},
		{"path on tcp", func(c *Check) { c.Type, c.RequestPath = TCP, "/" }, "request path: not used by TCP"},
		{"host on grpc", func(c *Check) { c.Type, c.Host = GRPC, "h" }, "host: not used by GRPC"},
		{"proxy on grpc", func(c *Check) { c.Type, c.ProxyV1 = GRPC, true }, "proxy header: not used by GRPC"},
		{"service on ssl", func(c *Check) { c.Type, c.GRPCServiceName = SSL, "s" }, "grpc service name: not used by SSL"},
		{"weight on tcp", func(c *Check) { c.Type, c.ReportWeight = TCP, true }, "weight report: not used by TCP"},
		{"long response", func(c *Check) { c.Response = strings.Repeat("x", 1025) }, "response: 1025 bytes"},
		{"non-ascii response", func(c *Check) { c.Response = "grün" }, "response: character"},
		{"relative path", func(c *Check) { c.RequestPath = "healthz" }, "does not begin with /"},
		{"forged header in path", func(c *Check) { c.RequestPath = "/ HTTP/1.1\r\nX: y" }, "request path: character"},
		{"forged header in host", func(c *Check) { c.Host = "a\r\nX: y" }, "host: character"},
	} {
		c := Check{Name: "c", Type: HTTP, Port: 80, Interval: time.Second, Timeout: time.Second, HealthyThreshold: 2, UnhealthyThreshold: 2}
		tc.edit(&c)
		err := c.Validate()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: Validate() = %v, want %q", tc.name, err, tc.want)
		}
		if _, cerr := NewChecker(&c); (cerr == nil) != (err == nil) {
			t.Errorf("%s: NewChecker() = %v, Validate() = %v", tc.name, cerr, err)
		}
	}
}

func TestValidateReportsEveryProblem(t *testing.T) {
	err := (&Check{}).Validate()
	for _, want := range []string{"type", "interval", "timeout", "healthy threshold", "unhealthy threshold", "port"} {
		if !strings.Contains(err.Error(), want+": ") {
			t.Errorf("Validate() of the zero Check does not mention %s: %v", want, err)
		}
	}
}

package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// HealthCheck is how a backend is probed.
type HealthCheck struct {
	Name string
	Type HealthCheckType
	// CheckInterval is the time from the start of one probe to the start of the next; Timeout is at most
	// that.
	CheckInterval, Timeout time.Duration
	// HealthyThreshold and UnhealthyThreshold are the results in a row, 1 to 10, that change the state.
	HealthyThreshold, UnhealthyThreshold int
	ProbeTarget                          ProbeTarget
	// LogTransitions makes every change of state a line in the log.
	LogTransitions bool
	Port           uint16
	// ProxyHeader is sent in front of everything else; not with gRPC.
	ProxyHeader ProxyHeader
	// Request is sent, and Response expected: exactly with TCP and SSL, somewhere in the first 1024 bytes
	// of the body with HTTP, HTTPS and HTTP2, which have no Request. Empty: nothing sent, anything goes.
	Request, Response string
	// Host is that of the HTTP request; empty for the probed address. RequestPath starts with "/".
	Host, RequestPath string
	// GRPCServiceName is the service asked for; empty for the server as a whole.
	GRPCServiceName string
}

// HealthCheckType is the protocol of a health check.
type HealthCheckType string

// The types of health checks.
const (
	CheckTCP         HealthCheckType = "TCP"
	CheckSSL         HealthCheckType = "SSL"
	CheckHTTP        HealthCheckType = "HTTP"
	CheckHTTPS       HealthCheckType = "HTTPS"
	CheckHTTP2       HealthCheckType = "HTTP2"
	CheckGRPC        HealthCheckType = "GRPC"
	CheckGRPCWithTLS HealthCheckType = "GRPC_WITH_TLS"
)

// ProbeTarget is the destination that backends see in probes.
type ProbeTarget string

// The targets: the backend's own address, or that of each forwarding rule that uses the service, in the
// backend's family. A backend is healthy when it answers as all of them. A family that no rule has is probed
// at the backend's own address.
const (
	ProbeBackendAddress ProbeTarget = "BACKEND_ADDRESS"
	ProbeRuleAddress    ProbeTarget = "RULE_ADDRESS"
)

// ProxyHeader is the header of the PROXY protocol.
type ProxyHeader string

// The proxy headers.
const (
	ProxyNone ProxyHeader = "NONE"
	ProxyV1   ProxyHeader = "PROXY_V1"
)

// protocols are the fields each type of check has, under the key of its own, and its default port.
var protocols = []struct {
	kind   HealthCheckType
	key    string
	port   uint16 // 0: no default
	fields []string
}{
	{CheckTCP, "tcpHealthCheck", 80, []string{"port", "portSpecification", "proxyHeader", "request", "response"}},
	{CheckSSL, "sslHealthCheck", 443, []string{"port", "portSpecification", "proxyHeader", "request", "response"}},
	{CheckHTTP, "httpHealthCheck", 80, []string{"port", "portSpecification", "proxyHeader", "host", "requestPath", "response"}},
	{CheckHTTPS, "httpsHealthCheck", 443, []string{"port", "portSpecification", "proxyHeader", "host", "requestPath", "response"}},
	{CheckHTTP2, "http2HealthCheck", 443, []string{"port", "portSpecification", "proxyHeader", "host", "requestPath", "response"}},
	{CheckGRPC, "grpcHealthCheck", 0, []string{"port", "portSpecification", "grpcServiceName"}},
	{CheckGRPCWithTLS, "grpcTlsHealthCheck", 0, []string{"port", "portSpecification", "grpcServiceName"}},
}

const maxProbeText = 1024 // bytes of a request or a response

// protocolFields are the fields of all protocols. The fixed port is the only port specification there is,
// so it is read and checked and not kept.
func protocolFields() []*field[HealthCheck] {
	return []*field[HealthCheck]{
		key("port", integer[uint16](1, 65535), func(h *HealthCheck) *uint16 { return &h.Port }, "the port to probe"),
		key("portSpecification", portSpecification, func(h *HealthCheck) *fixedPort { return new(fixedPort) },
			"USE_FIXED_PORT is the only one").short(),
		key("proxyHeader", enum("", nil, ProxyNone, ProxyV1), func(h *HealthCheck) *ProxyHeader { return &h.ProxyHeader },
			"what is sent in front of everything else"),
		key("request", ascii(maxProbeText), func(h *HealthCheck) *string { return &h.Request },
			"what is sent once connected; nothing when empty"),
		key("host", probeHost, func(h *HealthCheck) *string { return &h.Host },
			"the host in the request; the probed address when empty"),
		key("requestPath", probePath, func(h *HealthCheck) *string { return &h.RequestPath }, "the path requested"),
		key("response", ascii(maxProbeText), func(h *HealthCheck) *string { return &h.Response },
			"what has to come back; anything when empty"),
		key("grpcServiceName", grpcService, func(h *HealthCheck) *string { return &h.GRPCServiceName },
			"the service asked for; the whole server when empty"),
		refuse[HealthCheck]("portName", "named ports belong to instance groups, which do not exist here; use port"),
	}
}

type fixedPort string

var portSpecification = enum("", map[string]string{
	"USE_SERVING_PORT": "it is for proxies, which know the port they serve",
	"USE_NAMED_PORT":   "named ports belong to instance groups",
}, fixedPort("USE_FIXED_PORT"))

var healthCheckTable = newHealthCheckTable()

func newHealthCheckTable() *object[HealthCheck] {
	o := &object[HealthCheck]{noun: "a health check", finish: finishHealthCheck, fields: []*field[HealthCheck]{
		key("name", name(maxName), func(h *HealthCheck) *string { return &h.Name }, "what services call it"),
		key("type", enum("", map[string]string{"UDP": "an answer to UDP proves nothing about a server"},
			CheckTCP, CheckSSL, CheckHTTP, CheckHTTPS, CheckHTTP2, CheckGRPC, CheckGRPCWithTLS),
			func(h *HealthCheck) *HealthCheckType { return &h.Type }, "the protocol of the probe").need(),
		key("checkIntervalSec", seconds(time.Second/10, 300*time.Second, 3), func(h *HealthCheck) *time.Duration { return &h.CheckInterval },
			"from the start of one probe to the start of the next").def("5"),
		key("timeoutSec", seconds(time.Second/10, 300*time.Second, 3), func(h *HealthCheck) *time.Duration { return &h.Timeout },
			"at most the interval; the smaller of 5 and the interval when left out"),
		key("healthyThreshold", integer[int](1, 10), func(h *HealthCheck) *int { return &h.HealthyThreshold },
			"successes in a row that make a backend healthy").def("2"),
		key("unhealthyThreshold", integer[int](1, 10), func(h *HealthCheck) *int { return &h.UnhealthyThreshold },
			"failures in a row that make a backend unhealthy").def("2"),
		key("probeTarget", enum("", nil, ProbeBackendAddress, ProbeRuleAddress), func(h *HealthCheck) *ProbeTarget { return &h.ProbeTarget },
			"the address that backends are probed as: their own, or those of the forwarding rules that use their service, all of which have to answer").def("BACKEND_ADDRESS"),
		group("logConfig", "logConfig",
			"logging of transitions",
			key("enable", boolean, func(h *HealthCheck) *bool { return &h.LogTransitions }, "log every change of state").def("false")),
		refuse[HealthCheck]("sourceRegions", "it is for global checks, and every appliance probes from where it is; remove it"),
		refuse[HealthCheck]("udpHealthCheck", "an answer to UDP proves nothing about a server; probe a TCP port of the same machine"),
		refuse[HealthCheck]("description", "descriptions are not kept; write a comment"),
	}}
	for _, p := range protocols {
		var own []*field[HealthCheck]
		for _, f := range protocolFields() {
			if slices.Contains(p.fields, f.key) || f.refused != "" {
				own = append(own, f)
			}
		}
		g := group(p.key, p.key, "settings of type "+string(p.kind), own...).
			printed(func(h *HealthCheck) bool { return h.Type == p.kind })
		// Of a check without such an object, what is missing is missing beside the type.
		g.missing = func(*decoder, *yaml.Node, string, *HealthCheck) {}
		o.fields = append(o.fields, g)
	}
	for _, f := range protocolFields() {
		o.fields = append(o.fields, f.short())
	}
	return o
}

// finishHealthCheck fills in the defaults that depend on the type and the interval, and refuses fields of
// another type.
func finishHealthCheck(d *decoder, h *HealthCheck) {
	if !d.given(&h.Timeout) {
		h.Timeout = min(5*time.Second, h.CheckInterval)
	} else if h.Timeout > h.CheckInterval {
		d.errorAt(&h.Timeout, "%s is longer than checkIntervalSec, %s; use at most the interval", formatSeconds(h.Timeout), formatSeconds(h.CheckInterval))
	}
	for _, p := range protocols {
		if p.kind != h.Type {
			if at := (groupOf{h, p.key}); h.Type != "" && d.given(at) {
				d.errorAt(at, "belongs to type %s, but the type is %s; use %s", p.kind, h.Type, protocolKey(h.Type))
			}
			continue
		}
		for _, f := range []struct {
			key   string
			field any
		}{{"proxyHeader", &h.ProxyHeader}, {"request", &h.Request}, {"response", &h.Response}, {"host", &h.Host},
			{"requestPath", &h.RequestPath}, {"grpcServiceName", &h.GRPCServiceName}} {
			if d.given(f.field) && !slices.Contains(p.fields, f.key) {
				d.errorAt(f.field, "a check of type %s has no %s; use %s", h.Type, f.key, either(p.fields))
			}
		}
		if h.Port == 0 && !d.given(&h.Port) {
			if h.Port = p.port; p.port == 0 {
				d.errorAt(&h.Port, "missing; a check of type %s has no usual port, so give one", h.Type)
			}
		}
		if h.ProxyHeader == "" && slices.Contains(p.fields, "proxyHeader") {
			h.ProxyHeader = ProxyNone
		}
		if h.RequestPath == "" && slices.Contains(p.fields, "requestPath") {
			h.RequestPath = "/"
		}
	}
}

// checkProbeTargets refuses checks of rules' addresses for services that no rule uses, and for those
// whose backends get packets in tunnels, which probes do not take.
func (d *decoder) checkProbeTargets(c *Config) {
	if d.refused(&c.ForwardingRules) || d.refused(&c.HealthChecks) {
		return
	}
	ruled := make(map[string]bool)
	for i := range c.ForwardingRules {
		if r := &c.ForwardingRules[i]; d.refused(r) || d.refused(&r.BackendService) {
			return
		}
		ruled[c.ForwardingRules[i].BackendService] = true
	}
	checks := make(map[string]*HealthCheck, len(c.HealthChecks))
	for i := range c.HealthChecks {
		checks[c.HealthChecks[i].Name] = &c.HealthChecks[i]
	}
	for i := range c.BackendServices {
		s := &c.BackendServices[i]
		h := checks[s.HealthCheck]
		if s.Name == "" || h == nil || h.ProbeTarget != ProbeRuleAddress {
			continue
		}
		if !ruled[s.Name] {
			d.errorAt(&h.ProbeTarget, "RULE_ADDRESS has no address to probe for backend service %s, because no forwarding rule uses it; use BACKEND_ADDRESS, or another check for that service", s.Name)
		}
		if s.Delivery != DeliveryL2 && !d.refused(&s.Delivery) {
			d.errorAt(&h.ProbeTarget, "RULE_ADDRESS cannot go with delivery %s of backend service %s; use BACKEND_ADDRESS, or delivery L2", s.Delivery, s.Name)
		}
	}
}

func protocolKey(t HealthCheckType) string {
	for _, p := range protocols {
		if p.kind == t {
			return p.key
		}
	}
	return ""
}

// probeHost is a host as it may stand in a request. Spaces and control characters would end its line.
var probeHost = leaf("a host name or address", func(text string) (string, error) {
	if len(text) > 255 || strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune("/?#@", c) }) {
		return "", fmt.Errorf("%s is not a host; use a host name or address of at most 255 characters", show(text))
	}
	return text, nil
}, word, schema{"type": "string", "maxLength": 255})

// grpcService is the name of a service as gRPC servers register it. Spaces and control characters are in
// none, and one that came with a line end would never be found.
var grpcService = leaf("the name of a gRPC service", func(text string) (string, error) {
	if len(text) > maxProbeText || strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", fmt.Errorf("%s is not the name of a service; use at most %d ASCII characters without spaces", show(text), maxProbeText)
	}
	return text, nil
}, word, schema{"type": "string", "maxLength": maxProbeText})

// probePath is the path and query of a request (RFC 3986, sections 3.3 and 3.4).
var probePath = leaf("a path such as /healthz", func(text string) (string, error) {
	if !strings.HasPrefix(text, "/") || len(text) > 2048 || strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' || c == '#' }) {
		return "", fmt.Errorf("%s is not a request path; use one that starts with / and has at most 2048 ASCII characters without spaces and #", show(text))
	}
	return text, nil
}, word, schema{"type": "string", "pattern": "^/", "maxLength": 2048})

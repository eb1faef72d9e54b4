package appliance

import (
	"fmt"
	"testing"

	"zonehop/config"
	"zonehop/probe"
)

// TestEveryCheckIsProbed: the probe pool accepts every type of check that the configuration does,
// with all of its fields and with none.
func TestEveryCheckIsProbed(t *testing.T) {
	checks := map[probe.Type][2]string{
		probe.TCP:         {"", "proxyHeader: PROXY_V1, request: PING, response: PONG"},
		probe.SSL:         {"", "proxyHeader: PROXY_V1, request: PING, response: PONG"},
		probe.HTTP:        {"", "proxyHeader: PROXY_V1, host: example.com, requestPath: /healthz, response: ok"},
		probe.HTTPS:       {"", "proxyHeader: PROXY_V1, host: example.com, requestPath: /healthz, response: ok"},
		probe.HTTP2:       {"", "proxyHeader: PROXY_V1, host: example.com, requestPath: /healthz, response: ok"},
		probe.GRPC:        {"port: 50051", "port: 50051, grpcServiceName: web"},
		probe.GRPCWithTLS: {"port: 50051", "port: 50051, grpcServiceName: web"},
	}
	for kind, forms := range checks {
		for _, fields := range forms {
			yaml := fmt.Sprintf("interfaces: [eth0]\nbackendServices:\n  - name: web\n    healthChecks: [{type: %s, %s}]\n    backends: [{address: 10.1.0.11}]\n", kind, fields)
			c, problems := config.Parse("f", []byte(yaml))
			if c == nil {
				t.Errorf("%s with %q is refused:\n%s", kind, fields, problems)
				continue
			}
			targets, _ := probeTargets(c)
			pool, err := probe.New(probe.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := pool.Update(targets); err != nil || len(targets) != 1 || targets[0].Check.Type != kind || targets[0].Check.Port == 0 {
				t.Errorf("%s with %q: %d targets, %v", kind, fields, len(targets), err)
			}
		}
	}
}

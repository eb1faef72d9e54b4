package main

import (
	"fmt"
	"net/netip"
	"testing"

	"zonehop/bench/lab"
)

// verdictsConfig is a service that drops everything while nothing is healthy, with a check and rules.
func verdictsConfig(check, rules string) string {
	return fmt.Sprintf(`interfaces: [eth0]
hashKey: end-to-end
backendServices:
  - name: web
    healthChecks: [{%s, checkIntervalSec: 2, timeoutSec: 1}]
    connectionDraining: {drainingTimeoutSec: 30}
    failoverPolicy: {dropTrafficIfUnhealthy: true}
    backends: [{name: b1, address: 10.1.0.11}, {name: c1, address: 10.2.0.11}]
forwardingRules:
%s`, check, rules)
}

// TestReloadKeepsVerdicts: a reload that probes the same backends by another check, or as further
// rules' addresses, leaves them as healthy as they were until the new probes have a verdict.
func TestReloadKeepsVerdicts(t *testing.T) {
	const (
		asItself = "type: HTTP, port: 8080, requestPath: /healthz"
		asRule   = asItself + ", probeTarget: RULE_ADDRESS"
		oneRule  = "  - {name: one, IPAddress: 10.0.100.10, ports: [80, 443], backendService: web}\n"
		another  = oneRule + "  - {name: two, IPAddress: 10.0.100.11, ports: [80], backendService: web}\n"
	)
	n := newNetwork(t, lab.Options{Topology: fiveBackends()})
	d := n.start(verdictsConfig(asItself, oneRule))
	vip := netip.MustParseAddrPort("10.0.100.10:80")
	for _, to := range []struct{ what, check, rules string }{
		{"another port", "type: HTTP, port: 80, requestPath: /", oneRule},
		{"another protocol", "type: TCP, port: 80", oneRule},
		{"the rule's address", asRule, oneRule},
		{"a second rule's address", asRule, another},
		{"the first rule's address again", asRule, oneRule},
		{"their own address again", asItself, oneRule},
	} {
		d.write(verdictsConfig(to.check, to.rules))
		n.must(d.Reload())
		list, err := d.Backends()
		n.must(err)
		for _, b := range list {
			if b.Health != "HEALTHY" {
				t.Errorf("probed by %s, %s is %s after the reload", to.what, b.Name, b.Health)
			}
		}
		if _, err := n.Client("client-b").Get(n.soon(), vip, "/"); err != nil {
			t.Errorf("probed by %s: %v", to.what, err)
		}
		h, err := d.Health()
		n.must(err)
		for _, b := range h.Backends {
			if len(b.Transitions) == 0 && b.RuleAddress != "10.0.100.11" {
				t.Errorf("probed by %s, %s has lost its history", to.what, b.Backend)
			}
		}
		d.probedAnew(to.what)
	}
	// The new probes do decide.
	n.must(n.Backend("b1").SetHealth(lab.HealthFailing))
	d.unhealthy("b1 10.1.0.11")
	d.stop()
}

// probedAnew waits until every target has had a probe of its present check, and all are healthy.
func (d *device) probedAnew(what string) {
	d.net.Helper()
	d.wait("the first probes by "+what, func() error {
		h, err := d.Health()
		if err != nil {
			return err
		}
		for _, b := range h.Backends {
			if b.State != "HEALTHY" || b.InRow < 1 {
				return fmt.Errorf("%s as %q: %s, %d in a row: %s", b.Backend, b.RuleAddress, b.State, b.InRow, b.Text)
			}
		}
		return nil
	})
}

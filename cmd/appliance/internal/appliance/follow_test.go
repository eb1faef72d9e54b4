package appliance

import (
	"strings"
	"testing"

	"zonehop/config"
	"zonehop/probe"
)

func parsed(t *testing.T, yaml string) *config.Config {
	t.Helper()
	c, problems := config.Parse("f", []byte(yaml))
	if c == nil {
		t.Fatal(problems)
	}
	return c
}

// TestFollow: what is probed anew in a reload comes after what was probed of the same machine for the same
// service, the worst of that; a new machine, or one with another address, comes after nothing.
func TestFollow(t *testing.T) {
	const before = `interfaces: [eth0]
healthChecks: [{name: one, type: TCP, probeTarget: RULE_ADDRESS}, {name: two, type: TCP, port: 81}]
backendServices:
  - name: web
    healthChecks: [one]
    backends: [{name: w1, address: 10.1.0.11}, {name: w2, address: 10.1.0.12}]
  - name: dns
    healthChecks: [two]
    backends: [{name: d1, address: 10.1.0.13}]
forwardingRules:
  - {IPAddress: 10.1.255.10, ports: [80], backendService: web}
  - {IPAddress: 10.1.255.11, ports: [80], backendService: web}
`
	_, old := probeTargets(parsed(t, before))
	targets, members := probeTargets(parsed(t, strings.NewReplacer(
		"healthChecks: [one]", "healthChecks: [two]", "10.1.0.12", "10.1.0.22", "healthChecks: [{name: one, type: TCP, probeTarget: RULE_ADDRESS}, ", "healthChecks: [",
		"{name: d1, address: 10.1.0.13}", "{name: d1, address: 10.1.0.13}, {name: d2, address: 10.1.0.14}",
	).Replace(before)))
	follow(targets, members, old, func(k probe.Key) probe.State {
		if k.Rule.IsValid() && k.Rule.String() == "10.1.255.11" {
			return probe.Unhealthy
		}
		return probe.Healthy
	})
	got := make(map[string]string)
	for _, target := range targets {
		got[target.Key.String()] = target.After.String()
	}
	none := probe.Key{}.String()
	want := map[string]string{
		"10.1.0.11/two": "10.1.0.11@10.1.255.11/one", "10.1.0.22/two": none, "10.1.0.13/two": none, "10.1.0.14/two": none,
	}
	for key, after := range want {
		if got[key] != after || len(got) != len(want) {
			t.Errorf("%s comes after %q, want %q (all: %v)", key, got[key], after, got)
		}
	}
}

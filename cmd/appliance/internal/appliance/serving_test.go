package appliance

import (
	"fmt"
	"slices"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"zonehop/selector"
)

// TestServing: a failover, a last resort and the way back are told once each; a start is not, nor a family
// that a service has no backends in.
func TestServing(t *testing.T) {
	c := parsed(t, `interfaces: [eth0]
backendServices:
  - name: web
    healthChecks: [{type: TCP}]
    failoverPolicy: {failoverRatio: 0.6}
    backends: [{name: p1, address: 10.1.0.11}, {name: p2, address: 10.1.0.12}, {name: f, address: 10.1.0.13, failover: true}]
  - name: strict
    healthChecks: [{type: TCP}]
    failoverPolicy: {dropTrafficIfUnhealthy: true}
    backends: [{name: p1, address: 10.1.0.11}]
forwardingRules:
  - {name: vip, IPAddress: 10.1.255.10, ports: [80], backendService: web}
`)
	o, err := SelectorOptions(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := selector.New(o, 0)
	if err != nil {
		t.Fatal(err)
	}
	core, logged := observer.New(zap.DebugLevel)
	s := make(serving)
	step := func(what string, health map[string]selector.Health, want ...string) {
		t.Helper()
		for name, h := range health {
			for _, service := range []string{"web", "strict"} {
				b.SetHealth(service, name, selector.V4, h)
			}
		}
		s.follow(zap.New(core), b.Publish(0))
		var got []string
		for _, e := range logged.TakeAll() {
			m := e.ContextMap()
			got = append(got, fmt.Sprintf("%s %s %v %v>%v", e.Level, m["service"], m["family"], m["previousKind"], m["kind"]))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: logged %q, want %q", what, got, want)
		}
	}
	for _, backend := range c.BackendServices[0].Backends {
		b.SetDelivery(backend.Address, selector.Delivery{State: selector.Deliverable})
	}
	const up, down = selector.Healthy, selector.Unhealthy
	step("nothing is known", nil)
	step("some verdicts", map[string]selector.Health{"p1": down}, "error strict IPv4 <nil>>DROP")
	step("all verdicts", map[string]selector.Health{"p1": up, "p2": up, "f": up}, "info strict IPv4 DROP>HEALTHY_PRIMARIES")
	step("one fails", map[string]selector.Health{"p2": down}, "warn web IPv4 HEALTHY_PRIMARIES>HEALTHY_FAILOVERS")
	if problem := trouble(b.Current(), b.Current().Rule("vip")); problem != servingNews[selector.HealthyFailovers].problem || problem == "" {
		t.Errorf("status says %q of a failover", problem)
	}
	step("nothing new", map[string]selector.Health{"p2": down})
	step("all fail", map[string]selector.Health{"p1": down, "f": down},
		"error strict IPv4 HEALTHY_PRIMARIES>DROP", "error web IPv4 HEALTHY_FAILOVERS>ALL_PRIMARIES")
	step("all are back", map[string]selector.Health{"p1": up, "p2": up, "f": up},
		"info strict IPv4 DROP>HEALTHY_PRIMARIES", "info web IPv4 ALL_PRIMARIES>HEALTHY_PRIMARIES")
	if problem := trouble(b.Current(), b.Current().Rule("vip")); problem != "" {
		t.Errorf("status says %q when all is well", problem)
	}
}

package appliance

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"zonehop/config"
	"zonehop/probe"
	"zonehop/probe/composite"
	"zonehop/selector"
)

// checkForms are health checks of every kind of text, with two places for one.
var checkForms = []string{
	"type: TCP\n    request: %s\n    response: %s", "type: SSL\n    request: %s\n    response: %s", "type: HTTP\n    host: %s\n    response: %s",
	"type: HTTPS\n    host: %s\n    response: %s", "type: HTTP2\n    requestPath: %s\n    host: %s", "type: GRPC\n    port: 1\n    grpcServiceName: %s # %s",
}

// oddConfiguration has one odd text, at the given of its places.
func oddConfiguration(t *rapid.T, form string, place int) string {
	usual := []any{"b", "check", "/", "ok", "web", "pair", "w"}
	alphabet := rapid.SampledFrom([]rune("aZ09-._:/,[]%#?@= \"\\\t\r\nü\x01\x7f~{}"))
	quoted, err := json.Marshal(rapid.StringOfN(alphabet, 0, 5, -1).Draw(t, "text")) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	usual[place] = string(quoted)
	tenths := rapid.IntRange(1, 30).Draw(t, "timeout")
	return fmt.Sprintf(strings.NewReplacer("FORM", form, "TIMEOUT", fmt.Sprintf("%d.%d", tenths/10, tenths%10)).Replace(`interfaces: [eth0]
zones: [{name: a}, {name: %s}]
healthChecks:
  - name: %s
    FORM
    checkIntervalSec: 3
    timeoutSec: TIMEOUT
backendServices:
  - name: %s
    healthChecks: [check]
    symmetryGroup: %s
    backends: [{name: %s, zone: a, address: 10.1.0.11}, {address: 10.1.0.12, ipv6Address: "fd00::1"}]
healthAggregationPolicies: [{name: p, healthyPercentThreshold: TIMEOUT}]
healthSources: [{name: s, sources: [web], healthAggregationPolicy: p}]
`), usual...)
}

// TestWhatIsValidRuns: a configuration that check accepts is one that the probes, the selector and the
// aggregation of health accept too, whatever the texts in it. Otherwise it would fail at the start, or
// half of it would be in force after a reload.
func TestWhatIsValidRuns(t *testing.T) {
	tried, accepted := 0, 0
	try := func(t *rapid.T, yaml string) {
		tried++
		c, _ := config.Parse("f", []byte(yaml))
		if c == nil {
			return
		}
		accepted++
		targets, _ := probeTargets(c)
		pool, err := probe.New(probe.Options{})
		if err == nil {
			err = pool.Update(targets)
		}
		if err != nil {
			t.Fatalf("probes: %v\n%s", err, yaml)
		}
		o, err := SelectorOptions(c, nil)
		if err == nil {
			err = selector.Validate(&o)
		}
		if err != nil {
			t.Fatalf("selector: %v\n%s", err, yaml)
		}
		aggregated, err := CompositeOptions(c)
		if err == nil {
			err = composite.Validate(&aggregated)
		}
		if err != nil {
			t.Fatalf("composite health: %v\n%s", err, yaml)
		}
	}
	for _, form := range checkForms {
		for place := range 7 {
			rapid.Check(t, func(t *rapid.T) { try(t, oddConfiguration(t, form, place)) })
		}
	}
	if accepted == 0 {
		t.Errorf("none of %d configurations was accepted: nothing is tested", tried)
	}
	t.Logf("%d of %d configurations were accepted", accepted, tried)
}

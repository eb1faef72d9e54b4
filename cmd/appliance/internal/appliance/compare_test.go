package appliance

import (
	"slices"
	"testing"
	"time"

	"zonehop/config"
)

// TestCompareSpeaksLikeTheFile: changes carry the names and units of the
// configuration file.
func TestCompareSpeaksLikeTheFile(t *testing.T) {
	old := &config.Config{
		HealthChecks:    []config.HealthCheck{{Name: "h", CheckInterval: 5 * time.Second, Timeout: 5 * time.Second}},
		BackendServices: []config.BackendService{{Name: "web", IdleTimeout: 10 * time.Minute, Persistence: config.PersistDefault}},
		ForwardingRules: []config.ForwardingRule{{Name: "vip", VIPPing: true}},
		FlowTable:       config.FlowTable{TCPHalfOpen: 30 * time.Second},
	}
	next := &config.Config{
		HealthChecks:    []config.HealthCheck{{Name: "h", CheckInterval: time.Second / 10, Timeout: time.Second / 10, LogTransitions: true, GRPCServiceName: "x"}},
		BackendServices: []config.BackendService{{Name: "web", IdleTimeout: 2 * time.Minute, DrainingTimeout: 90 * time.Second, Persistence: config.PersistNever}},
		ForwardingRules: []config.ForwardingRule{{Name: "vip"}},
		FlowTable:       config.FlowTable{TCPHalfOpen: 10 * time.Second},
	}
	d := Compare(old, next)
	for _, c := range []struct {
		name      string
		got, want []string
	}{
		{"check", d.Checks.Changed[0].What, []string{"checkIntervalSec: 5 → 0.1", "timeoutSec: 5 → 0.1", "logConfig.enable: false → true", "grpcServiceName: none → x"}},
		{"service", d.Services.Changed[0].What, []string{"connectionPersistenceOnUnhealthyBackends: DEFAULT_FOR_PROTOCOL → NEVER_PERSIST", "idleTimeoutSec: 600 → 120", "drainingTimeoutSec: 0 → 90"}},
		{"rule", d.Rules.Changed[0].What, []string{"vipPing: true → false"}},
		{"settings", d.Settings, []string{"flowTable.tcpHalfOpenSec: 30 → 10"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, c.got, c.want)
		}
	}
	for field, want := range map[string]string{"CPUs": "cpus", "IPAddress": "IPAddress", "RxRing": "rxRing", "IPv6Address": "ipv6Address", "BusyPoll": "busyPoll"} {
		if got := keyName(field); got != want {
			t.Errorf("%s is %s, want %s", field, got, want)
		}
	}
}

package main

import (
	"bytes"
	"strings"
	"testing"

	"zonehop/cmd/appliance/internal/admin"
)

// TestHealthText: a reader sees what the results in a row were.
func TestHealthText(t *testing.T) {
	var out bytes.Buffer
	printHealth(&out, admin.Health{
		Backends: []admin.BackendHealth{
			{Backend: "a", Service: "web", Address: "10.0.0.1", State: "UNHEALTHY", Successes: 1, Text: "connected"},
			{Backend: "b", Service: "web", Address: "10.0.0.2", State: "HEALTHY", Failures: 2, Text: "no answer within 1s"},
			{Backend: "c", Service: "web", Address: "10.0.0.3", State: "UNKNOWN"},
		},
		Sources: []admin.HealthSource{{Name: "s", BackendService: "web", HealthState: "UNKNOWN", Sources: []admin.SourceHealth{{}}}},
	})
	for _, line := range []string{
		"a 10.0.0.1: UNHEALTHY; last result: connected (1 ok in a row)",
		"b 10.0.0.2: HEALTHY; last result: no answer within 1s (2 failed in a row)",
		"c 10.0.0.3: UNKNOWN; no result yet",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no line %q in\n%s", line, out.String())
		}
	}
}

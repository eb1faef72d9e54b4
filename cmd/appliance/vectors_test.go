package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// vector is one case of the selector's vectors, as far as a configuration can say it. The selector's own
// test decodes the file strictly.
type vector struct {
	ID    string
	Input struct {
		Primaries, Failovers []struct {
			ID, Zone string
			Healthy  bool
		}
		FailoverPolicy map[string]any
		Affinity       string
		SpilloverRatio json.Number
		ClientZone     string
	}
	Expected struct {
		OriginalEligible, ModifiedEligible []string
		ZonalMatch                         bool
		Reason                             string
	}
}

// yaml is a configuration of the vector, and the backends that are down.
func (v *vector) yaml() (text string, down []string) {
	var zones, backends []string
	for i, list := range [][]struct {
		ID, Zone string
		Healthy  bool
	}{v.Input.Primaries, v.Input.Failovers} {
		for _, b := range list {
			if !slices.Contains(zones, b.Zone) {
				zones = append(zones, b.Zone)
			}
			backends = append(backends, fmt.Sprintf("{name: %s, zone: %s, address: 10.1.0.%d, failover: %v}", b.ID, b.Zone, 11+len(backends), i == 1))
			if !b.Healthy {
				down = append(down, b.ID)
			}
		}
	}
	if z := v.Input.ClientZone; z != "" && !slices.Contains(zones, z) {
		zones = append(zones, z)
	}
	for i, z := range zones {
		ranges := ""
		if z == v.Input.ClientZone {
			ranges = "10.9.0.0/16"
		}
		zones[i] = fmt.Sprintf("{name: %s, clientRanges: [%s]}", z, ranges)
	}
	var policy []string
	for key, value := range v.Input.FailoverPolicy {
		if value != nil {
			policy = append(policy, fmt.Sprintf("%s: %v", key, value))
		}
	}
	var affinity []string
	if v.Input.Affinity != "" {
		affinity = append(affinity, "spillover: "+v.Input.Affinity)
	}
	if v.Input.SpilloverRatio != "" {
		affinity = append(affinity, "spilloverRatio: "+v.Input.SpilloverRatio.String())
	}
	return fmt.Sprintf(`interfaces: [eth0]
zones: [%s]
backendServices:
  - name: web
    healthChecks: [{type: TCP}]
    failoverPolicy: {%s}
    zonalAffinity: {%s}
    backends: [%s]
forwardingRules: [{name: vip, IPAddress: 10.1.255.10, ports: [80], backendService: web}]
`, strings.Join(zones, ", "), strings.Join(policy, ", "), strings.Join(affinity, ", "), strings.Join(backends, ", ")), down
}

// TestVectorsExplained puts every vector of the selector through the program: its configuration is valid,
// and explain says what the vector expects, with the exit status that goes with it.
func TestVectorsExplained(t *testing.T) {
	raw, err := os.ReadFile("../../selector/testdata/eligibility.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(raw, &file); err != nil || len(file.Vectors) == 0 {
		t.Fatalf("%d vectors, %v", len(file.Vectors), err)
	}
	for _, v := range file.Vectors {
		t.Run(v.ID, func(t *testing.T) {
			yaml, down := v.yaml()
			path := filepath.Join(t.TempDir(), "vector.yaml")
			if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err := explain(&out, &explainFlags{file: path, rule: "vip", client: "10.9.0.1", proto: "tcp", sport: 40000, down: down, asJSON: true})
			want := v.Expected
			if want.Reason == "NO_BACKENDS" { // a service has at least one
				if !errors.Is(err, exitStatus(1)) {
					t.Errorf("a service without backends gives %v, want it refused", err)
				}
				return
			}
			status := exitStatus(0)
			if err != nil && !errors.As(err, &status) {
				t.Fatalf("%v\n%s", err, yaml)
			}
			got, _ := decodeExplained(t, out.String())
			if got.Reason != want.Reason || got.ZonalMatch != want.ZonalMatch || !slices.Equal(got.OriginalEligible, want.OriginalEligible) ||
				!slices.Equal(got.ModifiedEligible, want.ModifiedEligible) {
				t.Errorf("explain says\n%s\nwant %+v\n%s", out.String(), want, yaml)
			}
			if dropped := len(want.ModifiedEligible) == 0; dropped != (status == 2) || dropped != (got.Backend == "") {
				t.Errorf("status %d with backend %q, among %v", status, got.Backend, want.ModifiedEligible)
			}
			if got.Backend != "" && !slices.Contains(want.ModifiedEligible, got.Backend) {
				t.Errorf("backend %s is none of %v", got.Backend, want.ModifiedEligible)
			}
		})
	}
}

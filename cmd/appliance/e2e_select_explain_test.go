package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// program runs the appliance's program as a shell would.
func program(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asAppliance+"=1")
	cmd.Stdout, cmd.Stderr = &out, &problems
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), problems.String(), cmd.ProcessState.ExitCode()
}

// explained is `explain --json` as scripts know it, field by field.
type explained struct {
	Rule, BackendService, Client, ClientZone string
	Compatible                               bool
	Kind                                     string
	Configured, OriginalEligible             []string
	ZonalMatchTest, ZonalMatched             []string
	Intersection                             []string
	Ratio, SpilloverRatio                    string
	ZonalMatch                               bool
	ModifiedEligible                         []string
	Reason, Backend                          string
}

// promised are the fields that scripts rely on. Two are there only if there is
// such a thing: the client's zone and the backend.
var promised = []string{
	"rule", "backendService", "client", "compatible", "kind", "configured", "originalEligible", "zonalMatchTest",
	"zonalMatched", "intersection", "zonalMatch", "modifiedEligible", "reason",
}

// TestExplainOffline asks the real program about configurations that nothing
// runs, and reads its answers as scripts and as people do.
func TestExplainOffline(t *testing.T) {
	const file = "testdata/five-backends.yaml"
	all := inBCD
	for _, test := range []struct {
		name          string
		args          []string
		status        int
		want          explained
		zone, backend bool // whether the fields are there
		sentence      string
	}{
		{"in its zone", []string{"--rule", "web", "--client", "10.1.0.101"}, 0, explained{
			ClientZone: "b", Compatible: true, Kind: healthyPrimaries, Configured: all, OriginalEligible: inBC, ZonalMatchTest: inBC,
			ZonalMatched: inB, Intersection: inB, Ratio: "5/5", SpilloverRatio: "0.8", ZonalMatch: true, ModifiedEligible: inB, Reason: ratioMet,
		}, true, true, " gets it. All healthy primaries are eligible; 5/5 of the backends in b are eligible, which meets the ratio of 0.8, so it stays in the zone; of the 5 left, the connection's hash picks "},
		{"4 of 5", []string{"--rule", "web6", "--client", "fd00:1::101", "--down", "b2"}, 0, explained{
			ClientZone: "b", Compatible: true, Kind: healthyPrimaries, Configured: all, OriginalEligible: without(inBC, "b2"), ZonalMatchTest: inBC,
			ZonalMatched: inB, Intersection: without(inB, "b2"), Ratio: "4/5", SpilloverRatio: "0.8", ZonalMatch: true, ModifiedEligible: without(inB, "b2"), Reason: ratioMet,
		}, true, true, "4/5 of the backends in b are eligible, which meets the ratio of 0.8"},
		{"3 of 5", []string{"--rule", "web", "--client", "10.1.0.101", "--down", "b2,b4"}, 0, explained{
			ClientZone: "b", Compatible: true, Kind: healthyPrimaries, Configured: all, OriginalEligible: without(inBC, "b2", "b4"), ZonalMatchTest: inBC,
			ZonalMatched: inB, Intersection: without(inB, "b2", "b4"), Ratio: "3/5", SpilloverRatio: "0.8", ZonalMatch: true, ModifiedEligible: without(inBC, "b2", "b4"), Reason: ratioNotMet,
		}, true, true, "3/5 of the backends in b are eligible, which is below the ratio of 0.8, so it spills to all zones"},
		{"without a verdict", []string{"--rule", "web", "--client", "10.1.0.101", "--unknown", "b2", "--unknown", "b4"}, 0, explained{
			ClientZone: "b", Compatible: true, Kind: healthyPrimaries, Configured: without(all, "b2", "b4"), OriginalEligible: without(inBC, "b2", "b4"), ZonalMatchTest: without(inBC, "b2", "b4"),
			ZonalMatched: without(inB, "b2", "b4"), Intersection: without(inB, "b2", "b4"), Ratio: "3/3", SpilloverRatio: "0.8", ZonalMatch: true, ModifiedEligible: without(inB, "b2", "b4"), Reason: ratioMet,
		}, true, true, "3/3 of the backends in b are eligible"},
		{"no zone", []string{"--rule", "web", "--client", "10.8.0.101"}, 0, explained{
			Kind: healthyPrimaries, Configured: all, OriginalEligible: inBC, SpilloverRatio: "0.8", ModifiedEligible: inBC, Reason: incompatible,
		}, false, true, "the client has no zone; of the 10 left"},
		{"failover", []string{"--rule", "web", "--client", "10.2.0.101", "--down", strings.Join(append([]string{"c3"}, inB...), ",")}, 0, explained{
			ClientZone: "c", Compatible: true, Kind: healthyFailovers, Configured: all, OriginalEligible: inD, ZonalMatchTest: inD,
			SpilloverRatio: "0.8", ModifiedEligible: inD, Reason: noMatch,
		}, true, true, "The healthy failover backends are eligible, since too few primaries are healthy; no such backend is in the client's zone c"},
		{"last resort", []string{"--rule", "stay", "--client", "10.2.0.101", "--down", strings.Join(all, ",")}, 0, explained{
			ClientZone: "c", Compatible: true, Kind: lastResort, Configured: all, OriginalEligible: inBC, ZonalMatchTest: inBC,
			ZonalMatched: inC, Intersection: inC, Ratio: "5/5", ZonalMatch: true, ModifiedEligible: inC, Reason: stays,
		}, true, true, "No backend is healthy, so all primaries are eligible as a last resort"},
		{"drop", []string{"--rule", "drop", "--client", "10.1.0.101", "--down", strings.Join(all, ",")}, 2, explained{
			ClientZone: "b", Compatible: true, Kind: "DROP", Configured: all, SpilloverRatio: "0", Reason: "DROPPED",
		}, true, false, "No backend (dropped_unhealthy): No backend is healthy and the service drops then; the packet is dropped."},
		{"another region", []string{"--rule", "near", "--client", "10.7.0.101"}, 2, explained{
			Kind: healthyPrimaries, Configured: all, OriginalEligible: inBC, SpilloverRatio: "0.8", ModifiedEligible: inBC, Reason: incompatible,
		}, false, false, "No backend (region_denied): "},
		{"route", []string{"--rule", "inspect", "--client", "10.1.0.101", "--dst", "192.168.1.1", "--proto", "udp", "--sport", "53", "--dport", "53"}, 0, explained{
			ClientZone: "b", Compatible: true, Kind: healthyPrimaries, Configured: numbered("fw", 3), OriginalEligible: numbered("fw", 3),
			ModifiedEligible: numbered("fw", 3), Reason: affinityOff,
		}, true, true, "zonal affinity is off; of the 3 left, the connection's hash picks fw"},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := append([]string{"explain", "--config", file}, test.args...)
			out, problems, status := program(t, append(args, "--json")...)
			if status != test.status || problems != "" {
				t.Fatalf("status %d, want %d: %s%s", status, test.status, out, problems)
			}
			got, fields := decodeExplained(t, out)
			if _, there := fields["clientZone"]; there != test.zone {
				t.Errorf("clientZone is there: %v", there)
			}
			if _, there := fields["backend"]; there != test.backend {
				t.Errorf("backend is there: %v", there)
			}
			test.want.Rule, test.want.Client = test.args[1], test.args[3]
			test.want.BackendService = strings.TrimSuffix(got.Rule, "6")
			switch got.Rule {
			case "near":
				test.want.BackendService = "web"
			case "inspect":
				test.want.BackendService = "inspection"
			}
			if test.backend && !slices.Contains(got.ModifiedEligible, got.Backend) {
				t.Errorf("backend %s is not one of %v", got.Backend, got.ModifiedEligible)
			}
			chosen := got.Backend
			got.Backend = ""
			if a, b := asJSON(t, got), asJSON(t, test.want); a != b {
				t.Errorf("got\n%s\nwant\n%s", a, b)
			}
			people, problems, status := program(t, args...)
			if status != test.status || problems != "" {
				t.Fatalf("for people: status %d, want %d: %s", status, test.status, problems)
			}
			if !strings.Contains(people, test.sentence) || test.backend && !strings.Contains(people, chosen+" ◄") {
				t.Errorf("want %q and %s in\n%s", test.sentence, chosen, people)
			}
		})
	}
	for _, wrong := range []struct {
		args []string
		want string
	}{
		{[]string{"--rule", "nothing", "--client", "10.1.0.101"}, "nothing"},
		{[]string{"--rule", "web", "--client", "10.1.0.101", "--down", "b9"}, "b9"},
		{[]string{"--rule", "web", "--client", "10.1.0"}, "10.1.0"},
		{[]string{"--rule", "web", "--client", "fd00:1::101"}, "fd00:1::101"},
		{[]string{"--rule", "inspect", "--client", "10.1.0.101"}, "--dst"},
		{[]string{"--rule", "web", "--client", "10.1.0.101", "--proto", "sctpp"}, "sctpp"},
		{[]string{"--rule", "web", "--client", "10.1.0.101", "--proto", "udp"}, "no rule of that address takes it, and it is dropped"},
		{[]string{"--rule", "web", "--client", "10.1.0.101", "--dport", "81"}, "no rule of that address takes it, and it is dropped"},
		{[]string{"--rule", "web", "--client", "10.1.0.101", "--dst", "10.0.100.11"}, "forwarding rule stay takes it"},
		{[]string{"--rule", "web", "--client", "10.1.0.101", "--dst", "192.168.1.1"}, "route inspect takes it"},
		{[]string{"--rule", "inspect", "--client", "10.1.0.101", "--dst", "203.0.113.1"}, "neither a rule nor a route takes it"},
	} {
		out, problems, status := program(t, append([]string{"explain", "--config", file}, wrong.args...)...)
		if status != 1 || out != "" || !strings.HasPrefix(problems, "appliance: ") || !strings.Contains(problems, wrong.want) {
			t.Errorf("explain %v: status %d, %q, %q; want status 1 and a message about %s", wrong.args, status, out, problems, wrong.want)
		}
	}
	for _, args := range [][]string{{"explain", "--rule", "web", "--client", "10.1.0.101"}, {"run"}} {
		out, problems, status := program(t, append(args, "--config", "testdata/absent.yaml")...)
		if status != 1 || out != "" || !strings.HasPrefix(problems, "appliance: read configuration: ") {
			t.Errorf("%v without a file: status %d, %q, %q", args, status, out, problems)
		}
	}
}

// decodeExplained reads the answer, which must have every promised field.
func decodeExplained(t *testing.T, out string) (e explained, fields map[string]json.RawMessage) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := json.Unmarshal([]byte(out), &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range promised {
		if value, there := fields[name]; !there || string(value) == "null" {
			t.Errorf("field %s is missing or null", name)
		}
	}
	return e, fields
}

// asJSON compares nil and empty lists as equal.
func asJSON(t *testing.T, e explained) string {
	t.Helper()
	for _, list := range []*[]string{&e.Configured, &e.OriginalEligible, &e.ZonalMatchTest, &e.ZonalMatched, &e.Intersection, &e.ModifiedEligible} {
		if *list == nil {
			*list = []string{}
		}
	}
	b, err := json.MarshalIndent(e, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func without(list []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(b string) bool { return slices.Contains(names, b) })
}

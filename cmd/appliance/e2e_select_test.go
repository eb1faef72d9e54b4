package main

import (
	"strings"
	"testing"

	"zonehop/bench/lab"
)

// The ways a decision comes about, in explain's words.
const (
	healthyPrimaries = "HEALTHY_PRIMARIES"
	healthyFailovers = "HEALTHY_FAILOVERS"
	lastResort       = "ALL_PRIMARIES"

	affinityOff   = "AFFINITY_DISABLED"
	incompatible  = "CLIENT_NOT_COMPATIBLE"
	noMatch       = "NO_ZONAL_MATCH"
	stays         = "STAY_INTERSECTION"
	staysAnyway   = "STAY_ZONAL_MATCHED_UNHEALTHY"
	enoughForZero = "SPILL0_INTERSECTION"
	emptyForZero  = "SPILL0_EMPTY_INTERSECTION"
	ratioMet      = "SPILL_RATIO_MET"
	ratioNotMet   = "SPILL_RATIO_NOT_MET"
)

// situation is a set of failing backends and what follows from it.
type situation struct {
	name    string
	failing []string
	want    []decision
}

// situations walk around both ratios. Of the primaries 10 are configured, so
// that failoverRatio 0.5 is met by 5; of a zone 5, so that spilloverRatio 0.8
// is met by 4.
var situations = []situation{
	{"all healthy", nil, []decision{
		{client: "client-b", rule: "web", kind: healthyPrimaries, reason: ratioMet, ratio: "5/5", backends: inB},
		{client: "client-c", rule: "web", kind: healthyPrimaries, reason: ratioMet, ratio: "5/5", backends: inC},
		{client: "client-b", rule: "stay", kind: healthyPrimaries, reason: stays, ratio: "5/5", backends: inB},
		{client: "client-c", rule: "drop", kind: healthyPrimaries, reason: enoughForZero, ratio: "5/5", backends: inC},
		{client: "client-b", rule: "plain", kind: healthyPrimaries, reason: affinityOff, backends: inBC},
		// The zone of client-d has failover backends only.
		{client: "client-d", rule: "web", kind: healthyPrimaries, reason: noMatch, backends: inBC},
		{client: "client-d", rule: "stay", kind: healthyPrimaries, reason: noMatch, backends: inBC},
		// No zone, incompatible, and another region with global access: as if affinity were off.
		{client: "client-x", rule: "web", kind: healthyPrimaries, reason: incompatible, backends: inBC},
		{client: "client-n", rule: "web", kind: healthyPrimaries, reason: incompatible, backends: inBC},
		{client: "client-n", rule: "stay", kind: healthyPrimaries, reason: incompatible, backends: inBC},
		{client: "client-r", rule: "web", kind: healthyPrimaries, reason: incompatible, backends: inBC},
		// Without global access another region gets nothing; its own clients are served.
		{client: "client-r", rule: "near", kind: healthyPrimaries, reason: incompatible, droppedUnder: "region_denied"},
		{client: "client-b", rule: "near", kind: healthyPrimaries, reason: ratioMet, ratio: "5/5", backends: inB},
		{client: "client-x", rule: "near", kind: healthyPrimaries, reason: incompatible, backends: inBC},
	}},
	{"4 of 5 meet a spill-over ratio of 0.8", []string{"b1"}, []decision{
		{client: "client-b", rule: "web", kind: healthyPrimaries, reason: ratioMet, ratio: "4/5", backends: []string{"b2", "b3", "b4", "b5"}},
		{client: "client-c", rule: "web", kind: healthyPrimaries, reason: ratioMet, ratio: "5/5", backends: inC},
		{client: "client-b", rule: "stay", kind: healthyPrimaries, reason: stays, ratio: "4/5", backends: []string{"b2", "b3", "b4", "b5"}},
	}},
	{"3 of 5 do not", []string{"b1", "b2"}, []decision{
		{client: "client-b", rule: "web", kind: healthyPrimaries, reason: ratioNotMet, ratio: "3/5", backends: []string{"b3", "b4", "b5", "c1", "c2", "c3", "c4", "c5"}},
		{client: "client-c", rule: "web", kind: healthyPrimaries, reason: ratioMet, ratio: "5/5", backends: inC},
		{client: "client-b", rule: "stay", kind: healthyPrimaries, reason: stays, ratio: "3/5", backends: []string{"b3", "b4", "b5"}},
		{client: "client-b", rule: "drop", kind: healthyPrimaries, reason: enoughForZero, ratio: "3/5", backends: []string{"b3", "b4", "b5"}},
	}},
	{"4 of 5 again", []string{"b5"}, []decision{
		{client: "client-b", rule: "web", kind: healthyPrimaries, reason: ratioMet, ratio: "4/5", backends: []string{"b1", "b2", "b3", "b4"}},
	}},
	{"5 of 10 primaries equal a failover ratio of 0.5; zone b is empty", inB, []decision{
		{client: "client-b", rule: "web", kind: healthyPrimaries, reason: ratioNotMet, ratio: "0/5", backends: inC},
		{client: "client-b", rule: "stay", kind: healthyPrimaries, reason: staysAnyway, ratio: "0/5", backends: inB},
		{client: "client-b", rule: "drop", kind: healthyPrimaries, reason: emptyForZero, ratio: "0/5", backends: inC},
		{client: "client-c", rule: "stay", kind: healthyPrimaries, reason: stays, ratio: "5/5", backends: inC},
		{client: "client-x", rule: "web", kind: healthyPrimaries, reason: incompatible, backends: inC},
	}},
	{"4 of 10 fail over", append([]string{"c1"}, inB...), []decision{
		{client: "client-b", rule: "web", kind: healthyFailovers, reason: noMatch, backends: inD},
		{client: "client-c", rule: "stay", kind: healthyFailovers, reason: noMatch, backends: inD},
		{client: "client-d", rule: "web", kind: healthyFailovers, reason: ratioMet, ratio: "2/2", backends: inD},
		{client: "client-n", rule: "plain", kind: healthyFailovers, reason: affinityOff, backends: inD},
	}},
	{"1 of 2 failovers", append([]string{"c1", "d2"}, inB...), []decision{
		{client: "client-c", rule: "web", kind: healthyFailovers, reason: noMatch, backends: []string{"d1"}},
		{client: "client-d", rule: "web", kind: healthyFailovers, reason: ratioNotMet, ratio: "1/2", backends: []string{"d1"}},
	}},
	{"no failover is healthy: the primaries serve, however few", append([]string{"c1", "c2", "c3", "c4", "d1", "d2"}, inB...), []decision{
		{client: "client-b", rule: "web", kind: healthyPrimaries, reason: ratioNotMet, ratio: "0/5", backends: []string{"c5"}},
		{client: "client-c", rule: "web", kind: healthyPrimaries, reason: ratioNotMet, ratio: "1/5", backends: []string{"c5"}},
		{client: "client-d", rule: "web", kind: healthyPrimaries, reason: noMatch, backends: []string{"c5"}},
	}},
	{"nothing is healthy", inBCD, []decision{
		// Last resort: all primaries, and under SPILL_CROSS_ZONE those of the client's zone only.
		{client: "client-b", rule: "web", kind: lastResort, reason: ratioMet, ratio: "5/5", backends: inB},
		{client: "client-c", rule: "web", kind: lastResort, reason: ratioMet, ratio: "5/5", backends: inC},
		{client: "client-d", rule: "web", kind: lastResort, reason: noMatch, backends: inBC},
		{client: "client-x", rule: "web", kind: lastResort, reason: incompatible, backends: inBC},
		{client: "client-b", rule: "stay", kind: lastResort, reason: stays, ratio: "5/5", backends: inB},
		{client: "client-b", rule: "plain", kind: lastResort, reason: affinityOff, backends: inBC},
		{client: "client-b", rule: "drop", kind: "DROP", reason: "DROPPED", droppedUnder: "unhealthy"},
		{client: "client-x", rule: "drop", kind: "DROP", reason: "DROPPED", droppedUnder: "unhealthy"},
	}},
	{"only failovers are healthy", inBC, []decision{
		{client: "client-b", rule: "web", kind: healthyFailovers, reason: noMatch, backends: inD},
		{client: "client-b", rule: "drop", kind: healthyFailovers, reason: noMatch, backends: inD},
	}},
	{"5 of 10 primaries fail back", inC, []decision{
		{client: "client-b", rule: "web", kind: healthyPrimaries, reason: ratioMet, ratio: "5/5", backends: inB},
		{client: "client-c", rule: "web", kind: healthyPrimaries, reason: ratioNotMet, ratio: "0/5", backends: inB},
	}},
	{"all healthy again", nil, []decision{
		{client: "client-b", rule: "web", kind: healthyPrimaries, reason: ratioMet, ratio: "5/5", backends: inB},
		{client: "client-c", rule: "web", kind: healthyPrimaries, reason: ratioMet, ratio: "5/5", backends: inC},
		{client: "client-b", rule: "drop", kind: healthyPrimaries, reason: enoughForZero, ratio: "5/5", backends: inB},
	}},
}

// TestSelection follows new connections through everything that health, zones
// and an operator can do to the choice, while established ones stay where they
// are.
func TestSelection(t *testing.T) {
	n := newNetwork(t, lab.Options{Topology: fiveBackends()})
	d := n.start(testConfig(t, "five-backends.yaml"))
	var streams []*lab.Stream
	for _, version := range []int{4, 6} {
		for client, rule := range map[string]string{"client-b": "web", "client-c": "drop", "client-n": "stay", "client-x": "plain"} {
			_, to := ruleAt(rule, version)
			streams = append(streams, n.stream(client, streamAt(to), ""))
		}
	}
	for _, s := range situations {
		d.sub(s.name, func(d *device) {
			d.failing(s.failing...)
			for _, want := range s.want {
				d.check(want)
			}
			for _, s := range streams {
				d.lives(s)
			}
		})
	}
	for _, news := range []string{
		"failover backends serve, because too few primary ones are healthy", "no backend is healthy: all primary ones serve as a last resort",
		"no backend is healthy: new connections are dropped", "healthy primary backends serve again",
	} {
		if !strings.Contains(d.process.Output(), news) {
			t.Errorf("it is not logged that %s", news)
		}
	}
	d.sub("drain", testDrain)
	d.sub("session affinity CLIENT_IP", testClientIP)
	d.sub("session affinity CLIENT_IP_NO_DESTINATION", testNoDestination)
	for _, s := range streams {
		d.lives(s)
	}
	d.balanced()
	d.stop()
}

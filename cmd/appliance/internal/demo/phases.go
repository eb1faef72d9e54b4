package demo

import "zonehop/bench/lab"

// phase is one situation: what is done to the backends' health, and which
// backends each client's new connections may then reach.
type phase struct {
	title string
	why   string
	fail  []string // backends that start to fail their health check
	heal  []string // backends that pass it again
	want  map[string][]string
}

// The clients of the demo: one in each zone, and one that is in none.
const (
	clientB = "client-b"
	clientC = "client-c"
	clientX = "client-x"
)

var (
	zoneB     = []string{"web-b1", "web-b2"}
	zoneC     = []string{"web-c1", "web-c2"}
	primaries = []string{"web-b1", "web-b2", "web-c1", "web-c2"}
	failovers = []string{"web-d1", "web-d2"}

	allHealthy = map[string][]string{clientB: zoneB, clientC: zoneC, clientX: primaries}
)

// phases walk the service "web" (spilloverRatio 0.8, failoverRatio 0.5)
// through everything that health can do to it, and back.
var phases = []phase{
	{
		title: "all backends healthy",
		why:   "each client stays in its own zone; the client without a zone uses all primaries",
		want:  allHealthy,
	}, {
		title: "web-b1 fails its check",
		why:   "1 of 2 healthy in zone b is below the spill-over ratio of 0.8: zone b spills to all healthy primaries",
		fail:  []string{"web-b1"},
		want: map[string][]string{
			clientB: {"web-b2", "web-c1", "web-c2"}, clientC: zoneC, clientX: {"web-b2", "web-c1", "web-c2"},
		},
	}, {
		title: "web-b1 recovers",
		why:   "zone b keeps its clients again",
		heal:  []string{"web-b1"},
		want:  allHealthy,
	}, {
		title: "both backends of zone b fail",
		why:   "2 of 4 primaries healthy still meets the failover ratio of 0.5: zone b's clients go to zone c",
		fail:  zoneB,
		want:  map[string][]string{clientB: zoneC, clientC: zoneC, clientX: zoneC},
	}, {
		title: "web-c1 fails too",
		why:   "1 of 4 primaries healthy is below the failover ratio of 0.5: the failover backends take over",
		fail:  []string{"web-c1"},
		want:  map[string][]string{clientB: failovers, clientC: failovers, clientX: failovers},
	}, {
		title: "everything is down",
		why:   "last resort: all primaries are tried, each zone's clients within their zone",
		fail:  []string{"web-c2", "web-d1", "web-d2"},
		want:  allHealthy,
	}, {
		title: "all backends are back",
		why:   "as in the beginning",
		heal:  append(append([]string{}, primaries...), failovers...),
		want:  allHealthy,
	},
}

// zoneOf is the zone a backend of the demo is in.
func zoneOf(backend string) string { return string(backend[len(backend)-2]) }

// firewallZone is the same for the backends of the route.
func firewallZone(backend string) string { return string(backend[len(backend)-1]) }

var (
	vip     = lab.VIPv4
	vip6    = lab.VIPv6
	clients = []string{clientB, clientC, clientX}
)

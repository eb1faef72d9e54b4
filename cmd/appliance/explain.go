package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/cmd/appliance/internal/appliance"
	"zonehop/config"
	"zonehop/forwarder/packet"
	"zonehop/selector"
)

// explainFlags are what explain is asked.
type explainFlags struct {
	file, rule, client, dst, proto, socket string
	sport, dport                           uint16
	down, unknown                          []string
	live, asJSON                           bool
}

func newExplainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain (--config FILE | --live) --rule NAME --client IP",
		Short: "Say which backend a new connection gets, and why",
		Long: "explain shows every step of a decision: the configured backends, the eligible ones, those of the\n" +
			"client's zone, what zonal affinity made of them, and the backend chosen. Offline it assumes that every\n" +
			"backend is healthy except those named with --down and --unknown; --live asks the running appliance.\n\n" +
			"The exit status is 0 if a backend is chosen and 2 if the packet would be dropped.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return explain(cmd.OutOrStdout(), &f) },
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.file, "config", "c", "", "configuration file, for an explanation offline")
	fl.BoolVar(&f.live, "live", false, "ask the running appliance")
	fl.StringVar(&f.rule, "rule", "", "forwarding rule or route")
	fl.StringVar(&f.client, "client", "", "address of the client")
	fl.StringVar(&f.dst, "dst", "", "destination address (default: the rule's address; needed for a route)")
	fl.StringVar(&f.proto, "proto", "", "tcp, udp or a protocol number (default: the rule's, or tcp)")
	fl.Uint16Var(&f.sport, "sport", 40000, "source port")
	fl.Uint16Var(&f.dport, "dport", 0, "destination port (default: the rule's first)")
	fl.StringSliceVar(&f.down, "down", nil, "backends that are unhealthy (offline)")
	fl.StringSliceVar(&f.unknown, "unknown", nil, "backends without a verdict (offline)")
	fl.StringVar(&f.socket, "socket", "", "admin socket of the appliance (with --live)")
	fl.BoolVar(&f.asJSON, "json", false, "print JSON")
	for _, name := range []string{"rule", "client"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
	cmd.MarkFlagsOneRequired("config", "live")
	cmd.MarkFlagsMutuallyExclusive("config", "live")
	cmd.MarkFlagsMutuallyExclusive("live", "down")
	cmd.MarkFlagsMutuallyExclusive("live", "unknown")
	return cmd
}

// explain answers and, if a packet would be dropped, ends with status 2.
func explain(w io.Writer, f *explainFlags) error {
	proto, err := parseProtocol(f.proto)
	if err != nil {
		return err
	}
	q := admin.ExplainRequest{Rule: f.rule, Tuple: admin.Tuple{
		Client: f.client, Dst: f.dst, Protocol: proto, SrcPort: f.sport, DstPort: f.dport,
	}}
	var e admin.Explanation
	var zones map[string]string
	if f.live {
		c := admin.NewClient(f.socket)
		if e, err = c.Explain(q); err != nil {
			return fmt.Errorf("explain: %w", err)
		}
		if zones, err = liveZones(c, e.BackendService); err != nil {
			return fmt.Errorf("explain: %w", err)
		}
	} else if e.Explanation, zones, err = explainOffline(f, q); err != nil {
		return fmt.Errorf("explain: %w", err)
	}
	if f.asJSON {
		if err := writeJSON(w, e); err != nil {
			return err
		}
	} else {
		printExplanation(w, &e, zones)
	}
	if e.Backend == "" {
		return exitStatus(2)
	}
	return nil
}

func parseProtocol(s string) (uint8, error) {
	switch strings.ToLower(s) {
	case "":
		return 0, nil // as the rule says
	case "tcp":
		return packet.ProtoTCP, nil
	case "udp":
		return packet.ProtoUDP, nil
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("explain: protocol %q: use tcp, udp or a number from 0 to 255", s)
	}
	return uint8(n), nil
}

// explainOffline decides from the configuration alone. zones maps backends to
// a text of their zone and assumed health.
func explainOffline(f *explainFlags, q admin.ExplainRequest) (e selector.Explanation, zones map[string]string, err error) {
	c, problems := config.Load(f.file)
	if errs := problems.Errors(); len(errs) > 0 {
		reportProblems(os.Stderr, problems)
		return e, nil, exitStatus(1)
	}
	zoneMap, mapProblems := c.LoadZoneMap()
	if errs := mapProblems.Errors(); len(errs) > 0 {
		return e, nil, errs.Err()
	}
	o, err := appliance.SelectorOptions(c, zoneMap)
	if err != nil {
		return e, nil, err
	}
	snap, err := selector.Offline(o, f.down, f.unknown)
	if err != nil {
		return e, nil, err
	}
	r := snap.Rule(q.Rule)
	if r == nil {
		return e, nil, fmt.Errorf("rule or route %q is not in %s", q.Rule, f.file)
	}
	if r.Route && q.Tuple.Dst == "" {
		return e, nil, fmt.Errorf("%s is a route; give the destination with --dst", q.Rule)
	}
	appliance.Complete(&q.Tuple, r, c)
	tuple, err := appliance.ParseTuple(q.Tuple)
	if err != nil {
		return e, nil, err
	}
	if e, err = snap.Explain(q.Rule, tuple); err != nil {
		return e, nil, err
	}
	zones = make(map[string]string)
	for i := range c.BackendServices {
		if s := &c.BackendServices[i]; s.Name == e.BackendService {
			for _, b := range s.Backends {
				zones[b.Name] = zoneAndHealth(b.Zone, assumedHealth(b.Name, f))
			}
		}
	}
	return e, zones, nil
}

func assumedHealth(name string, f *explainFlags) string {
	switch {
	case slices.Contains(f.down, name):
		return "UNHEALTHY"
	case slices.Contains(f.unknown, name):
		return "UNKNOWN"
	}
	return "HEALTHY"
}

func liveZones(c *admin.Client, service string) (map[string]string, error) {
	list, err := c.Backends()
	if err != nil {
		return nil, err
	}
	zones := make(map[string]string)
	for _, b := range list {
		if b.Service != service {
			continue
		}
		state := b.Health
		if b.Drain {
			state += ", drained"
		}
		if !b.Deliverable {
			state += ", " + b.Reason
		}
		zones[b.Name] = zoneAndHealth(b.Zone, state)
	}
	return zones, nil
}

func zoneAndHealth(zone, health string) string { return orDash(zone) + "\t" + health }

// printExplanation shows the five sets side by side, a backend per line.
func printExplanation(w io.Writer, e *admin.Explanation, zones map[string]string) {
	zone := e.ClientZone
	switch {
	case e.ClientRegion != "":
		zone = "none (region " + e.ClientRegion + ")"
	case zone == "":
		zone = "none"
	}
	fmt.Fprintf(w, "rule %s → service %s; client %s, zone %s\n\n", e.Rule, e.BackendService, e.Client, zone)
	all := slices.Clone(e.Configured)
	for _, set := range [][]string{e.OriginalEligible, e.ZonalMatchTest} {
		for _, n := range set {
			if !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
	}
	columns(w, "BACKEND ZONE HEALTH CONFIGURED ELIGIBLE(A) MATCH-TEST(B) ZONE-MATCHED(C) A∩C MODIFIED(M) SHARE", func(row func(...any)) {
		for _, n := range all {
			z, h, _ := strings.Cut(zones[n], "\t")
			mark := func(set []string) string {
				if slices.Contains(set, n) {
					return "●"
				}
				return "·"
			}
			name := n
			if n == e.Backend {
				name = n + " ◄"
			}
			share := "-"
			for _, s := range e.Shares {
				if s.Backend == n {
					share = fmt.Sprintf("%.1f%%", 100*s.Share)
				}
			}
			row(name, z, orDash(h), mark(e.Configured), mark(e.OriginalEligible), mark(e.ZonalMatchTest), mark(e.ZonalMatched), mark(e.Intersection), mark(e.ModifiedEligible), share)
		}
	})
	fmt.Fprintf(w, "\n%s\n", sentence(e))
	if e.Tracked != nil {
		t := e.Tracked
		fmt.Fprintf(w, "This connection is tracked on %s (%s, %d packets, idle %s): its packets stay there.\n", t.Backend, t.State, t.Packets, duration(t.IdleSec))
		printForesight(w, t.Backend, e.IfBackendFails)
	}
}

// sentence says in one sentence why.
func sentence(e *admin.Explanation) string {
	base := map[string]string{
		"HEALTHY_PRIMARIES": "all healthy primaries are eligible",
		"HEALTHY_FAILOVERS": "the healthy failover backends are eligible, since too few primaries are healthy",
		"ALL_PRIMARIES":     "no backend is healthy, so all primaries are eligible as a last resort",
		"DROP":              "no backend is healthy and the service drops then",
	}[e.Kind]
	inZone := fmt.Sprintf("%s of the backends in %s", e.Ratio, e.ClientZone)
	why := map[string]string{
		"AFFINITY_DISABLED":            "zonal affinity is off",
		"CLIENT_NOT_COMPATIBLE":        "the client has no zone",
		"NO_ZONAL_MATCH":               "no such backend is in the client's zone " + e.ClientZone,
		"STAY_INTERSECTION":            "the connection stays in the client's zone " + e.ClientZone,
		"STAY_ZONAL_MATCHED_UNHEALTHY": "the connection stays in the client's zone " + e.ClientZone + " although nothing is healthy there",
		"SPILL0_INTERSECTION":          "something is eligible in the client's zone " + e.ClientZone + ", which is enough",
		"SPILL0_EMPTY_INTERSECTION":    "nothing is eligible in the client's zone " + e.ClientZone + ", so it spills to the others",
		"SPILL_RATIO_MET":              inZone + " are eligible, which meets the ratio of " + e.SpilloverRatio + ", so it stays in the zone",
		"SPILL_RATIO_NOT_MET":          inZone + " are eligible, which is below the ratio of " + e.SpilloverRatio + ", so it spills to all zones",
		"DROPPED":                      "the packet is dropped",
		"NO_BACKENDS":                  "there is nothing to choose from",
	}[e.Reason]
	text := strings.ToUpper(base[:min(1, len(base))]) + base[min(1, len(base)):] + "; " + why
	if e.Backend == "" {
		return fmt.Sprintf("No backend (%s): %s.", e.Result, text)
	}
	return fmt.Sprintf("%s gets it. %s; of the %d left, the connection's hash picks %s.", e.Backend, text, len(e.ModifiedEligible), e.Backend)
}

// printForesight says what a failure of a tracked flow's backend would do to it.
func printForesight(w io.Writer, backend string, f *admin.Foresight) {
	switch {
	case f == nil:
	case f.Stays:
		fmt.Fprintf(w, "If %s failed now, they would still go there: connections persist on backends that turn unhealthy.\n", backend)
	case f.Backend == "":
		fmt.Fprintf(w, "If %s failed now, they would be dropped: %s.\n", backend, f.Result)
	default:
		fmt.Fprintf(w, "If %s failed now, they would go to %s from the next one on.\n", backend, f.Backend)
	}
}

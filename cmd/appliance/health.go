package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"zonehop/cmd/appliance/internal/admin"
)

func newHealthCommand() *cobra.Command {
	var asJSON, watch bool
	cmd := liveCommand("health", "Show what the health probes found, and the health of services and of the region",
		cobra.NoArgs, func(cmd *cobra.Command, c *admin.Client, _ []string) error {
			if watch {
				return watchHealth(cmd, c, asJSON)
			}
			h, err := c.Health()
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), h)
			}
			printHealth(cmd.OutOrStdout(), h)
			return nil
		})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON; with --watch one object a line")
	cmd.Flags().BoolVar(&watch, "watch", false, "print every change of a backend, source or composite as it happens, until interrupted")
	return cmd
}

// watchHealth prints changes until it is interrupted.
func watchHealth(cmd *cobra.Command, c *admin.Client, asJSON bool) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	out := cmd.OutOrStdout()
	lines := json.NewEncoder(out)
	var failed error
	print := func(e admin.HealthEvent) {
		var err error
		if asJSON {
			err = lines.Encode(e)
		} else {
			_, err = fmt.Fprintln(out, eventLine(&e))
		}
		if err != nil && failed == nil { // the reader of a pipe went away
			failed = err
			stop()
		}
	}
	if err := c.WatchHealth(ctx, nil, print); err != nil {
		return err
	}
	return failed
}

// eventLine is one change as a line of text.
func eventLine(e *admin.HealthEvent) string {
	name := e.Name
	if e.Kind == admin.KindBackend {
		name = e.BackendService + "/" + e.Name + " " + probedAt(e.Address, e.RuleAddress)
	}
	line := fmt.Sprintf("%s  %-9s  %s  %s -> %s  %s", e.At, e.Kind, name, e.PreviousHealthState, e.HealthState, e.Cause)
	if c := e.Counts; c != nil {
		line += fmt.Sprintf("  [%s]", countsText(c))
	}
	if e.DryRun {
		line += "  (dry run)"
	}
	return line
}

func printHealth(w io.Writer, h admin.Health) {
	columns(w, "BACKEND SERVICE CHECK ADDRESS STATE IN-ROW LATENCY NEXT LAST-RESULT", func(row func(...any)) {
		for _, b := range h.Backends {
			row(b.Backend, b.Service, b.Check, probedAt(b.Address, b.RuleAddress), b.State, resultsInRow(&b), fmt.Sprintf("%.1fms", b.LatencyMs), duration(b.NextSec), orDash(b.Text))
		}
	})
	sources, backends := make(map[string]*admin.HealthSource), make(map[string][]admin.BackendHealth)
	for i := range h.Sources {
		sources[h.Sources[i].Name] = &h.Sources[i]
	}
	for _, b := range h.Backends {
		backends[b.Service] = append(backends[b.Service], b)
	}
	leaves := func(s *admin.HealthSource) []string {
		var out []string
		for _, b := range backends[s.BackendService] {
			last := "no result yet"
			if b.Successes+b.Failures > 0 {
				last = fmt.Sprintf("last result: %s (%s in a row)", b.Text, resultsInRow(&b))
			}
			out = append(out, fmt.Sprintf("%s %s: %s; %s", b.Backend, probedAt(b.Address, b.RuleAddress), b.State, last))
		}
		return out
	}
	joined := make(map[string]bool)
	for i := range h.Composites {
		var below []*admin.HealthSource
		for _, s := range h.Composites[i].HealthSources {
			below = append(below, sources[s.Source])
			joined[s.Source] = true
		}
		fmt.Fprintln(w)
		printComposite(w, &h.Composites[i], below, leaves)
	}
	for i := range h.Sources {
		if s := &h.Sources[i]; !joined[s.Name] {
			fmt.Fprintln(w)
			printSource(w, "", s, "", leaves)
		}
	}
}

// resultsInRow counts results since the last one of the other kind.
func resultsInRow(b *admin.BackendHealth) string {
	switch {
	case b.Failures > 0:
		return fmt.Sprintf("%d failed", b.Failures)
	case b.Successes > 0:
		return fmt.Sprintf("%d ok", b.Successes)
	}
	return "-"
}

// printComposite prints a composite and, below it, its sources, services and backends.
func printComposite(w io.Writer, c *admin.CompositeHealth, sources []*admin.HealthSource, leaves func(*admin.HealthSource) []string) {
	fmt.Fprintf(w, "composite %s of rule %s: %s%s%s\n  %s\n", c.Name, c.HealthDestination, c.HealthState, since(c.Since), dryRun(c.DryRun), c.Missing)
	for i, s := range sources {
		note := ""
		if c.HealthSources[i].Ignored {
			note = ", ignored here"
		}
		printSource(w, "  ", s, note, leaves)
	}
}

func printSource(w io.Writer, indent string, s *admin.HealthSource, note string, leaves func(*admin.HealthSource) []string) {
	fmt.Fprintf(w, "%ssource %s: %s%s%s%s\n", indent, s.Name, s.HealthState, since(s.Since), dryRun(s.DryRun), note)
	fmt.Fprintf(w, "%s  %s; policy %s: at least %s %% and %d\n%s  %s\n", indent, countsText(&s.EndpointCounts),
		s.HealthAggregationPolicy, s.HealthyPercentThreshold, s.MinHealthyThreshold, indent, s.Missing)
	var groups []string
	for _, g := range s.Sources[0].Backends {
		name := orDash(g.Group)
		if g.Failover {
			name += " failover"
		}
		groups = append(groups, fmt.Sprintf("%s %d of %d", name, g.Healthy, g.Endpoints))
	}
	fmt.Fprintf(w, "%s  service %s: healthy by zone: %s\n", indent, s.BackendService, strings.Join(groups, ", "))
	for _, l := range leaves(s) {
		fmt.Fprintf(w, "%s    %s\n", indent, l)
	}
}

func countsText(c *admin.EndpointCounts) string {
	text := fmt.Sprintf("%d of %d healthy", c.Healthy, c.Endpoints)
	if c.Unhealthy > 0 {
		text += fmt.Sprintf(", %d unhealthy", c.Unhealthy)
	}
	if c.Unknown > 0 {
		text += fmt.Sprintf(", %d without a verdict", c.Unknown)
	}
	return text
}

func since(stamp string) string {
	if stamp == "" {
		return ""
	}
	return " since " + stamp
}

func dryRun(on bool) string {
	if on {
		return " (dry run)"
	}
	return ""
}

// probedAt says where a probe went, and as what if that is a rule's address.
func probedAt(address, rule string) string {
	if rule == "" {
		return address
	}
	return address + " as " + rule
}

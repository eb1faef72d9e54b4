package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/cmd/appliance/internal/appliance"
	"zonehop/config"
	"zonehop/probe/composite"
)

// Exit statuses of explain-health; 0 is HEALTHY.
const (
	exitUnhealthy = exitStatus(2)
	exitUnknown   = exitStatus(5)
)

// explainHealthFlags are what explain-health is asked.
type explainHealthFlags struct {
	file, socket  string
	down, unknown []string
	asJSON        bool
}

func newExplainHealthCommand() *cobra.Command {
	var f explainHealthFlags
	cmd := &cobra.Command{
		Use:   "explain-health NAME",
		Short: "Say what state a health source or composite health check is in, and why",
		Long: "explain-health shows the state of a health source or composite health check, the counts that led to it,\n" +
			"and what would change it. With --config it is offline, and every backend is healthy except those named with\n" +
			"--down and --unknown; else it asks the running appliance, and they are on top of what is so now.\n" +
			"Where a source and a composite share a name, it is the composite; source/NAME is the source.\n\n" +
			"The exit status is 0 for HEALTHY, 2 for UNHEALTHY and 5 for UNKNOWN.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return explainHealth(cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], &f)
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.file, "config", "c", "", "configuration file, for an explanation offline")
	fl.StringSliceVar(&f.down, "down", nil, "backends that are unhealthy: NAME, or SERVICE/NAME for one service alone")
	fl.StringSliceVar(&f.unknown, "unknown", nil, "backends without a verdict")
	fl.StringVar(&f.socket, "socket", "", "admin socket of the appliance (without --config)")
	fl.BoolVar(&f.asJSON, "json", false, "print JSON")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	cmd.MarkFlagsMutuallyExclusive("config", "socket")
	return cmd
}

func explainHealth(w, problemsTo io.Writer, name string, f *explainHealthFlags) error {
	var e admin.HealthExplanation
	var err error
	if f.file != "" {
		e, err = explainHealthOffline(problemsTo, name, f)
	} else {
		e, err = admin.NewClient(f.socket).ExplainHealth(admin.ExplainHealthRequest{Name: name, Down: f.down, Unknown: f.unknown})
	}
	if status, said := err.(exitStatus); said {
		return status
	}
	if err != nil {
		return fmt.Errorf("explain health: %w", err)
	}
	if f.asJSON {
		err = writeJSON(w, e)
	} else {
		printHealthExplanation(w, &e)
	}
	if err != nil {
		return err
	}
	switch e.HealthState {
	case "HEALTHY":
		return nil
	case "UNHEALTHY":
		return exitUnhealthy
	}
	return exitUnknown
}

func explainHealthOffline(problemsTo io.Writer, name string, f *explainHealthFlags) (e admin.HealthExplanation, err error) {
	c, problems := config.Load(f.file)
	if len(problems.Errors()) > 0 {
		reportProblems(problemsTo, problems)
		return e, exitStatus(1)
	}
	o, err := appliance.CompositeOptions(c)
	if err != nil {
		return e, err
	}
	t, err := composite.Offline(o, f.down, f.unknown)
	if err != nil {
		return e, fmt.Errorf("%w in %s", err, f.file)
	}
	return appliance.ExplainHealth(t, c, name)
}

func printHealthExplanation(w io.Writer, e *admin.HealthExplanation) {
	leaves := func(s *admin.HealthSource) []string {
		var out []string
		for _, p := range s.Endpoints {
			line := fmt.Sprintf("%s (%s): %s", p.Backend, orDash(p.Group), p.HealthState)
			if p.Failover {
				line += ", failover"
			}
			if p.Drain {
				line += ", drained"
			}
			if !p.Counted {
				line += ", does not count"
			}
			out = append(out, line)
		}
		return out
	}
	if e.Composite == nil {
		printSource(w, "", &e.Sources[0], "", leaves)
		return
	}
	sources := make([]*admin.HealthSource, len(e.Sources))
	for i := range e.Sources {
		sources[i] = &e.Sources[i]
	}
	printComposite(w, e.Composite, sources, leaves)
}

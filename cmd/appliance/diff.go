package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/cmd/appliance/internal/appliance"
	"zonehop/config"
	"zonehop/selector"
)

// diffChanged is diff's exit status when there is something.
const diffChanged = exitStatus(4)

func newDiffCommand() *cobra.Command {
	var file, old, socket string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff --config NEW [--old FILE]",
		Short: "Say what a reload with another configuration would change",
		Long: "diff compares a configuration with the one in force in the running appliance: what comes, goes and\n" +
			"changes, which part of each service's new connections would get another backend (the most over the zones\n" +
			"of clients; every client is taken to stay in its zone, new backends to be healthy), and how many tracked\n" +
			"flows would not stay. With --old it compares two files instead, with everything healthy and no flows.\n\n" +
			"Exit status: 0 nothing would change, 4 something would, 1 the new configuration is not valid.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := diff(file, old, socket)
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), d)
			} else {
				printDiff(cmd.OutOrStdout(), &d)
			}
			if err == nil && d.Changed {
				return diffChanged
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "the new configuration (required)")
	cmd.Flags().StringVar(&old, "old", "", "compare with this file instead of the running appliance")
	cmd.Flags().StringVar(&socket, "socket", "", "admin socket of the appliance (default $ZONEHOP_SOCKET, else "+admin.DefaultSocket+")")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.MarkFlagsMutuallyExclusive("old", "socket")
	if err := cmd.MarkFlagRequired("config"); err != nil {
		panic(err)
	}
	return cmd
}

func diff(file, old, socket string) (admin.Diff, error) {
	next, err := loadValid(file)
	if err != nil {
		return admin.Diff{}, err
	}
	if old != "" {
		return diffFiles(old, next)
	}
	path, err := filepath.Abs(file)
	if err != nil {
		return admin.Diff{}, fmt.Errorf("diff: %w", err)
	}
	d, err := admin.NewClient(socket).Diff(admin.DiffRequest{Path: path})
	if err != nil && !errors.Is(err, admin.ErrRefused) {
		return d, fmt.Errorf("diff: %w; without a running appliance, name the present configuration with --old FILE", err)
	}
	if err != nil {
		return d, fmt.Errorf("diff: %w", err)
	}
	return d, nil
}

// loadValid reads a configuration and says what is wrong with it.
func loadValid(file string) (*config.Config, error) {
	c, problems := config.Load(file)
	for _, p := range problems {
		fmt.Fprintln(os.Stderr, p)
	}
	if len(problems.Errors()) > 0 {
		return nil, exitStatus(1)
	}
	return c, nil
}

func diffFiles(file string, next *config.Config) (admin.Diff, error) {
	old, err := loadValid(file)
	if err != nil {
		return admin.Diff{}, err
	}
	before, err := offlineSnapshot(old)
	if err != nil {
		return admin.Diff{}, err
	}
	after, err := offlineSnapshot(next)
	if err != nil {
		return admin.Diff{}, err
	}
	d := appliance.Compare(old, next)
	d.Effects = appliance.Effects(old, next, before, after)
	return d, nil
}

// offlineSnapshot is what a configuration leads to when everything is healthy.
func offlineSnapshot(c *config.Config) (*selector.Snapshot, error) {
	zoneMap, problems := c.LoadZoneMap()
	if errs := problems.Errors(); len(errs) > 0 {
		return nil, errs.Err()
	}
	o, err := appliance.SelectorOptions(c, zoneMap)
	if err != nil {
		return nil, err
	}
	return selector.Offline(o, nil, nil)
}

func printDiff(w io.Writer, d *admin.Diff) {
	if !d.Changed {
		fmt.Fprintln(w, "nothing would change")
		return
	}
	for _, part := range []struct {
		what string
		c    admin.Changes
	}{
		{"interface", d.Interfaces}, {"zone", d.Zones}, {"health check", d.Checks}, {"backend service", d.Services},
		{"backend", d.Backends}, {"forwarding rule", d.Rules}, {"route", d.Routes},
	} {
		for _, n := range part.c.Added {
			fmt.Fprintf(w, "+ %s %s\n", part.what, n)
		}
		for _, n := range part.c.Removed {
			fmt.Fprintf(w, "- %s %s\n", part.what, n)
		}
		for _, c := range part.c.Changed {
			fmt.Fprintf(w, "~ %s %s: %s\n", part.what, c.Name, strings.Join(c.What, "; "))
		}
	}
	for _, s := range d.Settings {
		fmt.Fprintf(w, "~ %s\n", s)
	}
	fmt.Fprintln(w)
	columns(w, "SERVICE NEW-CONNECTIONS-MOVED FLOWS AFFECTED", func(row func(...any)) {
		for _, e := range d.Effects {
			flows, affected := "-", "-"
			if e.Flows != nil {
				flows, affected = fmt.Sprint(*e.Flows), fmt.Sprint(*e.Affected)
			}
			row(e.BackendService, fmt.Sprintf("%.1f%%", 100*e.NewConnections), flows, affected)
		}
	})
	if d.Refused != "" {
		fmt.Fprintf(w, "\na reload would refuse it: %s\n", d.Refused)
	}
}

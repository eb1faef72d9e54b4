package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"zonehop/cmd/appliance/internal/admin"
)

func newFlowsCommand() *cobra.Command {
	var f admin.FlowFilter
	var asJSON, follow bool
	var interval time.Duration
	cmd := liveCommand("flows", "Show tracked flows", cobra.NoArgs, func(cmd *cobra.Command, c *admin.Client, _ []string) error {
		out := cmd.OutOrStdout()
		switch {
		case follow:
			return followFlows(out, c, f, max(interval, 10*time.Millisecond), asJSON)
		case asJSON:
			return listFlows(out, c, f)
		}
		return printFlows(out, c, f)
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&f.Client, "client", "", "only flows of this client address")
	cmd.Flags().StringVar(&f.Backend, "backend", "", "only flows on this backend")
	cmd.Flags().StringVar(&f.Rule, "rule", "", "only flows of this forwarding rule or route")
	cmd.Flags().StringVar(&f.State, "state", "", "only flows in this state: unconfirmed, confirmed or closing")
	cmd.Flags().IntVar(&f.Limit, "limit", 0, "at most this many (0: all)")
	cmd.Flags().BoolVar(&follow, "follow", false, "show changes as they happen, until interrupted; with --json one object a line")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "how often --follow looks")
	cmd.MarkFlagsMutuallyExclusive("follow", "limit")
	return cmd
}

// listFlows prints a JSON list as it comes.
func listFlows(w io.Writer, c *admin.Client, f admin.FlowFilter) error {
	before := "["
	err := c.EachFlow(f, func(flow *admin.Flow) error {
		text, err := json.MarshalIndent(flow, "  ", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n  %s", before, text)
		before = ","
		return err
	})
	if err != nil {
		return err
	}
	end := "\n]\n"
	if before == "[" {
		end = "[]\n"
	}
	_, err = io.WriteString(w, end)
	return err
}

// printFlows prints a table as it comes.
func printFlows(w io.Writer, c *admin.Client, f admin.FlowFilter) error {
	t := newStream(w, "CLIENT DESTINATION PROTOCOL PORTS RULE BACKEND STATE AGE IDLE PACKETS BYTES")
	n := 0
	err := c.EachFlow(f, func(f *admin.Flow) error {
		n++
		return t.row(orDash(f.Client), orDash(f.Destination), f.Protocol, orDash(f.Ports), orDash(f.Rule), orDash(f.Backend), f.State,
			duration(f.AgeSec), duration(f.IdleSec), f.Packets, f.Bytes)
	})
	if err != nil {
		return err
	}
	if err := t.flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%d flows\n", n)
	return err
}

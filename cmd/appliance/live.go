package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"zonehop/cmd/appliance/internal/admin"
)

// liveCommand is a command that talks to a running appliance.
func liveCommand(use, short string, args cobra.PositionalArgs, run func(cmd *cobra.Command, c *admin.Client, args []string) error) *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use: use, Short: short, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := run(cmd, admin.NewClient(socket), args)
			var status exitStatus
			if err == nil || errors.As(err, &status) {
				return err
			}
			return fmt.Errorf("%s: %w", cmd.Name(), err)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "admin socket of the appliance (default $ZONEHOP_SOCKET, else "+admin.DefaultSocket+")")
	return cmd
}

// printed is a liveCommand that prints what it got, as JSON if asked.
func printed[T any](use, short string, get func(cmd *cobra.Command, c *admin.Client) (T, error), table func(io.Writer, T)) *cobra.Command {
	var asJSON bool
	cmd := liveCommand(use, short, cobra.NoArgs, func(cmd *cobra.Command, c *admin.Client, _ []string) error {
		v, err := get(cmd, c)
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(cmd.OutOrStdout(), v)
		}
		table(cmd.OutOrStdout(), v)
		return nil
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// columns prints rows under a heading, aligned.
func columns(w io.Writer, heading string, rows func(row func(cells ...any))) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(strings.Fields(heading), "\t"))
	rows(func(cells ...any) {
		for i, c := range cells {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, c)
		}
		fmt.Fprintln(t)
	})
	t.Flush()
}

func newStatusCommand() *cobra.Command {
	return printed("status", "Show interfaces, rules, the flow table, and where every frame went",
		func(_ *cobra.Command, c *admin.Client) (admin.Status, error) { return c.Status() }, printStatus)
}

func printStatus(w io.Writer, s admin.Status) {
	fmt.Fprintf(w, "zonehop %s, up %s, snapshot generation %d (published in %d µs)\n\n",
		s.Version, duration(s.UptimeSec), s.Generation, s.PublishMicros)
	columns(w, "INTERFACE MODE QUEUE WORKER FILL TX FREE RECEIVED NO-SOCKET RX-DROPPED PROBLEM", func(row func(...any)) {
		for _, i := range s.Interfaces {
			if !i.Up && i.Problem == "" {
				i.Problem = "the link is down"
			}
			if len(i.Queues) == 0 {
				row(i.Name, i.Mode, "-", "-", "-", "-", "-", "-", "-", "-", orDash(i.Problem))
			}
			for _, q := range i.Queues {
				row(i.Name, i.Mode, q.Queue, q.Worker, q.Fill, q.TX, q.Free, q.Received, q.NoSocket,
					q.RXDropped+q.RXRingFull, orDash(strings.TrimSpace(i.Problem+" "+q.Problem)))
			}
		}
	})
	for _, i := range s.Interfaces {
		if i.Why != "" {
			fmt.Fprintf(w, "%s is in mode %s: %s\n", i.Name, i.Mode, i.Why)
		}
	}
	fmt.Fprintln(w)
	columns(w, "RULE MATCH SERVICE ANNOUNCED PACKETS BYTES PROBLEM", func(row func(...any)) {
		for _, r := range s.Rules {
			row(r.Name, r.Match, r.BackendService, yesNo(r.Announced), r.Packets, r.Bytes, orDash(r.Problem))
		}
	})
	t := s.FlowTable
	fmt.Fprintf(w, "\nflow table: %d of %d lines used (%d unconfirmed, %d confirmed, %d closing); rejected: %d quota, %d full\n",
		t.Used, t.Capacity, t.Unconfirmed, t.Confirmed, t.Closing, t.RejectedQuota, t.RejectedFull)
	a := s.Accounting
	fmt.Fprintf(w, "\nredirected %d = received %d + rx dropped %d + ring full %d + no socket %d\n",
		a.Redirected, a.Received, a.RXDropped, a.RXRingFull, a.NoSocket)
	fmt.Fprintf(w, "received %d = forwarded %d + answered %d%s + dropped %d%s + held %d\n",
		a.Received, a.Forwarded, sum(a.Answered), labels(a.Answered), sum(a.Dropped), labels(a.Dropped), a.Held)
	fmt.Fprintf(w, "out: forwarded %d + answered %d + originated %d%s = completed %d + in flight %d + abandoned %d + invalid %d\n",
		a.Forwarded, sum(a.Answered), sum(a.Originated), labels(a.Originated), a.Completed, a.InFlight, a.Abandoned, a.Invalid)
	if a.Balanced {
		fmt.Fprintln(w, "accounting: adds up")
	} else {
		fmt.Fprintln(w, "accounting: does not add up at this moment:", a.Imbalance)
	}
	if c := s.Claims; c != (admin.Claims{}) {
		fmt.Fprintf(w, "\naddress claims by others: %d conflicts (%d defences), %d probes, %d missed", c.Conflicts, c.Defences, c.Probes, c.Missed)
		if c.Problem != "" {
			fmt.Fprintf(w, "; not all are seen: %s", c.Problem)
		}
		fmt.Fprintln(w)
	}
	for _, c := range s.Conflicts {
		fmt.Fprintf(w, "address conflict: %s claimed by %s, %d times, last %.0f s ago\n", c.Address, whose(&c), c.Count, c.AgoSec)
	}
	for _, c := range s.AddressProbes {
		fmt.Fprintf(w, "address probe: %s wanted by %s, %d times, last %.0f s ago\n", c.Address, whose(&c), c.Count, c.AgoSec)
	}
}

// whose names the host that claims an address, and where.
func whose(c *admin.AddressClaim) string {
	s := c.MAC
	if c.Backend != "" {
		s += " (backend " + c.Backend + ")"
	}
	s += " on " + c.Interface
	if c.VLAN != "" {
		s += " in VLAN " + c.VLAN
	}
	return s
}

func newBackendsCommand() *cobra.Command {
	return printed("backends", "Show backends: health, whether they can be delivered to, their flows",
		func(_ *cobra.Command, c *admin.Client) ([]admin.Backend, error) { return c.Backends() },
		func(w io.Writer, list []admin.Backend) {
			columns(w, "BACKEND SERVICE ZONE ADDRESS ROLE HEALTH DELIVERABLE DRAIN FLOWS PACKETS BYTES REASON", func(row func(...any)) {
				for _, b := range list {
					role := "primary"
					if b.Failover {
						role = "failover"
					}
					row(b.Name, b.Service, orDash(b.Zone), b.Address, role, b.Health, yesNo(b.Deliverable), drainState(&b), b.Flows, b.Packets, b.Bytes, reason(&b))
				}
			})
		})
}

// reason says what keeps frames from a backend: all, or some.
func reason(b *admin.Backend) string {
	if b.Deliverable && b.VLAN != 0 {
		return fmt.Sprintf("only frames of VLAN %d", b.VLAN)
	}
	return orDash(b.Reason)
}

// drainState says whether a backend drains, and how long its connections may
// stay where that is known.
func drainState(b *admin.Backend) string {
	switch {
	case b.DrainLeftSec != nil && b.Removed:
		return "removed, " + duration(*b.DrainLeftSec) + " left"
	case b.DrainLeftSec != nil:
		return "failover, " + duration(*b.DrainLeftSec) + " left"
	}
	return yesNo(b.Drain)
}

func newDrainCommand() *cobra.Command   { return drainCommand("drain", "Stop", true) }
func newUndrainCommand() *cobra.Command { return drainCommand("undrain", "Resume", false) }

func drainCommand(name, verb string, on bool) *cobra.Command {
	return liveCommand(name+" BACKEND", verb+" new connections to a backend, named NAME or SERVICE/NAME; its present connections go on",
		cobra.ExactArgs(1), func(_ *cobra.Command, c *admin.Client, args []string) error {
			return c.SetDrain(args[0], on)
		})
}

func newAnnounceCommand() *cobra.Command {
	cmd := liveCommand("announce on|off [RULE]", "Answer, or stop answering, for addresses with announce: STANDBY",
		cobra.RangeArgs(1, 2), func(_ *cobra.Command, c *admin.Client, args []string) error {
			rule := ""
			if len(args) == 2 {
				rule = args[1]
			}
			return c.SetAnnounce(rule, args[0] == "on")
		})
	cmd.ValidArgs = []string{"on", "off"}
	inner := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if args[0] != "on" && args[0] != "off" {
			return fmt.Errorf("announce: %q is not a state; use on or off", args[0])
		}
		return inner(cmd, args)
	}
	return cmd
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func duration(sec float64) string {
	return time.Duration(sec * float64(time.Second)).Round(100 * time.Millisecond).String()
}

func sum(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}

// labels lists the parts of a sum that are not zero.
func labels(m map[string]uint64) string {
	var parts []string
	for k, v := range m {
		if v != 0 {
			parts = append(parts, fmt.Sprintf("%s %d", k, v))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	sort.Strings(parts)
	return " (" + strings.Join(parts, ", ") + ")"
}

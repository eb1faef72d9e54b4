package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"zonehop/cmd/appliance/internal/admin"
)

// flowChange is one line of `appliance flows --follow --json`.
type flowChange struct {
	// Change is present (when following began), new, moved (another backend), state, or ended.
	Change string     `json:"change"`
	Flow   admin.Flow `json:"flow"` // as it is now; as it was last seen if it has ended
	From   string     `json:"from,omitempty"`
}

// followFlows prints the tracked flows and then their changes until the appliance does not
// answer any more. Each interval asks for all flows that match the filter: a
// filter makes that cheap on a large table. What comes and goes between two
// looks is not seen.
func followFlows(w io.Writer, c *admin.Client, f admin.FlowFilter, interval time.Duration, asJSON bool) error {
	list, err := c.Flows(f)
	if err != nil {
		return err
	}
	known := byIdentity(list)
	for _, f := range list {
		if err := printChange(w, flowChange{Change: "present", Flow: f}, asJSON); err != nil {
			return err
		}
	}
	for {
		time.Sleep(interval)
		if list, err = c.Flows(f); err != nil {
			return err
		}
		next := byIdentity(list)
		for _, change := range flowChanges(known, next) {
			if err := printChange(w, change, asJSON); err != nil {
				return err
			}
		}
		known = next
	}
}

// flowIdentity is what the table knows a flow by, as operators see it.
type flowIdentity struct{ client, destination, protocol, ports, rule string }

func byIdentity(list []admin.Flow) map[flowIdentity]admin.Flow {
	out := make(map[flowIdentity]admin.Flow, len(list))
	for _, f := range list {
		out[flowIdentity{f.Client, f.Destination, f.Protocol, f.Ports, f.Rule}] = f
	}
	return out
}

func flowChanges(before, now map[flowIdentity]admin.Flow) (out []flowChange) {
	for id, f := range now {
		switch was, known := before[id]; {
		case !known:
			out = append(out, flowChange{Change: "new", Flow: f})
		case was.Backend != f.Backend:
			out = append(out, flowChange{Change: "moved", Flow: f, From: was.Backend})
		case was.State != f.State:
			out = append(out, flowChange{Change: "state", Flow: f, From: was.State})
		}
	}
	for id, f := range before {
		if _, there := now[id]; !there {
			out = append(out, flowChange{Change: "ended", Flow: f})
		}
	}
	return out
}

func printChange(w io.Writer, c flowChange, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(c)
	}
	from := ""
	if c.From != "" {
		from = " (was " + c.From + ")"
	}
	f := &c.Flow
	_, err := fmt.Fprintf(w, "%s %-7s %s → %s %s %s  %s  %s  %s%s  %d packets, %d bytes\n", time.Now().Format("15:04:05.000"), c.Change,
		orDash(f.Client), orDash(f.Destination), f.Protocol, orDash(f.Ports), f.Rule, orDash(f.Backend), f.State, from, f.Packets, f.Bytes)
	return err
}

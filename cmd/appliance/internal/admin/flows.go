package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"zonehop/conntrack"
)

// Flow is one line of `appliance flows --json`.
type Flow struct {
	Client      string  `json:"client"`
	Destination string  `json:"destination"`
	Protocol    string  `json:"protocol"`
	Ports       string  `json:"ports"`
	Rule        string  `json:"rule"`
	Backend     string  `json:"backend"`
	State       string  `json:"state"`
	AgeSec      float64 `json:"ageSec"`
	IdleSec     float64 `json:"idleSec"`
	Packets     uint64  `json:"packets"`
	Bytes       uint64  `json:"bytes"`
}

// FlowFilter selects flows. Empty fields match everything.
type FlowFilter struct {
	Client, Backend, Rule, State string
	Limit                        int // 0: no limit
}

// flowStates are the values of FlowFilter.State.
var flowStates = []string{conntrack.Unconfirmed.String(), conntrack.Confirmed.String(), conntrack.Closing.String()}

// Check says what is wrong with a filter, whatever the appliance.
func (f *FlowFilter) Check() error {
	if _, err := netip.ParseAddr(f.Client); f.Client != "" && err != nil {
		return fmt.Errorf("client %q is not an IP address", f.Client)
	}
	if f.State != "" && !slices.Contains(flowStates, f.State) {
		return fmt.Errorf("state %q does not exist; use %s", f.State, strings.Join(flowStates, ", "))
	}
	if f.Limit < 0 {
		return fmt.Errorf("limit %d is out of range; use 0, which is none, or more", f.Limit)
	}
	return nil
}

// sendFlows answers with a list that is written while the table is read, so
// that ten million flows take no more memory than a few hundred.
func sendFlows(ctx context.Context, w http.ResponseWriter, a Appliance, f *FlowFilter) {
	if err := f.Check(); err != nil {
		reply(w, nil, fmt.Errorf("%w: %w", errBadRequest, err))
		return
	}
	out := bufio.NewWriterSize(newPatient(w), patienceBytes)
	encoder := json.NewEncoder(out)
	separator := byte('[')
	var failed error
	err := a.Flows(f, func(flow *Flow) bool {
		if separator == '[' {
			w.Header().Set("Content-Type", "application/json")
		}
		failed = out.WriteByte(separator)
		separator = ','
		if failed == nil {
			failed = encoder.Encode(flow)
		}
		return failed == nil && ctx.Err() == nil
	})
	switch {
	case err != nil:
		reply(w, nil, err)
	case separator == '[':
		reply(w, []Flow{}, nil)
	case failed == nil && ctx.Err() == nil:
		_ = out.WriteByte(']')
		_ = out.Flush() // the client went away: nothing to do
	}
}

// EachFlow calls each for every tracked flow that passes the filter, while the
// appliance reads its table: they are in memory one at a time. It ends with the
// first error of each. The flow is only valid during the call.
func (c *Client) EachFlow(f FlowFilter, each func(*Flow) error) error {
	if err := f.Check(); err != nil {
		return err
	}
	body, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	resp, err := c.request(http.MethodPost, "/flows", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	wrong := func(err error) error {
		return fmt.Errorf("read the appliance's answer: %w; it stopped, or what it sent was not read for %v", err, patience)
	}
	d := json.NewDecoder(bufio.NewReaderSize(resp.Body, 64<<10))
	if _, err := d.Token(); err != nil { // [
		return wrong(err)
	}
	var flow Flow
	for d.More() {
		flow = Flow{}
		if err := d.Decode(&flow); err != nil {
			return wrong(err)
		}
		if err := each(&flow); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil { // ]
		return wrong(err)
	}
	return nil
}

// Flows is EachFlow for those who want them all at once.
func (c *Client) Flows(f FlowFilter) ([]Flow, error) {
	out := []Flow{}
	err := c.EachFlow(f, func(flow *Flow) error {
		out = append(out, *flow)
		return nil
	})
	return out, err
}

// Package admin is the appliance's control interface: JSON over HTTP on a Unix
// socket that only its owner may open. [Serve] answers on the running side,
// [Client] asks on the command line's. The types are what scripts rely on:
// fields may be added, never renamed.
package admin

import "zonehop/selector"

// Status is what `appliance status --json` prints.
type Status struct {
	Version       string          `json:"version"`
	UptimeSec     float64         `json:"uptimeSec"`
	Generation    uint64          `json:"generation"`
	PublishMicros int64           `json:"publishMicros"`
	Interfaces    []Interface     `json:"interfaces"`
	Rules         []Rule          `json:"rules"`
	FlowTable     FlowTable       `json:"flowTable"`
	Accounting    Accounting      `json:"accounting"`
	Claims        Claims          `json:"claims"`
	Conflicts     []AddressClaim  `json:"conflicts,omitempty"`
	AddressProbes []AddressClaim  `json:"addressProbes,omitempty"`
	Pairs         []PairCount     `json:"forwarded"`
	Conns         []NewConnection `json:"newConnections"`
	Zones         []ZoneBytes     `json:"zoneBytes,omitempty"`
	DetourBytes   uint64          `json:"detourBytes"`
}

// Interface is one configured interface.
type Interface struct {
	Name    string  `json:"name"`
	Mode    string  `json:"mode"` // zero-copy, copy, generic, or none
	Why     string  `json:"why,omitempty"`
	Up      bool    `json:"up"`
	Problem string  `json:"problem,omitempty"`
	Queues  []Queue `json:"queues"`
}

// Queue is one receive queue with the census of its frames: each frame of a
// queue's memory is in exactly one of these places.
type Queue struct {
	Queue    int    `json:"queue"`
	Worker   int    `json:"worker"`
	Bound    bool   `json:"bound"`
	Problem  string `json:"problem,omitempty"`
	Fill     int    `json:"fill"`
	RX       int    `json:"rx"`
	TX       int    `json:"tx"`
	Free     int    `json:"free"`
	Frames   int    `json:"frames"`
	Received uint64 `json:"received"`

	Redirected   uint64 `json:"redirected"`
	NoSocket     uint64 `json:"noSocket"`
	RXDropped    uint64 `json:"rxDropped"`
	RXRingFull   uint64 `json:"rxRingFull"`
	FillEmpty    uint64 `json:"fillEmpty"`
	TXInvalid    uint64 `json:"txInvalid"`
	WakeupsSent  uint64 `json:"wakeupsSent"`
	WakeupsSaved uint64 `json:"wakeupsSaved"`
	// ProbesReturned are probes as rules' addresses that a backend sent back; they are dropped.
	ProbesReturned uint64 `json:"probesReturned"`
}

// Rule is one forwarding rule or route.
type Rule struct {
	Name           string `json:"name"`
	Kind           string `json:"kind"` // forwardingRule or route
	Match          string `json:"match"`
	BackendService string `json:"backendService"`
	Announced      bool   `json:"announced"`
	Problem        string `json:"problem,omitempty"`
	Packets        uint64 `json:"packets"`
	Bytes          uint64 `json:"bytes"`
}

// FlowTable is the state of the flow table.
type FlowTable struct {
	Capacity      int    `json:"capacity"`
	Used          int    `json:"used"`
	Unconfirmed   int    `json:"unconfirmed"`
	Confirmed     int    `json:"confirmed"`
	Closing       int    `json:"closing"`
	RejectedQuota uint64 `json:"rejectedQuota"`
	RejectedFull  uint64 `json:"rejectedFull"`
}

// Accounting adds up every frame. In user space received = forwarded + answered
// + dropped + held, and on the way out forwarded + answered + originated =
// completed + inFlight + abandoned + invalid, exactly, whenever the workers are quiet.
type Accounting struct {
	Redirected uint64            `json:"redirected"`
	NoSocket   uint64            `json:"noSocket"`
	RXDropped  uint64            `json:"rxDropped"`
	RXRingFull uint64            `json:"rxRingFull"`
	Received   uint64            `json:"received"`
	Forwarded  uint64            `json:"forwarded"`
	Answered   map[string]uint64 `json:"answered"`
	Dropped    map[string]uint64 `json:"dropped"`
	Held       uint64            `json:"held"`
	Originated map[string]uint64 `json:"originated"`
	Completed  uint64            `json:"completed"`
	InFlight   uint64            `json:"inFlight"`
	Abandoned  uint64            `json:"abandoned"`
	Invalid    uint64            `json:"invalid"`
	Copied     uint64            `json:"copied"`
	MidFlow    uint64            `json:"midFlowMisses"`
	Balanced   bool              `json:"balanced"`
	Imbalance  string            `json:"imbalance,omitempty"`
}

// Claims counts what other hosts said about addresses that are answered for
// here: conflicts say that the address is theirs, probes ask whether it is free.
type Claims struct {
	Conflicts uint64 `json:"conflicts"`
	Probes    uint64 `json:"probes"`
	Defences  uint64 `json:"defences"`          // announcements against conflicts, at most one in ten seconds
	Missed    uint64 `json:"missed"`            // came too fast to be looked at
	Problem   string `json:"problem,omitempty"` // why not all of them are seen
}

// AddressClaim is another host's claim to an address answered for here, or its
// probe for one, within the last hour.
type AddressClaim struct {
	Address     string  `json:"address"`
	MAC         string  `json:"mac"`
	Interface   string  `json:"interface"`
	VLAN        string  `json:"vlan,omitempty"`    // number, or OUTER.INNER
	Backend     string  `json:"backend,omitempty"` // whose MAC it is
	Count       uint64  `json:"count"`
	Defences    uint64  `json:"defences"`
	FirstAgoSec float64 `json:"firstAgoSec"`
	AgoSec      float64 `json:"agoSec"`
}

// PairCount is what one rule sent to one backend.
type PairCount struct {
	Rule    string `json:"rule"`
	Backend string `json:"backend"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// NewConnection counts connections given to backends, by zones. A client or
// backend without a zone has an empty name.
type NewConnection struct {
	Rule        string `json:"rule"`
	ClientZone  string `json:"clientZone"`
	BackendZone string `json:"backendZone"`
	Connections uint64 `json:"connections"`
}

// ZoneBytes counts what went from clients of one zone to backends of another
// or the same; only with the appliance's own zone configured.
type ZoneBytes struct {
	ClientZone  string `json:"clientZone"`
	BackendZone string `json:"backendZone"`
	Bytes       uint64 `json:"bytes"`
}

// Backend is one line of `appliance backends --json`.
type Backend struct {
	Name     string `json:"name"`
	Service  string `json:"service"`
	Zone     string `json:"zone"`
	Address  string `json:"address"`
	Failover bool   `json:"failover"`
	Weight   int    `json:"weight"`
	// ReportedWeight is the last valid one, WeightState the last report, and WeightInUse whether the
	// service follows the reports: only with localityLbPolicy WEIGHTED_GCP_RENDEZVOUS.
	ReportedWeight *float64 `json:"reportedWeight,omitempty"`
	WeightState    string   `json:"weightState,omitempty"`
	WeightInUse    bool     `json:"weightInUse,omitempty"`
	Health         string   `json:"health"` // HEALTHY, UNHEALTHY, UNKNOWN
	Deliverable    bool     `json:"deliverable"`
	Reason         string   `json:"reason,omitempty"`
	// VLAN is the only one whose frames reach it; absent where frames keep their tags.
	VLAN    int  `json:"vlan,omitempty"`
	Drain   bool `json:"drain"`
	Removed bool `json:"removed,omitempty"`
	// DrainLeftSec is how long its connections may stay, for a backend that was
	// removed or whose role does not serve any more; absent otherwise.
	DrainLeftSec *float64 `json:"drainLeftSec,omitempty"`
	Flows        int      `json:"flows"`
	Packets      uint64   `json:"packets"`
	Bytes        uint64   `json:"bytes"`
}

// Health is what `appliance health --json` prints.
type Health struct {
	Backends   []BackendHealth   `json:"backends"`
	Sources    []HealthSource    `json:"sources"`
	Composites []CompositeHealth `json:"composites"`
}

// BackendHealth is the probe state of one backend.
type BackendHealth struct {
	Backend     string       `json:"backend"`
	Service     string       `json:"service"`
	Check       string       `json:"check"`
	Address     string       `json:"address"`
	RuleAddress string       `json:"ruleAddress,omitempty"` // the destination the backend sees, with probeTarget RULE_ADDRESS
	State       string       `json:"state"`
	Text        string       `json:"text"`
	LatencyMs   float64      `json:"latencyMs"`
	InRow       int          `json:"consecutive"` // results of the last kind in a row: successes or failures
	Successes   int          `json:"successes"`
	Failures    int          `json:"failures"`
	NextSec     float64      `json:"nextSec"`
	Transitions []Transition `json:"transitions,omitempty"`
}

// Transition is one change of the health of a backend, source or composite. The last 16 of each are
// kept, over reloads too.
type Transition struct {
	At        string          `json:"at"`
	From      string          `json:"from"`
	To        string          `json:"to"`
	Text      string          `json:"text"`                // the probe's result, or the cause
	LatencyMs float64         `json:"latencyMs,omitempty"` // of that probe
	Counts    *EndpointCounts `json:"counts,omitempty"`    // of sources
}

// ExplainRequest asks which backend a packet gets.
type ExplainRequest struct {
	Rule  string `json:"rule"`
	Tuple Tuple  `json:"tuple"`
}

// Tuple is a packet's identity in text form.
type Tuple struct {
	Client   string `json:"client"`
	Dst      string `json:"dst,omitempty"`
	Protocol uint8  `json:"protocol"` // 0: that of the rule, or TCP
	SrcPort  uint16 `json:"srcPort"`
	DstPort  uint16 `json:"dstPort"`
}

// Explanation is a decision with its reasons, and what the flow table knows.
type Explanation struct {
	selector.Explanation
	Tracked *Flow `json:"tracked,omitempty"`
	// IfBackendFails says where the tracked flow's next packet would go if its backend turned unhealthy.
	IfBackendFails *Foresight `json:"ifBackendFails,omitempty"`
}

// Foresight is where packets of a tracked flow would go.
type Foresight struct {
	Stays   bool   `json:"stays"`             // on the backend it has
	Backend string `json:"backend,omitempty"` // absent when dropped
	Result  string `json:"result,omitempty"`  // of the new selection: selected, or why not
}

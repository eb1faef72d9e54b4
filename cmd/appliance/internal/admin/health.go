package admin

import "encoding/json"

// HealthSource is the health of one service against its policy, as health --json and the health
// listener show it. Endpoints are backends; operator-drained ones do not count unless all are.
type HealthSource struct {
	Name        string `json:"name"`
	HealthState string `json:"healthState"` // HEALTHY, UNHEALTHY, UNKNOWN
	State       string `json:"state"`       // the same, under the name that backends have it
	Since       string `json:"since,omitempty"`
	DryRun      bool   `json:"dryRun"`

	BackendService          string      `json:"backendService"`
	HealthAggregationPolicy string      `json:"healthAggregationPolicy"`
	HealthyPercentThreshold json.Number `json:"healthyPercentThreshold"`
	MinHealthyThreshold     int         `json:"minHealthyThreshold"`
	EndpointCounts
	RequiredEndpointCount int    `json:"requiredEndpointCount"` // healthy ones that the policy asks for
	Missing               string `json:"missing"`               // what would change the state

	Sources     []SourceHealth `json:"sources"`
	Endpoints   []Endpoint     `json:"endpoints,omitempty"` // in explanations only
	Transitions []Transition   `json:"transitions,omitempty"`
}

// EndpointCounts are the endpoints that count, by state.
type EndpointCounts struct {
	Endpoints int `json:"endpointCount"`
	Healthy   int `json:"healthyEndpointCount"`
	Unhealthy int `json:"unhealthyEndpointCount"`
	Unknown   int `json:"unknownEndpointCount"`
}

// SourceHealth is the health of a service behind one of its forwarding rules.
type SourceHealth struct {
	Source         string        `json:"source"` // the backend service
	ForwardingRule string        `json:"forwardingRule,omitempty"`
	Backends       []GroupHealth `json:"backends"`
}

// GroupHealth counts the endpoints of one zone and role.
type GroupHealth struct {
	Group     string `json:"group"` // the zone
	Failover  bool   `json:"failover,omitempty"`
	Endpoints int    `json:"endpointCount"`
	Healthy   int    `json:"healthyEndpointCount"`
}

// Endpoint is one backend as a source counts it.
type Endpoint struct {
	Backend     string `json:"backend"`
	Group       string `json:"group"`
	Failover    bool   `json:"failover,omitempty"`
	HealthState string `json:"healthState"`
	Drain       bool   `json:"drain,omitempty"`
	Counted     bool   `json:"counted"`
}

// CompositeHealth is the health of what one forwarding rule stands for.
type CompositeHealth struct {
	Name              string        `json:"name"`
	HealthState       string        `json:"healthState"` // HEALTHY, UNHEALTHY, UNKNOWN
	State             string        `json:"state"`       // the same, under the name that backends have it
	Since             string        `json:"since,omitempty"`
	DryRun            bool          `json:"dryRun"`
	HealthDestination string        `json:"healthDestination"`
	HealthSources     []SourceState `json:"healthSources"`
	Missing           string        `json:"missing"` // what would change the state
	Transitions       []Transition  `json:"transitions,omitempty"`
}

// SourceState is a source as a composite sees it.
type SourceState struct {
	Source      string `json:"source"`
	HealthState string `json:"healthState"`
	Ignored     bool   `json:"ignored,omitempty"` // a dry run, and the composite is not
}

// HealthEvent is one change of state: a line of `appliance health --watch --json`.
type HealthEvent struct {
	At                  string  `json:"at"`   // of the verdict that caused it
	Kind                string  `json:"kind"` // backend, source or composite
	Name                string  `json:"name"`
	BackendService      string  `json:"backendService,omitempty"` // of backends and sources
	Address             string  `json:"address,omitempty"`        // of backends, where the probe went
	RuleAddress         string  `json:"ruleAddress,omitempty"`    // of backends, the destination they saw, with probeTarget RULE_ADDRESS
	Check               string  `json:"check,omitempty"`          // of backends
	HealthState         string  `json:"healthState"`
	PreviousHealthState string  `json:"previousHealthState"`
	Cause               string  `json:"cause"` // for backends the probe's result
	LatencyMs           float64 `json:"latencyMs,omitempty"`
	DryRun              bool    `json:"dryRun,omitempty"`

	Counts            *EndpointCounts `json:"counts,omitempty"`            // of sources
	Sources           []SourceHealth  `json:"sources,omitempty"`           // of sources
	HealthDestination string          `json:"healthDestination,omitempty"` // of composites
	HealthSources     []SourceState   `json:"healthSources,omitempty"`     // of composites
}

// Kinds of health events.
const (
	KindBackend   = "backend"
	KindSource    = "source"
	KindComposite = "composite"
)

// HealthUpdate is one step of a watch: what just happened, and the state of all sources and
// composites after it. The lists are shared by all watchers and must not be changed.
type HealthUpdate struct {
	Events     []HealthEvent
	Sources    []HealthSource
	Composites []CompositeHealth
}

// ExplainHealthRequest asks for the state of a health source or composite check, and what it would
// be if backends were in other states than they are.
type ExplainHealthRequest struct {
	Name    string   `json:"name"`
	Down    []string `json:"down,omitempty"`
	Unknown []string `json:"unknown,omitempty"`
}

// HealthExplanation is a state with everything that led to it.
type HealthExplanation struct {
	Name        string           `json:"name"`
	Kind        string           `json:"kind"` // source or composite
	HealthState string           `json:"healthState"`
	Missing     string           `json:"missing"`
	Composite   *CompositeHealth `json:"composite,omitempty"`
	Sources     []HealthSource   `json:"sources"` // with their endpoints
}

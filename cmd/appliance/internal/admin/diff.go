package admin

// DiffRequest asks what a configuration would change.
type DiffRequest struct {
	// Path of the file, absolute: the appliance reads it, as it would in a reload.
	Path string `json:"path"`
}

// Diff is what `appliance diff --json` prints.
type Diff struct {
	Live    bool `json:"live"` // against a running appliance, not a file
	Changed bool `json:"changed"`
	// Refused says why a reload would refuse the configuration; empty if it would not.
	Refused    string        `json:"refused,omitempty"`
	Interfaces Changes       `json:"interfaces"`
	Zones      Changes       `json:"zones"`
	Checks     Changes       `json:"healthChecks"`
	Services   Changes       `json:"backendServices"`
	Backends   Changes       `json:"backends"` // SERVICE/NAME
	Rules      Changes       `json:"forwardingRules"`
	Routes     Changes       `json:"routes"`
	Settings   []string      `json:"settings"` // everything else, as "name: old → new"
	Effects    []DiffService `json:"effects"`  // of services in both configurations
}

// Changes names what comes, goes and is not the same. Lists are never nil.
type Changes struct {
	Added   []string  `json:"added"`
	Removed []string  `json:"removed"`
	Changed []Changed `json:"changed"`
}

// Changed is one thing that has other settings.
type Changed struct {
	Name string   `json:"name"`
	What []string `json:"what"` // as "field: old → new"
}

// DiffService is what happens to the connections of a backend service.
type DiffService struct {
	BackendService string `json:"backendService"`
	// NewConnections is the part, 0 to 1, of new connections that would get another backend than now:
	// the most over client zones and IP versions, which are all in Movements.
	NewConnections float64    `json:"newConnections"`
	Movements      []Movement `json:"movements"`
	// Of tracked flows, which only a running appliance knows: how many there are, and how many would
	// lose their rule, or get another backend with their next packet or when the drain of theirs ends.
	Flows    *int `json:"flows,omitempty"`
	Affected *int `json:"affected,omitempty"`
}

// Movement is the part of new connections from clients of one zone that would get another backend.
type Movement struct {
	IPVersion  int     `json:"ipVersion"` // 4 or 6
	ClientZone string  `json:"clientZone"`
	Share      float64 `json:"share"`
}

// Diff asks what a configuration would change. The error wraps ErrRefused if it is not valid.
func (c *Client) Diff(q DiffRequest) (d Diff, err error) {
	err = c.post("/diff", q, &d)
	return d, err
}

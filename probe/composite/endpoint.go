package composite

import "zonehop/selector"

// Endpoint is a backend as its service's sources see it.
type Endpoint struct {
	Name     string
	Group    string
	Failover bool
	State    selector.Health // of both families together
	Drained  bool            // by the operator
	Counted  bool            // false for a drained one, unless all are
}

// Group is the endpoints of a service that belong together: those of a zone and a role.
type Group struct {
	Name      string
	Failover  bool
	Endpoints int // that count
	Healthy   int
}

// service is the changing side of a Service.
type service struct {
	name      string
	endpoints []*endpoint // configuration order
	named     map[string]*endpoint
	stale     bool // since the last count
	counted   Count
	groups    []Group // replaced, never changed
}

type endpoint struct {
	Backend
	states  [2]selector.Health
	drained bool
}

// state is the worse of the families the backend has.
func (e *endpoint) state() selector.Health {
	state := selector.Healthy
	for f, h := range e.states {
		switch {
		case !e.Addresses[f].IsValid() || h == selector.Healthy:
		case h == selector.Unhealthy:
			return selector.Unhealthy
		default:
			state = selector.Unknown
		}
	}
	return state
}

// list is every endpoint, those that do not count too.
func (s *service) list() []Endpoint {
	out := make([]Endpoint, 0, len(s.endpoints))
	all := true
	for _, e := range s.endpoints {
		out = append(out, Endpoint{e.Name, e.Group, e.Failover, e.state(), e.drained, !e.drained})
		all = all && e.drained
	}
	if all {
		for i := range out {
			out[i].Counted = true
		}
	}
	return out
}

// count adds up the endpoints that count, as a whole and by group, in the order of the configuration.
func (s *service) count() (Count, []Group) {
	if s.stale {
		s.counted, s.groups = addUp(s.list())
		s.stale = false
	}
	return s.counted, s.groups
}

func addUp(list []Endpoint) (c Count, groups []Group) {
	type key struct {
		name     string
		failover bool
	}
	at := make(map[key]int)
	for _, e := range list {
		k := key{e.Group, e.Failover}
		i, known := at[k]
		if !known {
			i, at[k] = len(groups), len(groups)
			groups = append(groups, Group{Name: e.Group, Failover: e.Failover})
		}
		if !e.Counted {
			continue
		}
		c.add(e.State)
		groups[i].Endpoints++
		if e.State == selector.Healthy {
			groups[i].Healthy++
		}
	}
	return c, groups
}

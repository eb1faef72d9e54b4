package composite

import (
	"fmt"
	"strings"

	"zonehop/selector"
)

// Offline is a tracker in which every backend is healthy but for those named: NAME in all services,
// or SERVICE/NAME. Its states have no time since when. The error names what is not configured.
func Offline(o Options, down, unknown []string) (*Tracker, error) {
	t, err := New(o, nil)
	if err != nil {
		return nil, err
	}
	t.report = nil // nothing has been so since any time
	for _, s := range t.services {
		for _, e := range s.endpoints {
			e.states = [2]selector.Health{selector.Healthy, selector.Healthy}
		}
	}
	return t.Suppose(down, unknown)
}

// Suppose is a copy of the tracker, without its history and its callback, in which some backends are
// unhealthy or without a verdict: NAME in all services, or SERVICE/NAME. The error names what is not
// configured.
func (t *Tracker) Suppose(down, unknown []string) (*Tracker, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := &Tracker{
		options: t.options, services: make(map[string]*service, len(t.services)), report: t.report,
		drained: make(map[string]bool), ofSource: make(map[string]history), ofComposed: make(map[string]history),
	}
	for name, s := range t.services {
		c := &service{name: s.name, named: make(map[string]*endpoint, len(s.named)), stale: true}
		for _, e := range s.endpoints {
			copied := *e
			c.endpoints = append(c.endpoints, &copied)
			c.named[e.Name] = &copied
		}
		out.services[name] = c
	}
	for _, set := range []struct {
		names []string
		state selector.Health
	}{{down, selector.Unhealthy}, {unknown, selector.Unknown}} {
		for _, name := range set.names {
			if !out.suppose(name, set.state) {
				return nil, fmt.Errorf("backend %q is not configured", name)
			}
		}
	}
	out.settle(reason{text: "supposed"})
	return out, nil
}

// suppose sets the state of a backend and reports whether there is one.
func (t *Tracker) suppose(name string, state selector.Health) bool {
	found := false
	for _, s := range t.services {
		e := s.named[name]
		if own, ok := strings.CutPrefix(name, s.name+"/"); e == nil && ok {
			e = s.named[own]
		}
		if e != nil {
			e.states = [2]selector.Health{state, state}
			s.stale, found = true, true
		}
	}
	return found
}

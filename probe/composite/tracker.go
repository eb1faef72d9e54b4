package composite

import (
	"fmt"
	"sync"
	"time"

	"zonehop/selector"
)

// Verdict is the health of one backend of a service in one address family.
type Verdict struct {
	Service, Backend string
	Family           selector.Family
	State            selector.Health
	Cause            string    // what the probe saw, for people
	At               time.Time // when it was known
}

// Tracker holds the state of all sources and composites. Make one with New.
type Tracker struct {
	onChange func(Change)

	mu         sync.Mutex // guards everything below
	options    Options
	services   map[string]*service
	drained    map[string]bool // backend names
	report     *Report         // nil until the first evaluation
	ofSource   map[string]history
	ofComposed map[string]history
}

// New makes a tracker in which no backend has a verdict. onChange may be nil; it is called for the
// first state and every change, in order and one at a time, from the goroutine that made it, and must
// neither wait nor call the tracker. The error is that of Validate.
func New(o Options, onChange func(Change)) (*Tracker, error) {
	t := &Tracker{
		onChange: onChange, drained: make(map[string]bool),
		ofSource: make(map[string]history), ofComposed: make(map[string]history),
	}
	if err := t.Apply(o, nil, time.Now()); err != nil {
		return nil, err
	}
	return t, nil
}

// Apply replaces what is aggregated, as one step: what is named the same keeps its state and history,
// and a backend at the same addresses its verdicts. known are verdicts to start from, such as those
// on a backend that was in another service before. On an error nothing changes.
func (t *Tracker) Apply(o Options, known []Verdict, at time.Time) error {
	if err := Validate(&o); err != nil {
		return fmt.Errorf("composite health: %w", err)
	}
	t.Replace(o, known, at)
	return nil
}

// Replace is Apply for options that Validate has nothing to say against, which
// the caller has made sure of.
func (t *Tracker) Replace(o Options, known []Verdict, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.services
	t.options, t.services = o, make(map[string]*service, len(o.Services))
	names := make(map[string]bool)
	for i := range o.Services {
		s := newService(&o.Services[i], old[o.Services[i].Name])
		t.services[s.name] = s
		for _, e := range s.endpoints {
			e.drained = t.drained[e.Name]
			names[e.Name] = true
		}
	}
	for name := range t.drained {
		if !names[name] {
			delete(t.drained, name)
		}
	}
	for i := range known {
		t.set(&known[i])
	}
	t.forget()
	t.settle(reason{text: "configuration changed", at: at})
}

// newService takes over what is known of the endpoints that stay.
func newService(o *Service, old *service) *service {
	s := &service{name: o.Name, named: make(map[string]*endpoint, len(o.Backends)), stale: true}
	for _, b := range o.Backends {
		e := &endpoint{Backend: b, states: [2]selector.Health{selector.Unknown, selector.Unknown}}
		if old != nil {
			if was := old.named[b.Name]; was != nil {
				for f := range e.states {
					if was.Addresses[f] == b.Addresses[f] {
						e.states[f] = was.states[f]
					}
				}
			}
		}
		s.endpoints = append(s.endpoints, e)
		s.named[b.Name] = e
	}
	return s
}

// forget drops the history of sources and composites that are not configured any more.
func (t *Tracker) forget() {
	sources, composites := make(map[string]bool), make(map[string]bool)
	for _, s := range t.options.Sources {
		sources[s.Name] = true
	}
	for _, c := range t.options.Composites {
		composites[c.Name] = true
	}
	for name := range t.ofSource {
		if !sources[name] {
			delete(t.ofSource, name)
		}
	}
	for name := range t.ofComposed {
		if !composites[name] {
			delete(t.ofComposed, name)
		}
	}
}

// Update records verdicts and evaluates once for all of them. Verdicts on backends that are not
// configured are left out.
func (t *Tracker) Update(list []Verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var changed []Verdict
	for i := range list {
		if t.set(&list[i]) {
			changed = append(changed, list[i])
		}
	}
	if len(changed) > 0 {
		t.settle(reason{verdicts: changed})
	}
}

// set records one verdict and reports whether it changed anything.
func (t *Tracker) set(v *Verdict) bool {
	s := t.services[v.Service]
	if s == nil {
		return false
	}
	e := s.named[v.Backend]
	if e == nil || !e.Addresses[v.Family].IsValid() || e.states[v.Family] == v.State {
		return false
	}
	e.states[v.Family] = v.State
	s.stale = true
	return true
}

// SetDrain starts or ends the operator's drain of every backend with this name, in all services. It
// survives Apply as long as there is such a backend.
func (t *Tracker) SetDrain(backend string, on bool, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := false
	for _, s := range t.services {
		if e := s.named[backend]; e != nil && e.drained != on {
			e.drained, s.stale, found = on, true, true
		}
	}
	if !found {
		return
	}
	text := "backend " + backend + " drained"
	if on {
		t.drained[backend] = true
	} else {
		delete(t.drained, backend)
		text = "drain of backend " + backend + " ended"
	}
	t.settle(reason{text: text, at: at})
}

// Report is the present state.
func (t *Tracker) Report() *Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.report
}

// Endpoints lists the backends of a service, nil if there is no such service. The list is the
// caller's.
func (t *Tracker) Endpoints(service string) []Endpoint {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.services[service]
	if s == nil {
		return nil
	}
	return s.list()
}

// SourceHistory is the last 16 transitions of a source, oldest first. The list is the caller's.
func (t *Tracker) SourceHistory(name string) []Transition {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Transition(nil), t.ofSource[name]...)
}

// CompositeHistory is the last 16 transitions of a composite, oldest first. The list is the caller's.
func (t *Tracker) CompositeHistory(name string) []Transition {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Transition(nil), t.ofComposed[name]...)
}

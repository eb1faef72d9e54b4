package composite

import (
	"fmt"
	"reflect"
	"time"

	"zonehop/selector"
)

// reason is why an evaluation takes place: verdicts, or something that was done at a time.
type reason struct {
	verdicts []Verdict
	text     string
	at       time.Time
}

// of says why a source of a service went to a state, and when: of several verdicts the last that
// points that way.
func (r *reason) of(service string, to selector.Health) (string, time.Time) {
	var found *Verdict
	others := -1
	for i := range r.verdicts {
		v := &r.verdicts[i]
		if v.Service != service {
			continue
		}
		others++
		if found == nil || v.State == to || found.State != to {
			found = v
		}
	}
	if found == nil {
		return r.text, r.at
	}
	text := fmt.Sprintf("backend %s turned %s", found.Backend, found.State)
	if found.Cause != "" {
		text += ": " + found.Cause
	}
	if others > 0 {
		text += fmt.Sprintf(" (and %d more)", others)
	}
	return text, found.At
}

// settle evaluates everything, remembers what changed and tells of it.
func (t *Tracker) settle(why reason) {
	first := t.report == nil
	if first {
		t.report = &Report{}
	}
	next := &Report{Sources: make([]SourceReport, len(t.options.Sources)), Composites: make([]CompositeReport, len(t.options.Composites))}
	var transitions []Transition
	turned := make(map[string]Transition) // sources in this step
	for i := range next.Sources {
		s := &next.Sources[i]
		*s = t.judge(&t.options.Sources[i])
		from, since := selector.Unknown, why.at
		if before := t.report.Source(s.Name); before != nil {
			from, since = before.State, before.Since
		}
		s.Since = since
		if s.State == from {
			continue
		}
		tr := Transition{Source: s, From: from, To: s.State}
		tr.Cause, tr.At = why.of(s.Service, s.State)
		s.Since = tr.At
		turned[s.Name] = tr
		transitions = append(transitions, tr)
		h := t.ofSource[s.Name]
		h.add(tr)
		t.ofSource[s.Name] = h
	}
	for i := range next.Composites {
		c := &next.Composites[i]
		*c = join(&t.options.Composites[i], next)
		from, since := selector.Unknown, why.at
		if before := t.report.Composite(c.Name); before != nil {
			from, since = before.State, before.Since
		}
		c.Since = since
		if c.State == from {
			continue
		}
		tr := Transition{Composite: c, From: from, To: c.State, Cause: why.text, At: why.at}
		for _, s := range c.Sources {
			if by, ok := turned[s.Name]; ok && !s.Ignored && (s.State == c.State || tr.At.IsZero()) {
				tr.Cause, tr.At = fmt.Sprintf("health source %s turned %s: %s", s.Name, s.State, by.Cause), by.At
			}
		}
		c.Since = tr.At
		transitions = append(transitions, tr)
		h := t.ofComposed[c.Name]
		h.add(tr)
		t.ofComposed[c.Name] = h
	}
	if !first && len(transitions) == 0 && reflect.DeepEqual(t.report, next) {
		return
	}
	t.report = next
	if t.onChange != nil {
		t.onChange(Change{Report: next, Transitions: transitions})
	}
}

// judge evaluates one source.
func (t *Tracker) judge(o *Source) SourceReport {
	c, groups := t.services[o.Service].count()
	return SourceReport{
		Source: *o, State: o.Policy.Judge(c), Count: c, Groups: groups,
		Required: o.Policy.Required(c.Total()), Missing: missingOf(&o.Policy, c),
	}
}

// join evaluates one composite over the sources of a report.
func join(o *Composite, r *Report) CompositeReport {
	out := CompositeReport{Composite: *o}
	var states []selector.Health
	for _, name := range o.Sources {
		s := r.Source(name)
		ignored := s.DryRun && !o.DryRun
		out.Sources = append(out.Sources, SourceState{Name: name, State: s.State, Ignored: ignored})
		if !ignored {
			states = append(states, s.State)
		}
	}
	out.State = Combine(states)
	out.Missing = missingOfComposite(out.State, out.Sources)
	return out
}

package composite

import (
	"time"

	"zonehop/selector"
)

// Report is the state of every source and composite at one moment, in configuration order. It is
// immutable: the lists in it are shared by everyone who has it.
type Report struct {
	Sources    []SourceReport
	Composites []CompositeReport
}

// SourceReport is the state of a source and the counts that led to it.
type SourceReport struct {
	Source
	State    selector.Health
	Since    time.Time // of the state
	Count    Count
	Required int // healthy endpoints that the policy asks for at this total
	Groups   []Group
	Missing  string // what would change the state, one sentence
}

// CompositeReport is the state of a composite and of its sources.
type CompositeReport struct {
	Composite
	State   selector.Health
	Since   time.Time // of the state
	Sources []SourceState
	Missing string // what would change the state, one sentence
}

// SourceState is a source as a composite sees it.
type SourceState struct {
	Name    string
	State   selector.Health
	Ignored bool // it is a dry run and the composite is not
}

// Source finds a source by name, nil if there is none.
func (r *Report) Source(name string) *SourceReport {
	for i := range r.Sources {
		if r.Sources[i].Name == name {
			return &r.Sources[i]
		}
	}
	return nil
}

// Composite finds a composite by name, nil if there is none.
func (r *Report) Composite(name string) *CompositeReport {
	for i := range r.Composites {
		if r.Composites[i].Name == name {
			return &r.Composites[i]
		}
	}
	return nil
}

// Change is what an update led to. Transitions has the sources first, then the composites; it is
// empty when only counts changed.
type Change struct {
	Report      *Report
	Transitions []Transition
}

// Transition is one change of state of a source or a composite. Exactly one of Source and Composite
// is set: the report right after the change.
type Transition struct {
	Source    *SourceReport
	Composite *CompositeReport
	From, To  selector.Health
	Cause     string
	At        time.Time // of the verdict or the change that caused it
}

// Name is that of the source or composite.
func (t *Transition) Name() string {
	if t.Source != nil {
		return t.Source.Name
	}
	return t.Composite.Name
}

// historyLen is how many transitions are kept of each source and composite.
const historyLen = 16

// history is the last transitions, oldest first.
type history []Transition

func (h *history) add(t Transition) {
	if len(*h) == historyLen {
		*h = append((*h)[:0], (*h)[1:]...)
	}
	*h = append(*h, t)
}

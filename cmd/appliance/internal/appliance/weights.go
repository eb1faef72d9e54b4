package appliance

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/config"
	"zonehop/probe"
	"zonehop/selector"
)

// weightsDelay is how long changed weights are gathered. They are not urgent, and backends that
// report their load change them all the time; each change makes new selection tables.
const weightsDelay = 500 * time.Millisecond

// weightReports gathers the weights that backends report to their health checks.
type weightReports struct {
	mu      sync.Mutex
	checks  map[string]bool // names of the checks that ask for weights
	latest  map[probe.Key]selector.ReportedWeight
	changed map[probe.Key]struct{}
	wake    chan struct{} // capacity 1: something changed
	using   map[weighedService]bool
}

// weighedService is a service in one family, whose weights are used together or not at all.
type weighedService struct {
	service string
	family  selector.Family
}

func newWeightReports() *weightReports {
	return &weightReports{
		latest: make(map[probe.Key]selector.ReportedWeight), changed: make(map[probe.Key]struct{}),
		wake: make(chan struct{}, 1), using: make(map[weighedService]bool),
	}
}

// asksWeight are the names of the checks of services that follow reported weights.
func asksWeight(c *config.Config) map[string]bool {
	out := make(map[string]bool)
	for i := range c.BackendServices {
		if s := &c.BackendServices[i]; s.LocalityLbPolicy == config.PolicyWeightedRendezvous {
			out[s.HealthCheck] = true
		}
	}
	return out
}

// configure sets what is asked, forgets what is not probed any more, and makes the builder hear of
// everything else again: backends may have moved to other services.
func (w *weightReports) configure(c *config.Config, members map[probe.Key][]probed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checks = asksWeight(c)
	for key := range w.latest {
		if members[key] == nil || !w.checks[key.Check] {
			delete(w.latest, key)
			continue
		}
		w.changed[key] = struct{}{}
	}
}

// observe takes the result of one probe. It is called from many goroutines at once.
func (w *weightReports) observe(o *probe.Observation) {
	if o.Result.Inconclusive {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.checks[o.Key.Check] {
		return
	}
	next := selector.ReportedWeight{State: weightStates[o.Result.Weight.State], Value: o.Result.Weight.Value}
	if before, known := w.latest[o.Key]; known && before == next {
		return
	}
	w.latest[o.Key] = next
	w.changed[o.Key] = struct{}{}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// weightStates are the states of a finished probe of a check that asks. One that learnt nothing had
// no answer to look at.
var weightStates = map[probe.WeightState]selector.WeightState{
	probe.WeightNone: selector.UnavailableWeight, probe.WeightValid: selector.ValidWeight,
	probe.WeightMissing: selector.MissingWeight, probe.WeightInvalid: selector.InvalidWeight,
}

// take returns what changed.
func (w *weightReports) take() map[probe.Key]selector.ReportedWeight {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[probe.Key]selector.ReportedWeight, len(w.changed))
	for key := range w.changed {
		if weight, known := w.latest[key]; known {
			out[key] = weight
		}
	}
	clear(w.changed)
	return out
}

// applyWeightsLocked records changed weights in the builder. Verdicts are always preceded by it, so
// that a backend's first connections follow its weight already.
func (a *Appliance) applyWeightsLocked() {
	members := *a.members.Load()
	for key, weight := range a.weights.take() {
		for _, m := range members[key] {
			a.builder.SetWeight(m.service, m.backend, m.family, weight)
		}
	}
}

// followWeights publishes changed weights until ctx is done.
func (a *Appliance) followWeights(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.weights.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(weightsDelay):
		}
		a.mu.Lock()
		a.applyWeightsLocked()
		a.publishLocked("weights changed")
		a.logWeightsLocked()
		a.mu.Unlock()
	}
}

// logWeightsLocked tells when a service begins or ceases to follow the weights of its backends.
func (a *Appliance) logWeightsLocked() {
	using := make(map[weighedService]bool)
	for i := range a.config.Load().BackendServices {
		name := a.config.Load().BackendServices[i].Name
		for _, f := range []selector.Family{selector.V4, selector.V6} {
			list, used := a.builder.Weights(name, f)
			if len(list) == 0 {
				continue
			}
			key := weighedService{name, f}
			using[key] = used
			if before, known := a.weights.using[key]; known && before == used {
				continue
			}
			if used {
				a.log.Info("backends are weighed as they report", zap.String("service", name), zap.Stringer("family", f))
				continue
			}
			for _, w := range list {
				if w.State != selector.ValidWeight && w.State != selector.UnavailableWeight {
					a.log.Warn("all backends weigh the same until every one reports a valid weight",
						zap.String("service", name), zap.Stringer("family", f), zap.String("backend", w.Backend), zap.Stringer("weight", w.State))
					break
				}
			}
		}
	}
	a.weights.using = using
}

// weightTable is the reported weights of all services that follow them.
type weightTable map[weighedService]weightList

type weightList struct {
	of   map[string]selector.BackendWeight
	used bool
}

func (a *Appliance) weightTable() weightTable {
	out := make(weightTable)
	for _, s := range a.builder.Current().Services {
		for _, f := range []selector.Family{selector.V4, selector.V6} {
			list, used := a.builder.Weights(s.Name, f)
			if len(list) == 0 {
				continue
			}
			of := make(map[string]selector.BackendWeight, len(list))
			for _, w := range list {
				of[w.Backend] = w
			}
			out[weighedService{s.Name, f}] = weightList{of, used}
		}
	}
	return out
}

// describe adds what a backend reported to its line.
func (t weightTable) describe(row *admin.Backend, f selector.Family) {
	list := t[weighedService{row.Service, f}]
	w, known := list.of[row.Name]
	if !known {
		return
	}
	row.WeightState, row.WeightInUse = w.State.String(), list.used
	if w.Known {
		value := float64(w.Value)
		row.ReportedWeight = &value
	}
}

package appliance

import (
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/config"
	"zonehop/probe"
	"zonehop/probe/composite"
	"zonehop/selector"
)

// Reload reads the configuration file again and puts it in force as a
// difference: what did not change is not touched. A configuration that is
// wrong, or that changes what needs a restart, is refused as a whole, with an
// error that wraps admin.ErrRefused. Another error says that the new one is in
// force, but not everywhere yet.
func (a *Appliance) Reload() error {
	if err := a.reload(); err != nil {
		a.events.Reloads.WithLabelValues("refused").Inc()
		a.log.Error("reload refused; the configuration in force stays", zap.Error(err))
		return err
	}
	a.events.Reloads.WithLabelValues("applied").Inc()
	a.keepGuard()
	if err := a.settle(); err != nil {
		a.log.Error("configuration reloaded, but not in force everywhere", zap.String("file", a.path), zap.Error(err))
		return err
	}
	a.log.Info("configuration reloaded", zap.String("file", a.path))
	return nil
}

func (a *Appliance) reload() error {
	next, problems := config.Load(a.path)
	if errs := problems.Errors(); len(errs) > 0 {
		lines := make([]string, len(errs))
		for i, p := range errs {
			lines[i] = p.String()
		}
		return fmt.Errorf("%w: %s", admin.ErrRefused, strings.Join(lines, "\n"))
	}
	var fresh zoneMapFile
	entries, err := fresh.load(next)
	if err != nil {
		return fmt.Errorf("%w: %w", admin.ErrRefused, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := unchangeable(a.config.Load(), next); err != nil {
		return fmt.Errorf("%w: %w", admin.ErrRefused, err)
	}
	if err := a.applyLocked(next, entries); err != nil {
		return fmt.Errorf("%w: %w", admin.ErrRefused, err)
	}
	a.zoneMap = fresh
	for _, p := range problems {
		a.log.Warn(p.String())
	}
	return nil
}

// change is a configuration that was found to be possible, in each part's terms.
type change struct {
	config     *config.Config
	slots      slots
	selector   selector.Options
	aggregated composite.Options
	targets    *probe.Prepared
	members    map[probe.Key][]probed
}

// prepareLocked does everything about a valid configuration that can fail, and
// changes nothing.
func (a *Appliance) prepareLocked(c *config.Config, zoneMap []config.ZoneMapEntry) (*change, error) {
	if err := a.checkProbes(c); err != nil {
		return nil, err
	}
	n := &change{config: c, slots: a.slots.next(c.Interfaces)}
	var err error
	if n.selector, err = SelectorOptions(c, zoneMap); err != nil {
		return nil, err
	}
	n.selector.Ports = n.slots
	if n.aggregated, err = CompositeOptions(c); err != nil {
		return nil, err
	}
	if err := composite.Validate(&n.aggregated); err != nil {
		return nil, err
	}
	var targets []probe.Target
	targets, n.members = probeTargets(c)
	follow(targets, n.members, *a.members.Load(), a.stateOf)
	if n.targets, err = probe.Prepare(targets); err != nil {
		return nil, err
	}
	return n, nil
}

// commitLocked puts a change in force: as a whole, or on an error not at all.
func (a *Appliance) commitLocked(n *change) error {
	if err := a.builder.Apply(n.selector, a.clock()); err != nil {
		return err
	}
	// Nothing fails from here on.
	a.state.setKey(n.selector.HashKey)
	a.keepState() // before flows get references that are new
	a.config.Store(n.config)
	a.members.Store(&n.members)
	a.weights.configure(n.config, n.members)
	a.supervisor.SetProbing(asRules(n.config))
	a.pool.Replace(n.targets)
	// A backend that another service had before has its verdict already.
	states := a.pool.States()
	for _, st := range states {
		for _, m := range n.members[st.Target.Key] {
			a.builder.SetHealth(m.service, m.backend, m.family, a.healthOf(&m, st.State))
		}
	}
	a.applyWeightsLocked()
	a.tracker.Replace(n.aggregated, a.verdictsOf(states, n.members), time.Now())
	a.slots = n.slots
	a.supervisor.SetInterfaces(n.slots.configs(n.config))
	a.publishLocked("configuration changed")
	a.watcher.SetInterfaces(n.slots)
	a.watcher.SetTargets(deliveryTargets(a.builder.Current()))
	a.setIdleTimeouts()
	return nil
}

// applyLocked prepares and commits.
func (a *Appliance) applyLocked(c *config.Config, zoneMap []config.ZoneMapEntry) error {
	n, err := a.prepareLocked(c, zoneMap)
	if err != nil {
		return err
	}
	return a.commitLocked(n)
}

// unchangeable reports settings that only a restart can change.
func unchangeable(old, next *config.Config) error {
	var what []string
	if old.Tuning != next.Tuning {
		what = append(what, "tuning")
	}
	if old.FlowTable != next.FlowTable {
		what = append(what, "flowTable")
	}
	if old.Admin != next.Admin {
		what = append(what, "admin")
	}
	if old.Health != next.Health {
		what = append(what, "health.listen")
	}
	if len(what) > 0 {
		return fmt.Errorf("%s cannot change in a reload; restart the appliance, or leave it as it was", strings.Join(what, ", "))
	}
	return nil
}

// inodeOf returns the inode of a file on a file system that has such.
func inodeOf(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

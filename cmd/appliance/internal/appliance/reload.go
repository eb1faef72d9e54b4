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
	"zonehop/probe/composite"
)

// Reload reads the configuration file again and puts it in force as a
// difference: what did not change is not touched. A configuration that is
// wrong, or that changes what needs a restart, is refused as a whole.
func (a *Appliance) Reload() error {
	err := a.reload()
	result := "applied"
	if err != nil {
		result = "refused"
		a.log.Error("reload refused; the configuration in force stays", zap.Error(err))
	}
	a.events.Reloads.WithLabelValues(result).Inc()
	return err
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
	a.log.Info("configuration reloaded", zap.String("file", a.path))
	return nil
}

// applyLocked puts a valid configuration in force.
func (a *Appliance) applyLocked(c *config.Config, zoneMap []config.ZoneMapEntry) error {
	if err := a.checkProbes(c); err != nil {
		return err
	}
	options, err := SelectorOptions(c, zoneMap)
	if err != nil {
		return err
	}
	aggregated, err := CompositeOptions(c)
	if err != nil {
		return err
	}
	if err := composite.Validate(&aggregated); err != nil {
		return err
	}
	next := a.slots.next(c.Interfaces)
	options.Ports = next
	targets, members := probeTargets(c)
	if err := a.builder.Apply(options, a.clock()); err != nil {
		return err
	}
	a.state.setKey(options.HashKey)
	a.keepState() // before flows get references that are new
	a.config.Store(c)
	a.members.Store(&members)
	a.weights.configure(c, members)
	a.supervisor.SetProbing(asRules(c))
	if err := a.pool.Update(targets); err != nil {
		return err
	}
	// A backend that another service had before has its verdict already.
	states := a.pool.States()
	for _, st := range states {
		for _, m := range members[st.Target.Key] {
			a.builder.SetHealth(m.service, m.backend, m.family, a.healthOf(&m, st.State))
		}
	}
	a.applyWeightsLocked()
	if err := a.tracker.Apply(aggregated, a.verdictsOf(states, members), time.Now()); err != nil {
		return err
	}
	a.slots = next
	a.keepGuard(c)
	a.supervisor.SetInterfaces(next.configs(c))
	a.publishLocked("configuration changed")
	a.watcher.SetInterfaces(next)
	a.watcher.SetTargets(deliveryTargets(a.builder.Current()))
	a.setIdleTimeouts()
	return nil
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

package appliance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/cmd/appliance/internal/healthapi"
	"zonehop/cmd/appliance/internal/metrics"
	"zonehop/config"
	"zonehop/conntrack"
	"zonehop/forwarder"
	"zonehop/forwarder/neigh"
	"zonehop/forwarder/xsk"
	"zonehop/probe"
	"zonehop/probe/composite"
	"zonehop/selector"
)

// readyAfter is how long rules wait for first verdicts before their addresses
// are answered for anyway.
const readyAfter = 3 * time.Second

// fragmentRecords is how many fragmented datagrams are remembered at a time:
// 4 MiB, enough for 13 000 a second over the five seconds of a record's life.
const fragmentRecords = 1 << 16

// Appliance is a running appliance. Make one with New, then Run it once.
type Appliance struct {
	path    string // of the configuration file
	version string
	log     *zap.Logger
	started time.Time
	clock   func() int64

	table      *conntrack.Table
	state      flowState
	builder    *selector.Builder
	supervisor *forwarder.Supervisor
	watcher    *neigh.Watcher
	groups     *groupKeeper
	pool       *probe.Pool
	probes     *xsk.Probes // nil where the kernel cannot rewrite probes
	tracker    *composite.Tracker
	feed       healthFeed
	weights    *weightReports
	events     *metrics.Events
	announcer  *announcer
	claims     *claims

	config  atomic.Pointer[config.Config]
	members atomic.Pointer[map[probe.Key][]probed]
	view    atomic.Pointer[neigh.View]

	// mu serialises publish, reload and operator changes. It is never held
	// over a system call that may take long.
	mu      sync.Mutex
	slots   slots
	viewed  chan struct{} // closed, and replaced, with each view
	ready   bool          // readyAfter the start
	taken   forwarder.Classification
	zoneMap zoneMapFile
	drained map[string]bool // backends, in the snapshot in force
	serving serving         // in that snapshot

	guarding sync.Mutex // serialises changes of the kernel's blackholes
}

// New builds an appliance from a validated configuration. It opens netlink
// sockets and allocates the flow table, but touches no interface before Run.
func New(path string, c *config.Config, version string, log *zap.Logger) (*Appliance, error) {
	a := &Appliance{
		path: path, version: version, log: log, started: time.Now(), clock: bootClock(),
		events: metrics.NewEvents(), weights: newWeightReports(), serving: make(serving),
		viewed: make(chan struct{}),
	}
	a.config.Store(c)
	a.view.Store(&neigh.View{})
	zoneMap, err := a.zoneMap.load(c)
	if err != nil {
		return nil, err
	}
	options, err := SelectorOptions(c, zoneMap)
	if err != nil {
		return nil, err
	}
	a.slots = a.slots.next(c.Interfaces)
	options.Ports = a.slots
	if err = a.openFlows(c, options); err != nil {
		return nil, err
	}
	a.setIdleTimeouts()
	if a.watcher, err = neigh.New(neigh.Options{Interfaces: a.slots}); err != nil {
		return nil, errors.Join(fmt.Errorf("follow links and neighbours: %w", err), a.table.Close())
	}
	a.watcher.SetTargets(deliveryTargets(a.builder.Current()))
	groups, err := neigh.NewGroups(0)
	if err != nil {
		a.watcher.Close()
		return nil, errors.Join(fmt.Errorf("join multicast groups: %w", err), a.table.Close())
	}
	a.groups = newGroupKeeper(groups, log)
	if a.probes, err = xsk.NewProbes(); err == nil || errors.Is(err, xsk.ErrNoTCX) {
		err = a.checkProbes(c)
	}
	if err != nil {
		a.watcher.Close()
		groups.Close()
		return nil, errors.Join(err, a.table.Close())
	}
	if a.pool, err = probe.New(probe.Options{
		OnTransitions: a.onTransitions, OnOutage: a.onOutage, Control: a.controlProbe,
		Observe: func(o probe.Observation) {
			a.events.ProbeSeconds.Observe(o.Result.Latency.Seconds())
			a.weights.observe(&o)
		},
	}); err != nil {
		a.watcher.Close()
		groups.Close()
		return nil, errors.Join(fmt.Errorf("start probes: %w", err), a.table.Close())
	}
	targets, members := probeTargets(c)
	a.members.Store(&members)
	a.weights.configure(c, members)
	if err := a.pool.Update(targets); err != nil {
		return nil, fmt.Errorf("start probes: %w", err)
	}
	aggregated, err := CompositeOptions(c)
	if err != nil {
		return nil, err
	}
	if a.tracker, err = composite.New(aggregated, a.onHealthChange); err != nil {
		return nil, err
	}
	a.claims = newClaims(a)
	a.supervisor = forwarder.NewSupervisor(forwarder.SupervisorOptions{
		Shared: &forwarder.Shared{
			Table: a.table, Fragments: conntrack.NewFragments(fragmentRecords, a.table.Seed()), Snapshot: a.builder.Current, Clock: a.clock,
			Batch: c.Tuning.Batch, Frame: c.Tuning.FrameSize, Route: &forwarder.Routing{}, Claims: a.claims.incoming,
		},
		Interfaces: a.slots.configs(c),
		Probes:     a.probes,
		CPU:        func(worker int) int { return cpuOf(a.config.Load(), worker, a.workers(), runtime.NumCPU()) },
		Event:      a.onForwarderEvent,
	})
	a.supervisor.SetProbing(asRules(c))
	a.announcer = newAnnouncer(a.supervisor)
	return a, nil
}

// workers is how many workers the interfaces' queues call for.
func (a *Appliance) workers() int {
	n := 1
	for _, c := range a.config.Load().Interfaces {
		for _, q := range c.Queues {
			n = max(n, q+1)
		}
		for _, l := range a.view.Load().Links {
			if c.Queues == nil && l.Name == c.Name {
				n = max(n, l.RXQueues)
			}
		}
	}
	return n
}

// Run is the appliance. It returns after ctx is done and everything is closed
// again: first the interfaces are given back to the kernel, then the workers
// send what they hold, then sockets, probes and the control interface end.
func (a *Appliance) Run(ctx context.Context) error {
	c := a.config.Load()
	adminSocket, err := admin.Listen(c.Admin.Socket)
	if err != nil {
		return err
	}
	if err := guardRoutes(c); err != nil {
		return errors.Join(err, adminSocket.Close())
	}
	var metricsSocket net.Listener
	if c.Admin.MetricsListen != "" {
		if metricsSocket, err = net.Listen("tcp", c.Admin.MetricsListen); err != nil {
			return errors.Join(fmt.Errorf("listen for metrics: %w; set admin.metricsListen to another address, or to \"\" for none", err), adminSocket.Close())
		}
	}
	var healthSocket net.Listener
	if c.Health.Listen != "" {
		if healthSocket, err = net.Listen("tcp", c.Health.Listen); err != nil {
			if metricsSocket != nil {
				err = errors.Join(err, metricsSocket.Close())
			}
			return errors.Join(fmt.Errorf("listen for readers of health: %w; set health.listen to another address, or to \"\" for none", err), adminSocket.Close())
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// What outlives the forwarding side: it may still be asked and fed while
	// that is shut down.
	rest, stopRest := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRest()
	var group, forwarding sync.WaitGroup
	errs := make(chan error, 16)
	run := func(g *sync.WaitGroup, what string, fn func() error) {
		g.Go(func() {
			if err := fn(); err != nil {
				errs <- fmt.Errorf("%s: %w", what, err)
			}
		})
	}
	run(&forwarding, "forward", func() error { return a.supervisor.Run(ctx) })
	run(&group, "follow links and neighbours", func() error { return a.watcher.Run(rest, a.onView) })
	run(&group, "probe", func() error { return a.pool.Run(rest) })
	run(&group, "age flows", func() error { a.table.KeepSwept(rest, a.clock); return nil })
	run(&group, "join multicast groups", func() error { a.groups.run(rest); return nil })
	run(&group, "announce", func() error { a.announcer.run(rest); return nil })
	run(&group, "take claims", func() error { a.claims.run(rest); return nil })
	run(&group, "listen for claims", func() error { a.claims.listen(rest); return nil })
	run(&group, "follow weights", func() error { a.followWeights(rest); return nil })
	run(&group, "keep time", func() error { a.keepTime(rest); return nil })
	run(&group, "control", func() error { return admin.Serve(rest, adminSocket, a) })
	if metricsSocket != nil {
		registry := metrics.Registry(a, a.events)
		run(&group, "metrics", func() error { return metrics.Serve(rest, metricsSocket, registry) })
	}
	if healthSocket != nil {
		run(&group, "health", func() error { return healthapi.Serve(rest, healthSocket, c.Region, a) })
	}
	a.publish("start")

	var failure error
	select {
	case <-ctx.Done():
	case failure = <-errs:
		cancel()
	}
	forwarding.Wait()
	a.logTotals()
	stopRest()
	group.Wait()
	a.keepState()
	failure = errors.Join(failure, a.probes.Close(), a.table.Close())
	close(errs)
	for err := range errs {
		failure = errors.Join(failure, err)
	}
	return failure
}

// bootClock returns a clock in nanoseconds since boot. It reads the monotonic
// clock, which costs no system call, from a start in CLOCK_BOOTTIME.
func bootClock() func() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("appliance: CLOCK_BOOTTIME exists since Linux 2.6.39: " + err.Error())
	}
	boot, start := ts.Nano(), time.Now()
	return func() int64 { return boot + int64(time.Since(start)) }
}

// setIdleTimeouts tells the flow table how long each service's flows may idle.
func (a *Appliance) setIdleTimeouts() {
	for _, s := range a.builder.Current().Services {
		a.table.SetIdle(s.ID, s.IdleTimeout)
	}
}

// keepTime does what is due by the clock: readiness, ends of drains, the zone
// map file.
func (a *Appliance) keepTime(ctx context.Context) {
	ready := time.After(readyAfter)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for seconds := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-ready:
			a.builder.SetReady("")
			a.publish("ready")
			a.sayUndeliverable()
		case <-tick.C:
			if at, ok := a.builder.NextExpiry(); ok && at < a.clock() {
				a.publish("drain ended")
				a.watcher.SetTargets(deliveryTargets(a.builder.Current()))
			}
			a.keepState() // verdicts
			if seconds++; seconds%guardSeconds == 0 {
				a.keepGuard()
			}
			a.checkZoneMap()
		}
	}
}

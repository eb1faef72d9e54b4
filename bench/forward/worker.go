package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"zonehop/bench/lab"
	"zonehop/conntrack"
	"zonehop/forwarder"
	"zonehop/forwarder/xsk"
	"zonehop/selector"
)

const (
	backends = 100
	zones    = 4
	service  = "web"
)

// worker is the forwarder, with a supervisor as in the appliance. Only health,
// neighbours and configuration are made up.
type worker struct {
	table      *conntrack.Table
	supervisor *forwarder.Supervisor
	thread     atomic.Int64
	mode       string
	cancel     context.CancelFunc
	ended      chan error
	swept      chan struct{} // closed when nobody sweeps the table any more
}

func startWorker(dev *net.Interface) (application, error) {
	w := &worker{ended: make(chan error, 1), swept: make(chan struct{})}
	start := time.Now()
	// The clock is the one thing of ours that the worker calls: there its
	// thread can be named.
	clock := func() int64 {
		if w.thread.Load() == 0 {
			w.thread.Store(int64(unix.Gettid()))
		}
		return int64(time.Since(start)) + 1
	}
	b, err := builder(dev)
	if err != nil {
		return nil, err
	}
	if w.table, err = conntrack.New(conntrack.Options{Seed: uint64(start.UnixNano())}); err != nil {
		return nil, err
	}
	cfg := xsk.DefaultConfig()
	w.supervisor = forwarder.NewSupervisor(forwarder.SupervisorOptions{
		Shared: &forwarder.Shared{
			Table: w.table, Fragments: conntrack.NewFragments(1024, w.table.Seed()), Snapshot: b.Current, Clock: clock,
			Batch: batch, Frame: cfg.FrameSize, Route: &forwarder.Routing{},
		},
		Interfaces: []forwarder.InterfaceConfig{{Name: dev.Name, Queues: []int{0}, Rings: cfg}},
		CPU:        func(int) int { return appCPU },
	})
	w.supervisor.SetLinks([]forwarder.Link{{Index: dev.Index, Up: true, MAC: [6]byte(dev.HardwareAddr), Queues: 1, MTU: dev.MTU}})
	w.supervisor.SetClassification(forwarder.Classification{Rules: []netip.Addr{vip.Addr()}})
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go w.supervise(ctx)
	go func() {
		w.table.KeepSwept(ctx, func() int64 { return int64(time.Since(start)) + 1 })
		close(w.swept)
	}()
	err = lab.Wait(ctx, "the worker", 10*time.Second, func() (bool, error) {
		s := w.supervisor.Status()[0]
		if s.Problem != nil {
			return false, s.Problem
		}
		if len(s.Queues) == 0 || !s.Queues[0].Bound {
			return false, nil
		}
		w.mode = s.Mode
		return w.thread.Load() != 0, s.Queues[0].Problem
	})
	if err != nil {
		return nil, errors.Join(err, w.stop())
	}
	return w, nil
}

// supervise runs the supervisor on a goroutine that stays in the process's own
// namespace, as all of its threads do.
func (w *worker) supervise(ctx context.Context) { w.ended <- w.supervisor.Run(ctx) }

// builder makes a snapshot with one rule and healthy, reachable backends.
func builder(dev *net.Interface) (*selector.Builder, error) {
	o := selector.Options{Ports: []string{dev.Name}}
	so := selector.ServiceOptions{Name: service, IdleTimeout: 10 * time.Minute}
	so.Policy.Spillover = selector.SpillCrossZone
	for z := range zones {
		o.Zones = append(o.Zones, selector.ZoneOptions{
			Name: fmt.Sprint("zone-", z), ClientRanges: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(z), 0}), 24)},
		})
	}
	address := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 3, 0, byte(i + 1)}) }
	for i := range backends {
		so.Backends = append(so.Backends, selector.BackendOptions{
			Name: fmt.Sprint("backend-", i), Zone: o.Zones[i%zones].Name, Address: address(i), Weight: 1,
		})
	}
	o.Services = []selector.ServiceOptions{so}
	o.Rules = []selector.RuleOptions{{Name: "rule", Address: vip.Addr(), Protocol: unix.IPPROTO_UDP, AllPorts: true, Service: service}}
	b, err := selector.New(o, 1)
	if err != nil {
		return nil, err
	}
	b.SetPorts([]selector.Port{{Name: dev.Name, Index: dev.Index, MAC: [6]byte(dev.HardwareAddr), MTU: dev.MTU, Up: true}})
	for i := range backends {
		d := selector.Delivery{State: selector.Deliverable, Len: 12}
		copy(d.Header[:], []byte{2, 0, 0, 1, 0, byte(i)})
		copy(d.Header[6:], dev.HardwareAddr)
		b.SetDelivery(address(i), d)
		b.SetHealth(service, so.Backends[i].Name, selector.V4, selector.Healthy)
	}
	b.Publish(1)
	return b, nil
}

func (w *worker) hello() hello { return hello{Thread: int(w.thread.Load()), Mode: w.mode} }

func (w *worker) counts() (counts, error) {
	s := w.supervisor.Status()[0]
	if len(s.Queues) == 0 {
		return counts{}, fmt.Errorf("queue 0 is gone: %w", s.Problem)
	}
	q, t := s.Queues[0].Counters, w.supervisor.Totals()
	return counts{
		Received: t.Received, Transmitted: t.Forwarded + t.AnsweredTotal() + t.OriginatedTotal(),
		Dropped: t.DroppedTotal(), Waiting: t.Held, Missed: q.RXDropped + q.RXRingFull,
		Calls: q.WakeupsSent, Flows: uint64(w.table.Stats().Used),
	}, nil
}

func (w *worker) stop() error {
	w.cancel()
	<-w.swept
	return errors.Join(<-w.ended, w.table.Close())
}

package forwarder

import (
	"maps"
	"slices"

	"zonehop/forwarder/xsk"
)

// InterfaceStatus is what the supervisor knows of one configured interface.
type InterfaceStatus struct {
	Name    string
	Index   int // 0: absent
	Up      bool
	Mode    string // zero-copy, copy, generic, or none; mixed if the queues differ
	Why     string // why not zero-copy
	Problem error
	Queues  []QueueStatus
	Unused  ProgramCounters // of queues that are not used
}

// QueueStatus is one receive queue.
type QueueStatus struct {
	Queue    int
	Worker   int
	Bound    bool
	Problem  error
	Census   xsk.Census
	Memory   xsk.UMEMCensus // of the UMEM, which all interfaces of the worker may share
	Counters QueueCounters
	Program  ProgramCounters
}

// QueueCounters sum what the sockets of a queue counted, closed ones included.
type QueueCounters struct {
	Received                  uint64
	RXDropped, RXRingFull     uint64 // by the kernel, before Receive
	FillEmpty                 uint64
	TXInvalid                 uint64 // descriptors refused by us or the kernel
	WakeupsSent, WakeupsSaved uint64
}

func (c *QueueCounters) add(o QueueCounters) {
	c.Received += o.Received
	c.RXDropped += o.RXDropped
	c.RXRingFull += o.RXRingFull
	c.FillEmpty += o.FillEmpty
	c.TXInvalid += o.TXInvalid
	c.WakeupsSent += o.WakeupsSent
	c.WakeupsSaved += o.WakeupsSaved
}

func (c *ProgramCounters) add(o ProgramCounters) {
	c.Redirected += o.Redirected
	c.NoSocket += o.NoSocket
	c.Passed += o.Passed
	c.Returned += o.Returned
}

// counters reads the present socket's counters.
func (q *queue) counters() QueueCounters {
	st, _ := q.socket.Stats() // a socket whose device is gone still has its own part
	c := QueueCounters{
		RXDropped: st.RXDropped, RXRingFull: st.RXRingFull, FillEmpty: st.FillEmpty,
		TXInvalid:   st.TXInvalid + st.InvalidTX,
		WakeupsSent: st.Kicks + st.Wakes, WakeupsSaved: st.KicksSaved + st.WakesSaved,
	}
	q.read(func() { c.Received = q.binding.received })
	return c
}

// read runs fn on the worker, or here after the worker has ended.
func (q *queue) read(fn func()) {
	if q.worker.stopped.Load() {
		fn()
		return
	}
	q.worker.Do(fn)
}

// program reads the present program's counters for a queue.
func (a *attachment) counters(queue int) ProgramCounters {
	if a.program == nil {
		return ProgramCounters{}
	}
	c, err := a.program.Counters(queue)
	if err != nil {
		return ProgramCounters{}
	}
	return ProgramCounters{Redirected: c.Redirected + c.NoSocket, NoSocket: c.NoSocket, Passed: c.Passed, Returned: c.Returned}
}

// unusedQueues is up to which number queues are looked at that are not used.
const unusedQueues = 128

// unused sums the present program's counters of queues that are not used, because
// the configuration leaves them out or the driver does not tell of them. What is
// taken there is lost.
func (a *attachment) unused() (sum ProgramCounters) {
	if a.program == nil {
		return sum
	}
	for n := range unusedQueues {
		if a.queues[n] == nil {
			sum.add(a.counters(n))
		}
	}
	return sum
}

// Status reads the state of all interfaces. Workers are asked between two of
// their passes, so numbers of one queue belong together.
func (s *Supervisor) Status() []InterfaceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []InterfaceStatus
	for _, a := range s.ifaces {
		st := InterfaceStatus{Name: a.config.Name, Index: a.index, Up: s.link(a.slot).Up && a.index != 0, Mode: "none", Problem: a.problem}
		for _, n := range slices.Sorted(maps.Keys(a.queues)) {
			q := a.queues[n]
			if q.dropped {
				continue
			}
			qs := QueueStatus{Queue: n, Bound: q.binding != nil, Problem: q.problem, Counters: q.retired, Program: q.retiredProgram}
			qs.Program.add(a.counters(n))
			if q.worker != nil {
				qs.Worker = q.worker.Index
			}
			if q.binding != nil {
				qs.Counters.add(q.counters())
				q.read(func() { qs.Census, qs.Memory = q.binding.Census(), q.binding.umem.Census() })
				mode := q.socket.Mode().String()
				if a.config.Generic {
					mode = "generic"
				}
				switch st.Mode {
				case "none", mode:
					st.Mode = mode
				default:
					st.Mode = "mixed"
				}
				if st.Why == "" {
					st.Why = q.socket.ModeReason()
				}
			}
			st.Queues = append(st.Queues, qs)
		}
		st.Unused = a.retiredUnused
		st.Unused.add(a.unused())
		out = append(out, st)
	}
	return out
}

// all is the list of workers; it only ever grows.
func (s *Supervisor) all() []*Worker {
	s.brief.Lock()
	defer s.brief.Unlock()
	return slices.Clone(s.workers)
}

// Totals sums the counters of all workers.
func (s *Supervisor) Totals() Totals {
	var t Totals
	for _, w := range s.all() {
		w.counters.addTo(&t)
	}
	return t
}

// Originate has a frame sent by an interface, by whichever worker can. False:
// no queue of the interface is bound, or its worker is behind.
func (s *Supervisor) Originate(iface int, frame []byte, kind OriginKind) bool {
	m := s.opts.Shared.Route.owners[iface].Load()
	return m != nil && m.put(frame, iface, nil, 0, kind)
}

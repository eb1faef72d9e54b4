package forwarder

import "slices"

// SetInterfaces replaces the interfaces, each at its index in the snapshot's
// ports; one without a name keeps a place empty. An interface keeps its index
// as long as it is there. What is new is attached within a moment, what is gone
// is given back to the kernel, and queues come and go with the lists of them;
// another mode means a new attachment. Everything else is not touched. CPUs are
// asked for again.
func (s *Supervisor) SetInterfaces(list []InterfaceConfig) {
	s.ask(func(w *wanted) {
		w.interfaces = slices.Clone(list)
		w.arrangement++
	})
}

// arrange brings the attachments in line with the wanted interfaces.
func (s *Supervisor) arrange() {
	var kept []*attachment
	used := make(map[int]bool)
	for _, a := range s.ifaces {
		var c InterfaceConfig
		if a.slot < len(s.have.interfaces) {
			c = s.have.interfaces[a.slot]
		}
		if c.Name != a.config.Name {
			s.remove(a)
			continue
		}
		if !sameAttachment(&a.config, &c) {
			s.release(a)
		}
		a.config = c
		s.dropQueues(a)
		kept = append(kept, a)
		used[a.slot] = true
	}
	for slot, c := range s.have.interfaces {
		if c.Name != "" && !used[slot] {
			kept = append(kept, &attachment{config: c, slot: slot, queues: make(map[int]*queue)})
		}
	}
	slices.SortFunc(kept, func(x, y *attachment) int { return x.slot - y.slot })
	s.ifaces = kept
	s.repin()
}

// repin puts each worker on the CPU it is to have now.
func (s *Supervisor) repin() {
	if s.opts.CPU == nil {
		return
	}
	for _, w := range s.workers {
		cpu := s.opts.CPU(w.Index)
		var err error
		if w.Do(func() { err = w.pin(cpu) }); err != nil && s.opts.Event != nil {
			s.opts.Event(Event{Kind: EventRefused, Queue: w.Index, Err: err})
		}
	}
}

// sameAttachment reports whether a present attachment serves another
// configuration. Frames are the worker's memory, which new sockets share.
func sameAttachment(x, y *InterfaceConfig) bool {
	a, b := x.Rings, y.Rings
	a.Frames, b.Frames = 0, 0
	return a == b && x.Generic == y.Generic
}

// remove gives up an interface for good; what it counted stays in the sums.
func (s *Supervisor) remove(a *attachment) {
	s.release(a)
	s.ifaces = slices.DeleteFunc(slices.Clone(s.ifaces), func(o *attachment) bool { return o == a })
	for _, q := range a.queues {
		s.retired.Counters.add(q.retired)
		s.retired.Program.add(q.retiredProgram)
	}
	s.retired.Program.add(a.retiredUnused)
	s.event(a, EventDetached, -1, "removed from the configuration", nil)
}

// dropQueues closes the queues that are not to be used any more.
func (s *Supervisor) dropQueues(a *attachment) {
	if a.config.Queues == nil && s.link(a.slot).Index == 0 {
		return // which ones there are is not known
	}
	wanted := s.numbers(a, s.link(a.slot))
	for n, q := range a.queues {
		if !slices.Contains(wanted, n) {
			s.shut(a, q)
			q.dropped, q.problem = true, nil
		}
	}
}

// link is the present state of the interface at an index.
func (s *Supervisor) link(slot int) Link {
	if slot < len(s.have.links) {
		return s.have.links[slot]
	}
	return Link{}
}

// Retired sums what queues counted that are not in Status any more, because the
// configuration has no use for them.
func (s *Supervisor) Retired() QueueStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.retired
	for _, a := range s.ifaces {
		for n, q := range a.queues {
			if q.dropped {
				sum.Counters.add(q.retired)
				sum.Program.add(q.retiredProgram)
				sum.Program.add(a.counters(n))
			}
		}
	}
	return sum
}

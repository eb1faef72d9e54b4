package forwarder

import (
	"errors"
	"slices"

	"zonehop/forwarder/xsk"
)

// binding is a port in a worker's hands.
type binding struct {
	Port
	umem     *xsk.UMEM
	iface    int // index in Snapshot.Ports
	queue    int
	room     int        // TX slots left in this pass
	out      []xsk.Desc // staged in this pass, never more than room was at its start
	received uint64
}

// bind gives the worker a port to receive from and send by. It runs on the
// worker's goroutine.
func (w *Worker) bind(b *binding) {
	b.out = make([]xsk.Desc, 0, 4*w.shared.Batch)
	w.bindings = append(w.bindings, b)
	w.holding.limit = min(maxHeld, w.smallestMemory()/heldShare)
	w.byIface[b.iface] = b
	b.Fill()
}

// smallestMemory is the number of frames of the smallest memory in use.
func (w *Worker) smallestMemory() int {
	n := w.bindings[0].umem.Frames()
	for _, b := range w.bindings {
		n = min(n, b.umem.Frames())
	}
	return n
}

// unbind takes a port away from the worker, after its last received frames
// were handled: nothing new comes in by now. What the TX ring has no room for is
// dropped. It runs on the worker's goroutine. Frames that are on their way out
// stay with the port until it is closed and reclaimed.
func (w *Worker) unbind(b *binding) {
	for w.receive(b) > 0 {
	}
	for {
		n := b.Receive(w.rx)
		if n == 0 {
			break
		}
		b.received += uint64(n)
		w.counters.local[cReceived] += uint64(n)
		w.counters.local[cDropped+int(ReasonNoPort)] += uint64(n)
		for _, d := range w.rx[:n] {
			b.umem.Free(d.Addr)
		}
	}
	w.abandon(b)
	w.bindings = slices.DeleteFunc(w.bindings, func(o *binding) bool { return o == b })
	if w.byIface[b.iface] == b {
		w.byIface[b.iface] = nil
	}
	w.shared.Route.clear(b.iface, w.mailbox)
}

// reclaim takes the frames of a closed port back. It runs on the worker's goroutine.
func (w *Worker) reclaim(umem *xsk.UMEM, s *xsk.Socket) {
	abandoned, _ := umem.Reclaim(s)
	w.counters.local[cAbandoned] += uint64(abandoned)
}

// socket makes a socket for a queue, on memory this worker already has if it
// can be shared. The supervisor calls it; binding may take seconds, and the
// worker goes on meanwhile.
func (w *Worker) socket(ifindex, queue int, cfg xsk.Config) (*xsk.UMEM, *xsk.Socket, error) {
	for _, u := range w.umems {
		var s *xsk.Socket
		var err error
		w.Do(func() { s, err = u.Reserve(ifindex, queue, cfg) })
		if err != nil {
			continue // no room on this one
		}
		if err = s.Bind(); err == nil {
			return u, s, nil
		}
		w.Do(func() { u.Reclaim(s) })
		if !errors.Is(err, xsk.ErrCannotShare) {
			return nil, nil, err
		}
	}
	u, s, err := xsk.OpenPrimary(ifindex, queue, cfg)
	if err != nil {
		return nil, nil, err
	}
	w.umems = append(w.umems, u)
	return u, s, nil
}

// close closes a port that the running worker was made to unbind, and takes
// its frames back. The supervisor calls it.
func (w *Worker) close(b *binding, s *xsk.Socket) error {
	err := s.Close()
	w.Do(func() { w.reclaim(b.umem, s) })
	return err
}

// closeStopped does the same after Run has returned.
func (w *Worker) closeStopped(b *binding, s *xsk.Socket) error {
	err := s.Close()
	w.reclaim(b.umem, s)
	w.publish()
	return err
}

// closeMemory releases the worker's memory after all its sockets were closed.
func (w *Worker) closeMemory() error {
	var errs []error
	for _, u := range w.umems {
		errs = append(errs, u.Close())
	}
	w.umems = nil
	return errors.Join(errs...)
}

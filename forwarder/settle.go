package forwarder

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrStopped is returned by Settle when nothing is forwarded any more.
var ErrStopped = errors.New("forwarding has stopped")

// settlement is how far what is wanted is in force.
type settlement struct {
	version uint64        // of what is wanted
	err     error         // what of it could not be brought about
	stopped bool          // nothing will be any more
	moved   chan struct{} // closed, and replaced, when any of this changes
}

// Settle waits until what was asked for before the call is in force: the
// classifiers of all attached interfaces follow it, interfaces and queues that
// were added have been tried, and every worker decides by the snapshot that was
// published before it, or a later one.
//
// The error is that of ctx, wrapped, ErrStopped, or what a classifier refused. An
// interface or queue that the kernel refuses is none: Status tells of those,
// and they are tried again.
func (s *Supervisor) Settle(ctx context.Context) error {
	s.brief.Lock()
	defer s.brief.Unlock()
	version := s.want.version
	for s.settled.version < version && !s.settled.stopped {
		moved := s.settled.moved
		s.brief.Unlock()
		select {
		case <-ctx.Done():
			s.brief.Lock()
			return fmt.Errorf("wait for interfaces and workers: %w", ctx.Err())
		case <-moved:
		}
		s.brief.Lock()
	}
	if s.settled.stopped {
		return ErrStopped
	}
	return s.settled.err
}

// pending reports whether an interface or queue has yet to be tried, or is
// busy for a moment.
func (s *Supervisor) pending() bool {
	now := time.Now()
	for _, a := range s.ifaces {
		link := s.link(a.slot)
		switch {
		case link.Index == 0:
			continue
		case a.index != link.Index, !a.classifies:
			if a.retryAt.IsZero() || a.index != 0 {
				return true
			}
			continue // refused
		}
		for _, n := range s.numbers(a, link) {
			q := a.queues[n]
			if q == nil || q.binding == nil && (q.retryAt.IsZero() || now.Before(q.busyUntil)) {
				return true
			}
		}
	}
	return false
}

// settle says that everything there is to do for the present wishes is done,
// once every worker has left the pass it was in.
func (s *Supervisor) settle() {
	s.brief.Lock()
	done := s.settled.version == s.have.version
	s.brief.Unlock()
	if done {
		return
	}
	for _, w := range s.workers {
		w.Do(func() {}) // between two passes; each pass takes the snapshot there is
	}
	var errs []error
	for _, a := range s.ifaces {
		if a.classifies {
			errs = append(errs, a.problem)
		}
	}
	s.brief.Lock()
	defer s.brief.Unlock()
	s.settled.version, s.settled.err = s.have.version, errors.Join(errs...)
	close(s.settled.moved)
	s.settled.moved = make(chan struct{})
}

// end tells those who wait that nothing more will happen.
func (s *Supervisor) end() {
	s.brief.Lock()
	defer s.brief.Unlock()
	s.settled.stopped = true
	close(s.settled.moved)
	s.settled.moved = make(chan struct{})
}

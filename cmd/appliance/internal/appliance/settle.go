package appliance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"zonehop/forwarder"
)

// settleWithin bounds how long a command waits for what it asked for to be in
// force. That takes a millisecond, or as long as a driver needs for an interface
// that is new.
const settleWithin = 5 * time.Second

// settle waits until what was published before the call is in force: workers
// decide by it, classifiers take what it says, its multicast groups are joined,
// and interfaces of a new configuration have been tried. Not to be called with
// a.mu held.
func (a *Appliance) settle() error {
	ctx, cancel := context.WithTimeout(context.Background(), settleWithin)
	defer cancel()
	err := a.settleLinks(ctx)
	if err == nil {
		err = a.supervisor.Settle(ctx)
	}
	if err == nil {
		err = a.groups.settle(ctx)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("it is taken, but not in force everywhere after %v; it will be as soon as what appliance status shows as a problem of interfaces and queues lets it: %w", settleWithin, err)
	case errors.Is(err, forwarder.ErrStopped):
		return fmt.Errorf("%w: the appliance is being stopped", err)
	case err != nil:
		return fmt.Errorf("it is taken, but not in force everywhere: %w; it is tried again every second", err)
	}
	return nil
}

// settleLinks waits until the present interfaces have been looked at: a reload
// may have changed them.
func (a *Appliance) settleLinks(ctx context.Context) error {
	for {
		a.mu.Lock()
		known := len(a.view.Load().Links) == len(a.slots)
		for i, l := range a.view.Load().Links {
			known = known && slices.Index(a.slots, l.Name) == i
		}
		viewed := a.viewed
		a.mu.Unlock()
		if known {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("look at the interfaces: %w", ctx.Err())
		case <-viewed:
		}
	}
}

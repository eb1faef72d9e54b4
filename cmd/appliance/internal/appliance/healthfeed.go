package appliance

import (
	"fmt"
	"sync"

	"zonehop/cmd/appliance/internal/admin"
)

const (
	// maxWatchers bounds those who watch health at a time, on the admin socket and the listener
	// together.
	maxWatchers = 256
	// watchDepth is how many updates a watcher may be behind: more than three seconds of an update
	// every ten milliseconds, the most that the probe pool makes.
	watchDepth = 512
)

// healthFeed hands every change of health to whoever watches. Publishing never waits: a watcher that
// falls behind is cut off, and has to start anew with the present state.
type healthFeed struct {
	mu       sync.Mutex
	state    admin.HealthUpdate // the present one, without events
	watchers map[chan admin.HealthUpdate]struct{}
}

// publish tells of events. A state of nil is the present one still.
func (f *healthFeed) publish(events []admin.HealthEvent, state *admin.HealthUpdate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if state != nil {
		f.state = *state
	}
	u := f.state
	u.Events = events
	for w := range f.watchers {
		select {
		case w <- u:
		default:
			delete(f.watchers, w)
			close(w)
		}
	}
}

// current is the present state.
func (f *healthFeed) current() admin.HealthUpdate {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// watch begins with the present state.
func (f *healthFeed) watch() (<-chan admin.HealthUpdate, func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.watchers) >= maxWatchers {
		return nil, nil, fmt.Errorf("%w: %d watch health already", admin.ErrRefused, maxWatchers)
	}
	w := make(chan admin.HealthUpdate, watchDepth)
	w <- f.state
	if f.watchers == nil {
		f.watchers = make(map[chan admin.HealthUpdate]struct{})
	}
	f.watchers[w] = struct{}{}
	return w, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, w)
	}, nil
}

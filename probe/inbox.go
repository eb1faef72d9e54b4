package probe

import (
	"sync"
	"time"
)

// inbox takes finished probes from the workers to the schedule.
type inbox struct {
	mu     sync.Mutex
	done   []finished
	asleep bool // the schedule sleeps for longer than a tick
}

// job is one probe to run; finished is its outcome.
type (
	job struct {
		entry *entry
		spec  *spec
		due   time.Time
	}
	finished struct {
		worker *worker // idle again
		entry  *entry
		spec   *spec
		start  time.Time
		late   time.Duration
		result Result
	}
)

// fallAsleep returns how long to sleep: what was asked for if nothing has
// finished, else a tick.
func (in *inbox) fallAsleep(d time.Duration) time.Duration {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.done) > 0 {
		return tick
	}
	in.asleep = d > tick
	return d
}

// take empties the inbox into buf.
func (in *inbox) take(buf []finished) []finished {
	in.mu.Lock()
	defer in.mu.Unlock()
	buf, in.done = in.done, buf[:0]
	in.asleep = false
	return buf
}

// report hands a finished probe to the schedule.
func (p *Pool) report(f finished) {
	p.inbox.mu.Lock()
	p.inbox.done = append(p.inbox.done, f)
	wake := p.inbox.asleep
	p.inbox.asleep = false
	p.inbox.mu.Unlock()
	if wake {
		p.nudge()
	}
}

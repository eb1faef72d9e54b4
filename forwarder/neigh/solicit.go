package neigh

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// solicitIdle is the pause between looks at the targets when none needs
// anything.
const solicitIdle = time.Minute

// solicitDue has the kernel solicit or verify the neighbours that are due, at
// most one group of them; the rest waits for the next group. So any number of
// targets that need an answer at once are asked for at the set rate.
func (t *tracker) solicitDue(now time.Time) {
	next := now.Add(solicitIdle)
	sent := 0
	for range len(t.order) {
		t.solicitAt %= len(t.order)
		target := t.order[t.solicitAt]
		if target.need != needNothing && !target.due.After(now) {
			if sent == t.solicitGroup {
				next = now
				break // the next group starts with this one
			}
			sent++
			t.solicitOne(target, now)
		}
		t.solicitAt++
		if target.need != needNothing && target.due.Before(next) {
			next = target.due
		}
	}
	t.solicitFrom = now.Add(solicitInterval)
	t.solicit = later(next, t.solicitFrom)
}

func (t *tracker) solicitOne(target *target, now time.Time) {
	t.w.solicitations.Add(1)
	err := use(t.w.handle, target.key)
	if err != nil {
		t.w.solicitErrors.Add(1)
		err = explainUse(err)
	}
	target.acted(err, now)
	t.judge(target, now)
}

// explainUse adds the remedy to the kernel's terse refusals.
func explainUse(err error) error {
	switch {
	case errors.Is(err, unix.ENOBUFS):
		return errors.New("the kernel's neighbour table is full; raise gc_thresh3 in net.ipv4.neigh.default and net.ipv6.neigh.default")
	case errors.Is(err, unix.EPERM):
		return errors.New("no permission to solicit neighbours; CAP_NET_ADMIN is needed")
	}
	return fmt.Errorf("solicit the neighbour: %w", err)
}

// solicitBy makes sure that solicitDue runs when something is due at at.
func (t *tracker) solicitBy(at time.Time) {
	if at.Before(t.solicit) {
		t.solicit = later(at, t.solicitFrom)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

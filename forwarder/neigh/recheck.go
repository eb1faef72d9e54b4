package neigh

import "time"

func (t *tracker) mark(target *target) {
	if !target.recheck {
		target.recheck = true
		t.recheck++
	}
}

func (t *tracker) markAll() {
	for _, target := range t.order {
		t.mark(target)
	}
}

// markSlice has the next thirtieth of the routes looked up again, but at least 64.
func (t *tracker) markSlice() {
	for range min(len(t.order), max(64, len(t.order)/recheckSlices)) {
		t.sliceAt %= len(t.order)
		t.mark(t.order[t.sliceAt])
		t.sliceAt++
	}
}

// markCovered marks the targets that gathered route changes cover.
func (t *tracker) markCovered() {
	if len(t.rerouted) == 0 {
		return
	}
	for _, target := range t.order {
		for _, p := range t.rerouted {
			if p.Contains(target.addr.WithZone("")) {
				t.mark(target)
				break
			}
		}
	}
	t.rerouted = t.rerouted[:0]
}

// lookUp looks up the routes of up to limit marked targets.
func (t *tracker) lookUp(now time.Time, limit int) {
	for range len(t.order) {
		if t.recheck == 0 || limit == 0 {
			break
		}
		t.recheckAt %= len(t.order)
		target := t.order[t.recheckAt]
		t.recheckAt++
		if !target.recheck {
			continue
		}
		limit--
		route, err := lookUpRoute(t.w.handle, target.addr)
		target.recheck = false
		t.recheck--
		if err != nil {
			t.w.readErrors.Add(1)
			continue // its slice comes round within recheckSlices seconds
		}
		if !target.asked {
			target.asked = true
			t.touch(now)
		}
		target.route = route
		t.judge(target, now)
	}
	end := time.Now()
	t.recheckFrom = end.Add(restFactor * end.Sub(now))
}

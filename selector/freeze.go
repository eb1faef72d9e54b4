package selector

import "time"

// failoverDrain is how long TCP flows may stay on backends of the role that stopped serving.
const failoverDrain = 10 * time.Minute

// freeze is the immutable form of a backend.
func (b *Builder) freeze(e *backendEntry) Backend {
	out := Backend{
		Ref: e.ref, Service: e.service.config.ID, Zone: e.zone, Pos: e.pos, Weight: e.weight, Name: e.name,
	}
	for _, f := range []Family{V4, V6} {
		out.Delivery[f].Port = -1
		if !e.present(f) {
			continue
		}
		w := words(e.addresses[f])
		out.Addr[f] = w
		if d, known := b.deliveries[w]; known {
			out.Delivery[f] = d
		}
		out.Flags[f] = e.flags(f, out.Delivery[f].State, b.drained[e.name])
		for class := range numClasses {
			out.keepUntil[f][class] = e.keepUntil(f, class, out.Flags[f])
		}
	}
	return out
}

func (e *backendEntry) flags(f Family, state DeliveryState, drained bool) BackendFlags {
	flags := FlagPresent
	for _, c := range []struct {
		on   bool
		flag BackendFlags
	}{
		{e.health[f] == Healthy, FlagHealthy},
		{e.health[f] == Unhealthy, FlagUnhealthy},
		{state == Deliverable, FlagDeliverable},
		{drained, FlagDrained},
		{e.removed, FlagRemoved},
		{e.failover, FlagFailover},
	} {
		if c.on {
			flags |= c.flag
		}
	}
	return flags
}

// keepUntil is the time limit of tracked flows; see Backend.Keeps.
func (e *backendEntry) keepUntil(f Family, class flowClass, flags BackendFlags) int64 {
	s := e.service.config
	if flags&FlagUnhealthy != 0 && !s.persists(class) {
		return keepNever
	}
	switch {
	case flags&(FlagRemoved|FlagDrained) != 0 && class == classSYN:
		return keepNever
	case flags&FlagRemoved != 0:
		return e.drainUntil
	case flags&FlagDrained != 0, e.inactiveSince[f] == 0:
		return keepForever
	case s.NoFailoverDrain, class == classDatagram:
		return keepNever
	}
	return e.inactiveSince[f] + int64(failoverDrain)
}

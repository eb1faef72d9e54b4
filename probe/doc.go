// Package probe finds out whether backends are healthy.
//
// A [Target] is one address with one [Check]; however many services use the
// pair, it is probed on one schedule. A [Pool] runs the probes:
//
//	Update ──► schedule (heap by due time) ──► probe goroutines ──► results
//	               ▲                                                  │
//	               └──────── thresholds, next due time ◄──────────────┘
//	                              │ transitions, gathered for ≤ 10 ms
//	                              ▼
//	                         OnTransitions
//
// Probes of one target never overlap and are spread evenly over the interval,
// which runs from start to start. The number of probes in flight is bounded;
// when the bound is reached probes run late, in the order they were due, and
// the lateness is reported. A target starts [Unknown] and becomes [Healthy] or
// [Unhealthy] by the thresholds of its check; until that first verdict it is
// probed at a spacing of 200 ms.
//
// Concurrency: [Pool.Run] owns every goroutine of the package and returns when
// all have ended and every descriptor is closed. All other methods may be
// called from any goroutine, before, during and after Run. The schedule and
// the states are guarded by one mutex that is never held during I/O or during
// a callback; callbacks come from a goroutine of their own, one at a time, so
// a slow callback delays further callbacks but no probe.
package probe

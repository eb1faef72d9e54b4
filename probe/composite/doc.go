// Package composite turns the health of backends into the health of services and of a whole region.
//
//	probe verdicts ──► endpoints ──policy──► sources ──and──► composites ──► whoever asks
//
// An endpoint is a backend of a service. A [Source] counts the endpoints of one service against a
// [Policy]; a [Composite] joins up to ten sources. All three have the states HEALTHY, UNHEALTHY and
// UNKNOWN, and what is unknown is never guessed: a source is HEALTHY if its policy is met by the
// healthy endpoints alone, UNHEALTHY if it would not be met even if every endpoint without a verdict
// were healthy, and UNKNOWN in between. So a start, a restart or a few new backends may make a region
// UNKNOWN, but never UNHEALTHY. Everything is counted in integers; no share is ever rounded.
//
// What counts as an endpoint:
//
//   - A backend with an IPv4 and an IPv6 address is one endpoint, as healthy as the worse of the two:
//     unhealthy if one is, else unknown if one is. Whoever is sent to the region may use either.
//   - Failover backends count like any other.
//   - A backend that the operator drained is not configured: it counts neither as healthy nor in the
//     total. If that leaves none, all count, as they do where connections are balanced.
//
// A source or composite marked DryRun is evaluated, reported and remembered like any other, and never
// acted on: a composite that is not itself a dry run ignores sources that are. One that ignores all
// of its sources knows nothing, and is UNKNOWN.
//
// A [Tracker] holds the present state and tells of changes. It is safe for concurrent use, starts no
// goroutine and needs no closing. Reports are immutable.
package composite

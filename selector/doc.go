// Package selector decides which backend gets a new connection.
//
// A packet that the flow table does not know is matched to a forwarding rule (by address) or a route
// (by destination range), whose backend service says who may take it:
//
//	configured ──health, failover──► eligible (A) ──client's zone──► modified (M) ──hash──► backend
//
// Everything up to M is set arithmetic on a few names and happens when something changes, not per
// packet: [Builder] records configuration, health and deliveries, and Publish turns them into an
// immutable [Snapshot] behind one atomic pointer. For each service, client zone and IP family the
// snapshot has a selection table of 65537 slots; identical sets share one, also with earlier
// snapshots. So a decision is a longest-prefix match for the client's zone, a keyed hash and two
// array reads, whatever the number of backends.
//
// A table is a function of the hash key, the symmetry group and the names and weights of the set,
// never of ids, positions or history: two appliances with the same configuration and health choose
// alike, and so does one appliance before and after a restart.
//
// Readers load a snapshot once per batch and need nothing else; a snapshot is never changed. The
// builder is for the control plane: its methods take a mutex and may allocate. Flows may outlive
// their backend's place in the configuration: a removed backend stays in the snapshot, flagged
// FlagRemoved, while its flows drain, and Backend returns nil for a reference whose backend is gone,
// even when its id is in use again. Time is passed in, as nanoseconds of one monotonic clock.
package selector

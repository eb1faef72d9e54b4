// Package appliance joins the parts of a running appliance: it turns the
// configuration into each part's own options, feeds links, neighbours and
// health into the snapshot builder, publishes snapshots, and tells the
// forwarding side what to take from the kernel.
//
//	neigh.Watcher ──links, MACs──┐
//	probe.Pool ─────verdicts─────┼──► selector.Builder ──publish──► workers
//	operator, reload ────────────┘            │
//	                                          └──► classifier, multicast groups, announcements
//
// Everything that changes goes through [Appliance.publish], which is
// serialised; readers take the current snapshot and never wait.
package appliance

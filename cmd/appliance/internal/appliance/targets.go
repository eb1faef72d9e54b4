package appliance

import (
	"net/netip"

	"zonehop/forwarder/packet"
	"zonehop/selector"
)

// deliveryTargets lists every address that frames may be sent to, once: of configured
// backends, and of removed ones whose flows still drain.
func deliveryTargets(snap *selector.Snapshot) []netip.Addr {
	seen := make(map[[2]uint64]bool)
	var out []netip.Addr
	for i := range snap.Backends {
		b := &snap.Backends[i]
		for f := range b.Flags {
			if b.Ref == 0 || b.Flags[f]&selector.FlagPresent == 0 || seen[b.Addr[f]] {
				continue
			}
			seen[b.Addr[f]] = true
			out = append(out, packet.Netip(b.Addr[f]))
		}
	}
	return out
}

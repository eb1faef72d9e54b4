package selector

import "net/netip"

// Rule is a forwarding rule or a route in a snapshot: configuration only, shared by all snapshots
// between two reloads.
type Rule struct {
	ID           uint16 // index in Snapshot.Rules; forwarding rules first, then routes
	Family       Family
	Protocol     uint8 // 0 = any
	Route        bool
	AllPorts     bool
	DecrementTTL bool
	Symmetric    bool
	AllowGlobal  bool // clients of other regions are served
	VIPPing      bool
	Announce     Announce
	hash, track  shapes
	PairBase     uint32 // pair of (this rule, backend with Pos 0) in Layout's pairs
	ConnBase     uint32 // (this rule, client zone 0, backend zone 0) in Layout's conns
	Service      *Service
	Ports        uint64 // bit per port index: where it applies
	Name         string
	addr         [2]uint64    // the rule's address, or the route's nextHopAddress; zero = none
	DestRange    netip.Prefix // routes only
}

// Address is the address answered for: the forwarding rule's, or the route's nextHopAddress. It is
// invalid for a route without one.
func (r *Rule) Address() netip.Addr {
	if r.addr == [2]uint64{} {
		return netip.Addr{}
	}
	return netipOf(r.addr)
}

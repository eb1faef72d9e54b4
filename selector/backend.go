package selector

import "math"

// Ref names a backend and the life of it that was meant: id << 12 | generation. 0 is no backend; id
// 0 is never used. A flow that outlives its backend finds another generation under the id.
type Ref = uint32

// refGenerationBits is the width of the generation in a Ref; the id has the other 20 bits.
const (
	refGenerationBits = 12
	refGenerationMask = 1<<refGenerationBits - 1
	maxBackendID      = 1<<(32-refGenerationBits) - 1
)

// DeliveryState says whether frames can reach a backend.
type DeliveryState uint8

// Delivery states. Only Deliverable has a valid header and port.
const (
	Pending     DeliveryState = iota // nothing known yet
	Deliverable                      // header and port are valid
	NoNeighbour                      // address resolution failed or is under way
	NotOnLink                        // the kernel's route goes through a gateway
	NoRoute                          // the kernel has no route, or none through a port of ours
)

// String is the name used in status and metrics, for example not_on_link.
func (s DeliveryState) String() string {
	return [...]string{"pending", "deliverable", "no_neighbour", "not_on_link", "no_route"}[s]
}

// Delivery is how a frame is made to reach an address. For layer 2 the header is the destination and
// source MAC (Len 12), written over the first 12 bytes of the frame.
type Delivery struct {
	Port  int16 // index in Options.Ports, -1 = none
	Len   uint8 // of the header, bytes
	State DeliveryState
	// VLAN is the only one whose frames reach the address, because the kernel's
	// route to it leads over a VLAN device; 0: frames keep the tags they have.
	VLAN   uint16
	Header [64]byte
}

// BackendFlags is the state of a backend in one family.
type BackendFlags uint16

// Backend flags. Neither FlagHealthy nor FlagUnhealthy set means no verdict yet.
const (
	FlagPresent     BackendFlags = 1 << iota // has an address in this family
	FlagHealthy                              // last verdict healthy
	FlagUnhealthy                            // last verdict unhealthy
	FlagDeliverable                          // frames can reach it
	FlagDrained                              // by the operator: no new connections
	FlagRemoved                              // no longer configured; tracked flows drain
	FlagFailover                             // role; primary without it
)

// flowClass is how draining and persistence tell protocols apart.
type flowClass uint8

const (
	classSYN        flowClass = iota // the first packet of a TCP connection
	classConnection                  // TCP otherwise, and SCTP
	classDatagram                    // everything else
	numClasses
)

// Times of Backend.keepUntil that are always, or never, in the future.
const (
	keepForever = math.MaxInt64
	keepNever   = math.MinInt64
)

// Backend is one backend of one service in a snapshot. It is immutable. What forwarding an IPv4
// packet reads is in the first two of its four cache lines (64 bytes each).
type Backend struct {
	Ref     Ref
	Service uint16 // Service.ID
	Zone    uint16 // 0 = none, else 1 + index in Options.Zones
	Pos     uint16 // position among the backends of its service, dense
	Flags   [2]BackendFlags
	// keepUntil is the last moment at which a tracked flow may stay, by family and class.
	keepUntil [2][numClasses]int64
	Delivery  [2]Delivery
	Weight    uint32       // 1 in services that are not weighted
	Addr      [2][2]uint64 // zero without FlagPresent
	Name      string
}

// ID is the backend's id: an index into Snapshot.Backends.
func (b *Backend) ID() uint32 { return b.Ref >> refGenerationBits }

// Health is the last verdict in a family.
func (b *Backend) Health(f Family) Health {
	switch {
	case b.Flags[f]&FlagHealthy != 0:
		return Healthy
	case b.Flags[f]&FlagUnhealthy != 0:
		return Unhealthy
	}
	return Unknown
}

// Keeps reports whether a flow tracked to this backend stays there, for a packet of the given
// protocol; syn is a TCP SYN without ACK on a key that such packets look up. False asks for a new
// selection. It covers, in this order: removal (flows stay for the draining time, a SYN does not),
// drain by the operator (a SYN does not stay), failover and failback (TCP stays for ten minutes
// unless disabled), and persistence on unhealthy backends.
func (b *Backend) Keeps(f Family, proto uint8, syn bool, nowNanos int64) bool {
	class := classDatagram
	switch {
	case syn:
		class = classSYN
	case proto == protoTCP || proto == protoSCTP:
		class = classConnection
	}
	return nowNanos <= b.keepUntil[f][class]
}

// DrainsUntil is when tracked connections of a backend that gets no new ones must leave it: one that
// was removed, or whose role stopped serving. draining is false where there is no such time.
func (b *Backend) DrainsUntil(f Family) (nanos int64, draining bool) {
	until := b.keepUntil[f][classConnection]
	return until, until != keepForever && until != keepNever
}

// IANA protocol numbers.
const (
	protoTCP  = 6
	protoUDP  = 17
	protoSCTP = 132
)

package selector

// Tuple is what the selection of a backend can depend on, as parsed from a packet. Addresses are in
// host order; an IPv4 address is in its IPv4-mapped form (0, 0x0000ffff_aabbccdd).
type Tuple struct {
	Src, Dst         [2]uint64
	SrcPort, DstPort uint16
	Proto            uint8
	HasPorts         bool // false for fragments and protocols without ports; the ports are then ignored
}

// Reverse is the tuple of the packets of the other direction.
func (t *Tuple) Reverse() Tuple {
	return Tuple{
		Src: t.Dst, Dst: t.Src, SrcPort: t.DstPort, DstPort: t.SrcPort,
		Proto: t.Proto, HasPorts: t.HasPorts,
	}
}

// Shapes of a tuple: which members take part.
const (
	Shape5 uint8 = 1 // addresses, protocol, ports
	Shape3 uint8 = 2 // addresses, protocol
	Shape2 uint8 = 3 // addresses
	Shape1 uint8 = 4 // source address
)

// SessionAffinity is a service's session affinity.
type SessionAffinity uint8

// Session affinities. AffinityNone hashes like AffinityClientIPPortProto: hashing always happens.
const (
	AffinityNone SessionAffinity = iota
	AffinityClientIP
	AffinityClientIPProto
	AffinityClientIPPortProto
	AffinityClientIPNoDestination
)

// String is the name in the configuration, for example CLIENT_IP_PROTO.
func (a SessionAffinity) String() string {
	return [...]string{
		"NONE", "CLIENT_IP", "CLIENT_IP_PROTO", "CLIENT_IP_PORT_PROTO", "CLIENT_IP_NO_DESTINATION",
	}[a]
}

// TrackingMode says what one entry of the flow table stands for.
type TrackingMode uint8

// PerConnection tracks each connection; PerSession tracks all packets that hash alike as one.
const (
	PerConnection TrackingMode = iota
	PerSession
)

// String is PER_CONNECTION or PER_SESSION.
func (m TrackingMode) String() string { return [...]string{"PER_CONNECTION", "PER_SESSION"}[m] }

// shapes is a pair of shapes: [0] for packets without ports, [1] for packets with ports.
type shapes [2]uint8

// hashShapes are the members that selection hashes.
func hashShapes(a SessionAffinity) shapes {
	switch a {
	case AffinityClientIP:
		return shapes{Shape2, Shape2}
	case AffinityClientIPProto:
		return shapes{Shape3, Shape3}
	case AffinityClientIPNoDestination:
		return shapes{Shape1, Shape1}
	}
	return shapes{Shape3, Shape5}
}

// trackShapes are the members that make a tracking key: those of the connection, or those of the
// hash.
func trackShapes(a SessionAffinity, m TrackingMode) shapes {
	if m == PerSession {
		return hashShapes(a)
	}
	return shapes{Shape3, Shape5}
}

// shaped returns the members of shape, others zeroed. Symmetric shapes order the two endpoints, so
// that both directions of a flow give the same result.
func (t *Tuple) shaped(shape uint8, symmetric bool) (src, dst [2]uint64, srcPort, dstPort uint16, proto uint8) {
	src, dst = t.Src, t.Dst
	switch shape {
	case Shape5:
		srcPort, dstPort, proto = t.SrcPort, t.DstPort, t.Proto
	case Shape3:
		proto = t.Proto
	case Shape1:
		dst = [2]uint64{}
		return
	}
	if symmetric && after(src, dst, srcPort, dstPort) {
		src, dst, srcPort, dstPort = dst, src, dstPort, srcPort
	}
	return
}

// after reports whether endpoint (a, pa) sorts behind (b, pb).
func after(a, b [2]uint64, pa, pb uint16) bool {
	if a[0] != b[0] {
		return a[0] > b[0]
	}
	if a[1] != b[1] {
		return a[1] > b[1]
	}
	return pa > pb
}

// TrackingKey gives the members of the flow table key for a packet of this rule: those the service's
// affinity and tracking mode call for, the others zero, with endpoints ordered where the rule is
// symmetric. kind is one of the Shape constants. It allocates nothing.
func (r *Rule) TrackingKey(t *Tuple) (src, dst [2]uint64, srcPort, dstPort uint16, proto uint8, kind uint8) {
	kind = r.track[portIndex(t)]
	src, dst, srcPort, dstPort, proto = t.shaped(kind, r.Symmetric)
	return
}

// TracksConnections reports whether TrackingKey of a packet with ports is its tuple as it is, as
// Shape5: the usual case, which spares the copies.
func (r *Rule) TracksConnections() bool { return r.track[1] == Shape5 && !r.Symmetric }

// selectionHash is the keyed hash that chooses the slot of a packet of this rule.
func (r *Rule) selectionHash(t *Tuple) uint64 {
	shape := r.hash[portIndex(t)]
	src, dst, srcPort, dstPort, proto := t.shaped(shape, r.Symmetric)
	return r.Service.secret.hash(src, dst, srcPort, dstPort, proto, shape)
}

func portIndex(t *Tuple) int {
	if t.HasPorts {
		return 1
	}
	return 0
}

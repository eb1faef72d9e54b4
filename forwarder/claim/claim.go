package claim

import (
	"encoding/binary"
	"strconv"

	"zonehop/forwarder/packet"
)

// Kind says what a host wants with an address.
type Kind uint8

const (
	// Conflict is a host that says that the address is at its own MAC.
	Conflict Kind = iota
	// Probe is a host that asks whether the address is free before it takes it
	// (RFC 5227 section 2.1.1; RFC 4862 section 5.4).
	Probe
	numKinds
)

// String returns the kind's label in metrics.
func (k Kind) String() string { return [numKinds]string{"conflict", "probe"}[k] }

// Claim is one message that touches an address.
type Claim struct {
	Addr [2]uint64 // as packet.Addr has it
	MAC  uint64    // of the host, low 48 bits
	Tags Tags      // of the VLAN that it came in
	Port int       // where it came in: an index in the snapshot's ports
	Kind Kind
}

// Of reads the claim in a frame that was parsed and came in by a port. It is
// not ok for a frame that claims nothing; whether the address is ours is not
// looked at.
func Of(frame []byte, p *packet.Parsed, port int) (c Claim, ok bool) {
	var probe, claim bool
	switch {
	case p.Kind == packet.KindARP:
		c.Addr, c.MAC, probe, claim = packet.ARPClaims(frame, p)
	case p.Flags&(packet.NeighborSolicit|packet.NeighborAdvert) != 0:
		c.Addr, c.MAC, probe, claim = packet.NeighborClaims(frame, p)
	}
	if !probe && !claim {
		return Claim{}, false
	}
	if probe {
		c.Kind = Probe
	}
	c.Port, c.Tags = port, tagsOf(frame, int(p.VLANs))
	return c, true
}

// Tags are the VLAN tags of a frame, outermost first, each the tag protocol
// identifier and, in the low 12 bits, the VLAN's number (IEEE 802.1Q section
// 9.6); priority bits are left out. 0 is no tag.
type Tags [2]uint32

const (
	addressesLen = 12 // of an Ethernet header, in front of the tags
	tagLen       = 4
	vlanNumber   = 0x0fff
)

// tagsOf reads the tags of a frame that has n of them.
func tagsOf(frame []byte, n int) (t Tags) {
	for i := range min(n, len(t)) {
		b := frame[addressesLen+i*tagLen:]
		t[i] = uint32(binary.BigEndian.Uint16(b))<<16 | uint32(binary.BigEndian.Uint16(b[2:])&vlanNumber)
	}
	return t
}

// String returns the VLAN's number, with that of the outer tag and a point in
// front where there are two, or "" outside of any VLAN.
func (t Tags) String() (s string) {
	for i, tag := range t {
		if tag == 0 {
			break
		}
		if i > 0 {
			s += "."
		}
		s += strconv.Itoa(int(tag & vlanNumber))
	}
	return s
}

// Tagged returns the untagged frame with the tags, in memory of its own.
func (t Tags) Tagged(frame []byte) []byte {
	out := append(make([]byte, 0, len(frame)+len(t)*tagLen), frame[:addressesLen]...)
	for _, tag := range t {
		if tag != 0 {
			out = binary.BigEndian.AppendUint32(out, tag)
		}
	}
	return append(out, frame[addressesLen:]...)
}

package selector

import (
	"math/bits"
	"slices"
)

// VIP is one address that forwarding rules have.
type VIP struct {
	// AnswerPorts has a bit per port index where ARP or neighbour discovery is answered now.
	AnswerPorts uint64
	PingOK      bool // echo is answered: a rule with vipPing has an eligible backend
	L3Default   bool // an L3_DEFAULT rule exists: echo is balanced like any other packet
	Addr        [2]uint64
	*matcher
}

// matcher finds the rule of a packet among the rules of one address.
type matcher struct {
	protos [3]protoRules // by protoIndex
	any    *Rule         // L3_DEFAULT
	rules  []*Rule
}

// protoRules are the rules of one protocol.
type protoRules struct {
	ranges []portRule // by first port, disjoint
	rest   *Rule      // for ports not in ranges, and for packets without ports
}

type portRule struct {
	first, last uint16
	rule        *Rule
}

// protoIndex tells apart the protocols that rules can name: 1 is TCP, 2 UDP, 0
// any other.
func protoIndex(proto uint8) int {
	switch proto {
	case protoTCP:
		return 1
	case protoUDP:
		return 2
	}
	return 0
}

// Rule is the rule for a packet to this address, nil if there is none. Specific beats general: a
// rule that names the port, then one with all ports of the protocol, then L3_DEFAULT. A packet
// without ports matches the last two only.
func (m *matcher) Rule(proto uint8, dstPort uint16, hasPorts bool) *Rule {
	p := &m.protos[protoIndex(proto)]
	if hasPorts && len(p.ranges) > 0 {
		return p.named(dstPort)
	}
	return p.rest
}

// named is the rule for a port.
func (p *protoRules) named(port uint16) *Rule {
	ranges := p.ranges
	for len(ranges) > 8 { // then a linear scan is as fast
		half := len(ranges) / 2
		if ranges[half].first <= port {
			ranges = ranges[half:]
		} else {
			ranges = ranges[:half]
		}
	}
	for j := range ranges {
		if ranges[j].first <= port && port <= ranges[j].last {
			return ranges[j].rule
		}
	}
	return p.rest
}

// RuleTo is a rule of this address that sends a protocol to the service with an ID, nil if there is
// none. It is for packets whose ports are not known but whose backend is. With anyProto the protocol is
// not known for sure either: a rule that names it is preferred.
func (m *matcher) RuleTo(proto uint8, service uint16, anyProto bool) *Rule {
	var other *Rule
	for _, r := range m.rules {
		switch {
		case r.Service.ID != service:
		case r.Protocol == proto || r.Protocol == 0:
			return r
		case anyProto && other == nil:
			other = r
		}
	}
	return other
}

// add enters a rule with its ports.
func (m *matcher) add(r *Rule, ports []PortRange) {
	m.rules = append(m.rules, r)
	if r.Protocol == 0 {
		m.any = r
		for i := range m.protos {
			if m.protos[i].rest == nil {
				m.protos[i].rest = r
			}
		}
		return
	}
	p := &m.protos[protoIndex(r.Protocol)]
	if r.AllPorts {
		p.rest = r
		return
	}
	for _, o := range ports {
		p.ranges = append(p.ranges, portRule{o.First, o.Last, r})
	}
	slices.SortFunc(p.ranges, func(a, b portRule) int { return int(a.first) - int(b.first) })
}

// vipIndex is an immutable open-addressing table of VIPs by address, at most a quarter full, so that
// nearly every miss ends at the first slot.
type vipIndex struct {
	slots []vipSlot // length a power of two, at least 1
}

type vipSlot struct {
	addr [2]uint64
	vip  *VIP // nil = empty
}

// Odd multipliers from the fraction of the golden ratio and of the square root of 3.
const (
	vipMul1 = 0x9e3779b97f4a7c15
	vipMul2 = 0xbb67ae8584caa73b
)

func newVIPIndex(vips []*VIP) vipIndex {
	size := 1 << bits.Len(uint(4*len(vips)))
	x := vipIndex{make([]vipSlot, size)}
	for _, v := range vips {
		i := home(v.Addr[0], v.Addr[1])
		for x.slots[i&(size-1)].vip != nil {
			i++
		}
		x.slots[i&(size-1)] = vipSlot{v.Addr, v}
	}
	return x
}

// home is where the search for an address starts, before masking. All of an IPv4 address takes part,
// and of an IPv6 one all but what the addresses of one site have in common.
func home(hi, lo uint64) int { return int((hi*vipMul2 ^ lo) * vipMul1 >> 32) }

// find is inlined into Snapshot.VIPOf; the usual miss ends here, at an empty first slot.
func (x *vipIndex) find(a *[2]uint64) *VIP {
	i := home(a[0], a[1])
	if x.slots[i&(len(x.slots)-1)].vip == nil {
		return nil
	}
	return x.probe(a, i)
}

// probe searches the slots from i.
func (x *vipIndex) probe(a *[2]uint64, i int) *VIP {
	for slots := x.slots; ; i++ {
		s := &slots[i&(len(slots)-1)]
		if s.vip == nil || s.addr[0] == a[0] && s.addr[1] == a[1] {
			return s.vip
		}
	}
}

package selector

import "net/netip"

// maxPorts is the width of a mask of ports.
const maxPorts = 64

// Port is one interface of the appliance.
type Port struct {
	Name  string
	Index int // the kernel's interface index, 0 = absent
	MAC   [6]byte
	Addrs []netip.Prefix // the host's own addresses on it
	MTU   int            // bytes, without the Ethernet header
	Up    bool
}

// portMask is the mask of the named ports; nil is all of them. Unknown names were refused before.
func portMask(all, names []string) uint64 {
	if names == nil {
		return ^uint64(0)
	}
	var mask uint64
	for i, port := range all {
		for _, name := range names {
			if name == port {
				mask |= 1 << i
			}
		}
	}
	return mask
}

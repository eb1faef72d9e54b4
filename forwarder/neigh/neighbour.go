package neigh

import (
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// neighbourKey names one entry of the kernel's neighbour tables.
type neighbourKey struct {
	index int // interface
	addr  netip.Addr
}

// neighbour is the part of an entry that matters here. The zero value stands
// for "no entry".
type neighbour struct {
	state int // NUD_* of linux/neighbour.h
	mac   [6]byte
}

// usableStates are those in which the kernel itself would send to the MAC
// address. NOARP is not among them: it marks what has no MAC address.
const usableStates = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT

// usable reports whether frames may be sent to n. A group or zero address,
// which a broken or hostile neighbour can claim, is never used.
func (n neighbour) usable() bool {
	return n.state&usableStates != 0 && n.mac[0]&1 == 0 && n.mac != [6]byte{}
}

// newNeighbour converts an entry; ok is false for those of no interest
// (bridge forwarding entries, proxies).
func newNeighbour(n *netlink.Neigh) (neighbourKey, neighbour, bool) {
	if n.Family != unix.AF_INET && n.Family != unix.AF_INET6 || n.Flags&netlink.NTF_PROXY != 0 {
		return neighbourKey{}, neighbour{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return neighbourKey{}, neighbour{}, false
	}
	entry := neighbour{state: n.State}
	if len(n.HardwareAddr) == len(entry.mac) {
		entry.mac = [6]byte(n.HardwareAddr)
	}
	return neighbourKey{n.LinkIndex, addr.Unmap()}, entry, true
}

// readNeighbours reads both families' tables.
func readNeighbours(h *netlink.Handle) (map[neighbourKey]neighbour, error) {
	entries, err := dump("neighbours", func() ([]netlink.Neigh, error) { return h.NeighList(0, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	table := make(map[neighbourKey]neighbour, len(entries))
	for i := range entries {
		if key, entry, ok := newNeighbour(&entries[i]); ok {
			table[key] = entry
		}
	}
	return table, nil
}

// use tells the kernel that the neighbour is in use: it creates the entry if
// there is none, solicits if it has no MAC address, and starts to verify a
// stale one. Not for PERMANENT entries, which recent kernels would degrade.
func use(h *netlink.Handle, key neighbourKey) error {
	return h.NeighSet(&netlink.Neigh{
		LinkIndex: key.index,
		IP:        key.addr.AsSlice(),
		State:     netlink.NUD_NONE,
		Flags:     netlink.NTF_USE,
	})
}

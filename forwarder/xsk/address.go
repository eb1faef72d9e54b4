package xsk

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
)

// Flags of an address; keep equal to ADDR_* in bpf/classifier.c.
const (
	addressRule   uint32 = 1
	addressAnswer uint32 = 2
	addressOwn    uint32 = 4
)

var addressFlagNames = map[uint32]string{addressRule: "rule", addressAnswer: "answered", addressOwn: "own"}

// addressKey is struct addr of the classifier.
type addressKey [16]byte

// routeKey is struct route of the classifier.
type routeKey struct {
	Bits uint32
	Addr addressKey
}

// addressSet is the address map: one entry per address with the flags of all
// sets it is in, so that each update of an entry is one step.
type addressSet struct {
	table *mapDiff[addressKey, uint32]
	sets  [3][]addressKey // in the order of the flags' bits
}

// set replaces the set of one flag.
func (s *addressSet) set(flag uint32, addrs []netip.Addr) error {
	keys := make([]addressKey, len(addrs))
	for i, a := range addrs {
		if !a.IsValid() {
			return fmt.Errorf("address %d of %d is not valid", i, len(addrs))
		}
		keys[i] = a.As16()
	}
	want := map[addressKey]uint32{}
	for i := range s.sets {
		if flag == 1<<i {
			s.sets[i] = keys
		}
		for _, k := range s.sets[i] {
			want[k] |= 1 << i
		}
	}
	return s.table.set(want)
}

// routeKeyOf returns the trie (0 IPv4, 1 IPv6) and the key of a prefix, whose bits
// are counted in the mapped form for IPv4. Bits past the prefix are cleared, as
// two spellings of one prefix are one entry in the kernel's trie.
func routeKeyOf(p netip.Prefix) (family int, key routeKey, err error) {
	if !p.IsValid() {
		return 0, key, fmt.Errorf("prefix %v is not valid", p)
	}
	if p.Addr().Is4In6() {
		return 0, key, fmt.Errorf("prefix %v is IPv4-mapped; write it as IPv4", p)
	}
	p = p.Masked()
	key = routeKey{Bits: uint32(p.Bits()), Addr: p.Addr().As16()}
	if p.Addr().Is4() {
		key.Bits += 96
		return 0, key, nil
	}
	return 1, key, nil
}

// mapDiff keeps a kernel map equal to a wanted one by changing only what differs.
type mapDiff[K comparable, V comparable] struct {
	kernel *ebpf.Map
	has    map[K]V // what the kernel's map holds
}

func newMapDiff[K comparable, V comparable](m *ebpf.Map) *mapDiff[K, V] {
	return &mapDiff[K, V]{kernel: m, has: map[K]V{}}
}

// set writes new and changed entries first and deletes afterwards, so an address
// that stays is never absent. After an error it knows what it has done and a
// further call does the rest.
func (d *mapDiff[K, V]) set(want map[K]V) error {
	for k, v := range want {
		if old, ok := d.has[k]; ok && old == v {
			continue
		}
		if err := d.kernel.Put(k, v); err != nil {
			return fmt.Errorf("write entry %d of %d: %w", len(d.has)+1, d.kernel.MaxEntries(), err)
		}
		d.has[k] = v
	}
	for k := range d.has {
		if _, ok := want[k]; ok {
			continue
		}
		if err := d.kernel.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete entry: %w", err)
		}
		delete(d.has, k)
	}
	return nil
}

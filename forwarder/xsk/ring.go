package xsk

import "sync/atomic"

// Desc names the bytes of one frame: struct xdp_desc in linux/if_xdp.h.
type Desc struct {
	Addr    uint64 // offset of the first byte in the UMEM
	Len     uint32 // bytes
	Options uint32 // 0; XDP_PKT_CONTD and the like are not used
}

// slot is what a ring carries: addresses on fill and completion rings,
// descriptors on RX and TX rings.
type slot interface{ uint64 | Desc }

// ringMemory is one ring as both sides see it. The indices run freely through
// 32 bits; an index masked with the number of slots is the place in the ring.
//
// The side that writes slots publishes them by storing the producer index, the
// other side hands them back by storing the consumer index. Go's atomic loads
// and stores are sequentially consistent, which includes the acquire and release
// order that the kernel uses (net/xdp/xsk_queue.h).
type ringMemory[T slot] struct {
	producer *uint32
	consumer *uint32
	flags    *uint32
	slots    []T // a power of two
}

// needWakeup reports whether the kernel asks for a system call on this ring.
func (m *ringMemory[T]) needWakeup() bool {
	return atomic.LoadUint32(m.flags)&ringNeedWakeup != 0
}

// occupied is the number of slots between the two shared indices.
func (m *ringMemory[T]) occupied() int {
	n := atomic.LoadUint32(m.producer) - atomic.LoadUint32(m.consumer)
	return int(min(n, uint32(len(m.slots))))
}

// producer is the writing end of a ring. Our own index is kept here and never
// read back from shared memory, so nothing outside can move it.
type producer[T slot] struct {
	ringMemory[T]
	next uint32 // the next slot to write; published by publish
	seen uint32 // the consumer index at the last look
}

// room returns how many of want slots can be written. It looks at the shared
// index only if what it saw last is not enough.
func (p *producer[T]) room(want int) int {
	size := uint32(len(p.slots))
	free := size - (p.next - p.seen)
	if free < uint32(want) {
		p.seen = atomic.LoadUint32(p.consumer)
		free = size - (p.next - p.seen)
		if free > size { // a consumer ahead of us is nonsense: trust nothing
			return 0
		}
	}
	return min(int(free), want)
}

// push writes one slot; room must have granted it.
func (p *producer[T]) push(v T) {
	if s := p.slots; len(s) > 0 {
		s[p.next&uint32(len(s)-1)] = v
		p.next++
	}
}

// publish shows every pushed slot to the other side.
func (p *producer[T]) publish() { atomic.StoreUint32(p.ringMemory.producer, p.next) }

// consumer is the reading end of a ring.
type consumer[T slot] struct {
	ringMemory[T]
	next uint32 // the next slot to read; handed back by release
	seen uint32 // the producer index at the last look
}

// ready returns how many of want slots can be read, looking at the shared index
// only if what it saw last is not enough.
func (c *consumer[T]) ready(want int) int {
	n := c.seen - c.next
	if n < uint32(want) {
		c.seen = atomic.LoadUint32(c.producer)
		n = c.seen - c.next
		if n > uint32(len(c.slots)) { // more than the ring can hold is nonsense
			return 0
		}
	}
	return min(int(n), want)
}

// pop reads one slot; ready must have granted it.
func (c *consumer[T]) pop() (v T) {
	if s := c.slots; len(s) > 0 {
		v = s[c.next&uint32(len(s)-1)]
		c.next++
	}
	return v
}

// release hands every popped slot back to the other side.
func (c *consumer[T]) release() { atomic.StoreUint32(c.ringMemory.consumer, c.next) }

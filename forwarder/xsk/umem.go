package xsk

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
)

// Owners of a chunk. A socket in slot k owns by fillOwner(k) from the moment a
// chunk goes on its fill ring until Receive, and by txOwner(k) from Transmit
// until Complete.
const (
	ownerFree   uint8 = 0
	ownerWorker uint8 = 1

	maxSockets = 126 // two owners each, and the two above, in one byte
)

func fillOwner(slot int) uint8 { return uint8(2 + 2*slot) }
func txOwner(slot int) uint8   { return uint8(3 + 2*slot) }

// UMEM is the memory that the sockets of one worker receive into and transmit
// from. It and its sockets belong to the worker's goroutine.
type UMEM struct {
	area  []byte
	owner []uint8  // by chunk
	free  []uint32 // stack of free chunks: the last one freed is the first reused, while still in cache
	shift uint     // log2 of the chunk size

	misuse  uint64 // Free of a chunk the worker did not own
	sockets [maxSockets]*Socket
	cfg     Config
	note    string // why it does not lie on huge pages, if they were asked for
	unmap   func() error

	// mu guards what Bind and Close of different sockets share.
	mu    sync.Mutex
	bound []*Socket // sockets whose descriptor can introduce a further one
}

// newUMEM cuts area into chunks, all of them free; unmap releases the area.
func newUMEM(area []byte, cfg Config, unmap func() error) (*UMEM, error) {
	if len(area) != cfg.Frames*cfg.FrameSize {
		return nil, fmt.Errorf("umem of %d bytes: want %d frames of %d", len(area), cfg.Frames, cfg.FrameSize)
	}
	u := &UMEM{
		area:  area,
		owner: make([]uint8, cfg.Frames),
		free:  make([]uint32, 0, cfg.Frames),
		shift: uint(bits.TrailingZeros(uint(cfg.FrameSize))),
		cfg:   cfg,
		unmap: unmap,
	}
	for i := cfg.Frames - 1; i >= 0; i-- {
		u.free = append(u.free, uint32(i))
	}
	return u, nil
}

// FrameSize is the number of bytes in a chunk.
func (u *UMEM) FrameSize() int { return 1 << u.shift }

// Frames is the number of chunks.
func (u *UMEM) Frames() int { return u.cfg.Frames }

// Note says why the UMEM does not lie on huge pages although they were asked
// for (HugePagesAuto), or is empty.
func (u *UMEM) Note() string { return u.note }

// Alloc takes a free chunk for the worker and returns an address Headroom bytes
// into it, where the kernel puts received frames too. ok is false if no chunk is free.
func (u *UMEM) Alloc() (addr uint64, ok bool) {
	c, ok := u.take(ownerWorker)
	return uint64(c)<<u.shift + Headroom, ok
}

// Free gives back the chunk that holds addr. A chunk the worker does not own is
// left alone and counted (Census.Misuse).
func (u *UMEM) Free(addr uint64) {
	c := addr >> u.shift
	if c >= uint64(len(u.owner)) || u.owner[c] != ownerWorker {
		u.misuse++
		return
	}
	u.give(uint32(c))
}

// Frame returns the bytes of d: d.Len long, with capacity to the end of the
// chunk, so a reply can grow in place but never into a neighbour. It is nil for
// a descriptor that does not lie within one chunk. The slice is valid until the
// frame changes hands.
func (u *UMEM) Frame(d Desc) []byte {
	end := (d.Addr>>u.shift + 1) << u.shift
	if d.Addr >= uint64(len(u.area)) || uint64(d.Len) > end-d.Addr {
		return nil
	}
	return u.area[d.Addr : d.Addr+uint64(d.Len) : end]
}

// contains reports whether d is a non-empty range within one chunk.
func (u *UMEM) contains(d Desc) bool {
	room := uint64(1)<<u.shift - d.Addr&(uint64(1)<<u.shift-1)
	return d.Len != 0 && uint64(d.Len) <= room
}

// take pops a free chunk for a new owner.
func (u *UMEM) take(owner uint8) (chunk uint32, ok bool) {
	n := len(u.free)
	if n == 0 {
		return 0, false
	}
	chunk = u.free[n-1]
	u.free = u.free[:n-1]
	u.owner[chunk] = owner
	return chunk, true
}

// give pushes a chunk whose owner gave it up. The stack has room for every
// chunk, so it never grows.
func (u *UMEM) give(chunk uint32) {
	u.owner[chunk] = ownerFree
	u.free = append(u.free, chunk)
}

// move changes the owner of the chunk that holds addr, if it is the expected one.
func (u *UMEM) move(addr uint64, from, to uint8) bool {
	c := addr >> u.shift
	if c >= uint64(len(u.owner)) || u.owner[c] != from {
		return false
	}
	u.owner[c] = to
	return true
}

// UMEMCensus says where the chunks of a UMEM are. Free + Worker + Fill + TX is
// the number of chunks, always.
type UMEMCensus struct {
	Free   int
	Worker int
	Fill   int    // with the kernel for reception, or received and not yet taken
	TX     int    // with the kernel for transmission, or sent and not yet taken back
	Misuse uint64 // calls of Free that named a chunk the worker did not own
}

// Total is the number of chunks.
func (c UMEMCensus) Total() int { return c.Free + c.Worker + c.Fill + c.TX }

// Census counts by the owner bytes. It walks all of them, so it is for tests and
// status, not for each batch.
func (u *UMEM) Census() UMEMCensus {
	c := UMEMCensus{Misuse: u.misuse}
	for _, o := range u.owner {
		switch {
		case o == ownerFree:
			c.Free++
		case o == ownerWorker:
			c.Worker++
		case o&1 == 0:
			c.Fill++
		default:
			c.TX++
		}
	}
	return c
}

// Reserve makes a socket for a queue of an interface and sets aside the frames
// of its fill ring, so that Bind can be called from another goroutine. cfg
// gives the rings' sizes; frame size and number are the UMEM's. It fails if the
// UMEM has too few frames for one more socket.
func (u *UMEM) Reserve(ifindex, queue int, cfg Config) (*Socket, error) {
	cfg.FrameSize, cfg.Frames, cfg.HugePages = u.cfg.FrameSize, u.cfg.Frames, u.cfg.HugePages
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("reserve queue %d: %w", queue, err)
	}
	slot, need := -1, cfg.perSocket()
	for i, s := range u.sockets {
		switch {
		case s != nil && s.ifindex == ifindex && s.queue == queue:
			return nil, fmt.Errorf("reserve queue %d: this umem has a socket on it; close and reclaim that first", queue)
		case s != nil:
			need += s.cfg.perSocket()
		case slot < 0:
			slot = i
		}
	}
	if slot < 0 {
		return nil, fmt.Errorf("reserve queue %d: %d sockets on one umem is the limit", queue, maxSockets)
	}
	if need > u.cfg.Frames {
		return nil, fmt.Errorf("reserve queue %d: the rings of all sockets hold %d frames and the umem has %d; raise the number of frames", queue, need, u.cfg.Frames)
	}
	s := newSocket(u, slot, ifindex, queue, cfg)
	u.sockets[slot] = s
	s.prefill = make([]uint64, 0, cfg.Fill)
	for len(s.prefill) < cfg.Fill {
		c, ok := u.take(fillOwner(slot))
		if !ok {
			break
		}
		s.prefill = append(s.prefill, uint64(c)<<u.shift)
	}
	s.fillOwned = len(s.prefill)
	return s, nil
}

// Reclaim takes every frame back from a socket that the worker no longer uses
// and that is closed (or was never bound). It returns how many were on their way
// out (abandoned) and how many were with the fill side. Drivers that send straight
// from the UMEM's pages in copy mode (virtio_net) may still be sending an abandoned
// frame, which then leaves with what is next written to its chunk.
func (u *UMEM) Reclaim(s *Socket) (abandonedTX, fill int) {
	if u.sockets[s.slot] != s {
		return 0, 0
	}
	for c, o := range u.owner {
		switch o {
		case fillOwner(s.slot):
			fill++
		case txOwner(s.slot):
			abandonedTX++
		default:
			continue
		}
		u.give(uint32(c))
	}
	s.fillOwned, s.txOwned = 0, 0
	u.sockets[s.slot] = nil
	return abandonedTX, fill
}

// Close releases the memory. Every socket must have been closed before; one that
// is still open is an error and nothing is released.
func (u *UMEM) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.bound) > 0 {
		return fmt.Errorf("close umem: %d sockets are still open", len(u.bound))
	}
	if u.unmap == nil {
		return errors.New("close umem: already closed")
	}
	err := u.unmap()
	u.unmap, u.area, u.owner, u.free = nil, nil, nil, nil
	if err != nil {
		return fmt.Errorf("close umem: %w", err)
	}
	return nil
}

package xsk

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Stats are the counters of a socket since Bind.
type Stats struct {
	// Counted by the kernel (struct xdp_statistics in linux/if_xdp.h).
	RXDropped  uint64 // frames it had no chunk or no room for, besides RXRingFull
	RXRingFull uint64 // frames dropped because Receive was not called in time
	RXInvalid  uint64 // bad addresses on the fill ring
	TXInvalid  uint64 // bad descriptors on the TX ring
	FillEmpty  uint64 // times it found the fill ring empty
	TXEmpty    uint64 // times it found the TX ring empty

	// Counted here.
	Kicks, KicksSaved uint64 // transmit kicks made, and not made because the flag was clear
	Wakes, WakesSaved uint64 // the same for the receive side
	InvalidRX         uint64 // addresses on the RX ring that it may not hold
	InvalidTX         uint64 // descriptors the worker may not or cannot transmit
	InvalidCompletion uint64 // addresses on the completion ring that it may not hold
	KickErrors        KickErrors
}

// KickErrors counts what kicks and wake-ups were answered with.
type KickErrors struct {
	Again, Busy, NoBufs, NetDown, Interrupted uint64
	Other                                     uint64
	LastOther                                 syscall.Errno // the latest of Other; 0 if none
}

// Stats may be called from any goroutine, also after Close, when the kernel's
// part is 0. The error is the kernel's refusal to tell its part; the rest is valid.
func (s *Socket) Stats() (Stats, error) {
	c := &s.count
	st := Stats{
		Kicks: c.kicks.Load(), KicksSaved: c.kicksSaved.Load(),
		Wakes: c.wakes.Load(), WakesSaved: c.wakesSaved.Load(),
		InvalidRX: c.invalidRX.Load(), InvalidTX: c.invalidTX.Load(), InvalidCompletion: c.invalidCompletion.Load(),
		KickErrors: KickErrors{
			Again: c.again.Load(), Busy: c.busy.Load(), NoBufs: c.noBufs.Load(), NetDown: c.netDown.Load(),
			Interrupted: c.interrupted.Load(), Other: c.other.Load(), LastOther: syscall.Errno(c.lastOther.Load()),
		},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open {
		return st, nil
	}
	k, err := getOption[unix.XDPStatistics](s.fd, unix.XDP_STATISTICS)
	if err != nil {
		return st, fmt.Errorf("read statistics of queue %d: %w", s.queue, err)
	}
	st.RXDropped, st.RXInvalid, st.TXInvalid = k.Rx_dropped, k.Rx_invalid_descs, k.Tx_invalid_descs
	st.RXRingFull, st.FillEmpty, st.TXEmpty = k.Rx_ring_full, k.Rx_fill_ring_empty_descs, k.Tx_ring_empty_descs
	return st, nil
}

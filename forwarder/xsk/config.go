package xsk

import (
	"errors"
	"fmt"
)

// Mode says how frames get between the driver and the UMEM.
type Mode uint8

const (
	// ModeAuto takes zero-copy where driver and queue allow it, else copy.
	ModeAuto Mode = iota
	// ModeZeroCopy lets the NIC read and write the UMEM itself, or fails.
	ModeZeroCopy
	// ModeCopy lets the kernel copy each frame once per direction.
	ModeCopy
)

// String returns the name used in configuration and status.
func (m Mode) String() string {
	switch m {
	case ModeAuto:
		return "auto"
	case ModeZeroCopy:
		return "zero-copy"
	case ModeCopy:
		return "copy"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// HugePages says whether a UMEM lies on huge pages, which save address
// translations and, for zero-copy drivers, DMA mappings.
type HugePages uint8

const (
	// HugePagesAuto tries huge pages and falls back to normal pages.
	HugePagesAuto HugePages = iota
	// HugePagesOff uses normal pages.
	HugePagesOff
	// HugePagesOn fails without huge pages.
	HugePagesOn
)

const (
	// Headroom is the number of bytes the kernel leaves free in front of each
	// received frame (XDP_PACKET_HEADROOM in linux/bpf.h).
	Headroom = 256

	ethHeaderLen = 14
	maxVLANsLen  = 8 // two 802.1Q tags

	minFrameSize = 2048 // XDP_UMEM_MIN_CHUNK_SIZE in net/xdp/xdp_umem.c
	maxFrameSize = 4096 // one page: aligned chunks may not cross one
	maxRing      = 1 << 15
	maxUMEMBytes = 1<<32 - 1 // a library descriptor's length has 32 bits
	minTXBudget  = 32        // TX_BATCH_SIZE in net/xdp/xsk.c
)

// Config sizes a UMEM and each socket on it. Ring sizes are powers of two.
type Config struct {
	FrameSize int // bytes per chunk: 2048 or 4096
	Frames    int // chunks of the UMEM, for all of its sockets together
	Fill      int // fill ring, at least twice RX
	RX        int // receive ring
	TX        int // transmit ring; the completion ring has the same size
	Batch     int // frames the kernel may send in one kick in copy mode, 32 to TX
	Mode      Mode
	HugePages HugePages
	// NoWait refuses a busy queue at once, instead of trying for 0.3 seconds:
	// for callers that try again themselves.
	NoWait bool
}

// DefaultConfig returns the sizes for one socket: 16 MiB of frames.
func DefaultConfig() Config {
	return Config{FrameSize: 2048, Frames: 8192, Fill: 4096, RX: 2048, TX: 2048, Batch: 64}
}

// MaxMTU returns the largest interface MTU in bytes whose frames, with two
// 802.1Q tags, fit a chunk of frameSize bytes beside the headroom. The driver
// may allow less: XDP without multi-buffer ends near 3.5 KB on 4 KB pages.
func MaxMTU(frameSize int) int {
	return frameSize - Headroom - ethHeaderLen - maxVLANsLen
}

// Validate reports every size that is out of range, joined in one error.
func (c Config) Validate() error {
	var errs []error
	if c.FrameSize != minFrameSize && c.FrameSize != maxFrameSize {
		errs = append(errs, fmt.Errorf("frame size %d: use %d (MTU up to %d) or %d (MTU up to %d)",
			c.FrameSize, minFrameSize, MaxMTU(minFrameSize), maxFrameSize, MaxMTU(maxFrameSize)))
	}
	for _, r := range []struct {
		name string
		n    int
	}{{"fill", c.Fill}, {"RX", c.RX}, {"TX", c.TX}} {
		if !powerOfTwo(r.n) || r.n < minTXBudget || r.n > maxRing {
			errs = append(errs, fmt.Errorf("%s ring of %d: use a power of two from %d to %d", r.name, r.n, minTXBudget, maxRing))
		}
	}
	if c.Fill < 2*c.RX {
		errs = append(errs, fmt.Errorf("fill ring of %d: use at least twice the RX ring, %d", c.Fill, 2*c.RX))
	}
	if c.Frames < c.perSocket() {
		errs = append(errs, fmt.Errorf("%d frames: use at least %d, the fill, RX and TX rings together", c.Frames, c.perSocket()))
	}
	if bytes := int64(c.Frames) * int64(c.FrameSize); bytes > maxUMEMBytes {
		errs = append(errs, fmt.Errorf("%d frames of %d bytes: use less than 4 GiB in all", c.Frames, c.FrameSize))
	}
	if c.Batch < minTXBudget || c.Batch > c.TX {
		errs = append(errs, fmt.Errorf("batch of %d: use %d to the TX ring's %d", c.Batch, minTXBudget, c.TX))
	}
	if c.Mode > ModeCopy {
		errs = append(errs, fmt.Errorf("mode %d: use auto, zero-copy or copy", c.Mode))
	}
	if c.HugePages > HugePagesOn {
		errs = append(errs, fmt.Errorf("huge pages %d: use auto, off or on", c.HugePages))
	}
	return errors.Join(errs...)
}

// perSocket is the number of frames one socket can hold at once. The completion
// ring adds none: a frame on it still counts against the TX ring's size, which
// is also why it cannot overflow.
func (c Config) perSocket() int { return c.Fill + c.RX + c.TX }

func powerOfTwo(n int) bool { return n > 0 && n&(n-1) == 0 }

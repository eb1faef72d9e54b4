package xsk

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// rings are the four rings of one socket over shared mappings.
type rings struct {
	rx       consumer[Desc]
	tx       producer[Desc]
	fill     producer[uint64]
	done     consumer[uint64]
	mappings [][]byte
}

// mapFrom maps the rings of fd, whose sizes must be those of cfg. After an error
// unmap releases what was mapped.
func (r *rings) mapFrom(fd int, cfg Config) error {
	off, err := getOption[unix.XDPMmapOffsets](fd, unix.XDP_MMAP_OFFSETS)
	if err != nil {
		return fmt.Errorf("read ring offsets: %w", err)
	}
	openMu.Lock()
	defer openMu.Unlock()
	var errs [4]error
	r.rx.ringMemory, errs[0] = mapRing[Desc](r, fd, unix.XDP_PGOFF_RX_RING, off.Rx, cfg.RX)
	r.tx.ringMemory, errs[1] = mapRing[Desc](r, fd, unix.XDP_PGOFF_TX_RING, off.Tx, cfg.TX)
	r.fill.ringMemory, errs[2] = mapRing[uint64](r, fd, unix.XDP_UMEM_PGOFF_FILL_RING, off.Fr, cfg.Fill)
	r.done.ringMemory, errs[3] = mapRing[uint64](r, fd, unix.XDP_UMEM_PGOFF_COMPLETION_RING, off.Cr, cfg.TX)
	return errors.Join(errs[:]...)
}

func mapRing[T slot](r *rings, fd int, pageOffset int64, off unix.XDPRingOffset, n int) (ringMemory[T], error) {
	mem, err := unix.Mmap(fd, pageOffset, ringBytes[T](off, n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return ringMemory[T]{}, fmt.Errorf("map ring at %#x: %w", pageOffset, err)
	}
	r.mappings = append(r.mappings, mem)
	return ringAt[T](mem, off, n)
}

func (r *rings) unmap() error {
	var errs []error
	for _, m := range r.mappings {
		if err := unix.Munmap(m); err != nil {
			errs = append(errs, fmt.Errorf("unmap ring: %w", err))
		}
	}
	r.mappings = nil
	return errors.Join(errs...)
}

const hugePageBytes = 2 << 20 // the default size on amd64 and arm64 with 4 KiB pages

// hugeArea maps bytes of memory on huge pages, rounded up to whole ones, and
// returns how to unmap it.
func hugeArea(bytes int) (area []byte, unmap func() error, err error) {
	rounded := (bytes + hugePageBytes - 1) &^ (hugePageBytes - 1)
	mem, err := unix.Mmap(-1, 0, rounded, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB|unix.MAP_POPULATE)
	if err != nil {
		return nil, nil, fmt.Errorf("map %d MiB on huge pages: %w; reserve %d of them in /proc/sys/vm/nr_hugepages",
			rounded>>20, err, rounded/hugePageBytes)
	}
	return mem[:bytes:bytes], func() error { return unix.Munmap(mem) }, nil
}

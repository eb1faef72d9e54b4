package xsk

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A queue stays busy for some 20 ms after its socket was closed, because the
// kernel releases it from a work queue; after the death of a process it took
// over a second once. Whoever opens queues tries again later than that.
const (
	busyPatience = 300 * time.Millisecond
	busyPause    = 5 * time.Millisecond
)

// Join binds a further socket on the UMEM to a queue of an interface, with the
// ring sizes and mode of the UMEM's own configuration. The worker calls it; to
// bind without blocking the worker meanwhile, use Reserve and Bind.
// On failure every frame is back on the free stack.
func (u *UMEM) Join(ifindex, queue int) (*Socket, error) {
	s, err := u.Reserve(ifindex, queue, u.cfg)
	if err != nil {
		return nil, err
	}
	if err := s.Bind(); err != nil {
		u.Reclaim(s)
		return nil, err
	}
	return s, nil
}

// Bind opens a reserved socket: it shares the UMEM through any socket on it that
// is still bound and, if there is none (all closed, or their devices are gone),
// registers the memory afresh. Any goroutine may call it, before the worker uses
// the socket. The fill ring is full before the queue starts, since some drivers
// stay deaf otherwise.
//
// The kernel binds all sockets that share memory in one mode, whatever they ask
// for. Where that is not the mode this one would get with memory of its own, the
// error is ErrCannotShare.
//
// A busy queue is tried again for 0.3 seconds. After an error the socket may be
// bound again, or given to UMEM.Reclaim.
func (s *Socket) Bind() error {
	if s.prefill == nil {
		return fmt.Errorf("bind queue %d: the socket was bound before", s.queue)
	}
	for deadline := time.Now().Add(busyPatience); ; time.Sleep(busyPause) {
		err := s.bindOnce()
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || s.cfg.NoWait || time.Now().After(deadline) {
			return explain(s.ifindex, s.queue, err)
		}
	}
}

// bindOnce holds the UMEM's lock throughout, so that the socket that introduces
// this one is not closed meanwhile.
func (s *Socket) bindOnce() error {
	u := s.umem
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, ref := range u.bound {
		if err := s.suits(ref.mode); err != nil {
			return err
		}
		err := s.openOwn(false, unix.SockaddrXDP{Flags: unix.XDP_SHARED_UMEM, SharedUmemFD: uint32(ref.fd)})
		switch {
		case errors.Is(err, unix.EBADF): // the device of ref is gone
			continue
		case errors.Is(err, unix.EOPNOTSUPP):
			return fmt.Errorf("%w: %w", ErrCannotShare, err)
		}
		return err
	}
	return inMode(s.cfg.Mode, &s.reason, func(flags uint16) error {
		return s.openOwn(true, unix.SockaddrXDP{Flags: flags})
	})
}

// suits reports whether to share memory that is in use in mode have. A socket of
// ModeAuto shares memory in copy mode only where zero-copy is refused, which it
// then remembers as the reason.
func (s *Socket) suits(have Mode) error {
	s.reason = ""
	switch {
	case s.cfg.Mode == have, s.cfg.Mode == ModeAuto && have == ModeZeroCopy:
		return nil
	case s.cfg.Mode != ModeAuto:
		return fmt.Errorf("%w: %v is asked for, and it is used in %v", ErrCannotShare, s.cfg.Mode, have)
	}
	refused, err := zeroCopyRefused(s.ifindex, s.queue, s.cfg.FrameSize)
	if err == nil && refused == nil {
		err = fmt.Errorf("%w: the interface has zero-copy, and it is used in %v", ErrCannotShare, have)
	}
	if err == nil {
		s.reason = noZeroCopy(refused)
	}
	return err
}

// zeroCopyRefused binds a queue in zero-copy mode, with a little memory of its
// own, and says why that is refused; nil if it is not. The queue is then busy
// for a moment more.
func zeroCopyRefused(ifindex, queue, frameSize int) (refused, err error) {
	const ring = 2 * minTXBudget
	cfg := Config{FrameSize: frameSize, Frames: 4 * ring, Fill: 2 * ring, RX: ring, TX: ring, Batch: minTXBudget, Mode: ModeZeroCopy}
	area, err := unix.Mmap(-1, 0, cfg.Frames*frameSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("try zero-copy: map memory: %w", err)
	}
	u, err := newUMEM(area, cfg, func() error { return unix.Munmap(area) })
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(area))
	}
	s, err := u.Reserve(ifindex, queue, cfg)
	if err != nil {
		return nil, errors.Join(err, u.Close())
	}
	refused = s.bindOnce()
	if errors.Is(refused, unix.EBUSY) { // says nothing of the mode
		err = refused
	}
	return refused, errors.Join(err, s.Close(), u.Close())
}

// noZeroCopy is the reason to give for copy mode.
func noZeroCopy(err error) string { return fmt.Sprintf("zero-copy refused: %v", err) }

// inMode calls bind with the flags for a mode. In ModeAuto it asks for zero-copy
// first and keeps the reason why that was refused.
func inMode(m Mode, reason *string, bind func(flags uint16) error) error {
	*reason = ""
	if m != ModeCopy {
		err := bind(unix.XDP_ZEROCOPY | unix.XDP_USE_NEED_WAKEUP)
		if err == nil || m == ModeZeroCopy || errors.Is(err, unix.EBUSY) {
			return err
		}
		*reason = noZeroCopy(err)
	}
	return bind(unix.XDP_COPY | unix.XDP_USE_NEED_WAKEUP)
}

// openOwn creates, fills and binds a socket of ours; register makes the UMEM's
// memory known first instead of sharing it.
func (s *Socket) openOwn(register bool, addr unix.SockaddrXDP) (err error) {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("create socket: %w", err)
	}
	r := &rings{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.unmap(), unix.Close(fd))
		}
	}()
	if register {
		if err := registerUMEM(fd, s.umem.area, s.umem.FrameSize()); err != nil {
			return fmt.Errorf("register umem: %w", err)
		}
	}
	for _, o := range []struct{ option, size int }{
		{unix.XDP_UMEM_FILL_RING, s.cfg.Fill},
		{unix.XDP_UMEM_COMPLETION_RING, s.cfg.TX},
		{unix.XDP_RX_RING, s.cfg.RX},
		{unix.XDP_TX_RING, s.cfg.TX},
	} {
		if err := unix.SetsockoptInt(fd, unix.SOL_XDP, o.option, o.size); err != nil {
			return fmt.Errorf("make ring of %d (option %d): %w", o.size, o.option, err)
		}
	}
	if err := r.mapFrom(fd, s.cfg); err != nil {
		return err
	}
	for range r.fill.room(len(s.prefill)) {
		r.fill.push(s.prefill[r.fill.next])
	}
	r.fill.publish()
	addr.Ifindex, addr.QueueID = uint32(s.ifindex), uint32(s.queue)
	if err := unix.Bind(fd, &addr); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if err := s.install(fd, r, func() error { return unix.Close(fd) }); err != nil {
		return err
	}
	s.wakeRX(true)
	return nil
}

// install makes a bound descriptor and its rings the socket's own. closeFD gives
// the descriptor up; the rings are unmapped before, as a mapping keeps a queue
// bound. The caller holds the UMEM's lock.
func (s *Socket) install(fd int, r *rings, closeFD func() error) error {
	granted, err := getOption[uint32](fd, unix.XDP_OPTIONS)
	if err != nil {
		return fmt.Errorf("read the mode obtained: %w", err)
	}
	s.mode, s.copies = ModeCopy, true
	if granted&unix.XDP_OPTIONS_ZEROCOPY != 0 {
		s.mode, s.copies = ModeZeroCopy, false
	}
	// Kernels before 6.17 do not know the option and send 32 frames per kick; Kick
	// repeats until the ring is empty, so the refusal costs system calls only.
	_ = unix.SetsockoptInt(fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, s.cfg.Batch)

	s.rx, s.tx, s.fill, s.done = r.rx, r.tx, r.fill, r.done
	s.prefill = nil
	s.release = func() error { return errors.Join(r.unmap(), closeFD()) }
	s.mu.Lock()
	s.fd, s.open = fd, true
	s.mu.Unlock()
	s.umem.bound = append(s.umem.bound, s)
	return nil
}

// Close unbinds the queue. Any goroutine may call it once the worker has stopped
// using the socket; UMEM.Reclaim then takes its frames back. Closing twice, or a
// socket that was never bound, does nothing.
func (s *Socket) Close() error {
	u := s.umem
	u.mu.Lock()
	defer u.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open {
		return nil
	}
	s.open = false
	u.bound = slices.DeleteFunc(u.bound, func(o *Socket) bool { return o == s })
	err := s.release()
	s.fd, s.release = -1, nil
	if err != nil {
		return fmt.Errorf("close queue %d: %w", s.queue, err)
	}
	return nil
}

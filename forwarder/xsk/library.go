package xsk

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/asavie/xdp"
	"golang.org/x/sys/unix"
)

// This file is the only one that knows github.com/asavie/xdp, and uses of it
// NewSocket, FD, GetFrame and Close. The library creates the memory and the first
// socket; what it would do to its user is kept in here:
//   - the bind flags are a package global: openMu guards it;
//   - errors are text: errnoOf finds the number again;
//   - its mappings of the rings are never released, neither by Close nor after a
//     failure, and keep the queue busy: they are unmapped at once;
//   - Close gives up socket and memory together, while here the memory outlives
//     the first socket: closing puts /dev/null in the descriptor's place, and the
//     library's Close then ends just that and the memory.

// openMu is held around NewSocket, and wherever this package maps rings of its
// own, so that new mappings can be told apart. It is taken after a UMEM's lock.
var openMu sync.Mutex

// OpenPrimary makes a UMEM and its first socket, on one queue of an interface.
// The calling goroutine owns both until it hands them to a worker. A busy queue is
// tried again for 0.3 seconds; errors say what can be done.
//
// Closing the first socket does not end the UMEM: further ones can Join it.
func OpenPrimary(ifindex, queue int, cfg Config) (*UMEM, *Socket, error) {
	if err := cfg.Validate(); err != nil {
		return nil, nil, fmt.Errorf("open queue %d: %w", queue, err)
	}
	raiseMemlock()
	note := ""
	if cfg.HugePages != HugePagesOff {
		area, unmap, err := hugeArea(cfg.Frames * cfg.FrameSize)
		if err == nil {
			return openOn(area, unmap, ifindex, queue, cfg)
		}
		if cfg.HugePages == HugePagesOn {
			return nil, nil, fmt.Errorf("open queue %d: %w", queue, err)
		}
		note = err.Error()
	}
	for deadline := time.Now().Add(busyPatience); ; time.Sleep(busyPause) {
		u, s, err := openByLibrary(ifindex, queue, cfg)
		if err == nil {
			u.note = note
			return u, s, nil
		}
		if !errors.Is(err, unix.EBUSY) || cfg.NoWait || time.Now().After(deadline) {
			return nil, nil, explain(ifindex, queue, err)
		}
	}
}

// openOn makes a UMEM of memory the library cannot give, huge pages.
func openOn(area []byte, unmap func() error, ifindex, queue int, cfg Config) (*UMEM, *Socket, error) {
	u, err := newUMEM(area, cfg, unmap)
	if err != nil {
		return nil, nil, errors.Join(err, unmap())
	}
	s, err := u.Join(ifindex, queue)
	if err != nil {
		return nil, nil, errors.Join(err, u.Close())
	}
	return u, s, nil
}

// openByLibrary makes one attempt. The library binds before the fill ring can be
// filled, so it is filled and the driver woken as soon as possible afterwards.
func openByLibrary(ifindex, queue int, cfg Config) (*UMEM, *Socket, error) {
	var lib *xdp.Socket
	reason := ""
	err := inMode(cfg.Mode, &reason, func(flags uint16) (err error) {
		lib, err = newLibrarySocket(ifindex, queue, cfg, flags)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	area := lib.GetFrame(xdp.Desc{Len: uint32(cfg.Frames * cfg.FrameSize)})
	u, err := newUMEM(area[:len(area):len(area)], cfg, lib.Close)
	if err != nil {
		return nil, nil, errors.Join(err, lib.Close())
	}
	s := newSocket(u, 0, ifindex, queue, cfg)
	s.reason = reason
	r := &rings{}
	if err := r.mapFrom(lib.FD(), cfg); err != nil {
		return nil, nil, errors.Join(err, r.unmap(), lib.Close())
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := s.install(lib.FD(), r, func() error { return replaceDescriptor(lib.FD()) }); err != nil {
		return nil, nil, errors.Join(err, r.unmap(), lib.Close())
	}
	u.sockets[0] = s
	s.Fill()
	s.wakeRX(true)
	return u, s, nil
}

// newLibrarySocket calls NewSocket with bind flags and leaves none of the
// library's ring mappings behind, whether it succeeds or not.
func newLibrarySocket(ifindex, queue int, cfg Config, flags uint16) (lib *xdp.Socket, err error) {
	openMu.Lock()
	defer openMu.Unlock()
	before, err := ringMappings()
	if err != nil {
		return nil, err
	}
	defer func() {
		if p := recover(); p != nil {
			lib, err = nil, fmt.Errorf("af_xdp library: %v", p)
		}
		if cleanErr := unmapLeaked(before, lib != nil); cleanErr != nil {
			err = errors.Join(err, cleanErr)
			if lib != nil {
				err = errors.Join(err, lib.Close())
				lib = nil
			}
		}
	}()
	// The library opens its descriptor without close-on-exec; the lock keeps a
	// child from being started before that is made good.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	xdp.DefaultSocketFlags = flags
	lib, err = xdp.NewSocket(ifindex, queue, &xdp.SocketOptions{
		NumFrames: cfg.Frames, FrameSize: cfg.FrameSize,
		FillRingNumDescs: cfg.Fill, CompletionRingNumDescs: cfg.TX,
		RxRingNumDescs: cfg.RX, TxRingNumDescs: cfg.TX,
	})
	if err != nil {
		return nil, errnoOf(err)
	}
	syscall.CloseOnExec(lib.FD())
	return lib, nil
}

// replaceDescriptor closes the file behind fd and keeps the number taken, by
// /dev/null, so that whoever closes the number later hits no one else's file.
func replaceDescriptor(fd int) error {
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/null: %w", err)
	}
	defer unix.Close(null)
	if err := unix.Dup3(null, fd, unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("replace socket: %w", err)
	}
	return nil
}

// errnoOf makes the error number that the library turned into text an error
// again, with what was being done in our words instead of the library's. All
// texts of error numbers are distinct at the end of a message.
func errnoOf(err error) error {
	text := err.Error()
	for e := syscall.Errno(1); e < 134; e++ {
		if strings.HasSuffix(text, ": "+e.Error()) {
			return fmt.Errorf("%s: %w", stepOf(text), e)
		}
	}
	return err
}

// stepOf is what the library was doing when it failed.
func stepOf(text string) string {
	for _, s := range []struct{ word, step string }{
		{"SockaddrXDP", "bind"}, {"syscall.Socket", "create socket"}, {"XDP_UMEM_REG", "register umem"},
		{"PGOFF", "map a ring"}, {"_RING", "make a ring"}, {"XDP_MMAP_OFFSETS", "find the rings"}, {"Mmap", "take memory for frames"},
	} {
		if strings.Contains(text, s.word) {
			return s.step
		}
	}
	return "make the socket"
}

// ringMapping is one mapping of a socket in this process.
type ringMapping struct {
	start, end uintptr
	inode      uint64
	offset     uint64
}

// ringMappings lists the mappings of sockets at the offsets of AF_XDP rings.
func ringMappings() (map[ringMapping]bool, error) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, fmt.Errorf("look for ring mappings: %w", err)
	}
	defer f.Close()
	found := map[ringMapping]bool{}
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		// address range, permissions, offset, device, inode, path (proc_pid_maps(5))
		field := strings.Fields(sc.Text())
		if len(field) != 6 || !strings.HasPrefix(field[5], "socket:[") {
			continue
		}
		lo, hi, _ := strings.Cut(field[0], "-")
		start, err1 := strconv.ParseUint(lo, 16, 64)
		end, err2 := strconv.ParseUint(hi, 16, 64)
		offset, err3 := strconv.ParseUint(field[2], 16, 64)
		inode, err4 := strconv.ParseUint(field[4], 10, 64)
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			return nil, fmt.Errorf("look for ring mappings: %w", err)
		}
		found[ringMapping{uintptr(start), uintptr(end), inode, offset}] = true
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("look for ring mappings: %w", err)
	}
	return found, nil
}

// unmapLeaked unmaps the rings the library mapped since before was listed. They
// are those of the socket whose fill ring appeared: the library maps that first,
// no other kind of socket has a mapping at its offset, and openMu keeps our own
// from appearing meanwhile. ok says that NewSocket succeeded, so all four exist.
func unmapLeaked(before map[ringMapping]bool, ok bool) error {
	now, err := ringMappings()
	if err != nil {
		return err
	}
	inodes := map[uint64]bool{}
	for m := range now {
		if !before[m] && m.offset == unix.XDP_UMEM_PGOFF_FILL_RING {
			inodes[m.inode] = true
		}
	}
	n := 0
	for m := range now {
		if !inodes[m.inode] {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MUNMAP, m.start, m.end-m.start, 0); errno != 0 {
			return fmt.Errorf("unmap the library's ring: %w", errno)
		}
		n++
	}
	if ok && n != 4 {
		return fmt.Errorf("unmap the library's rings: found %d of 4", n)
	}
	return nil
}

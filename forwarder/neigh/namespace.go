package neigh

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// holdNamespace returns a handle of its own on ns, or on the calling thread's
// network namespace if ns is 0. The caller closes it.
func holdNamespace(ns netns.NsHandle) (netns.NsHandle, error) {
	if ns == 0 {
		held, err := netns.Get()
		if err != nil {
			return netns.None(), fmt.Errorf("get the current network namespace: %w", err)
		}
		return held, nil
	}
	fd, err := unix.FcntlInt(uintptr(ns), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return netns.None(), fmt.Errorf("duplicate network namespace handle %d: %w", int(ns), err)
	}
	return netns.NsHandle(fd), nil
}

// inNamespace runs f in the network namespace ns and waits for it. Sockets
// made by f stay in ns.
//
// Entering a namespace needs CAP_SYS_ADMIN even if it is the one a thread is
// in already, so that case, the usual one, is told apart and needs nothing.
// Otherwise f gets a thread of its own that is never handed back (a locked
// goroutine that ends takes its thread along), so that a namespace that cannot
// be left again spoils nothing.
func inNamespace(ns netns.NsHandle, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if inside(ns) {
			result <- f()
			runtime.UnlockOSThread()
			return
		}
		if err := netns.Set(ns); err != nil {
			result <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		result <- f()
	}()
	return <-result
}

// inside reports whether the calling thread is in ns.
func inside(ns netns.NsHandle) bool {
	current, err := netns.Get()
	if err != nil {
		return false
	}
	defer current.Close()
	return current.Equal(ns)
}

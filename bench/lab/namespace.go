package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// netnsDir is where iproute2 keeps the names of network namespaces.
const netnsDir = "/run/netns"

// namespace is one named network namespace. The open file keeps it alive and
// is what threads enter; the bind mount gives it its name.
type namespace struct {
	name string
	file *os.File
	ino  uint64 // inode in nsfs: tells whether a name still means this namespace
}

// newNamespace makes a network namespace and binds it to name. The name must
// not exist.
func newNamespace(name string) (*namespace, error) {
	if err := prepareNetnsDir(); err != nil {
		return nil, err
	}
	path := filepath.Join(netnsDir, name)
	mark, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return nil, fmt.Errorf("name namespace %s: %w", name, err)
	}
	mark.Close()

	made := make(chan error, 1)
	go func() {
		// Never unlocked: the thread that was moved ends with this goroutine.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- fmt.Errorf("create network namespace: %w", err)
			return
		}
		made <- unix.Mount("/proc/thread-self/ns/net", path, "none", unix.MS_BIND, "")
	}()
	if err := <-made; err != nil {
		os.Remove(path)
		return nil, fmt.Errorf("namespace %s: %w", name, err)
	}
	ns, err := openNamespace(name)
	if err != nil {
		removeName(name)
		return nil, err
	}
	return ns, nil
}

// openNamespace opens a namespace by its name.
func openNamespace(name string) (*namespace, error) {
	file, err := os.Open(filepath.Join(netnsDir, name))
	if err != nil {
		return nil, fmt.Errorf("open namespace: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		file.Close()
		return nil, fmt.Errorf("open namespace %s: %w", name, err)
	}
	return &namespace{name: name, file: file, ino: st.Ino}, nil
}

// prepareNetnsDir makes /run/netns a shared mount of its own, as iproute2
// does. Names made in one mount namespace are then seen, and given up, in the
// others; otherwise a process started under `ip netns exec` would keep every
// namespace alive that existed when it started.
// Two processes must not both make the first mount, one upon the other.
func prepareNetnsDir() error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return fmt.Errorf("prepare %s: %w", netnsDir, err)
	}
	dir, err := os.Open(netnsDir)
	if err != nil {
		return fmt.Errorf("prepare %s: %w", netnsDir, err)
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil { // as iproute2 does
		return fmt.Errorf("lock %s: %w", netnsDir, err)
	}
	err = unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) { // not a mount point yet
		if err = unix.Mount(netnsDir, netnsDir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, "")
		}
	}
	if err != nil {
		return fmt.Errorf("prepare %s: %w", netnsDir, err)
	}
	return nil
}

// do runs fn on a thread that is inside the namespace, and waits for it.
// Goroutines that fn starts are not inside. A fn that ends its goroutine
// (testing.T.FailNow) ends the caller's as well.
func (ns *namespace) do(fn func() error) error {
	var err error
	returned := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = ns.enter(fn)
		returned = true
	}()
	<-done
	if !returned {
		runtime.Goexit()
	}
	return err
}

// enter moves the calling goroutine's thread into the namespace for the time
// of fn. If the way back fails the goroutine stays locked to its thread, and
// the thread ends with it; so only do may call it.
func (ns *namespace) enter(fn func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter namespace %s: %w", ns.name, err)
	}
	defer home.Close()
	if err := unix.Setns(int(ns.file.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter namespace %s: %w", ns.name, err)
	}
	defer func() {
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return fn()
}

// remove gives up the name and the file. The kernel destroys the namespace
// once its last socket and process are gone.
func (ns *namespace) remove() error {
	return errors.Join(ns.file.Close(), removeName(ns.name))
}

// removeName unbinds a name from its namespace. A name that is already gone is
// no error.
func removeName(name string) error {
	path := filepath.Join(netnsDir, name)
	if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove namespace %s: %w", name, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove namespace %s: %w", name, err)
	}
	return nil
}

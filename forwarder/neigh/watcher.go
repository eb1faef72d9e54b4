package neigh

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Options configure a Watcher.
type Options struct {
	// Interfaces are the names of the interfaces that frames are forwarded on,
	// present or not.
	Interfaces []string
	// Namespace is the network namespace to look at; 0 is that of the thread
	// that calls New. The watcher keeps a handle of its own.
	Namespace netns.NsHandle
	// SolicitRate is the highest number of neighbours the kernel is asked to
	// solicit or verify per second; 0 means 500.
	SolicitRate int

	receiveBufferLen int // tests make it small; 0 means receiveBufferLen
}

const (
	defaultSolicitRate = 500
	// requestTimeout bounds one request to the kernel, and so how long Run can
	// take to end. Requests take microseconds unless the kernel's RTNL lock is held.
	requestTimeout = 5 * time.Second
)

// Stats counts what a Watcher did since it was made.
type Stats struct {
	// Solicitations is the number of requests to the kernel to solicit or
	// verify a neighbour, and SolicitErrors how many of them it refused.
	Solicitations, SolicitErrors uint64
	// Overruns is the number of times events were lost or the event socket had
	// to be opened again; each made the watcher read everything anew.
	Overruns uint64
	// ReadErrors is the number of failed dumps and route look-ups. Each is
	// repeated within a second; what was known before stays valid until then.
	ReadErrors uint64
	// Views is the number of calls of onChange.
	Views uint64
}

// Watcher follows links and targets. Make one with New, then call Run.
type Watcher struct {
	namespace netns.NsHandle
	handle    *netlink.Handle
	ioctlFD   int
	events    *subscription
	release   sync.Once

	wake chan struct{} // holds one token when settings changed

	mu         sync.Mutex
	interfaces []string     // guarded by mu; replaced, never changed
	addrs      []netip.Addr // guarded by mu; replaced, never changed

	solicitations, solicitErrors, overruns, readErrors, views atomic.Uint64

	tracker // owned by Run's goroutine
}

// New opens the sockets needed, in the network namespace of o. It fails where
// netlink is not available. Reading the network needs no privilege; soliciting
// neighbours needs CAP_NET_ADMIN, and without it Stats.SolicitErrors counts.
//
// A Watcher that is not Run must be closed.
func New(o Options) (*Watcher, error) {
	ns, err := holdNamespace(o.Namespace)
	if err != nil {
		return nil, err
	}
	w := &Watcher{namespace: ns, ioctlFD: -1, wake: make(chan struct{}, 1)}
	err = inNamespace(ns, func() (err error) {
		if w.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("open rtnetlink: %w", err)
		}
		if err = w.handle.SetSocketTimeout(requestTimeout); err != nil {
			return fmt.Errorf("set the timeout of rtnetlink: %w", err)
		}
		w.ioctlFD, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open a socket for ethtool requests: %w", err)
		}
		return nil
	})
	if err == nil {
		if o.receiveBufferLen == 0 {
			o.receiveBufferLen = receiveBufferLen
		}
		w.events, err = subscribe(ns, o.receiveBufferLen)
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	if o.SolicitRate <= 0 {
		o.SolicitRate = defaultSolicitRate
	}
	w.tracker = newTracker(w, o.SolicitRate)
	w.SetInterfaces(o.Interfaces)
	return w, nil
}

// Close frees the sockets of a Watcher that is not running. Run does it by
// itself when it returns; closing twice is fine.
func (w *Watcher) Close() {
	w.release.Do(func() {
		if w.events != nil {
			w.events.discard()
		}
		if w.handle != nil {
			w.handle.Close()
		}
		if w.ioctlFD >= 0 {
			unix.Close(w.ioctlFD)
		}
		w.namespace.Close()
	})
}

// SetInterfaces replaces the interfaces that frames are forwarded on.
func (w *Watcher) SetInterfaces(names []string) {
	w.mu.Lock()
	w.interfaces = slices.Clone(names)
	w.mu.Unlock()
	w.signal()
}

// SetTargets replaces the addresses to follow. What is known about those that
// stay is kept. Duplicates and invalid addresses are left out.
func (w *Watcher) SetTargets(addrs []netip.Addr) {
	clean := make([]netip.Addr, 0, len(addrs))
	for _, addr := range addrs {
		if addr.IsValid() {
			clean = append(clean, addr.Unmap())
		}
	}
	slices.SortFunc(clean, netip.Addr.Compare)
	clean = slices.Compact(clean)
	w.mu.Lock()
	w.addrs = clean
	w.mu.Unlock()
	w.signal()
}

func (w *Watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *Watcher) settings() ([]string, []netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.interfaces, w.addrs
}

// Stats may be called from anywhere at any time.
func (w *Watcher) Stats() Stats {
	return Stats{
		Solicitations: w.solicitations.Load(),
		SolicitErrors: w.solicitErrors.Load(),
		Overruns:      w.overruns.Load(),
		ReadErrors:    w.readErrors.Load(),
		Views:         w.views.Load(),
	}
}

// Run follows the network until ctx ends, and then returns nil. It returns an
// error only if the network could not be read at the start; later failures are
// counted and repeated.
//
// onChange is called on Run's goroutine: first with every target looked up,
// then within 10 ms of a change, many changes together. While it runs, events
// wait.
//
// Run may be called once; it closes the Watcher when it returns.
func (w *Watcher) Run(ctx context.Context, onChange func(View)) error {
	defer w.Close()
	if err := w.readAll(time.Now()); err != nil {
		return err
	}
	w.applySettings(time.Now())
	w.lookUp(time.Now(), len(w.order))
	w.events.start()
	defer w.events.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
			w.applySettings(time.Now())
		case u := <-w.events.updates:
			w.applyEvents(u, time.Now())
		case <-timer.C:
		}
		if view, ok := w.work(time.Now()); ok {
			w.views.Add(1)
			onChange(view)
		}
		timer.Reset(time.Until(w.nextWork()))
	}
}

package xsk

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// ErrNoTCX says that the kernel cannot rewrite probes on their way out.
var ErrNoTCX = errors.New("the kernel has no tcx programs; Linux 6.6 or newer is needed")

// Probes are the connections that reach a backend under a forwarding rule's
// address, as clients do, although the kernel knows the backend's own address
// only. bpf/probe.h tells how. One Probes serves the programs of all interfaces.
//
// What it needs of the kernel, beside the classifier, is one program on the way
// out of an interface, on a tcx link (Linux 6.6), which dies with the process like
// the classifier's. The clsact queueing discipline would do on older kernels, but
// it and its filter outlive a crash, and would go on rewriting. Nothing else is
// taken: no socket mark, which the host's own routing and filter rules may have a
// meaning for, no routing table, no address, no neighbour entry.
//
// Safe for concurrent use.
type Probes struct {
	table *ebpf.Map

	mu       sync.RWMutex
	attached map[int]bool // by interface index: probes are rewritten there
}

// Probe is one connection.
type Probe struct {
	Interface int        // index of the one its packets leave by
	Backend   netip.Addr // where the socket is going to connect to
	Rule      netip.Addr // what the packets carry instead
	Port      uint16     // of both
	// Life is how long packets of the connection may be under way, from now: the
	// probe's timeout, and a minute more (TCP_TIMEWAIT_LEN in net/tcp.h) if the
	// connection is closed by this side first and without a reset.
	Life time.Duration
}

// probeKey and probeEntry are struct probe_key and struct probe of bpf/probe.h.
type probeKey struct {
	PortBE [2]byte
	IP6    uint16
}

type probeEntry struct {
	Backend, Rule addressKey
	Cookie        uint64
	UntilNanos    uint64 // CLOCK_MONOTONIC
	PortBE        [2]byte
	_             [3]uint16
}

// NewProbes makes the table of connections. It attaches nothing: see
// Program.SetProbing. The error is ErrNoTCX where the kernel is too old.
func NewProbes() (*Probes, error) {
	// The loopback interface has index 1 in every namespace.
	if _, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: ebpf.AttachTCXEgress}); err != nil {
		if errors.Is(err, unix.EINVAL) || errors.Is(err, ebpf.ErrNotSupported) {
			return nil, ErrNoTCX
		}
		return nil, fmt.Errorf("look for tcx programs: %w; %s", err, capabilityRemedy(loadCapabilities...))
	}
	if err := liftMemlock(); err != nil {
		return nil, err
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(classifierObject))
	if err != nil {
		return nil, fmt.Errorf("read the classifier: %w", err)
	}
	table, err := ebpf.NewMap(spec.Maps["probes"])
	if err != nil {
		return nil, fmt.Errorf("make the table of probes: %w", err)
	}
	return &Probes{table: table, attached: make(map[int]bool)}, nil
}

// Add makes fd, a TCP socket that is neither bound nor connected, the socket of a
// probe: it gets a local port that no other socket has, and its packets are
// rewritten from now on, whichever of the interfaces they leave by. It is an error
// if they would not be on the named one, since the backend would then be asked
// under its own address. An error leaves the socket unusable.
func (p *Probes) Add(fd int, c Probe) error {
	p.mu.RLock()
	attached := p.attached[c.Interface]
	p.mu.RUnlock()
	if !attached {
		return fmt.Errorf("probes of rule addresses are not rewritten on %s yet", interfaceName(c.Interface))
	}
	key, err := ownPort(fd, c.Backend)
	if err != nil {
		return err
	}
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		return os.NewSyscallError("getsockopt SO_COOKIE", err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return os.NewSyscallError("clock_gettime", err)
	}
	e := probeEntry{
		Backend: c.Backend.As16(), Rule: c.Rule.As16(), Cookie: cookie,
		UntilNanos: uint64(now.Nano() + int64(c.Life)), PortBE: bigEndian(c.Port),
	}
	if err := p.table.Put(key, e); err != nil {
		return fmt.Errorf("write probe of %s as %s: %w", c.Backend, c.Rule, err)
	}
	return nil
}

// ownPort binds fd to a free port of the kernel's choice. Unlike the port that a
// connect chooses, it is not shared with sockets that connect elsewhere.
func ownPort(fd int, like netip.Addr) (probeKey, error) {
	any := unix.Sockaddr(&unix.SockaddrInet4{})
	if like.Is6() {
		any = &unix.SockaddrInet6{}
	}
	if err := unix.Bind(fd, any); err != nil {
		return probeKey{}, os.NewSyscallError("bind", err)
	}
	local, err := unix.Getsockname(fd)
	if err != nil {
		return probeKey{}, os.NewSyscallError("getsockname", err)
	}
	switch a := local.(type) {
	case *unix.SockaddrInet4:
		return probeKey{PortBE: bigEndian(uint16(a.Port))}, nil
	case *unix.SockaddrInet6:
		return probeKey{PortBE: bigEndian(uint16(a.Port)), IP6: 1}, nil
	}
	return probeKey{}, fmt.Errorf("socket has a local address of type %T", local)
}

func bigEndian(v uint16) [2]byte { return [2]byte{byte(v >> 8), byte(v)} }

// Close frees the table. Programs attached with it keep their reference. There is
// nothing to close of nil.
func (p *Probes) Close() error {
	if p == nil {
		return nil
	}
	if err := p.table.Close(); err != nil {
		return fmt.Errorf("close the table of probes: %w", err)
	}
	return nil
}

// set records whether probes are rewritten on an interface.
func (p *Probes) set(ifindex int, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		p.attached[ifindex] = true
	} else {
		delete(p.attached, ifindex)
	}
}

// SetProbing says whether probes of rule addresses leave by the interface. Only
// then is the program for the way out attached, and are replies looked at. On a
// program that was attached without Probes it can only be off.
func (p *Program) SetProbing(on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on == (p.egress != nil) {
		return nil
	}
	if !on {
		p.probes.set(p.ifindex, false)
		err := p.egress.Close()
		p.egress = nil
		p.settings.Probing = 0
		return errors.Join(wrapIf("stop rewriting probes", err), p.writeSettings())
	}
	if p.probes == nil {
		return fmt.Errorf("rewrite probes on %s: %w", interfaceName(p.ifindex), ErrNoTCX)
	}
	p.settings.Probing = 1
	if err := p.writeSettings(); err != nil {
		return err
	}
	l, err := link.AttachTCX(link.TCXOptions{Program: p.objects.ProbeOut, Interface: p.ifindex, Attach: ebpf.AttachTCXEgress})
	if err != nil {
		return fmt.Errorf("rewrite probes on %s: %w", interfaceName(p.ifindex), err)
	}
	p.egress = l
	p.probes.set(p.ifindex, true)
	return nil
}

// settings is struct settings of bpf/classifier.c.
type settings struct {
	MAC     uint64
	Probing uint32
	_       uint32
}

func (p *Program) writeSettings() error {
	return wrapIf("write settings", p.objects.Settings.Put(uint32(0), p.settings))
}

func wrapIf(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

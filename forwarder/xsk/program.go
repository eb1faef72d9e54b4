package xsk

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

//go:generate bpf/build.sh

// classifierObject is bpf/classifier.c, compiled by bpf/build.sh.
//
//go:embed bpf/classifier.o
var classifierObject []byte

// MaxQueues is the number of receive queues the program distinguishes on one
// interface.
const MaxQueues = 1024 // MAX_QUEUES in bpf/classifier.c

// AttachMode says where the program runs.
type AttachMode uint8

const (
	// Native runs the program in the driver, before the kernel makes a packet of
	// the frame.
	Native AttachMode = iota
	// Generic runs it behind that, on any interface, several times slower.
	Generic
)

// Program is the classifier (bpf/classifier.c) on one interface, with maps of its
// own. It is safe for concurrent use.
//
// It hangs on a BPF link, which dies with the process: nothing stays attached
// after a crash.
type Program struct {
	ifindex int
	objects classifierObjects
	link    link.Link
	probes  *Probes // nil: none are rewritten

	mu        sync.Mutex // guards what the maps hold
	settings  settings
	egress    link.Link // of the program that rewrites probes; nil while off
	addresses addressSet
	routes    [2]*mapDiff[routeKey, uint32] // by family: IPv4, IPv6
	closed    bool
}

// classifierObjects are the program and its maps, by their names in the object.
type classifierObjects struct {
	Classifier *ebpf.Program `ebpf:"classifier"`
	ProbeOut   *ebpf.Program `ebpf:"probe_out"`
	Sockets    *ebpf.Map     `ebpf:"sockets"`
	Counters   *ebpf.Map     `ebpf:"queue_counters"`
	Addresses  *ebpf.Map     `ebpf:"addresses"`
	Routes4    *ebpf.Map     `ebpf:"routes4"`
	Routes6    *ebpf.Map     `ebpf:"routes6"`
	Settings   *ebpf.Map     `ebpf:"settings"`
	Probes     *ebpf.Map     `ebpf:"probes"`
}

// Attach loads the classifier and attaches it to an interface. Until it is told
// otherwise it passes everything to the kernel. An interface that has an XDP
// program already keeps that one, and the error names it.
func Attach(ifindex int, mode AttachMode) (*Program, error) {
	return (*Probes)(nil).Attach(ifindex, mode)
}

// Attach is the function Attach for an interface that probes may leave by, once
// Program.SetProbing says so. p must outlive the program.
func (p *Probes) Attach(ifindex int, mode AttachMode) (*Program, error) {
	program, err := load(p)
	if err != nil {
		return nil, fmt.Errorf("attach xdp to %s: %w", interfaceName(ifindex), err)
	}
	program.ifindex = ifindex
	flags := link.XDPDriverMode
	if mode == Generic {
		flags = link.XDPGenericMode
	}
	program.link, err = link.AttachXDP(link.XDPOptions{Program: program.objects.Classifier, Interface: ifindex, Flags: flags})
	if err != nil {
		return nil, errors.Join(explainAttach(ifindex, mode, err), program.Close())
	}
	return program, nil
}

// load puts a program and fresh maps into the kernel, attached to nothing.
func load(probes *Probes) (*Program, error) {
	if err := liftMemlock(); err != nil {
		return nil, err
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(classifierObject))
	if err != nil {
		return nil, fmt.Errorf("read the classifier: %w", err)
	}
	p := &Program{probes: probes}
	var opts ebpf.CollectionOptions
	if probes != nil {
		opts.MapReplacements = map[string]*ebpf.Map{"probes": probes.table}
	}
	if err := spec.LoadAndAssign(&p.objects, &opts); err != nil {
		// Without CAP_PERFMON the verifier refuses what it else allows, at length.
		for _, errno := range []syscall.Errno{unix.EPERM, unix.EACCES} {
			if errors.Is(err, errno) {
				return nil, fmt.Errorf("load the classifier: %w; %s", errno, capabilityRemedy(loadCapabilities...))
			}
		}
		return nil, fmt.Errorf("load the classifier: %w", err)
	}
	p.addresses.table = newMapDiff[addressKey, uint32](p.objects.Addresses)
	p.routes[0] = newMapDiff[routeKey, uint32](p.objects.Routes4)
	p.routes[1] = newMapDiff[routeKey, uint32](p.objects.Routes6)
	return p, nil
}

// SetRuleAddresses replaces the set of forwarding rules' addresses: packets to
// them are taken from the kernel. Here and below, entries of the old set that are
// in the new one are never absent from the map, and an error leaves a mixture of
// both sets, which the next call completes.
func (p *Program) SetRuleAddresses(a []netip.Addr) error { return p.setAddresses(addressRule, a) }

// SetAnswers replaces the set of addresses for which ARP requests and neighbour
// solicitations are taken.
func (p *Program) SetAnswers(a []netip.Addr) error { return p.setAddresses(addressAnswer, a) }

// SetOwn replaces the set of the host's own addresses, which no route takes. Set
// it before SetRoutes.
func (p *Program) SetOwn(a []netip.Addr) error { return p.setAddresses(addressOwn, a) }

func (p *Program) setAddresses(flag uint32, a []netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.addresses.set(flag, a); err != nil {
		return fmt.Errorf("set %s addresses: %w", addressFlagNames[flag], err)
	}
	return nil
}

// SetRoutes replaces the destination ranges taken from frames to the interface's
// own MAC.
func (p *Program) SetRoutes(prefixes []netip.Prefix) error {
	var want [2]map[routeKey]uint32
	want[0], want[1] = map[routeKey]uint32{}, map[routeKey]uint32{}
	for _, prefix := range prefixes {
		family, key, err := routeKeyOf(prefix)
		if err != nil {
			return fmt.Errorf("set routes: %w", err)
		}
		want[family][key] = 1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for family, table := range p.routes {
		if err := table.set(want[family]); err != nil {
			return fmt.Errorf("set routes: %w", err)
		}
	}
	return nil
}

// SetMAC tells the program the interface's own MAC; before, no route takes a frame.
func (p *Program) SetMAC(mac [6]byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settings.MAC = uint64(mac[0])<<40 | uint64(mac[1])<<32 | uint64(mac[2])<<24 | uint64(mac[3])<<16 | uint64(mac[4])<<8 | uint64(mac[5])
	return wrapIf("set mac", p.writeSettings())
}

// SetSocket makes fd, a bound AF_XDP socket on that queue, the receiver of the
// queue's frames. The kernel takes it out of the map when the socket is closed.
func (p *Program) SetSocket(queue, fd int) error {
	if err := p.objects.Sockets.Put(uint32(queue), uint32(fd)); err != nil {
		return fmt.Errorf("set socket of queue %d: %w", queue, err)
	}
	return nil
}

// ClearSocket takes the receiver of a queue away: its frames are dropped and
// counted (QueueCounters.NoSocket). A queue without one is no error.
func (p *Program) ClearSocket(queue int) error {
	if err := p.objects.Sockets.Delete(uint32(queue)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("clear socket of queue %d: %w", queue, err)
	}
	return nil
}

// QueueCounters counts the frames of one receive queue since Attach.
type QueueCounters struct {
	Redirected uint64 // given to the queue's socket
	NoSocket   uint64 // taken, but the queue had no socket: dropped
	Passed     uint64 // left to the kernel
	Returned   uint64 // probes of rule addresses that a backend sent back: dropped
}

// Counters sums a queue's counters over all CPUs.
func (p *Program) Counters(queue int) (QueueCounters, error) {
	var perCPU []QueueCounters
	var sum QueueCounters
	if err := p.objects.Counters.Lookup(uint32(queue), &perCPU); err != nil {
		return sum, fmt.Errorf("read counters of queue %d: %w", queue, err)
	}
	for _, c := range perCPU {
		sum.Redirected += c.Redirected
		sum.NoSocket += c.NoSocket
		sum.Passed += c.Passed
		sum.Returned += c.Returned
	}
	return sum, nil
}

// Detach gives every frame to the kernel from now on. The counters stay
// readable until Close, and frames redirected before still arrive at the
// sockets. Detaching twice does nothing.
func (p *Program) Detach() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.detach()
}

func (p *Program) detach() error {
	var errs []error
	if p.egress != nil {
		p.probes.set(p.ifindex, false)
		errs = append(errs, p.egress.Close())
		p.egress = nil
	}
	if p.link != nil {
		errs = append(errs, p.link.Close())
		p.link = nil
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("detach xdp: %w", err)
	}
	return nil
}

// Close detaches the program, after which every frame is the kernel's, and
// releases its maps. Close it before the sockets. Closing twice does nothing.
func (p *Program) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	o := &p.objects
	errs := []error{p.detach(), o.Classifier.Close(), o.ProbeOut.Close(), o.Probes.Close(), o.Sockets.Close(), o.Counters.Close(), o.Addresses.Close(),
		o.Routes4.Close(), o.Routes6.Close(), o.Settings.Close()}
	return errors.Join(errs...)
}

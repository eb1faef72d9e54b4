package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Ports of a backend's servers. HTTP is served on both HTTP ports; the second
// is the one for health checks, and the one that HealthClosed closes.
const (
	EchoPort   = 7    // UDP and TCP echo, RFC 862
	HTTPPort   = 80   // HTTP
	EchoTLS    = 443  // TCP echo again, on a port that rules for web traffic have
	HealthPort = 8080 // HTTP
)

// RawProtocol is the IP protocol number of the raw echo: set aside for
// experiments (RFC 3692).
const RawProtocol = 253

// Health is what a backend answers to GET /healthz.
type Health int32

const (
	HealthOK      Health = iota // 200
	HealthFailing               // 503
	HealthSlow                  // nothing, until the client gives up or the health changes
	HealthClosed                // connection refused on HealthPort; 503 on HTTPPort
)

// Backend is a node with real servers: HTTP, UDP echo, TCP echo and an echo
// for RawProtocol, over IPv4 and IPv6, on all its addresses. ICMP echo is the
// kernel's. Every answer names the backend.
type Backend struct {
	*Node
	spec   BackendSpec
	health atomic.Int32
	probes atomic.Uint64
	// changed is closed and replaced at every change of health, to let go of
	// slow answers.
	changed atomic.Pointer[chan struct{}]

	serve      sync.Mutex // guards the servers; taken before Node.mu
	running    []server
	healthOnly server // the one on HealthPort; nil while closed
}

// server is one listening socket with its goroutines. close ends them all.
type server interface{ close() }

func newBackend(n *Node, spec BackendSpec) *Backend {
	b := &Backend{Node: n, spec: spec}
	changed := make(chan struct{})
	b.changed.Store(&changed)
	return b
}

// start configures addresses and starts the servers.
func (b *Backend) start() error {
	// Addresses on the loopback are answered only where they are configured
	// (RFC 826 would let any interface answer); and no ARP request carries a
	// VIP as its sender, which would announce it.
	settings := []setting{{"net/ipv4/conf/all/arp_ignore", "1"}, {"net/ipv4/conf/all/arp_announce", "2"}}
	if len(b.spec.AnyIP) > 0 {
		// Without nonlocal bind IPv6 refuses datagrams from an address that is
		// local by route only.
		settings = append(settings, setting{"net/ipv4/ip_forward", "1"}, setting{"net/ipv6/conf/all/forwarding", "1"}, setting{"net/ipv6/ip_nonlocal_bind", "1"})
	}
	if err := b.ns.sysctl(settings...); err != nil {
		return err
	}
	for _, vip := range b.spec.VIPs {
		if err := b.AddVIP(vip); err != nil {
			return err
		}
	}
	lo, err := b.netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback of %s: %w", b.name, err)
	}
	for _, p := range b.spec.AnyIP {
		// A route of type local makes every address of the range an own one.
		route := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: ipNet(p), Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: unix.RT_SCOPE_HOST}
		if err := b.netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("make %s local to %s: %w", p, b.name, err)
		}
	}
	return b.StartServers()
}

func (b *Backend) stop() { b.StopServers() }

// AddVIP puts an address on the loopback: the backend then takes connections
// for it, but answers neither ARP nor neighbour solicitations for it.
func (b *Backend) AddVIP(vip netip.Addr) error {
	return b.AddAddress("lo", netip.PrefixFrom(vip, vip.BitLen()))
}

// RemoveVIP takes the address away; the kernel then answers connections to it
// with nothing at all.
func (b *Backend) RemoveVIP(vip netip.Addr) error {
	return b.RemoveAddress("lo", netip.PrefixFrom(vip, vip.BitLen()))
}

// StartServers starts all servers; those that run already are left alone.
func (b *Backend) StartServers() error {
	b.serve.Lock()
	defer b.serve.Unlock()
	if len(b.running) > 0 {
		return nil
	}
	for _, listen := range []func() (server, error){
		func() (server, error) { return b.listenHTTP(HTTPPort) },
		func() (server, error) { return b.listenTCPEcho(EchoPort) },
		func() (server, error) { return b.listenTCPEcho(EchoTLS) },
		func() (server, error) { return b.listenUDP4(EchoPort) },
		func() (server, error) { return b.listenUDP6(EchoPort) },
		func() (server, error) { return b.listenRaw4(RawProtocol) },
		func() (server, error) { return b.listenRaw6(RawProtocol) },
	} {
		s, err := listen()
		if err != nil {
			b.stopLocked()
			return fmt.Errorf("start server on %s: %w", b.name, err)
		}
		b.running = append(b.running, s)
	}
	return b.applyHealth()
}

// StopServers ends all servers and their connections, as when the process
// dies: the kernel goes on and answers with resets and port unreachable.
func (b *Backend) StopServers() {
	b.serve.Lock()
	defer b.serve.Unlock()
	b.stopLocked()
}

func (b *Backend) stopLocked() {
	b.wakeSlow()
	for _, s := range b.running {
		s.close()
	}
	b.running = nil
	if b.healthOnly != nil {
		b.healthOnly.close()
		b.healthOnly = nil
	}
}

// SetHealth changes what health checks see, from the next request on. Other
// paths and ports are not affected.
func (b *Backend) SetHealth(h Health) error {
	b.serve.Lock()
	defer b.serve.Unlock()
	b.health.Store(int32(h))
	b.wakeSlow()
	if len(b.running) == 0 {
		return nil
	}
	return b.applyHealth()
}

// applyHealth opens or closes HealthPort. b.serve must be held.
func (b *Backend) applyHealth() error {
	want := Health(b.health.Load()) != HealthClosed
	switch {
	case want && b.healthOnly == nil:
		s, err := b.listenHTTP(HealthPort)
		if err != nil {
			return errors.Join(fmt.Errorf("open health port of %s", b.name), err)
		}
		b.healthOnly = s
	case !want && b.healthOnly != nil:
		b.healthOnly.close()
		b.healthOnly = nil
	}
	return nil
}

func (b *Backend) wakeSlow() {
	next := make(chan struct{})
	close(*b.changed.Swap(&next))
}

// Probes counts the requests for /healthz that arrived so far.
func (b *Backend) Probes() uint64 { return b.probes.Load() }

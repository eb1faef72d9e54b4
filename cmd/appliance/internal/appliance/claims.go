package appliance

import (
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/forwarder"
	"zonehop/forwarder/claim"
	"zonehop/forwarder/packet"
	"zonehop/selector"
)

const (
	// listenPause is between two bursts of claims that the packet socket brings:
	// a flood costs us some 6400 frames a second at most.
	listenPause = 10 * time.Millisecond
	// listenRetry is between two tries to open the packet socket.
	listenRetry = time.Second
)

// claims watches for other hosts that use addresses which are answered for
// here. What the workers and the packet socket hear goes to one guard.
type claims struct {
	a        *Appliance
	guard    *claim.Guard
	incoming chan claim.Claim // from the workers

	mu       sync.Mutex // guards what follows
	addrs    []netip.Addr
	listener *claim.Listener // nil: not open
	missed   uint64          // by listeners before it
	problem  error           // why it is not open
}

func newClaims(a *Appliance) *claims {
	c := &claims{a: a, incoming: make(chan claim.Claim, 256)}
	c.guard = claim.NewGuard(claim.Options{
		Answers: func(addr [2]uint64, port int) bool {
			s := a.builder.Current()
			return port < len(s.Ports) && s.Answers(addr, port)
		},
		Own:    c.own,
		Defend: c.defend,
		Tell:   c.tell,
	})
	return c
}

// run takes what the workers hear until ctx is done.
func (c *claims) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case heard := <-c.incoming:
			c.guard.Take(heard)
		}
	}
}

// listen takes what the packet socket hears until ctx is done. A socket that
// fails is opened again.
func (c *claims) listen(ctx context.Context) {
	told := ""
	for ctx.Err() == nil {
		l, err := c.open()
		if err == nil {
			stop := context.AfterFunc(ctx, l.Close)
			err = c.follow(ctx, l)
			stop()
			c.shut(l, err)
		}
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != told {
			told = text
			c.a.log.Warn("cannot hear of other hosts' claims to addresses answered for here, but in requests for them; trying again every second", zap.Error(err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(listenRetry):
		}
	}
}

func (c *claims) open() (*claim.Listener, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listener, c.problem = nil, nil
	l, err := claim.Listen(c.addrs)
	if err != nil {
		c.problem = err
		return nil, err
	}
	c.listener = l
	return l, nil
}

func (c *claims) shut(l *claim.Listener, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missed += l.Missed()
	c.listener, c.problem = nil, err
	l.Close()
}

// follow hears claims until the socket fails.
func (c *claims) follow(ctx context.Context, l *claim.Listener) error {
	for {
		more, err := l.Receive(c.port, c.guard.Take)
		if err != nil {
			return err
		}
		if more {
			select {
			case <-ctx.Done():
			case <-time.After(listenPause):
			}
		}
	}
}

// look changes the addresses that the packet socket looks for, to those
// answered for on any port.
func (c *claims) look(answers [][]netip.Addr) {
	addrs := slices.Concat(answers...)
	slices.SortFunc(addrs, netip.Addr.Compare)
	addrs = slices.Compact(addrs)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addrs = addrs
	if c.listener == nil {
		return // it is opened with them
	}
	if err := c.listener.Look(addrs); err != nil {
		c.problem = err
		c.listener.Close() // and is opened again
	}
}

// port is the port of an interface by its index, or -1.
func (c *claims) port(index int) int {
	return slices.IndexFunc(c.a.builder.Current().Ports, func(p selector.Port) bool { return p.Index == index })
}

// own reports whether a MAC is that of an interface of ours.
func (c *claims) own(mac uint64) bool {
	return slices.ContainsFunc(c.a.builder.Current().Ports, func(p selector.Port) bool { return macOf(p.MAC) == mac })
}

// defend announces the address of a claim, where it was made.
func (c *claims) defend(by claim.Claim) bool {
	port := &c.a.builder.Current().Ports[by.Port]
	if !port.Up {
		return false
	}
	var buf [128]byte
	frame := announcementOf(buf[:0], packet.Netip(by.Addr), &port.MAC)
	return c.a.supervisor.Originate(by.Port, by.Tags.Tagged(frame), forwarder.OriginDefence)
}

// tell logs a claim with what can be done about it.
func (c *claims) tell(r claim.Report) {
	fields := []zap.Field{
		zap.Stringer("address", packet.Netip(r.Addr)), zap.String("mac", macWord(r.MAC)),
		zap.String("interface", c.portName(r.Port)), zap.Uint64("times", r.Count),
	}
	if vlan := r.Tags.String(); vlan != "" {
		fields = append(fields, zap.String("vlan", vlan))
	}
	if r.Untold > 0 {
		fields = append(fields, zap.Uint64("reportsLeftOut", r.Untold))
	}
	backends := c.backends(r.MAC)
	if backends != "" {
		fields = append(fields, zap.String("backend", backends))
	}
	if r.Kind == claim.Probe {
		c.a.log.Warn("another host asked whether an address is free that is answered for here, and was told that it is not: give that host another address", fields...)
		return
	}
	fields = append(fields, zap.Bool("defended", r.Defended))
	if backends != "" {
		c.a.log.Warn("another host claims an address that is answered for here, and it is a backend: have the address on its loopback alone, with sysctl net.ipv4.conf.all.arp_ignore=1 and net.ipv4.conf.all.arp_announce=2", fields...)
		return
	}
	c.a.log.Warn("another host claims an address that is answered for here: take it from one of the two, or they will share its traffic; of a group of appliances all but one need announce: STANDBY", fields...)
}

func (c *claims) portName(port int) string {
	if ports := c.a.builder.Current().Ports; port < len(ports) {
		return ports[port].Name
	}
	return ""
}

// backends names the backends that are delivered to at a MAC.
func (c *claims) backends(mac uint64) string {
	var names []string
	snap := c.a.builder.Current()
	for i := range snap.Backends {
		b := &snap.Backends[i]
		for _, d := range b.Delivery {
			if b.Ref != 0 && d.State == selector.Deliverable && macOf([6]byte(d.Header[:6])) == mac && !slices.Contains(names, b.Name) {
				names = append(names, b.Name)
			}
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// status fills in what `appliance status` shows of claims.
func (c *claims) status(s *admin.Status, missedByWorkers uint64) {
	counts := c.guard.Counts()
	s.Claims = admin.Claims{Conflicts: counts.Conflicts, Probes: counts.Probes, Defences: counts.Defences, Missed: missedByWorkers}
	c.mu.Lock()
	s.Claims.Missed += c.missed
	if c.listener != nil {
		s.Claims.Missed += c.listener.Missed()
	}
	s.Claims.Problem = text(c.problem)
	c.mu.Unlock()
	now := time.Now()
	for _, r := range c.guard.Records() {
		entry := admin.AddressClaim{
			Address: packet.Netip(r.Addr).String(), MAC: macWord(r.MAC), AgoSec: now.Sub(r.Last).Seconds(),
			Interface: c.portName(r.Port), VLAN: r.Tags.String(), Backend: c.backends(r.MAC),
			Count: r.Count, Defences: r.Defences, FirstAgoSec: now.Sub(r.First).Seconds(),
		}
		if r.Kind == claim.Probe {
			s.AddressProbes = append(s.AddressProbes, entry)
		} else {
			s.Conflicts = append(s.Conflicts, entry)
		}
	}
}

// macOf has the MAC as packet.Parsed does: in the low 48 bits.
func macOf(m [6]byte) uint64 {
	return uint64(binary.BigEndian.Uint16(m[:2]))<<32 | uint64(binary.BigEndian.Uint32(m[2:]))
}

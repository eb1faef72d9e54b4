package neigh

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Groups keeps this host a member of the solicited-node multicast groups of
// the IPv6 addresses that the forwarding path answers for. The kernel does not
// own those addresses and joins nothing for them, and behind a switch that
// snoops MLD with a querier present no neighbour solicitation for them would
// arrive. Joining through a socket also makes the kernel send the MLD reports
// and answer the queries (RFC 3810).
//
// A kernel socket holds a bounded number of memberships (net.core.optmem_max);
// further sockets are opened as needed. Memberships end with Close or with the
// process. All methods may be called from anywhere.
type Groups struct {
	namespace netns.NsHandle

	mu      sync.Mutex        // guards what follows
	query   *nl.NetlinkSocket // nil once closed
	sockets []*groupSocket    // the last one may have room
	joined  map[membership]*groupSocket
}

// membership is one group on one interface.
type membership struct {
	index int
	group [16]byte
}

type groupSocket struct{ fd, members int }

// ErrClosed is returned by Update after Close.
var ErrClosed = errors.New("groups are closed")

// NewGroups prepares memberships in the network namespace ns; 0 is that of the
// calling thread.
func NewGroups(ns netns.NsHandle) (*Groups, error) {
	held, err := holdNamespace(ns)
	if err != nil {
		return nil, err
	}
	g := &Groups{namespace: held, joined: make(map[membership]*groupSocket)}
	err = inNamespace(held, func() (err error) {
		g.query, err = nl.Subscribe(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		held.Close()
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	return g, nil
}

// Update makes the memberships those of want: by interface index, the
// addresses answered for there. IPv4 addresses need none and are passed over.
// It compares with what the kernel really has, so it also joins again after
// an interface lost its groups; call it with every View and it does nothing
// when nothing changed.
//
// An interface that is gone or has IPv6 disabled gives an error; all other
// memberships are nevertheless brought up to date.
func (g *Groups) Update(want map[int][]netip.Addr) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.query == nil {
		return ErrClosed
	}
	wanted := make(map[membership]bool)
	for index, addrs := range want {
		for _, addr := range addrs {
			if addr.Is6() && !addr.Is4In6() {
				wanted[membership{index, SolicitedNode(addr).As16()}] = true
			}
		}
	}
	for m := range g.joined {
		if !wanted[m] {
			g.leave(m)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	present, err := g.present()
	if err != nil {
		return err
	}
	var errs []error
	for m := range wanted {
		if g.joined[m] != nil {
			if present[m] {
				continue
			}
			g.leave(m) // the interface lost it, the socket still counts it
		}
		if err := g.join(m); err != nil {
			errs = append(errs, fmt.Errorf("join %v on interface %d: %w", netip.AddrFrom16(m.group), m.index, err))
		}
	}
	return errors.Join(errs...)
}

// Close ends all memberships. Closing twice is fine.
func (g *Groups) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.query == nil {
		return
	}
	g.query.Close()
	g.query = nil
	for _, s := range g.sockets {
		unix.Close(s.fd)
	}
	g.sockets, g.joined = nil, nil
	g.namespace.Close()
}

// SolicitedNode returns the multicast group that solicitations for addr are
// sent to (RFC 4291 section 2.7.1: ff02::1:ff00:0/104 and the low 24 bits).
func SolicitedNode(addr netip.Addr) netip.Addr {
	group := [16]byte{0: 0xff, 1: 0x02, 11: 0x01, 12: 0xff}
	low := addr.As16()
	copy(group[13:], low[13:])
	return netip.AddrFrom16(group)
}

// join adds m on the last socket, or on a new one if that is full. A new one
// that is refused too says that the limit is not the socket's.
func (g *Groups) join(m membership) error {
	if len(g.sockets) > 0 {
		last := g.sockets[len(g.sockets)-1]
		err := last.join(m)
		if err == nil {
			g.joined[m] = last
		}
		if !errors.Is(err, unix.ENOMEM) && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
	}
	s := &groupSocket{}
	err := inNamespace(g.namespace, func() (err error) {
		s.fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return fmt.Errorf("open a socket for memberships: %w", err)
	}
	if err := s.join(m); err != nil {
		unix.Close(s.fd)
		return err
	}
	g.sockets = append(g.sockets, s)
	g.joined[m] = s
	return nil
}

// leave ends m.
func (g *Groups) leave(m membership) {
	s := g.joined[m]
	delete(g.joined, m)
	s.leave(m)
	if s.members == 0 {
		unix.Close(s.fd)
		g.sockets = slices.DeleteFunc(g.sockets, func(o *groupSocket) bool { return o == s })
	}
}

// join is the one place where the kernel is made a member of a group.
func (s *groupSocket) join(m membership) error {
	err := unix.SetsockoptIPv6Mreq(s.fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, m.request())
	if err == nil {
		s.members++
	}
	return err
}

// leave cannot fail in a way that matters: the kernel refuses only what the
// socket is no member of.
func (s *groupSocket) leave(m membership) {
	_ = unix.SetsockoptIPv6Mreq(s.fd, unix.IPPROTO_IPV6, unix.IPV6_LEAVE_GROUP, m.request())
	s.members--
}

func (m membership) request() *unix.IPv6Mreq {
	return &unix.IPv6Mreq{Multiaddr: m.group, Interface: uint32(m.index)}
}

// present reads the memberships that the kernel's interfaces have.
func (g *Groups) present() (map[membership]bool, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETMULTICAST, unix.NLM_F_DUMP)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: g.query}}
	request.AddData(nl.NewIfAddrmsg(unix.AF_INET6))
	answers, err := dump("multicast groups", func() ([][]byte, error) { return request.Execute(unix.NETLINK_ROUTE, 0) })
	if err != nil {
		return nil, err
	}
	groups := make(map[membership]bool, len(answers))
	for _, data := range answers {
		if len(data) < unix.SizeofIfAddrmsg {
			continue
		}
		attrs, err := nl.ParseRouteAttr(data[unix.SizeofIfAddrmsg:])
		if err != nil {
			continue
		}
		for _, a := range attrs {
			if a.Attr.Type == unix.IFA_MULTICAST && len(a.Value) == 16 {
				groups[membership{int(nl.DeserializeIfAddrmsg(data).Index), [16]byte(a.Value)}] = true
			}
		}
	}
	return groups, nil
}

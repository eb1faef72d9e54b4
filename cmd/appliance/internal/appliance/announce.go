package appliance

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"zonehop/forwarder"
	"zonehop/forwarder/packet"
	"zonehop/selector"
)

const (
	// An address that moves here is announced twice, two seconds apart
	// (RFC 5227 section 2.3: ANNOUNCE_NUM, ANNOUNCE_INTERVAL).
	announceTimes    = 2
	announceInterval = 2 * time.Second
)

// announcer sends gratuitous ARP and unsolicited neighbour advertisements for
// addresses that are answered for from now on, or by another MAC, or on a link
// that has just come up, so that neighbours and switches who knew them elsewhere
// learn of the move at once.
type announcer struct {
	supervisor *forwarder.Supervisor

	mu       sync.Mutex // guards what follows
	snapshot *selector.Snapshot
	pending  map[announcement]int // times left
}

type announcement struct {
	port int
	addr netip.Addr
}

func newAnnouncer(s *forwarder.Supervisor) *announcer {
	return &announcer{supervisor: s, pending: make(map[announcement]int)}
}

// announce schedules the fresh ones of the addresses that a snapshot answers
// for, by port, and all of a port that has changed.
func (a *announcer) announce(snap *selector.Snapshot, answers, fresh [][]netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for port, addrs := range fresh {
		if a.snapshot != nil && port < len(a.snapshot.Ports) && portMoved(&a.snapshot.Ports[port], &snap.Ports[port]) {
			addrs = answers[port]
		}
		for _, addr := range addrs {
			a.pending[announcement{port, addr}] = announceTimes
		}
	}
	a.snapshot = snap
}

// portMoved reports whether neighbours may know a port wrongly.
func portMoved(before, now *selector.Port) bool {
	return now.Up && (!before.Up || before.MAC != now.MAC || before.Index != now.Index)
}

// again schedules everything answered for, after a queue was bound: what was
// sent before may have met no queue.
func (a *announcer) again() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.snapshot == nil {
		return
	}
	for port, addrs := range classification(a.snapshot, nil).Answers {
		for _, addr := range addrs {
			a.pending[announcement{port, addr}] = announceTimes
		}
	}
}

// run sends what is due until ctx is done.
func (a *announcer) run(ctx context.Context) {
	tick := time.NewTicker(announceInterval / 10)
	defer tick.Stop()
	next := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if now.Before(next) {
				continue
			}
			if a.send() {
				next = now.Add(announceInterval)
			}
		}
	}
}

// send announces each pending address once and reports whether it sent any.
// One that no queue can send yet stays pending.
func (a *announcer) send() (sent bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var buf [128]byte
	for p, left := range a.pending {
		if p.port >= len(a.snapshot.Ports) || !a.snapshot.Answers(packet.Addr(p.addr), p.port) {
			delete(a.pending, p)
			continue
		}
		port := &a.snapshot.Ports[p.port]
		if !port.Up {
			continue
		}
		if !a.supervisor.Originate(p.port, announcementOf(buf[:0], p.addr, &port.MAC), forwarder.OriginAnnouncement) {
			continue
		}
		sent = true
		if left == 1 {
			delete(a.pending, p)
		} else {
			a.pending[p] = left - 1
		}
	}
	return sent
}

// announcementOf writes the frame that tells all neighbours that addr is at mac
// into buf's capacity, which 86 bytes suffice for.
func announcementOf(buf []byte, addr netip.Addr, mac *[6]byte) []byte {
	if addr.Is6() {
		return packet.UnsolicitedNA(buf, packet.Addr(addr), mac)
	}
	return packet.GratuitousARP(buf, packet.Addr(addr), mac)
}

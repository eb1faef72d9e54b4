package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// tcpEcho greets every connection with the backend's name and a newline, then
// returns what it gets until the client closes.
type tcpEcho struct {
	name      string
	listeners []net.Listener
	done      sync.WaitGroup

	mu     sync.Mutex // guards what follows
	conns  map[net.Conn]bool
	closed bool
}

func (b *Backend) listenTCPEcho(port int) (server, error) {
	s := &tcpEcho{name: b.name, conns: map[net.Conn]bool{}}
	for _, network := range []string{"tcp4", "tcp6"} {
		l, err := b.listen(network, port)
		if err != nil {
			s.close()
			return nil, err
		}
		s.listeners = append(s.listeners, l)
		s.done.Go(func() { s.accept(l) })
	}
	return s, nil
}

func (s *tcpEcho) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // closed
		}
		s.mu.Lock()
		if s.closed {
			conn.Close()
		} else {
			s.conns[conn] = true
			s.done.Go(func() { s.serve(conn) })
		}
		s.mu.Unlock()
	}
}

func (s *tcpEcho) serve(conn net.Conn) {
	if _, err := fmt.Fprintln(conn, s.name); err == nil {
		io.Copy(conn, conn) // until either side is done with it
	}
	conn.Close()
	s.mu.Lock()
	delete(s.conns, conn)
	s.mu.Unlock()
}

func (s *tcpEcho) close() {
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	for _, l := range s.listeners {
		l.Close()
	}
	s.done.Wait()
}

// packetEcho answers each datagram with the backend's name, a newline and the
// payload, from the address the datagram was sent to: a wildcard socket would
// by itself answer from the interface's address, never from a VIP.
type packetEcho struct {
	conn io.Closer
	done sync.WaitGroup
}

func (s *packetEcho) close() {
	s.conn.Close()
	s.done.Wait()
}

// maxDatagram is the largest payload of IPv4 and IPv6 without jumbograms.
const maxDatagram = 65535

func (b *Backend) listenPacket(network, address string) (net.PacketConn, error) {
	var conn net.PacketConn
	err := b.Exec(func() error {
		var err error
		conn, err = new(net.ListenConfig).ListenPacket(context.Background(), network, address)
		return err
	})
	return conn, err
}

func (b *Backend) listenUDP4(port int) (server, error) {
	return b.packetEcho4("udp4", ":"+strconv.Itoa(port))
}

func (b *Backend) listenUDP6(port int) (server, error) {
	return b.packetEcho6("udp6", ":"+strconv.Itoa(port))
}

func (b *Backend) listenRaw4(protocol int) (server, error) {
	return b.packetEcho4("ip4:"+strconv.Itoa(protocol), "0.0.0.0")
}

func (b *Backend) listenRaw6(protocol int) (server, error) {
	return b.packetEcho6("ip6:"+strconv.Itoa(protocol), "::")
}

func (b *Backend) packetEcho4(network, address string) (server, error) {
	raw, err := b.listenPacket(network, address)
	if err != nil {
		return nil, err
	}
	conn := ipv4.NewPacketConn(raw)
	return b.echoPackets(raw, conn.SetControlMessage(ipv4.FlagDst, true), func(buf []byte) error {
		n, cm, from, err := conn.ReadFrom(buf)
		if err == nil && cm != nil {
			_, err = conn.WriteTo(b.named(buf[:n]), &ipv4.ControlMessage{Src: cm.Dst}, from)
		}
		return err
	})
}

func (b *Backend) packetEcho6(network, address string) (server, error) {
	raw, err := b.listenPacket(network, address)
	if err != nil {
		return nil, err
	}
	conn := ipv6.NewPacketConn(raw)
	return b.echoPackets(raw, conn.SetControlMessage(ipv6.FlagDst, true), func(buf []byte) error {
		n, cm, from, err := conn.ReadFrom(buf)
		if err == nil && cm != nil {
			_, err = conn.WriteTo(b.named(buf[:n]), &ipv6.ControlMessage{Src: cm.Dst}, from)
		}
		return err
	})
}

// echoPackets answers, one call of echo a datagram, until conn is closed. It
// owns conn; refused is why destination addresses cannot be had, nil if they can.
func (b *Backend) echoPackets(conn net.PacketConn, refused error, echo func(buf []byte) error) (server, error) {
	if refused != nil {
		conn.Close()
		return nil, fmt.Errorf("ask for destination addresses: %w", refused)
	}
	s := &packetEcho{conn: conn}
	s.done.Go(func() {
		buf := make([]byte, maxDatagram)
		// Other errors are ICMP's about an earlier answer, or a lost answer,
		// which is the client's to notice.
		for !errors.Is(echo(buf), net.ErrClosed) {
		}
	})
	return s, nil
}

func (b *Backend) named(payload []byte) []byte {
	out := make([]byte, 0, len(b.name)+1+len(payload))
	out = append(out, b.name...)
	out = append(out, '\n')
	return append(out, payload...)
}

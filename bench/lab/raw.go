package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// listenIP opens a raw socket for an IP protocol inside the namespace, bound
// to a source address.
func (c *Client) listenIP(protocol int, like, from netip.Addr) (*net.IPConn, error) {
	if !from.IsValid() {
		from = c.Addr(like)
	}
	if !from.IsValid() {
		return nil, errors.New("the client has no address of that family")
	}
	network := "ip4:" + strconv.Itoa(protocol)
	if from.Is6() {
		network = "ip6:" + strconv.Itoa(protocol)
	}
	var conn *net.IPConn
	err := c.Exec(func() error {
		var err error
		conn, err = net.ListenIP(network, &net.IPAddr{IP: from.AsSlice()})
		return err
	})
	return conn, err
}

// Raw sends one packet of an IP protocol without ports, normally RawProtocol,
// and waits for the echo; from may be the zero Addr.
func (c *Client) Raw(ctx context.Context, protocol int, to, from netip.Addr, payload []byte) (backend string, echo []byte, err error) {
	ctx, cancel := withAnswerTime(ctx)
	defer cancel()
	backend, echo, err = c.raw(ctx, protocol, to, from, payload)
	if err != nil {
		return "", nil, fmt.Errorf("protocol %d to %s from %s: %w", protocol, to, c.name, err)
	}
	return backend, echo, nil
}

func (c *Client) raw(ctx context.Context, protocol int, to, from netip.Addr, payload []byte) (string, []byte, error) {
	conn, err := c.listenIP(protocol, to, from)
	if err != nil {
		return "", nil, err
	}
	defer conn.Close()
	defer endWith(ctx, conn)()
	if _, err := conn.WriteTo(payload, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return "", nil, err
	}
	buf := make([]byte, maxDatagram)
	for {
		n, peer, err := conn.ReadFromIP(buf)
		if err != nil {
			return "", nil, err
		}
		if addr, _ := netip.AddrFromSlice(peer.IP); addr.Unmap() == to {
			return splitName(buf[:n])
		}
	}
}

// pings numbers echo requests of this process, so that concurrent ones do not
// take each other's replies.
var pings atomic.Uint32

// Ping sends one ICMP echo request and waits for the reply from that address;
// from may be the zero Addr. It returns the round-trip time. The reply's data
// must be the request's.
func (c *Client) Ping(ctx context.Context, to, from netip.Addr, data []byte) (time.Duration, error) {
	ctx, cancel := withAnswerTime(ctx)
	defer cancel()
	rtt, err := c.ping(ctx, to, from, data)
	if err != nil {
		return 0, fmt.Errorf("ping %s from %s: %w", to, c.name, err)
	}
	return rtt, nil
}

func (c *Client) ping(ctx context.Context, to, from netip.Addr, data []byte) (time.Duration, error) {
	protocol, request, reply := 1, icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply)
	if to.Is6() {
		protocol, request, reply = 58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	conn, err := c.listenIP(protocol, to, from)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer endWith(ctx, conn)()
	number := pings.Add(1)
	want := icmp.Echo{ID: int(number & 0xffff), Seq: int(number >> 16), Data: data}
	message, err := (&icmp.Message{Type: request, Body: &want}).Marshal(nil) // the kernel fills ICMPv6 checksums in
	if err != nil {
		return 0, err
	}
	sent := time.Now()
	if _, err := conn.WriteTo(message, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return 0, err
	}
	buf := make([]byte, maxDatagram)
	for {
		n, peer, err := conn.ReadFromIP(buf)
		if err != nil {
			return 0, err
		}
		took := time.Since(sent)
		got, err := icmp.ParseMessage(protocol, buf[:n])
		if err != nil || got.Type != reply {
			continue
		}
		echo, ok := got.Body.(*icmp.Echo)
		if addr, _ := netip.AddrFromSlice(peer.IP); !ok || addr.Unmap() != to || echo.ID != want.ID || echo.Seq != want.Seq {
			continue
		}
		if string(echo.Data) != string(data) {
			return 0, fmt.Errorf("the reply carries %d bytes %x, the request %d bytes %x", len(echo.Data), echo.Data, len(data), data)
		}
		return took, nil
	}
}

package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
	"time"

	"zonehop/bench/needs"
)

// needRoot ends the test where a lab is impossible.
func needRoot(t *testing.T) {
	t.Helper()
	needs.Root(t, "a lab of network namespaces")
}

// patience is how long tests wait for what must come. It comes at once unless
// the machine has other things to do.
const patience = time.Minute

// build makes a lab for one test.
func build(t *testing.T, o Options) *Lab {
	t.Helper()
	needRoot(t)
	l, err := Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			paths, err := l.SaveCaptures()
			t.Log("captures:", paths, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func ctxFor(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func at(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }

func TestServersOnOwnAddresses(t *testing.T) {
	l := build(t, Options{})
	payload := make([]byte, 1200)
	Pattern(0, payload)
	for _, c := range []*Client{l.Client("client-b"), l.Client("client-n")} {
		for _, b := range []*Backend{l.Backend("web-b1"), l.Backend("fw-c")} {
			for _, to := range []netip.Addr{b.IPv4(), b.IPv6()} {
				checkServers(t, c, b.Name(), to, payload)
			}
		}
	}
}

// checkServers asks every server at an address and expects the named backend.
func checkServers(t *testing.T, c *Client, want string, to netip.Addr, payload []byte) {
	t.Helper()
	ctx := ctxFor(t, 4*patience)
	source := at(c.Addr(to), 23456)
	reply, err := c.HTTP(ctx, Request{To: at(to, HTTPPort), From: source, Path: "/"})
	if err != nil || reply.Backend != want || string(reply.Body) != want+"\n" || reply.Client != source || reply.Local != at(to, HTTPPort) {
		t.Errorf("GET http://%s/ from %s = %+v, %v, want %s from %s", to, c.Name(), reply, err, want, source)
	}
	reply, err = c.Get(ctx, at(to, HTTPPort), "/bytes?n=300000")
	bytesWant := make([]byte, 300000)
	Pattern(0, bytesWant)
	if err != nil || !bytes.Equal(reply.Body, bytesWant) {
		t.Errorf("GET /bytes from %s: %d bytes, equal %t, %v", want, len(reply.Body), bytes.Equal(reply.Body, bytesWant), err)
	}
	reply, err = c.HTTP(ctx, Request{To: at(to, HealthPort), Path: "/echo", Body: bytesWant})
	sum := sha256.Sum256(bytesWant)
	if err != nil || strings.TrimSpace(string(reply.Body)) != hex.EncodeToString(sum[:]) {
		t.Errorf("POST /echo to %s = %q, %v, want %x", want, reply.Body, err, sum)
	}
	name, echo, err := c.UDP(ctx, at(to, EchoPort), netip.AddrPort{}, payload)
	if err != nil || name != want || !bytes.Equal(echo, payload) {
		t.Errorf("udp echo %s = %q, %d bytes, %v, want %s, %d bytes", to, name, len(echo), err, want, len(payload))
	}
	name, echo, err = c.Raw(ctx, RawProtocol, to, netip.Addr{}, payload)
	if err != nil || name != want || !bytes.Equal(echo, payload) {
		t.Errorf("protocol %d echo %s = %q, %d bytes, %v, want %s, %d bytes", RawProtocol, to, name, len(echo), err, want, len(payload))
	}
	if _, err := c.Ping(ctx, to, netip.Addr{}, payload); err != nil {
		t.Error(err)
	}
	s, err := c.OpenStream(ctx, at(to, EchoTLS), netip.AddrPort{}, 1000, time.Millisecond)
	if err != nil {
		t.Error(err)
		return
	}
	if err := Wait(ctx, "stream to carry data", patience, func() (bool, error) {
		state := s.State()
		return state.Bytes >= 10000, state.Err
	}); err != nil {
		t.Error(err)
	}
	if state := s.Close(); state.Err != nil || s.Backend != want {
		t.Errorf("stream to %s: backend %s, state %+v", to, s.Backend, state)
	}
}

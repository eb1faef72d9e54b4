package probe

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Result is the outcome of one probe.
type Result struct {
	OK      bool
	Text    string        // what was seen, for people: "200", "connect: connection refused"
	Latency time.Duration // from the start of the connect to the verdict
	Weight  Weight        // only with Check.ReportWeight

	// Inconclusive results say nothing about the backend: this host ran out of
	// descriptors, memory or processor time. They neither continue nor reset a
	// run.
	Inconclusive bool

	timedOut bool
}

// Checker speaks the protocol of one check.
type Checker interface {
	// Probe decides over conn, which has its deadline set and is connected to
	// addr, as far as the backend can tell. It must return when conn fails, and leaves closing to the caller.
	// One Checker is used by many goroutines at once.
	Probe(conn net.Conn, addr netip.AddrPort) Result
}

// NewChecker returns the checker for c, with everything that does not depend
// on the target prepared. The error is that of c.Validate.
func NewChecker(c *Check) (Checker, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	var inner Checker
	switch c.Type {
	case TCP, SSL:
		inner = newStreamChecker(c)
	case HTTP, HTTPS:
		inner = newHTTPChecker(c)
	case HTTP2:
		inner = newHTTP2Checker(c)
	case GRPC, GRPCWithTLS:
		inner = newGRPCChecker(c)
	}
	if c.Type == SSL || c.Type == HTTPS || c.Type == HTTP2 || c.Type == GRPCWithTLS {
		inner = newTLSChecker(c, inner)
	}
	if c.ProxyV1 {
		inner = proxyChecker{inner}
	}
	return inner, nil
}

// failed returns the result of a probe that ended with err while doing what.
func failed(what string, err error) Result {
	return Result{Text: what + ": " + describe(err), Inconclusive: isLocal(err), timedOut: isTimeout(err)}
}

// describe reduces the error of a network operation to its cause. The layers
// that package net adds repeat the addresses, which the reader already has.
func describe(err error) string {
	var errno syscall.Errno
	switch {
	case isTimeout(err):
		return "timed out"
	case errors.Is(err, io.EOF):
		return "closed by the backend"
	case errors.As(err, &errno):
		return errno.Error()
	}
	return err.Error()
}

func isTimeout(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// ErrInconclusive is wrapped by errors of Options.Control and Options.Dial that say
// nothing about the backend: this host could not make the probe.
var ErrInconclusive = errors.New("probe not made")

// isLocal reports whether err is a shortage on this host, or its slowness. Counting it against
// a backend would take every backend out at once, for a fault of the prober.
func isLocal(err error) bool {
	if errors.Is(err, ErrInconclusive) {
		return true
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return errors.Is(err, errNoticedLate)
	}
	switch errno {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM:
		return true
	}
	return false
}

package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Stream is a long connection to a TCP echo that carries data all the time and
// tells when it broke or stood still.
type Stream struct {
	// Backend is the name the other end greeted with.
	Backend string

	conn *net.TCPConn
	done sync.WaitGroup

	mu    sync.Mutex // guards what follows
	state StreamState
	ended bool // by Close
}

// StreamState is what a Stream has seen so far.
type StreamState struct {
	Bytes  int64         // sent, returned and found equal
	Last   time.Time     // of the last byte that came back
	MaxGap time.Duration // longest time between two arrivals, up to now
	Err    error         // why it broke; nil while it lives
}

// OpenStream connects and starts to send size bytes every interval, each after
// the last has come back. Close ends it.
func (c *Client) OpenStream(ctx context.Context, to, from netip.AddrPort, size int, interval time.Duration) (*Stream, error) {
	ctx, cancel := withAnswerTime(ctx)
	defer cancel()
	conn, err := c.DialTCP(ctx, to, from)
	if err != nil {
		return nil, err
	}
	stop := endWith(ctx, conn)
	in := bufio.NewReader(conn)
	name, err := in.ReadString('\n')
	stop()
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("stream to %s from %s: read greeting: %w", to, c.name, err)
	}
	s := &Stream{Backend: strings.TrimSuffix(name, "\n"), conn: conn, state: StreamState{Last: time.Now()}}
	s.done.Go(func() { s.run(in, size, interval) })
	return s, nil
}

func (s *Stream) run(in io.Reader, size int, interval time.Duration) {
	out, back := make([]byte, size), make([]byte, size)
	for offset := int64(0); ; offset += int64(size) {
		Pattern(offset, out)
		_, err := s.conn.Write(out)
		if err == nil {
			_, err = io.ReadFull(in, back)
		}
		if err == nil && string(out) != string(back) {
			err = fmt.Errorf("bytes at %d came back changed", offset)
		}
		if !s.note(offset+int64(size), err) {
			return
		}
		time.Sleep(interval)
	}
}

// note records one round and reports whether to go on.
func (s *Stream) note(bytes int64, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	if err != nil {
		s.state.Err = fmt.Errorf("stream to %s (%s): %w", s.conn.RemoteAddr(), s.Backend, err)
		return false
	}
	now := time.Now()
	s.state.MaxGap = max(s.state.MaxGap, now.Sub(s.state.Last))
	s.state.Last, s.state.Bytes = now, bytes
	return true
}

// State tells how the stream is doing now.
func (s *Stream) State() StreamState {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state
	if state.Err == nil && !s.ended {
		state.MaxGap = max(state.MaxGap, time.Since(state.Last))
	}
	return state
}

// LocalAddr is the client's end.
func (s *Stream) LocalAddr() netip.AddrPort { return s.conn.LocalAddr().(*net.TCPAddr).AddrPort() }

// Close ends the connection and returns the final state. An error there means
// that it was broken before.
func (s *Stream) Close() StreamState {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.conn.Close()
	s.done.Wait()
	return s.State()
}

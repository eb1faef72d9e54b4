package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Headers of every HTTP answer of a backend.
const (
	HeaderBackend = "X-Backend" // its name
	HeaderClient  = "X-Client"  // source address and port as it saw them
	HeaderLocal   = "X-Local"   // destination address and port as it saw them
)

// maxBytes bounds GET /bytes?n=.
const maxBytes = 1 << 30

// httpServer serves one port over IPv4 and IPv6.
type httpServer struct {
	http http.Server
	done sync.WaitGroup
}

func (b *Backend) listenHTTP(port int) (server, error) {
	s := &httpServer{http: http.Server{
		Handler:           b.handler(),
		ReadHeaderTimeout: 10 * time.Second,
	}}
	for _, network := range []string{"tcp4", "tcp6"} {
		l, err := b.listen(network, port)
		if err != nil {
			s.close()
			return nil, err
		}
		s.done.Go(func() { s.http.Serve(l) }) // ends with ErrServerClosed
	}
	return s, nil
}

func (s *httpServer) close() {
	s.http.Close()
	s.done.Wait()
}

// listen opens a TCP listener inside the backend's namespace. One network per
// family: package net decides about dual-stack sockets by what the process's
// first namespace could do.
func (b *Backend) listen(network string, port int) (net.Listener, error) {
	var l net.Listener
	err := b.Exec(func() error {
		var err error
		var config net.ListenConfig
		config.SetMultipathTCP(false)
		l, err = config.Listen(context.Background(), network, ":"+strconv.Itoa(port))
		return err
	})
	return l, err
}

func (b *Backend) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, b.name) })
	mux.HandleFunc("/healthz", b.serveHealth)
	mux.HandleFunc("/bytes", serveBytes)
	mux.HandleFunc("POST /echo", serveDigest)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(HeaderBackend, b.name)
		w.Header().Set(HeaderClient, r.RemoteAddr)
		if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			w.Header().Set(HeaderLocal, local.String())
		}
		mux.ServeHTTP(w, r)
	})
}

func (b *Backend) serveHealth(w http.ResponseWriter, r *http.Request) {
	b.probes.Add(1)
	changed := *b.changed.Load()
	switch Health(b.health.Load()) {
	case HealthOK:
		fmt.Fprintln(w, "ok")
	case HealthSlow:
		select {
		case <-changed:
		case <-r.Context().Done():
		}
		fallthrough
	default:
		http.Error(w, "failing", http.StatusServiceUnavailable)
	}
}

// serveBytes answers GET /bytes?n=N with the first N bytes of Pattern.
func serveBytes(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
	if err != nil || n < 0 || n > maxBytes {
		http.Error(w, fmt.Sprintf("n: want a number from 0 to %d", maxBytes), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	w.Header().Set("Content-Type", "application/octet-stream")
	buf := make([]byte, 64<<10)
	for sent := int64(0); sent < n; sent += int64(len(buf)) {
		buf = buf[:min(int64(cap(buf)), n-sent)]
		Pattern(sent, buf)
		if _, err := w.Write(buf); err != nil {
			return // the client went away
		}
	}
}

// serveDigest answers POST /echo with the SHA-256 of the body, in hex.
func serveDigest(w http.ResponseWriter, r *http.Request) {
	sum := sha256.New()
	if _, err := io.Copy(sum, r.Body); err != nil {
		return // the client went away in the middle
	}
	fmt.Fprintln(w, hex.EncodeToString(sum.Sum(nil)))
}

// Pattern fills p with the bytes of a fixed endless sequence, from the given
// offset on. Its period is far longer than any frame, so that lost, doubled
// and swapped pieces show.
func Pattern(offset int64, p []byte) {
	for i := range p {
		x := uint64(offset) + uint64(i)
		p[i] = byte(x*0x9e3779b97f4a7c15>>56) ^ byte(x>>11)
	}
}

package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Appliance is what the control interface reads and changes. Its methods are
// safe for concurrent use. A change is in force when its method returns.
type Appliance interface {
	Status() Status
	Backends() []Backend
	// Flows calls each for every tracked flow that passes the filter, until it
	// returns false. The flow is only valid during the call. The error wraps
	// ErrNotFound if the filter names a rule or backend that does not exist;
	// then each was not called.
	Flows(filter *FlowFilter, each func(*Flow) bool) error
	Health() Health
	// WatchHealth returns a channel of updates: the present state, without events, then every change
	// of it. The channel is closed when the reader falls behind; cancel ends the watch and must be
	// called. The error wraps ErrRefused if there are too many watchers.
	WatchHealth() (updates <-chan HealthUpdate, cancel func(), err error)
	// ExplainHealth's error wraps ErrNotFound if there is no such source, composite or backend.
	ExplainHealth(ExplainHealthRequest) (HealthExplanation, error)
	// SetDrain stops or resumes new connections to a backend, named by its
	// name or service/name. The error wraps ErrNotFound if there is none.
	SetDrain(backend string, drain bool) error
	// SetAnnounce answers, or stops answering, for rules with announce:
	// STANDBY; all of them if rule is empty.
	SetAnnounce(rule string, on bool) error
	Explain(ExplainRequest) (Explanation, error)
	// Reload reads the configuration file again. An error means that it was
	// refused and the old one is still in force.
	Reload() error
	// Diff says what a reload with another file would change. The error wraps
	// ErrRefused if the file is not valid.
	Diff(DiffRequest) (Diff, error)
}

// Errors that keep their identity over the socket.
var (
	ErrNotFound = errors.New("not found")
	ErrRefused  = errors.New("refused")
)

// errBadRequest is what a client of another version, or none of ours, gets.
var errBadRequest = errors.New("bad request")

// otherSocket is the remedy for a path that does not serve.
const otherSocket = "set admin.socket to another path"

// Listen creates the admin socket with mode 0600. A socket that nobody answers
// on, left by a crash, is replaced; one that answers is another appliance's.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create directory of admin socket: %w; %s", err, otherSocket)
	}
	if err := clearPath(path); err != nil {
		return nil, err
	}
	old := syscall.Umask(0o177)
	l, err := net.Listen("unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen on admin socket: %w; %s", err, otherSocket)
	}
	return l, nil
}

// clearPath makes way for a socket: it removes one that nobody listens on, left
// by a crash, and nothing else.
func clearPath(path string) error {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look at admin socket: %w; %s", err, otherSocket)
	case fi.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("admin socket %s: something else is there; remove it, or %s", path, otherSocket)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		c.Close()
		return fmt.Errorf("admin socket %s: another appliance answers on it; stop it, or %s", path, otherSocket)
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("admin socket %s: cannot tell whether it is in use: %w; remove it if no appliance runs, or %s", path, err, otherSocket)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove stale admin socket: %w; %s", err, otherSocket)
	}
	return nil
}

// Serve answers requests until ctx is done.
func Serve(ctx context.Context, l net.Listener, a Appliance) error {
	srv := &http.Server{
		Handler: handler(a), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx }, // ends streams
	}
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			srv.Close()
		}
	})
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve admin socket: %w", err)
	}
	return nil
}

func handler(a Appliance) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) { reply(w, a.Status(), nil) })
	mux.HandleFunc("GET /backends", func(w http.ResponseWriter, r *http.Request) { reply(w, a.Backends(), nil) })
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) { reply(w, a.Health(), nil) })
	mux.HandleFunc("GET /health/watch", func(w http.ResponseWriter, r *http.Request) { watchHealth(a, w, r) })
	mux.HandleFunc("POST /explain-health", func(w http.ResponseWriter, r *http.Request) {
		var q ExplainHealthRequest
		if ask(w, r, &q) {
			e, err := a.ExplainHealth(q)
			reply(w, e, err)
		}
	})
	mux.HandleFunc("POST /flows", func(w http.ResponseWriter, r *http.Request) {
		var f FlowFilter
		if ask(w, r, &f) {
			sendFlows(r.Context(), w, a, &f)
		}
	})
	mux.HandleFunc("POST /explain", func(w http.ResponseWriter, r *http.Request) {
		var q ExplainRequest
		if ask(w, r, &q) {
			e, err := a.Explain(q)
			reply(w, e, err)
		}
	})
	mux.HandleFunc("POST /drain", func(w http.ResponseWriter, r *http.Request) {
		var q switchRequest
		if ask(w, r, &q) {
			reply(w, struct{}{}, a.SetDrain(q.Name, q.On))
		}
	})
	mux.HandleFunc("POST /announce", func(w http.ResponseWriter, r *http.Request) {
		var q switchRequest
		if ask(w, r, &q) {
			reply(w, struct{}{}, a.SetAnnounce(q.Name, q.On))
		}
	})
	mux.HandleFunc("POST /diff", func(w http.ResponseWriter, r *http.Request) {
		var q DiffRequest
		if ask(w, r, &q) {
			d, err := a.Diff(q)
			reply(w, d, err)
		}
	})
	mux.HandleFunc("POST /reload", func(w http.ResponseWriter, r *http.Request) { reply(w, struct{}{}, a.Reload()) })
	return mux
}

// switchRequest turns something named on or off.
type switchRequest struct {
	Name string `json:"name"`
	On   bool   `json:"on"`
}

// failure is how an error travels.
type failure struct {
	Error string `json:"error"`
}

func ask(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		reply(w, nil, fmt.Errorf("%w: read request: %w", errBadRequest, err))
		return false
	}
	return true
}

// reply sends what was asked for, or why not. The client may have gone away:
// there is nothing left to do then.
func reply(w http.ResponseWriter, v any, err error) {
	out := json.NewEncoder(newPatient(w))
	w.Header().Set("Content-Type", "application/json")
	if err == nil {
		_ = out.Encode(v)
		return
	}
	switch {
	case errors.Is(err, errBadRequest):
		w.WriteHeader(http.StatusBadRequest)
	case errors.Is(err, ErrNotFound):
		w.WriteHeader(http.StatusNotFound)
	case errors.Is(err, ErrRefused):
		w.WriteHeader(http.StatusConflict)
	default:
		w.WriteHeader(http.StatusInternalServerError)
	}
	_ = out.Encode(failure{err.Error()})
}

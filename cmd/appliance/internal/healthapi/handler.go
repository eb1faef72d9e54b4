// Package healthapi shows the health of this region to whoever has to choose between regions: JSON
// over HTTP, read only, on the address of health.listen.
//
//	GET /v1/health                                   region, sources and composites
//	GET /v1/healthSources                            every source
//	GET /v1/healthSources/NAME/getHealth             one source
//	GET /v1/compositeHealthChecks                    every composite
//	GET /v1/compositeHealthChecks/NAME/getHealth     one composite
//
// With ?watch=1 the answer does not end: it is a document a line, the present one at once, then a new
// one whenever it changes, and the same again every few seconds, so that a reader can tell a quiet
// region from a lost one. A reader that has no connection knows nothing: UNKNOWN, not UNHEALTHY.
// Nothing may act on a document whose dryRun is true.
//
// Whoever may connect may read; the listener belongs on a management network.
package healthapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/net/netutil"

	"zonehop/cmd/appliance/internal/admin"
)

// Source is where the states come from; safe for concurrent use.
type Source interface {
	// HealthState is the present state.
	HealthState() admin.HealthUpdate
	// WatchHealth is as in admin.Appliance.
	WatchHealth() (updates <-chan admin.HealthUpdate, cancel func(), err error)
}

// Region is the document of everything.
type Region struct {
	Region     string                  `json:"region"`
	Sources    []admin.HealthSource    `json:"healthSources"`
	Composites []admin.CompositeHealth `json:"compositeHealthChecks"`
}

// maxConnections bounds what strangers can take of this process's descriptors,
// which probes need too. It is twice what may watch at a time.
const maxConnections = 512

// Serve answers on l until ctx is done.
func Serve(ctx context.Context, l net.Listener, region string, src Source) error {
	srv := &http.Server{
		Handler:           Handler(region, src),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
		BaseContext:    func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			srv.Close()
		}
	})
	defer stop()
	if err := srv.Serve(netutil.LimitListener(l, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health: %w", err)
	}
	return nil
}

// document makes one document of a state, false if what was asked for does not exist.
type document func(*admin.HealthUpdate) (any, bool)

// Handler answers the paths of the package comment.
func Handler(region string, src Source) http.Handler {
	mux := http.NewServeMux()
	serve := func(path string, of func(r *http.Request) document) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { answer(w, r, src, of(r)) })
	}
	serve("/v1/health", func(*http.Request) document {
		return func(u *admin.HealthUpdate) (any, bool) { return Region{region, u.Sources, u.Composites}, true }
	})
	serve("/v1/healthSources", func(*http.Request) document {
		return func(u *admin.HealthUpdate) (any, bool) { return items[admin.HealthSource]{u.Sources}, true }
	})
	serve("/v1/compositeHealthChecks", func(*http.Request) document {
		return func(u *admin.HealthUpdate) (any, bool) { return items[admin.CompositeHealth]{u.Composites}, true }
	})
	serve("/v1/healthSources/{name}/getHealth", func(r *http.Request) document {
		return func(u *admin.HealthUpdate) (any, bool) {
			return find(u.Sources, func(s *admin.HealthSource) bool { return s.Name == r.PathValue("name") })
		}
	})
	serve("/v1/compositeHealthChecks/{name}/getHealth", func(r *http.Request) document {
		return func(u *admin.HealthUpdate) (any, bool) {
			return find(u.Composites, func(c *admin.CompositeHealth) bool { return c.Name == r.PathValue("name") })
		}
	})
	return mux
}

type items[T any] struct {
	Items []T `json:"items"`
}

func find[T any](list []T, is func(*T) bool) (any, bool) {
	i := slices.IndexFunc(list, func(t T) bool { return is(&t) })
	if i < 0 {
		return nil, false
	}
	return list[i], true
}

// failure is how an error is told.
type failure struct {
	Error string `json:"error"`
}

// answer sends a document, or a stream of it.
func answer(w http.ResponseWriter, r *http.Request, src Source, doc document) {
	watching := r.URL.Query().Get("watch")
	if watching != "" && watching != "0" && watching != "false" {
		watch(w, r, src, doc)
		return
	}
	u := src.HealthState()
	v, ok := doc(&u)
	if !ok {
		say(w, http.StatusNotFound, failure{"there is no such health source or composite health check"})
		return
	}
	say(w, http.StatusOK, v)
}

// answerTimeout is how long a client may take to read a document.
const answerTimeout = 10 * time.Second

func say(w http.ResponseWriter, status int, v any) {
	if http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout)) != nil {
		return // the connection is gone
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client went away: nothing to do
}

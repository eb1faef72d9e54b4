package healthapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"zonehop/cmd/appliance/internal/admin"
)

// source is a source with a single watcher.
type source struct {
	state   admin.HealthUpdate
	updates chan admin.HealthUpdate
	ended   chan struct{}
	refuse  error
}

func (s *source) HealthState() admin.HealthUpdate { return s.state }

func (s *source) WatchHealth() (<-chan admin.HealthUpdate, func(), error) {
	if s.refuse != nil {
		return nil, nil, s.refuse
	}
	s.updates <- s.state
	return s.updates, func() { close(s.ended) }, nil
}

func stateOf(state string, healthy int) admin.HealthUpdate {
	return admin.HealthUpdate{
		Sources:    []admin.HealthSource{{Name: "a/b", HealthState: state, EndpointCounts: admin.EndpointCounts{Endpoints: 5, Healthy: healthy}}},
		Composites: []admin.CompositeHealth{{Name: "region", HealthState: state}},
	}
}

// serve runs the listener until the test ends, and checks that nothing of it is left then.
func serve(t *testing.T, s *source) (url string) {
	t.Helper()
	t.Cleanup(func() {
		// What has done its work ends when the scheduler lets it.
		err := goleak.Find()
		for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); {
			err = goleak.Find()
		}
		if err != nil {
			t.Error(err)
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, "here", s) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("the listener does not end")
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return "http://" + l.Addr().String()
}

func newSource(state admin.HealthUpdate) *source {
	return &source{state: state, updates: make(chan admin.HealthUpdate, 64), ended: make(chan struct{})}
}

// watchLines opens a stream and returns a reader of its lines.
func watchLines(t *testing.T, url string) (next func() (healthState string, healthy int, ok bool)) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", url, resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	return func() (string, int, bool) {
		if !lines.Scan() {
			return "", 0, false
		}
		var h admin.HealthSource
		if err := json.Unmarshal(lines.Bytes(), &h); err != nil {
			t.Fatalf("line %q: %v", lines.Text(), err)
		}
		return h.HealthState, h.Healthy, true
	}
}

// TestWatch: the present state at once, every change once, nothing for a change of something else,
// and a repetition in between.
func TestWatch(t *testing.T) {
	s := newSource(stateOf("HEALTHY", 5))
	next := watchLines(t, serve(t, s)+"/v1/healthSources/a%2Fb/getHealth?watch=1")
	expect := func(state string, healthy int) {
		t.Helper()
		if got, n, ok := next(); !ok || got != state || n != healthy {
			t.Fatalf("got %s with %d, %v; want %s with %d", got, n, ok, state, healthy)
		}
	}
	expect("HEALTHY", 5)
	began := time.Now()
	expect("HEALTHY", 5)
	if took := time.Since(began); took < repeatAfter/2 {
		t.Errorf("an unchanged document is repeated after %v, want about %v", took, repeatAfter)
	}
	s.updates <- stateOf("HEALTHY", 4)
	expect("HEALTHY", 4)
	s.updates <- stateOf("HEALTHY", 4) // a change of something else
	s.updates <- stateOf("UNHEALTHY", 2)
	s.updates <- stateOf("HEALTHY", 3)
	expect("UNHEALTHY", 2)
	expect("HEALTHY", 3)
	s.updates <- admin.HealthUpdate{} // not configured any more
	if state, _, ok := next(); ok {
		t.Errorf("the stream goes on with %s", state)
	}
	<-s.ended
}

// TestWatchEndsBehind: a watcher that fell behind ends.
func TestWatchEndsBehind(t *testing.T) {
	s := newSource(stateOf("HEALTHY", 5))
	next := watchLines(t, serve(t, s)+"/v1/health?watch=1")
	if _, _, ok := next(); !ok {
		t.Fatal("no first document")
	}
	close(s.updates)
	if _, _, ok := next(); ok {
		t.Error("the stream goes on after it fell behind")
	}
	<-s.ended
}

// TestWatchEndsWithItsReader: a watcher whose reader went away ends.
func TestWatchEndsWithItsReader(t *testing.T) {
	s := newSource(stateOf("HEALTHY", 5))
	url := serve(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/health?watch=1", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	resp.Body.Close()
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		t.Error("the watch goes on without its reader")
	}
}

// TestStuckReader: one that does not read is given up, whatever is in its buffers.
func TestStuckReader(t *testing.T) {
	s := newSource(stateOf("HEALTHY", 5))
	s.state.Sources[0].Missing = strings.Repeat("x", 4<<20)
	url := serve(t, s)
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /v1/health?watch=1 HTTP/1.1\r\nHost: here\r\n\r\n")
	for i := range 8 {
		u := stateOf("HEALTHY", i)
		u.Sources[0].Missing = s.state.Sources[0].Missing
		s.updates <- u
	}
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		t.Error("a reader that does not read is never given up")
	}
}

func TestAnswers(t *testing.T) {
	s := newSource(stateOf("UNHEALTHY", 1))
	s.refuse = errors.New("too many")
	url := serve(t, s)
	for path, want := range map[string]int{
		"/v1/health": 200, "/v1/healthSources": 200, "/v1/compositeHealthChecks": 200,
		"/v1/healthSources/a%2Fb/getHealth": 200, "/v1/compositeHealthChecks/region/getHealth": 200,
		"/v1/healthSources/region/getHealth": 404, "/v1/compositeHealthChecks/a%2Fb/getHealth": 404,
		"/v1/health?watch=1": 503, "/v1/health?watch=0": 200, "/": 404, "/v1": 404,
	} {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		err = json.NewDecoder(resp.Body).Decode(&doc)
		resp.Body.Close()
		if resp.StatusCode != want || want == 200 && (err != nil || len(doc) == 0) {
			t.Errorf("%s gives %s and %v (%v), want %d", path, resp.Status, doc, err, want)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		req, err := http.NewRequest(method, url+"/v1/health", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s gives %s, want 405", method, resp.Status)
		}
	}
}

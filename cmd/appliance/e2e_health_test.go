package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"zonehop/bench/lab"
	"zonehop/cmd/appliance/internal/admin"
)

// listenerURL is the health listener of testdata/health.yaml, as clients reach it.
const listenerURL = "http://10.0.0.2:8089"

// webFrom is an HTTP client inside a node.
func webFrom(node *lab.Node) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			err = node.Exec(func() (err error) {
				var d net.Dialer
				c, err = d.DialContext(ctx, network, address)
				return err
			})
			return c, err
		}}}
}

// documents follows a stream of the health listener from a client of another zone. Each line comes
// with the time it arrived.
type documents[T any] struct {
	net   *network
	lines chan documentAt[T]
}

type documentAt[T any] struct {
	doc T
	at  time.Time
}

func follow[T any](n *network, path string) *documents[T] {
	n.Helper()
	ctx, cancel := context.WithCancel(n.ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, listenerURL+path+"?watch=1", http.NoBody)
	n.must(err)
	resp, err := webFrom(n.Client("client-b").Node).Do(req)
	n.must(err)
	if resp.StatusCode != http.StatusOK {
		n.Fatalf("%s: %s", path, resp.Status)
	}
	d := &documents[T]{net: n, lines: make(chan documentAt[T], 1024)}
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(d.lines)
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			line := documentAt[T]{at: time.Now()}
			if json.Unmarshal(s.Bytes(), &line.doc) == nil {
				d.lines <- line
			}
		}
	})
	n.Cleanup(func() { cancel(); resp.Body.Close(); reader.Wait() })
	return d
}

// until reads lines until one is as wanted, and returns all of them.
func (d *documents[T]) until(what string, is func(T) bool) []documentAt[T] {
	d.net.Helper()
	var seen []documentAt[T]
	for deadline := time.After(patience); ; {
		select {
		case line, ok := <-d.lines:
			if !ok {
				d.net.Fatalf("the stream ended before %s", what)
			}
			if seen = append(seen, line); is(line.doc) {
				return seen
			}
		case <-deadline:
			d.net.Fatalf("no %s within %v; last seen %+v", what, patience, seen[max(0, len(seen)-2):])
		}
	}
}

func (n *network) setHealth(h lab.Health, names ...string) {
	n.Helper()
	for _, name := range names {
		n.must(n.Backend(name).SetHealth(h))
	}
}

// region waits until a composite is in a state, as the control interface sees it.
func (d *device) region(name, state string) {
	d.net.Helper()
	d.wait(name+" to be "+state, func() error {
		h, err := d.Health()
		if err != nil {
			return err
		}
		for _, c := range h.Composites {
			if c.Name == name && c.HealthState == state {
				return nil
			}
		}
		return fmt.Errorf("composites are %+v", h.Composites)
	})
}

// neverUnhealthy fails if any source or composite has ever been.
func (d *device) neverUnhealthy(when string) {
	d.net.Helper()
	h, err := d.Health()
	d.net.must(err)
	check := func(name string, history []admin.Transition) {
		if len(history) == 0 {
			d.net.Errorf("%s: %s has no history", when, name)
		}
		for _, t := range history {
			if t.To == "UNHEALTHY" {
				d.net.Errorf("%s: %s turned UNHEALTHY: %s", when, name, t.Text)
			}
		}
	}
	for _, s := range h.Sources {
		check(s.Name, s.Transitions)
	}
	for _, c := range h.Composites {
		check(c.Name, c.Transitions)
	}
}

// TestRegionFlipsAtTheThreshold: a region of three services. Backends fail one by one; the source and
// the composite turn exactly at the threshold, and a client elsewhere sees it on its stream at once.
func TestRegionFlipsAtTheThreshold(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	d := n.start(testConfig(t, "health.yaml"))
	d.region("europe", "HEALTHY")
	d.neverUnhealthy("after the start")

	source := follow[admin.HealthSource](n, "/v1/healthSources/web-health/getHealth")
	composite := follow[admin.CompositeHealth](n, "/v1/compositeHealthChecks/europe/getHealth")
	first := composite.until("the present state", func(admin.CompositeHealth) bool { return true })
	if first[0].doc.HealthState != "HEALTHY" || first[0].doc.HealthDestination != "web-tcp" || len(first[0].doc.HealthSources) != 3 {
		t.Errorf("the stream begins with %+v", first[0].doc)
	}
	n.setHealth(lab.HealthFailing, "web-b1", "web-b2")
	for _, line := range source.until("3 of 5 healthy", func(s admin.HealthSource) bool { return s.Healthy == 3 }) {
		if line.doc.HealthState != "HEALTHY" {
			t.Errorf("with %d of 5 healthy the source is %s, want HEALTHY: 3 are exactly 60 %%", line.doc.Healthy, line.doc.HealthState)
		}
	}
	n.setHealth(lab.HealthFailing, "web-c1")
	lines := source.until("UNHEALTHY", func(s admin.HealthSource) bool { return s.HealthState == "UNHEALTHY" })
	if s := lines[len(lines)-1].doc; s.Healthy != 2 || s.RequiredEndpointCount != 3 || !strings.HasPrefix(s.Missing, "HEALTHY after 1 more recovery") ||
		s.Sources[0].Source != "web" || s.Sources[0].ForwardingRule != "web-tcp" || len(s.Sources[0].Backends) != 3 {
		t.Errorf("the source turned UNHEALTHY with %+v", s)
	}
	composite.until("UNHEALTHY", func(c admin.CompositeHealth) bool { return c.HealthState == "UNHEALTHY" })

	// From the verdict of the backend that decided to the line at a client in another namespace.
	var delays []time.Duration
	measure := func(state string) {
		lines := composite.until(state, func(c admin.CompositeHealth) bool { return c.HealthState == state })
		last := lines[len(lines)-1]
		since, err := time.Parse(time.RFC3339Nano, last.doc.Since)
		n.must(err)
		delays = append(delays, last.at.Sub(since))
	}
	for range 5 {
		n.setHealth(lab.HealthOK, "web-c1")
		measure("HEALTHY")
		n.setHealth(lab.HealthFailing, "web-c1")
		measure("UNHEALTHY")
	}
	slices.Sort(delays)
	t.Logf("verdict to stream (aim: 100 ms) over %d flips: median %v, worst %v", len(delays), delays[len(delays)/2], delays[len(delays)-1])
	d.sub("commands", (*device).testHealthCommands)
	d.sub("dry run", (*device).testDryRun)
	d.sub("metrics", (*device).testHealthMetrics)
	d.sub("listener", (*device).testListener)

	// Taking a failed backend out of service brings the region back: 2 of 4 are too few, 2 of 3 are not.
	n.must(d.SetDrain("web-b1", true))
	n.must(d.SetDrain("web-b2", true))
	d.region("europe", "HEALTHY")
	d.stop()
}

// testHealthCommands runs what an operator would while three of five backends have failed.
func (d *device) testHealthCommands() {
	t := d.net.T
	out, _, status := d.command("health")
	for _, want := range []string{
		"composite europe of rule web-tcp: UNHEALTHY since ", "  HEALTHY once web-health turns HEALTHY",
		"  source web-health: UNHEALTHY since ", "2 of 5 healthy, 3 unhealthy; policy most: at least 60 % and 1",
		"HEALTHY after 1 more recovery: 2 of 5 backends healthy, 3 needed", "service web: healthy by zone: europe-west1-b 0 of 2, ",
		"      web-b1 10.1.0.11:8080: UNHEALTHY", "composite trial of rule db-tcp: UNHEALTHY since ", "source db-health: HEALTHY since ", "(dry run), ignored here",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("health does not say %q:\n%s", want, out)
		}
	}
	if status != 0 {
		t.Errorf("health ends with status %d", status)
	}
	for _, c := range []struct {
		args   []string
		status int
		say    string
	}{
		{[]string{"europe"}, 2, "composite europe of rule web-tcp: UNHEALTHY"},
		{[]string{"web-health"}, 2, "web-b1 (europe-west1-b): UNHEALTHY"},
		{[]string{"api-health"}, 0, "source api-health: HEALTHY"},
		{[]string{"api-health", "--unknown", "web-d2"}, 5, "HEALTHY if 1 of the 1 without a verdict turn healthy"},
		{[]string{"europe", "--unknown", "web-c1"}, 5, "composite europe of rule web-tcp: UNKNOWN"},
		{[]string{"europe", "--config", d.file}, 0, "composite europe of rule web-tcp: HEALTHY\n"},
		{[]string{"europe", "--config", d.file, "--down", "web-b1,web-b2"}, 0, "3 of 5 healthy, 2 unhealthy"},
		{[]string{"europe", "--config", d.file, "--down", "web-b1,web-b2,web/web-c1"}, 2, "2 of 5 healthy, 3 unhealthy"},
		{[]string{"europe", "--config", d.file, "--down", "web-b1,web-b2", "--unknown", "web-c1"}, 5, "UNHEALTHY after 1 failure"},
	} {
		out, problems, status := d.command(append([]string{"explain-health"}, c.args...)...)
		if status != c.status || !strings.Contains(out, c.say) {
			t.Errorf("explain-health %v ends with %d, want %d and %q:\n%s%s", c.args, status, c.status, c.say, out, problems)
		}
		out, _, status = d.command(append([]string{"explain-health", "--json"}, c.args...)...)
		var e admin.HealthExplanation
		if err := json.Unmarshal([]byte(out), &e); err != nil || status != c.status || e.Name != c.args[0] || e.Missing == "" {
			t.Errorf("explain-health --json %v ends with %d: %v, %+v", c.args, status, err, e)
		}
	}
	if _, problems, status := d.command("explain-health", "nothing"); status != 1 || !strings.Contains(problems, `"nothing": not found`) {
		t.Errorf("explain-health of nothing ends with %d: %s", status, problems)
	}
	if _, problems, status := d.command("explain-health", "europe", "--down", "web-b7"); status != 1 || !strings.Contains(problems, "web-b7") {
		t.Errorf("explain-health with an unknown backend ends with %d: %s", status, problems)
	}
}

// testDryRun: what is a dry run is evaluated and told, and changes nothing else.
func (d *device) testDryRun() {
	t := d.net.T
	events := make(chan admin.HealthEvent, 1024)
	ctx, cancel := context.WithCancel(d.net.ctx)
	ready := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		if err := d.WatchHealth(ctx, func() { close(ready) }, func(e admin.HealthEvent) { events <- e }); err != nil {
			t.Error(err)
		}
		close(events)
	})
	<-ready
	d.net.setHealth(lab.HealthOK, "web-c1")
	d.region("europe", "HEALTHY")
	d.net.setHealth(lab.HealthFailing, "fw-c")
	d.region("trial", "UNHEALTHY")
	d.region("europe", "HEALTHY")
	d.net.setHealth(lab.HealthOK, "fw-c")
	d.region("trial", "HEALTHY")
	d.net.setHealth(lab.HealthFailing, "web-c1")
	d.region("europe", "UNHEALTHY")
	cancel()
	watcher.Wait()
	var told []string
	for e := range events {
		told = append(told, fmt.Sprintf("%s %s %s", e.Kind, e.Name, e.HealthState))
		if e.Kind == admin.KindBackend && (e.LatencyMs <= 0 || e.Cause == "" || e.Address == "") {
			t.Errorf("an event of a backend without its result: %+v", e)
		}
		if e.Kind == admin.KindSource && (e.Counts == nil || len(e.Sources) == 0) || e.Kind == admin.KindComposite && len(e.HealthSources) == 0 {
			t.Errorf("an event without what led to it: %+v", e)
		}
		if want := e.Name == "db-health" || e.Name == "trial"; e.DryRun != want {
			t.Errorf("dry run %v of %s", e.DryRun, e.Name)
		}
	}
	want := []string{
		"backend web-c1 HEALTHY", "source web-health HEALTHY", "composite europe HEALTHY", "composite trial HEALTHY",
		"backend fw-c UNHEALTHY", "source db-health UNHEALTHY", "composite trial UNHEALTHY",
		"backend fw-c HEALTHY", "source db-health HEALTHY", "composite trial HEALTHY",
		"backend web-c1 UNHEALTHY", "source web-health UNHEALTHY", "composite europe UNHEALTHY", "composite trial UNHEALTHY",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
}

func (d *device) testHealthMetrics() {
	text := d.fetch(webFrom(d.net.Appliance()), "http://127.0.0.1:9109/metrics", http.StatusOK)
	for _, want := range []string{
		`zonehop_composite_health{name="europe"} 0`, `zonehop_health_source{name="web-health"} 0`, `zonehop_health_source{name="api-health"} 1`,
		`zonehop_probe_outages_total 0`,
	} {
		if !strings.Contains(text, want) {
			d.net.Errorf("metrics do not have %s", want)
		}
	}
}

// testListener asks the health listener for everything it has, and for what it does not.
func (d *device) testListener() {
	client := webFrom(d.net.Client("client-b").Node)
	for path, want := range map[string]string{
		"/v1/health":                                 `"region":"europe-west1"`,
		"/v1/healthSources":                          `"name":"db-health"`,
		"/v1/compositeHealthChecks":                  `"name":"trial"`,
		"/v1/healthSources/db-health/getHealth":      `"healthyPercentThreshold":40`,
		"/v1/compositeHealthChecks/trial/getHealth":  `"dryRun":true`,
		"/v1/compositeHealthChecks/europe/getHealth": `{"source":"web-health","healthState":"UNHEALTHY"}`,
	} {
		if text := d.fetch(client, listenerURL+path, http.StatusOK); !strings.Contains(text, want) {
			d.net.Errorf("%s has no %s: %s", path, want, text)
		}
	}
	d.fetch(client, listenerURL+"/v1/healthSources/nothing/getHealth", http.StatusNotFound)
	d.fetch(client, listenerURL+"/v1/healthSources/nothing/getHealth?watch=1", http.StatusNotFound)
	d.fetch(client, listenerURL+"/status", http.StatusNotFound)
	resp, err := client.Post(listenerURL+"/v1/health", "application/json", strings.NewReader("{}"))
	d.net.must(err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		d.net.Errorf("POST gives %s, want 405", resp.Status)
	}
}

func (d *device) fetch(client *http.Client, url string, status int) string {
	d.net.Helper()
	resp, err := client.Get(url)
	d.net.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	d.net.must(err)
	if resp.StatusCode != status {
		d.net.Errorf("%s gives %s, want %d: %s", url, resp.Status, status, text)
	}
	return string(text)
}

// TestRegionIsNeverFalselyUnhealthy: a start, a scale-out by reload and a restart leave a region
// HEALTHY or UNKNOWN, and histories live over reloads.
func TestRegionIsNeverFalselyUnhealthy(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	yaml := testConfig(t, "health.yaml")
	small := strings.ReplaceAll(yaml, "      - {name: web-b2, zone: europe-west1-b, address: 10.1.0.12}\n      - {name: web-c1, zone: europe-west1-c, address: 10.2.0.11}\n      - {name: web-c2, zone: europe-west1-c, address: 10.2.0.12}\n      - {name: web-d1, zone: europe-west1-d, address: 10.3.0.11}\n", "")
	if small == yaml {
		t.Fatal("nothing was taken out of testdata/health.yaml")
	}
	d := n.start(small)
	d.region("europe", "HEALTHY")
	d.neverUnhealthy("after the start")
	before, err := d.Health()
	n.must(err)
	for range 5 { // one backend becomes five, and back: four without a verdict each time
		d.write(yaml)
		n.must(d.Reload())
		d.region("europe", "HEALTHY")
		d.write(small)
		n.must(d.Reload())
		d.region("europe", "HEALTHY")
	}
	d.neverUnhealthy("after scaling out and in")
	after, err := d.Health()
	n.must(err)
	if x, y := before.Sources[0].Transitions, after.Sources[0].Transitions; len(y) <= len(x) || y[0].At != x[0].At {
		t.Errorf("the history before the reloads was %+v, and after them %+v", x, y)
	}
	for range 3 {
		d.stop()
		d.run()
		d.ready()
		d.region("europe", "HEALTHY")
		d.neverUnhealthy("after a restart")
	}
	d.stop()
}

// TestReportedWeights: new connections follow the weights that backends report; a change of weight
// moves no connection, and one backend without a weight makes all alike.
func TestReportedWeights(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	names := []string{"web-b1", "web-b2", "web-c1", "web-c2", "web-d1"}
	weights := make(map[string]*weightServer, len(names))
	for _, name := range names {
		weights[name] = n.reportWeight(name, "100")
	}
	weights["web-c2"].say("400")
	yaml := testConfig(t, "health.yaml", "connectionDraining: {drainingTimeoutSec: 30}\n    backends:\n      - {name: web-b1",
		"connectionDraining: {drainingTimeoutSec: 30}\n    localityLbPolicy: WEIGHTED_GCP_RENDEZVOUS\n    backends:\n      - {name: web-b1",
		"  - name: web\n    healthChecks: [http-8080]", "  - name: web\n    healthChecks: [{type: HTTP, checkIntervalSec: 0.2, unhealthyThreshold: 5, port: 8090}]")
	d := n.start(yaml)
	share := func(what, backend string, want float64) {
		t.Helper()
		d.wait(what, func() error {
			e, err := d.Explain(admin.ExplainRequest{Rule: "web-tcp", Tuple: admin.Tuple{Client: "10.1.0.101", Protocol: 6, SrcPort: 1, DstPort: 80}})
			if err != nil {
				return err
			}
			for _, s := range e.Shares {
				if s.Backend == backend && s.Share > 0.98*want && s.Share < 1.02*want {
					return nil
				}
			}
			return fmt.Errorf("shares are %v, want %v of %s", e.Shares, want, backend)
		})
	}
	share("half of the connections to the heavy backend", "web-c2", 0.5)
	got := n.shares("client-b", vip4, 400)
	if got["web-c2"] < 120 || got["web-c2"] > 280 { // eight standard deviations
		t.Errorf("of 400 connections %d went to web-c2, want about half: %v", got["web-c2"], got)
	}
	t.Logf("400 connections with weights 100, 100, 100, 400, 100: %v", got)

	s := n.stream("client-b", netip.AddrPortFrom(lab.VIPv4, lab.EchoTLS), "web-c2")
	weights["web-c2"].say("0")
	share("a fourth of the connections to another", "web-b1", 0.25)
	n.flowing(s)
	if got := n.shares("client-b", vip4, 100); got["web-c2"] != 0 {
		t.Errorf("of 100 connections %d went to web-c2 with weight 0", got["web-c2"])
	}
	weights["web-c2"].say("400")
	weights["web-b2"].say("")
	share("a fifth for each without all weights", "web-c2", 0.2)
	list, err := d.Backends()
	n.must(err)
	for _, b := range list {
		if b.Name == "web-b2" && (b.WeightState != "MISSING_WEIGHT" || b.WeightInUse) {
			t.Errorf("backends shows %+v for the one without a weight", b)
		}
		if b.Name == "web-c2" && (b.ReportedWeight == nil || *b.ReportedWeight != 400 || b.WeightState != "VALID_WEIGHT") {
			t.Errorf("backends shows %+v for the one of weight 400", b)
		}
	}
	weights["web-b2"].say("100")
	share("weights again", "web-c2", 0.5)
	n.flowing(s)
	d.stop()
}

// weightServer answers health checks on port 8090 of a backend with a weight.
type weightServer struct {
	mu   sync.Mutex
	text string // no header when empty
}

func (w *weightServer) say(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = text
}

func (w *weightServer) ServeHTTP(out http.ResponseWriter, _ *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.text != "" {
		out.Header().Set("X-Load-Balancing-Endpoint-Weight", w.text)
	}
	out.WriteHeader(http.StatusOK)
}

func (n *network) reportWeight(backend, text string) *weightServer {
	n.Helper()
	var l net.Listener
	n.must(n.Backend(backend).Exec(func() (err error) {
		l, err = net.Listen("tcp4", ":8090")
		return err
	}))
	w := &weightServer{text: text}
	srv := &http.Server{Handler: w, ReadHeaderTimeout: 10 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { srv.Serve(l) }) // ends with ErrServerClosed
	n.Cleanup(func() { srv.Close(); serving.Wait() })
	return w
}

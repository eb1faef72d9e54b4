// Package metrics shows the appliance's state to Prometheus. Counters are read
// from the status at each scrape: the packet path knows nothing of metrics.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/forwarder/claim"
)

// Source is where the numbers come from; safe for concurrent use.
type Source interface {
	Status() admin.Status
	Health() admin.Health
}

// Events are what happens rather than is: observed when it happens.
type Events struct {
	ProbeSeconds   prometheus.Histogram
	PublishSeconds prometheus.Histogram
	Reloads        *prometheus.CounterVec // label result: applied, refused
	Outages        prometheus.Counter
}

// NewEvents makes the event metrics.
func NewEvents() *Events {
	e := &Events{
		ProbeSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "zonehop_probe_duration_seconds", Help: "How long health probes took.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10),
		}),
		PublishSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "zonehop_snapshot_publish_seconds", Help: "How long it took to build and publish a snapshot.",
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 10),
		}),
		Reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "zonehop_config_reloads_total", Help: "Configuration reloads by result.",
		}, []string{"result"}),
		Outages: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "zonehop_probe_outages_total", Help: "Times all healthy backends turned unhealthy together: the prober's own network may be the cause.",
		}),
	}
	e.Reloads.WithLabelValues("applied")
	e.Reloads.WithLabelValues("refused")
	return e
}

// Registry returns everything the appliance shows.
func Registry(src Source, e *Events) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(e.ProbeSeconds, e.PublishSeconds, e.Reloads, e.Outages, collector{src},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// maxConnections bounds what strangers can take of this process's descriptors,
// which probes need too.
const maxConnections = 64

// Serve answers /metrics on l until ctx is done. A client that does not read is
// given up after a minute.
func Serve(ctx context.Context, l net.Listener, r *prometheus.Registry) error {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	srv := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(netutil.LimitListener(l, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

// collector turns a status into samples.
type collector struct{ src Source }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("zonehop_"+name, help, labels, nil)
}

var (
	received    = desc("received_packets_total", "Frames taken from AF_XDP queues.", "interface", "queue")
	forwarded   = desc("forwarded_packets_total", "Packets sent to backends.", "rule", "backend")
	forwardedB  = desc("forwarded_bytes_total", "Bytes sent to backends, Ethernet header included.", "rule", "backend")
	dropped     = desc("dropped_packets_total", "Frames dropped, by reason.", "reason")
	answered    = desc("answered_packets_total", "Frames answered by the appliance.", "kind")
	originated  = desc("originated_packets_total", "Frames sent by the appliance of its own accord.", "kind")
	held        = desc("held_packets", "Fragments waiting for their first fragment.")
	newConns    = desc("new_connections_total", "Connections given to backends.", "rule", "client_zone", "backend_zone")
	zoneBytes   = desc("zone_bytes_total", "Bytes from clients to backends, by zone; with the appliance's zone configured.", "client_zone", "backend_zone")
	detour      = desc("detour_bytes_total", "Bytes between machines of one zone that crossed into another only because the appliance is there.")
	flows       = desc("flows", "Tracked flows.", "state")
	capacity    = desc("flow_table_capacity", "Lines of the flow table.")
	rejected    = desc("flow_table_rejected_total", "Flows forwarded without an entry.", "cause")
	midFlow     = desc("mid_flow_misses_total", "TCP packets without SYN whose connection had no entry.")
	claims      = desc("address_claims_total", "What other hosts said about addresses that are answered for here.", "kind")
	missed      = desc("address_claims_missed_total", "Such messages that came too fast to be looked at.")
	health      = desc("backend_health", "1 healthy at all its addresses, 0 unhealthy at one, -1 unknown.", "backend", "check")
	ofSource    = desc("health_source", "1 healthy, 0 unhealthy, -1 unknown.", "name")
	ofComposite = desc("composite_health", "1 healthy, 0 unhealthy, -1 unknown.", "name")
	generation  = desc("snapshot_generation", "Number of the snapshot in force.")
	interfaceUp = desc("interface_up", "1 if the interface is attached and up.", "interface")
	queueBound  = desc("xsk_queue_bound", "1 if the queue has an AF_XDP socket.", "interface", "queue")
	redirected  = desc("xsk_redirected_total", "Frames the classifier took from the kernel.", "interface", "queue")
	noSocket    = desc("xsk_no_socket_total", "Frames dropped because their queue had no socket.", "interface", "queue")
	returned    = desc("xsk_probes_returned_total", "Probes as rules' addresses that a backend sent back: dropped.", "interface", "queue")
	rxDropped   = desc("xsk_rx_dropped_total", "Frames the kernel dropped before the RX ring.", "interface", "queue")
	rxRingFull  = desc("xsk_rx_ring_full_total", "Frames dropped because the RX ring was full.", "interface", "queue")
	fillEmpty   = desc("xsk_fill_empty_total", "Times the kernel found the fill ring empty.", "interface", "queue")
	txInvalid   = desc("xsk_tx_invalid_total", "Descriptors the kernel refused to send.", "interface", "queue")
	wakeups     = desc("xsk_wakeups_total", "Kicks of the kernel, sent and saved.", "interface", "queue", "kind")
)

// Describe implements prometheus.Collector. Nothing is promised in advance:
// which samples exist depends on the configuration.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := c.src.Status()
	for _, i := range s.Interfaces {
		gauge(interfaceUp, oneIf(i.Up && i.Problem == ""), i.Name)
		for _, q := range i.Queues {
			n := strconv.Itoa(q.Queue)
			gauge(queueBound, oneIf(q.Bound), i.Name, n)
			counter(received, q.Received, i.Name, n)
			counter(redirected, q.Redirected, i.Name, n)
			counter(noSocket, q.NoSocket, i.Name, n)
			counter(returned, q.ProbesReturned, i.Name, n)
			counter(rxDropped, q.RXDropped, i.Name, n)
			counter(rxRingFull, q.RXRingFull, i.Name, n)
			counter(fillEmpty, q.FillEmpty, i.Name, n)
			counter(txInvalid, q.TXInvalid, i.Name, n)
			counter(wakeups, q.WakeupsSent, i.Name, n, "sent")
			counter(wakeups, q.WakeupsSaved, i.Name, n, "saved")
		}
	}
	for _, p := range s.Pairs {
		counter(forwarded, p.Packets, p.Rule, p.Backend)
		counter(forwardedB, p.Bytes, p.Rule, p.Backend)
	}
	for k, v := range s.Accounting.Dropped {
		counter(dropped, v, k)
	}
	for k, v := range s.Accounting.Answered {
		counter(answered, v, k)
	}
	for k, v := range s.Accounting.Originated {
		counter(originated, v, k)
	}
	gauge(held, float64(s.Accounting.Held))
	for _, n := range s.Conns {
		counter(newConns, n.Connections, n.Rule, n.ClientZone, n.BackendZone)
	}
	for _, z := range s.Zones {
		counter(zoneBytes, z.Bytes, z.ClientZone, z.BackendZone)
	}
	counter(detour, s.DetourBytes)
	t := s.FlowTable
	gauge(flows, float64(t.Unconfirmed), "unconfirmed")
	gauge(flows, float64(t.Confirmed), "confirmed")
	gauge(flows, float64(t.Closing), "closing")
	gauge(capacity, float64(t.Capacity))
	counter(rejected, t.RejectedQuota, "quota")
	counter(rejected, t.RejectedFull, "full")
	counter(midFlow, s.Accounting.MidFlow)
	counter(claims, s.Claims.Conflicts, claim.Conflict.String())
	counter(claims, s.Claims.Probes, claim.Probe.String())
	counter(missed, s.Claims.Missed)
	gauge(generation, float64(s.Generation))

	type probed struct{ backend, check string }
	seen := make(map[probed]float64)
	h := c.src.Health()
	for _, s := range h.Sources {
		gauge(ofSource, stateValue(s.HealthState), s.Name)
	}
	for _, s := range h.Composites {
		gauge(ofComposite, stateValue(s.HealthState), s.Name)
	}
	for _, b := range h.Backends {
		// A backend with two addresses, or probed as several rules', is as healthy as the worst of them.
		k := probed{b.Service + "/" + b.Backend, b.Check}
		v := stateValue(b.State)
		if before, again := seen[k]; !again || v == 0 || before > 0 {
			seen[k] = v
		}
	}
	for k, v := range seen {
		gauge(health, v, k.backend, k.check)
	}
}

// stateValue is the number of a health state.
func stateValue(state string) float64 {
	return oneIf(state == "HEALTHY") - oneIf(state == "UNKNOWN")
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

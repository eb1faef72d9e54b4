package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"zonehop/bench/lab"
)

// TestCommands runs the commands that operators and scripts use against a
// running appliance, and reads its metrics.
func TestCommands(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	d := n.start(testConfig(t, "two-zones.yaml"))
	s := n.stream("client-b", netip.AddrPortFrom(lab.VIPv4, lab.EchoTLS), "")
	n.flowing(s)
	n.shares("client-c", far4, 2)

	d.sub("status --json", func(d *device) {
		v := d.object("status", "--json")
		has(d.net.T, "status", v, "interfaces", "rules", "accounting", "version", "generation", "flowTable")
		i := first(d.net.T, v, "interfaces")
		has(d.net.T, "interfaces[0]", i, "name", "mode", "up", "queues")
		if i["name"] != "eth0" || i["mode"] != "copy" {
			d.net.Errorf("the interface is %v in mode %v, want eth0 in mode copy", i["name"], i["mode"])
		}
		q := first(d.net.T, i, "queues")
		has(d.net.T, "queues[0]", q, "queue", "worker", "bound", "fill", "rx", "tx", "free", "frames", "received", "redirected", "noSocket", "rxDropped")
		has(d.net.T, "rules[0]", first(d.net.T, v, "rules"), "name", "kind", "match", "backendService", "announced", "packets", "bytes")
		has(d.net.T, "accounting", v["accounting"].(map[string]any), "redirected", "received", "forwarded", "answered", "dropped", "held",
			"originated", "completed", "inFlight", "abandoned", "invalid", "balanced")
	})
	d.sub("backends --json", func(d *device) {
		list := d.list("backends", "--json")
		if len(list) != 16 {
			d.net.Errorf("%d lines, want two addresses of eight backends", len(list))
		}
		for _, b := range list {
			has(d.net.T, "backends[]", b, "name", "service", "zone", "address", "health", "deliverable", "drain", "flows")
			if b["health"] != "HEALTHY" || b["deliverable"] != true || b["drain"] != false {
				d.net.Errorf("%v %v is %v, deliverable %v, drain %v", b["name"], b["address"], b["health"], b["deliverable"], b["drain"])
			}
			if b["name"] == s.Backend && b["flows"].(float64) < 1 {
				d.net.Errorf("%s has no flow although a stream goes to it", s.Backend)
			}
		}
	})
	d.sub("flows --json", func(d *device) {
		list := d.list("flows", "--json", "--client", s.LocalAddr().Addr().String(), "--backend", s.Backend, "--rule", "web-tcp")
		found := false
		for _, f := range list {
			has(d.net.T, "flows[]", f, "client", "destination", "protocol", "ports", "rule", "backend", "state", "ageSec", "idleSec", "packets", "bytes")
			if ports := f["ports"].(string); strings.Contains(ports, "→443") && f["state"] == "confirmed" {
				found = f["destination"] == lab.VIPv4.String() && f["protocol"] == "tcp" && f["packets"].(float64) > 2
			}
		}
		if !found {
			d.net.Errorf("the stream is not among %v", list)
		}
	})
	d.sub("health --json", func(d *device) {
		has(d.net.T, "health", d.object("health", "--json"), "backends", "sources", "composites")
	})
	d.sub("for people", func(d *device) {
		for command, words := range map[string][]string{
			"status":   {"INTERFACE", "eth0", "web-tcp", "inspect6", "flow table:", "accounting:"},
			"backends": {"BACKEND", "web-b1", "fw-c", "europe-west1-b", "HEALTHY"},
			"flows":    {"CLIENT", s.Backend, "web-tcp", "443"},
			"health":   {"BACKEND", "http-8080", "HEALTHY"},
		} {
			out, problems, status := d.command(command)
			if status != 0 || problems != "" {
				d.net.Errorf("%s: status %d, %q", command, status, problems)
			}
			for _, w := range words {
				if !strings.Contains(out, w) {
					d.net.Errorf("%s does not show %q:\n%s", command, w, out)
				}
			}
		}
	})
	d.sub("drain", func(d *device) {
		if _, problems, status := d.command("drain", s.Backend); status != 0 {
			d.net.Fatalf("drain: status %d, %q", status, problems)
		}
		if got := d.net.shares("client-b", vip4, 20); got[s.Backend] != 0 {
			d.net.Errorf("%d new connections went to a drained backend", got[s.Backend])
		}
		d.net.flowing(s)
		if _, problems, status := d.command("undrain", s.Backend); status != 0 {
			d.net.Fatalf("undrain: status %d, %q", status, problems)
		}
		if _, problems, status := d.command("drain", "nobody"); status != 1 || !strings.HasPrefix(problems, "appliance: ") {
			d.net.Errorf("drain of an unknown backend: status %d, %q", status, problems)
		}
	})
	d.sub("metrics", func(d *device) {
		text := d.metrics()
		for _, name := range []string{
			`zonehop_received_packets_total{interface="eth0",queue="0"}`, `zonehop_forwarded_packets_total{backend="` + s.Backend + `",rule="web-tcp"}`,
			`zonehop_forwarded_bytes_total{backend="` + s.Backend + `",rule="web-tcp"}`, `zonehop_dropped_packets_total{reason="no_rule"}`,
			`zonehop_answered_packets_total{kind="arp"}`, `zonehop_originated_packets_total{kind="time_exceeded"}`, `zonehop_held_packets`,
			`zonehop_new_connections_total{backend_zone="europe-west1-b",client_zone="europe-west1-b",rule="web-tcp"}`, `zonehop_flows{state="confirmed"}`,
			`zonehop_flow_table_capacity`, `zonehop_flow_table_rejected_total{cause="quota"}`, `zonehop_mid_flow_misses_total`, `zonehop_backend_health{backend="web/web-b1",check="http-8080"} 1`,
			`zonehop_probe_duration_seconds_bucket`, `zonehop_snapshot_generation`, `zonehop_snapshot_publish_seconds_count`,
			`zonehop_config_reloads_total{result="applied"}`, `zonehop_config_reloads_total{result="refused"}`,
			`zonehop_xsk_fill_empty_total{interface="eth0",queue="1"}`, `zonehop_xsk_rx_dropped_total`, `zonehop_xsk_tx_invalid_total`,
			`zonehop_xsk_wakeups_total{interface="eth0",kind="sent",queue="0"}`, `zonehop_xsk_wakeups_total{interface="eth0",kind="saved",queue="0"}`,
			`go_goroutines`, `process_cpu_seconds_total`,
		} {
			if !strings.Contains(text, name) {
				d.net.Errorf("no metric %s", name)
			}
		}
	})
	d.stop()
	if _, problems, status := d.command("status"); status != 1 || !strings.Contains(problems, "is it running?") {
		t.Errorf("status of a stopped appliance: status %d, %q", status, problems)
	}
}

// object runs a command that prints a JSON object, list one that prints a list.
func (d *device) object(args ...string) (v map[string]any) {
	d.net.Helper()
	d.decode(&v, args)
	return v
}

func (d *device) list(args ...string) (v []map[string]any) {
	d.net.Helper()
	d.decode(&v, args)
	return v
}

func (d *device) decode(into any, args []string) {
	d.net.Helper()
	out, problems, status := d.command(args...)
	if status != 0 || problems != "" {
		d.net.Fatalf("%v: status %d, %q", args, status, problems)
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		d.net.Fatalf("%v: %v in %s", args, err, out)
	}
}

func has(t *testing.T, what string, v map[string]any, fields ...string) {
	t.Helper()
	for _, f := range fields {
		if _, ok := v[f]; !ok {
			t.Errorf("%s has no field %q", what, f)
		}
	}
}

func first(t *testing.T, v map[string]any, field string) map[string]any {
	t.Helper()
	list, _ := v[field].([]any)
	if len(list) == 0 {
		t.Fatalf("%s is empty", field)
	}
	return list[0].(map[string]any)
}

// metrics reads the metrics from inside the appliance's namespace.
func (d *device) metrics() string {
	d.net.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = d.net.Node(d.node).Exec(func() error {
			c, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}}
	req, err := http.NewRequestWithContext(d.net.soon(), http.MethodGet, "http://127.0.0.1:9109/metrics", nil)
	d.net.must(err)
	resp, err := transport.RoundTrip(req)
	d.net.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	d.net.must(err)
	return string(text)
}

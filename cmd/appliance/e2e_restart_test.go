package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zonehop/bench/lab"
)

// shmDir is a directory of the test's own on a tmpfs.
func shmDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "zonehop-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// restart ends the appliance with a signal and starts it again with the
// configuration that is in its file by then.
func (d *device) restart(signal unix.Signal) {
	d.net.Helper()
	if signal == unix.SIGKILL {
		d.net.must(d.process.Kill())
	} else {
		d.stop()
	}
	d.run()
	d.ready()
}

// TestRestartKeepsFlows stops and kills the appliance under long connections
// whose backends were drained meanwhile: the hash would send all of them
// elsewhere, so that only the flow table's file can keep them.
func TestRestartKeepsFlows(t *testing.T) {
	n := newNetwork(t, lab.Options{})
	file := filepath.Join(shmDir(t), "flows")
	yaml := func(entries int, replace ...string) string {
		return testConfig(t, "two-zones.yaml", replace...) + fmt.Sprintf("flowTable: {entries: %d, path: %s}\n", entries, file)
	}
	c2 := `      - {name: web-c2, zone: europe-west1-c, address: 10.2.0.12, ipv6Address: "fd00:2::12"}` + "\n"
	c1 := `      - {name: web-c1, zone: europe-west1-c, address: 10.2.0.11, ipv6Address: "fd00:2::11"}` + "\n"
	d := n.start(yaml(1024, c2, ""))

	port := func(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, lab.EchoTLS) }
	var streams []*lab.Stream
	for range 4 {
		streams = append(streams,
			n.stream("client-b", port(lab.VIPv4), "web-b1"), n.stream("client-b", port(lab.VIPv6), "web-b1"),
			n.stream("client-c", port(lab.VIPv4), "web-c1"),
			n.stream("client-b", port(far4.Addr()), ""), n.stream("client-c", port(far6.Addr()), ""))
	}
	drained := map[string]bool{"web-b1": true, "fw-b": true}
	for name := range drained {
		n.must(d.SetDrain(name, true))
	}
	onDrained := 0
	for _, s := range streams {
		if drained[s.Backend] {
			onDrained++
		}
	}
	if onDrained < 8 {
		t.Fatalf("%d streams are on drained backends", onDrained)
	}
	// onlyTable checks that new connections go elsewhere, that the streams go
	// on, and that no packet of theirs was a surprise.
	onlyTable := func(what string) {
		t.Helper()
		for _, s := range streams {
			n.flowing(s)
		}
		for name := range n.shares("client-b", vip4, 20) {
			if drained[name] {
				t.Errorf("%s: a new connection went to %s", what, name)
			}
		}
		longest := time.Duration(0)
		for _, s := range streams {
			longest = max(longest, s.State().MaxGap)
		}
		status := d.status()
		if m := status.Accounting.MidFlow; m != 0 {
			t.Errorf("%s: %d packets of connections that the table did not know", what, m)
		}
		t.Logf("%s: %d streams, %d on drained backends, go on; longest gap so far %v; %d entries of %d",
			what, len(streams), onDrained, longest.Round(time.Millisecond), status.FlowTable.Used, status.FlowTable.Capacity)
	}
	onlyTable("before")
	d.restart(unix.SIGTERM)
	onlyTable("SIGTERM")
	d.restart(unix.SIGKILL)
	onlyTable("SIGKILL")
	d.write(yaml(8192, c2, ""))
	d.restart(unix.SIGKILL)
	onlyTable("SIGKILL and a larger table")
	d.write(yaml(2048, c2, ""))
	d.restart(unix.SIGTERM)
	onlyTable("SIGTERM and a smaller table")
	d.write(yaml(2048, c1, "")) // web-c1 goes, web-c2 comes
	d.restart(unix.SIGKILL)
	onlyTable("SIGKILL, one backend added and one removed")
	for _, b := range must1(d.Backends()) {
		if b.Name == "web-c1" && (!b.Removed || b.Flows == 0 && b.Address == "10.2.0.11") {
			t.Errorf("web-c1 should drain with its flows: %+v", b)
		}
	}
	for _, s := range streams {
		if state := s.Close(); state.Err != nil {
			t.Error(state.Err)
		}
	}
	d.balanced()

	// A damaged file is told, and costs no more than the flows in it.
	d.stop()
	b, err := os.ReadFile(file)
	n.must(err)
	b[20] ^= 1
	n.must(os.WriteFile(file, b, 0o600))
	d.run()
	d.ready()
	if log := d.process.Output(); !strings.Contains(log, "refused") || !strings.Contains(log, "damaged") {
		t.Errorf("the log does not tell that the file was refused:\n%s", log)
	}
	n.shares("client-b", vip4, 10)
	// A connection closed before may say its last word again.
	if used := d.status().FlowTable.Used; used == 0 || used > 10+len(streams) {
		t.Errorf("%d entries in the fresh table", used)
	}
	d.stop()
}

// must1 is for calls that must work.
func must1[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

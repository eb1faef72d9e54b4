package forwarder

import (
	"testing"

	"zonehop/selector"
)

// TestZoneBytes: bytes are counted by client zone and backend zone once the
// appliance's own zone is known, and survive a reload.
func TestZoneBytes(t *testing.T) {
	r := newRig(t, rigOptions{backends: 4, zones: 2})
	f := tcpFrame(client4, vip4, 1000, 80, "S")
	r.run(0, f)
	if got := r.totals().Zones; len(got) != 0 {
		t.Errorf("counted %v without a zone of the appliance's own", got)
	}
	r.options.Zone = "zone-1"
	r.reconfigure(func(*selector.ServiceOptions) {})
	r.run(0, f, f)
	r.reconfigure(func(o *selector.ServiceOptions) { o.Backends = o.Backends[:3] })
	r.run(0, f)
	want := uint64(3 * len(f))
	if got := r.totals().Zones; len(got) != 1 || got[ZoneLabel{"zone-0", "zone-0"}] != want {
		t.Errorf("counted %v, want %d bytes within zone-0", got, want)
	}
}

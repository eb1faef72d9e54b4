package forwarder

import (
	"bytes"
	"slices"
	"testing"

	"zonehop/selector"
)

// TestBackendInVLAN: a backend behind a VLAN device gets frames of that VLAN
// only; one that is not gets them with the tags they have.
func TestBackendInVLAN(t *testing.T) {
	tagged := func(tags ...byte) []byte {
		f := tcpFrame(client4, vip4, 4000, 80, "S")
		var list []byte
		for _, id := range tags {
			list = append(list, 0x81, 0, 0x60, id) // priority 3
		}
		return slices.Concat(f[:12], list, f[12:])
	}
	for _, c := range []struct {
		vlan uint16
		tags []byte
		want bool
	}{
		{0, nil, true}, {0, []byte{7}, true}, {0, []byte{7, 8}, true},
		{7, []byte{7}, true}, {7, nil, false}, {7, []byte{8}, false}, {7, []byte{0}, false}, {7, []byte{7, 8}, false},
	} {
		r := newRig(t, rigOptions{backends: 1})
		mac := backendMAC(0)
		d := selector.Delivery{State: selector.Deliverable, Len: 12, VLAN: c.vlan}
		copy(d.Header[:6], mac[:])
		copy(d.Header[6:12], applianceMAC[:])
		a4, _ := backendAddr(0)
		r.builder.SetDelivery(a4, d)
		r.builder.Publish(r.clock)
		in := tagged(c.tags...)
		out := r.run(0, in)
		if sent := len(out) == 1; sent != c.want || sent && !bytes.Equal(out[0][12:], in[12:]) {
			t.Errorf("backend in VLAN %d, frame with tags %v: sent %x, want it sent: %v", c.vlan, c.tags, out, c.want)
		}
		if n := r.totals().Dropped[ReasonOtherVLAN]; n == 0 != c.want {
			t.Errorf("backend in VLAN %d, frame with tags %v: %d dropped for it", c.vlan, c.tags, n)
		}
		r.checkAccounts()
	}
}

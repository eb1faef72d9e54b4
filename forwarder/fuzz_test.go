package forwarder

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"
)

// FuzzWorker gives the worker frames made of arbitrary bytes, several in a
// row, so that fragments and errors meet what came before. Nothing may panic,
// every frame has exactly one verdict, no memory is lost, and what leaves is as
// long as what came, addressed to a backend or to whoever asked.
func FuzzWorker(f *testing.F) {
	router := netip.MustParseAddr("10.200.0.1")
	add := func(frames ...[]byte) { f.Add(pack(frames)) }
	add(tcpFrame(client4, vip4, 1, 80, "S"), tcpFrame(client4, vip4, 1, 80, "A"))
	add(fragments(bigUDP(vip4, 7, 53, 3000), 9, 1000)...)
	add(fragments(bigUDP(vip4any, 7, 53, 3000), 9, 1000)[1:]...)
	add(tcpFrame(client6, vip6, 1, 80, "S"), unreachable(netip.MustParseAddr("fd00:200::1"), vip6, tcpFrame(vip6, client6, 80, 1, "A")))
	add(unreachable(router, vip4, tcpFrame(vip4, client4, 80, 1, "A"), 28))
	add(unreachable(router, vip4, unreachable(router, client4, tcpFrame(vip4, client4, 80, 1, "A"))))
	add(arpRequest(client4, vip4, clientMAC), arpRequest(vip4, vip4, clientMAC), solicitation(client6, vip6, clientMAC), ping(vip4))
	add(tcpFrame(client4, netip.MustParseAddr("192.168.1.1"), 1, 22, "S"), tcpFrame(client6, netip.MustParseAddr("fd99::1"), 1, 22, "S"))
	r := newRig(f, rigOptions{backends: 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		r.TB, r.ports[0].t = t, t
		r.clock += int64(time.Hour) // whatever the last input left behind is over
		frames := unpack(data)
		before := r.totals().Received
		for _, frame := range frames {
			for _, out := range r.run(0, frame) {
				if len(out) < 14 || len(out) > 2048-256 {
					t.Errorf("a frame of %d bytes left", len(out))
				}
			}
		}
		r.clock += holdTime
		r.run(0)
		if got := r.totals().Received - before; got != uint64(len(frames)) {
			t.Errorf("received %d of %d frames", got, len(frames))
		}
		r.checkAccounts()
	})
}

// pack puts frames behind their lengths.
func pack(frames [][]byte) (data []byte) {
	for _, f := range frames {
		data = binary.BigEndian.AppendUint16(data, uint16(len(f)))
		data = append(data, f...)
	}
	return data
}

// unpack cuts any bytes into at most 16 frames of at most 1700 bytes.
func unpack(data []byte) (frames [][]byte) {
	for len(data) > 2 && len(frames) < 16 {
		n := min(int(binary.BigEndian.Uint16(data)), len(data)-2, 1700)
		frames = append(frames, data[2:2+n])
		data = data[2+n:]
	}
	return frames
}

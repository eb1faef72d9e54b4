// The race detector allocates.

//go:build !race

package packet

import "testing"

// Nothing here allocates, whatever the frame.
func TestNoAllocations(t *testing.T) {
	var frames [][]byte
	for _, frame := range vectorFrames(t) {
		frames = append(frames, chunk(frame))
	}
	buf := make([]byte, 2048)
	var p, quoted Parsed
	calls := map[string]func(frame []byte){
		"Parse":                 func([]byte) {},
		"ParseQuote":            func(frame []byte) { quoted.ParseQuote(frame, &p) },
		"SetMACs":               func(frame []byte) { SetMACs(frame, &ownMAC, &ownMAC) },
		"DecrementTTL":          func(frame []byte) { DecrementTTL(frame, &p) },
		"ARPRequestTarget":      func(frame []byte) { ARPRequestTarget(frame, &p) },
		"ARPClaims":             func(frame []byte) { ARPClaims(frame, &p) },
		"NeighborSolicitTarget": func(frame []byte) { NeighborSolicitTarget(frame, &p) },
		"NeighborClaims":        func(frame []byte) { NeighborClaims(frame, &p) },
		"ReplyARP":              func(frame []byte) { ReplyARP(frame, &p, &ownMAC) },
		"ReplyNeighbor":         func(frame []byte) { ReplyNeighbor(frame, &p, &ownMAC) },
		"ReplyEcho":             func(frame []byte) { ReplyEcho(frame, &p) },
		"ReplyEchoFragment":     func(frame []byte) { ReplyEchoFragment(frame, &p) },
		"TimeExceeded4":         func(frame []byte) { TimeExceeded(frame, &p, own4, &ownMAC) },
		"TimeExceeded6":         func(frame []byte) { TimeExceeded(frame, &p, own6, &ownMAC) },
		"TooBig4":               func(frame []byte) { TooBig(frame, &p, own4, &ownMAC, 1400) },
		"TooBig6":               func(frame []byte) { TooBig(frame, &p, own6, &ownMAC, 1400) },
		"GratuitousARP":         func([]byte) { GratuitousARP(buf, own4, &ownMAC) },
		"UnsolicitedNA":         func([]byte) { UnsolicitedNA(buf, own6, &ownMAC) },
	}
	work := make([]byte, 2048)
	for name, call := range calls {
		allocations := testing.AllocsPerRun(10, func() {
			for _, frame := range frames {
				frame = work[:copy(work, frame)]
				if p.Parse(frame) == OK {
					call(frame)
				}
			}
		})
		if allocations != 0 {
			t.Errorf("%s allocates %v times over %d frames, want 0", name, allocations, len(frames))
		}
	}
}

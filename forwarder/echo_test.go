package forwarder

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"zonehop/selector"
)

// bigPing is an echo request to the rule's address with n bytes of data.
func bigPing(n int) []byte {
	return frame(ip4(client4, vip4, layers.IPProtocolICMPv4),
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: 1, Seq: 1}, gopacket.Payload(bytes.Repeat([]byte("ping"), n/4)))
}

// TestBigPing: an echo request in fragments is answered in fragments, whatever
// their order, in one batch or in many.
func TestBigPing(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t, rigOptions{backends: 2})
		for id := range uint16(10) {
			parts := fragments(bigPing(4000), id+1, 1000)
			rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
			var out [][]byte
			if seed%2 == 0 {
				out = r.run(0, parts...)
			} else {
				for _, p := range parts {
					out = append(out, r.run(0, p)...)
					r.clock += int64(time.Millisecond)
				}
			}
			if len(out) != len(parts) {
				totals := r.totals()
				t.Fatalf("seed %d: %d answers to %d fragments; dropped %v, held %d", seed, len(out), len(parts), byReason(&totals), r.holding.count)
			}
			whole := make([]byte, 4008)
			for _, f := range out {
				copy(whole[int(binary.BigEndian.Uint16(f[20:])&0x1fff)*8:], f[34:14+int(binary.BigEndian.Uint16(f[16:]))])
			}
			want := bigPing(4000)[34:]
			if whole[0] != 0 || !bytes.Equal(whole[4:], want[4:]) {
				t.Fatalf("seed %d: the answers are %x together, want the reply", seed, whole[:40])
			}
		}
		if got := r.totals().Answered[AnswerPing]; got != 50 {
			t.Errorf("seed %d: %d fragments are counted as answered, want 50", seed, got)
		}
		r.checkAccounts()
	}
}

// TestBigPingUnanswered: later fragments without a first one wait and are
// dropped; nothing is answered without an eligible backend.
func TestBigPingUnanswered(t *testing.T) {
	r := newRig(t, rigOptions{backends: 1})
	parts := fragments(bigPing(4000), 1, 1000)
	if out := r.run(0, parts[1:]...); len(out) != 0 || r.holding.count != 4 {
		t.Errorf("%d frames left, %d are held, want none and 4", len(out), r.holding.count)
	}
	r.clock += 2 * holdTime
	r.run(0)
	if totals := r.totals(); totals.Dropped[ReasonFragmentUnmatched] != 4 {
		t.Errorf("dropped %v, want 4 fragment_unmatched", byReason(&totals))
	}
	reply := bytes.Clone(parts[0])
	reply[34] = 0 // not asked for
	if out := r.run(0, reply); len(out) != 0 {
		t.Error("the first fragment of a reply is answered")
	}
	r.reconfigure(func(o *selector.ServiceOptions) { o.Policy.DropIfUnhealthy = true })
	r.health(selector.Unhealthy)
	if out := r.run(0, fragments(bigPing(4000), 2, 1000)[0]); len(out) != 0 {
		t.Error("answered without an eligible backend")
	}
	if totals := r.totals(); totals.Dropped[ReasonPingUnavailable] != 1 {
		t.Errorf("dropped %v, want 1 vip_ping_unavailable", byReason(&totals))
	}
	r.checkAccounts()
}

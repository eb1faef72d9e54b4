package forwarder

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"zonehop/forwarder/claim"
	"zonehop/forwarder/packet"
)

// TestClaims: what a worker makes of frames that touch an address of ours. Who
// claims one gets no answer; who only probes does; both are passed on.
func TestClaims(t *testing.T) {
	otherPort := applianceMAC
	otherPort[4] = 1
	tagged := func(f []byte) []byte {
		return append(append(append([]byte{}, f[:12]...), 0x81, 0, 0xe0, 7), f[12:]...)
	}
	word := uint64(0x020000000009) // clientMAC
	conflict4 := claim.Claim{Addr: packet.Addr(vip4), MAC: word}
	probe4, conflict6, inVLAN := conflict4, conflict4, conflict4
	probe4.Kind = claim.Probe
	conflict6.Addr = packet.Addr(vip6)
	inVLAN.Tags = claim.Tags{0x8100_0007}
	probe6 := conflict6
	probe6.Kind = claim.Probe

	unasked := solicitation(netip.IPv6Unspecified(), vip6, clientMAC) // with an option: RFC 4861 section 7.1.1
	for _, tt := range []struct {
		name     string
		frame    []byte
		want     *claim.Claim
		answered bool
		reason   Reason
	}{
		{"gratuitous request", arpRequest(vip4, vip4, clientMAC), &conflict4, false, ReasonAddressClaim},
		{"request in its name for another address", arpRequest(vip4, vip4any, clientMAC), &conflict4, false, ReasonAddressClaim},
		{"in a VLAN", tagged(arpRequest(vip4, vip4, clientMAC)), &inVLAN, false, ReasonAddressClaim},
		{"our own announcement come back", arpRequest(vip4, vip4, applianceMAC), nil, false, ReasonAddressClaim},
		{"that of another interface of ours", arpRequest(vip4, vip4, otherPort), nil, false, ReasonAddressClaim},
		{"request for another station", toStation(arpRequest(client4, vip4, clientMAC), backendMAC(0)), nil, false, ReasonOtherStation},
		{"request for us alone", toStation(arpRequest(client4, vip4, clientMAC), applianceMAC), nil, true, 0},
		{"claim to another station", toStation(arpRequest(vip4, vip4, clientMAC), backendMAC(0)), &conflict4, false, ReasonAddressClaim},
		{"ARP probe", arpRequest(netip.IPv4Unspecified(), vip4, clientMAC), &probe4, true, 0},
		{"a client's request", arpRequest(client4, vip4, clientMAC), nil, true, 0},
		{"request by nobody who can be answered", arpRequest(client4, vip4, [6]byte{1, 0, 0, 0, 0, 9}), nil, false, ReasonBadNeighbour},
		{"solicitation from the address", solicitation(vip6, vip6, clientMAC), &conflict6, false, ReasonAddressClaim},
		{"duplicate address detection", detection(vip6), &probe6, true, 0},
		{"the same with an option", unasked, nil, false, ReasonBadNeighbour},
		{"solicitation for another station", toStation(solicitation(client6, vip6, clientMAC), backendMAC(0)), nil, false, ReasonOtherStation},
		{"solicitation for us alone", toStation(solicitation(client6, vip6, clientMAC), applianceMAC), nil, true, 0},
		{"a client's solicitation", solicitation(client6, vip6, clientMAC), nil, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, rigOptions{backends: 1, ports: []string{"eth0", "eth1"}})
			out := r.run(0, tt.frame)
			if got := len(out) == 1; got != tt.answered || len(out) > 1 {
				t.Errorf("%d frames left, want an answer: %v", len(out), tt.answered)
			}
			if totals := r.totals(); !tt.answered && totals.Dropped[tt.reason] != 1 {
				t.Errorf("dropped %v, want 1 %v", byReason(&totals), tt.reason)
			}
			switch {
			case len(r.claims) > 1 || len(r.claims) == 1 && tt.want == nil || len(r.claims) == 0 && tt.want != nil:
				t.Errorf("%d claims were passed on, want %v", len(r.claims), tt.want)
			case tt.want != nil:
				if got := <-r.claims; got != *tt.want {
					t.Errorf("passed on %+v, want %+v", got, *tt.want)
				}
			}
			r.checkAccounts()
		})
	}
}

// toStation addresses a frame to one station.
func toStation(frame []byte, mac [6]byte) []byte {
	return append(append([]byte{}, mac[:]...), frame[6:]...)
}

// detection is a solicitation of duplicate address detection, which has no option.
func detection(target netip.Addr) []byte {
	f := solicitation(netip.IPv6Unspecified(), target, clientMAC)
	f = bytes.Clone(f[:len(f)-8])
	f[19] -= 8 // payload length
	m := f[54:]
	m[2], m[3] = 0, 0
	sum := uint32(len(m)) + 58
	for _, b := range [][]byte{f[22:54], m} {
		for i := 0; i < len(b); i += 2 {
			sum += uint32(b[i])<<8 | uint32(b[i+1])
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	m[2], m[3] = ^byte(sum>>8), ^byte(sum)
	return f
}

// TestClaimFlood: a worker neither waits for who takes claims nor passes more
// on than it should, and counts the rest.
func TestClaimFlood(t *testing.T) {
	r := newRig(t, rigOptions{backends: 1})
	flood := func(n int) {
		for range n {
			r.run(0, arpRequest(vip4, vip4, clientMAC))
		}
	}
	flood(150) // at one moment: the burst is 100
	if got := len(r.claims); got != 100 {
		t.Errorf("%d claims were passed on, want 100", got)
	}
	r.clock += int64(time.Second)
	flood(100)
	r.clock += int64(time.Second)
	flood(100) // the channel has room for 256
	if got, missed := len(r.claims), r.totals().MissedClaims; got != 256 || missed != 350-256 {
		t.Errorf("%d claims were passed on and %d missed, want 256 and %d", got, missed, 350-256)
	}
	if totals := r.totals(); totals.Dropped[ReasonAddressClaim] != 350 {
		t.Errorf("dropped %v, want 350 address_claim", byReason(&totals))
	}
	r.checkAccounts()
}

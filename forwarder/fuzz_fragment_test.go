package forwarder

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// FuzzFragmentPath cuts a datagram anywhere and sends its fragments in any
// order, some twice, with pauses. What leaves goes to one backend, the flow's if
// the first fragment came in time, and gopacket's reading of it gives the
// datagram again.
func FuzzFragmentPath(f *testing.F) {
	for _, v6 := range []bool{false, true} {
		f.Add(v6, false, uint16(1000), uint16(3000), uint8(99), []byte{0, 1, 2, 3})
		f.Add(v6, true, uint16(2000), uint16(3000), uint8(99), []byte{3, 2, 1, 0})
		f.Add(v6, false, uint16(3000), uint16(900), uint8(3), []byte{200, 1, 1, 220, 0, 7, 3, 3, 129})
		f.Add(v6, false, uint16(4000), uint16(1900), uint8(120), []byte{0x81, 0x82, 0x81, 0x80})
	}
	far4, far6 := netip.MustParseAddr("192.168.1.1"), netip.MustParseAddr("fd99::1")
	id := uint32(0)
	r := newRig(f, rigOptions{backends: 10})
	f.Fuzz(func(t *testing.T, v6, route bool, port, size uint16, cut uint8, order []byte) {
		r.TB, r.ports[0].t = t, t
		r.clock += int64(time.Hour) // whatever the last input left behind is over
		if len(order) > 200 {
			return
		}
		id++
		var whole []byte
		dst := vip4
		data := bytes.Repeat([]byte{byte(size), byte(port), 3, 4, 5, 6, 7}, int(size)%4000/7+1)
		u := &layers.UDP{SrcPort: layers.UDPPort(port), DstPort: 53}
		if v6 {
			dst = far6
			ip := ip6(client6, dst, layers.IPProtocolUDP)
			u.SetNetworkLayerForChecksum(ip)
			whole = frame(ip, u, gopacket.Payload(data))
		} else {
			if route {
				dst = far4
			}
			ip := ip4(client4, dst, layers.IPProtocolUDP)
			u.SetNetworkLayerForChecksum(ip)
			whole = frame(ip, u, gopacket.Payload(data))
		}
		parts := cutInto(whole, id, (int(cut)%150+2)*8)
		if len(parts) < 2 || len(parts) > 60 {
			return // at most 64 may wait
		}
		var out [][]byte
		sent := make([]bool, len(parts))
		waits, guessed := int64(0), false // since when a later fragment waits for the first
		send := func(i int) {
			if i > 0 && !sent[0] && waits == 0 {
				waits = r.clock
			}
			if i == 0 && waits != 0 && r.clock-waits >= holdTime {
				guessed = true
			}
			sent[i] = true
			out = append(out, r.run(0, parts[i])...)
		}
		duplicates := 0
		for _, o := range order {
			if o&0x80 != 0 {
				r.clock += int64(40 * time.Millisecond)
				out = append(out, r.run(0)...)
			}
			i := int(o&0x7f) % len(parts)
			if sent[i] {
				duplicates++
			}
			send(i)
		}
		for i := range parts {
			if !sent[i] {
				send(i)
			}
		}
		if len(out) != len(parts)+duplicates {
			t.Fatalf("%d fragments left of %d and %d duplicates; held %d, dropped %v", len(out), len(parts), duplicates, r.holding.count, byReason(ptr(r.totals())))
		}
		got := backendOf(t, out)
		if want := backendOf(t, r.run(0, smaller(dst, port))); !guessed && got != want {
			t.Fatalf("fragments went to backend %d, the flow's is %d", got, want)
		}
		if again := putTogether(t, out); !bytes.Equal(again, whole[headersOf(whole):]) {
			t.Fatalf("what left makes a datagram of %d bytes, want the %d that were sent", len(again), len(whole)-headersOf(whole))
		}
		r.checkAccounts()
	})
}

func headersOf(f []byte) int {
	if f[12] == 0x86 {
		return 54
	}
	return 34
}

// smaller is a whole packet of the flow.
func smaller(dst netip.Addr, port uint16) []byte {
	u := &layers.UDP{SrcPort: layers.UDPPort(port), DstPort: 53}
	if dst.Is6() {
		ip := ip6(client6, dst, layers.IPProtocolUDP)
		u.SetNetworkLayerForChecksum(ip)
		return frame(ip, u)
	}
	return udpFrame(client4, dst, port, 53)
}

// cutInto cuts a frame of either family into fragments of n bytes.
func cutInto(f []byte, id uint32, n int) (out [][]byte) {
	if f[12] != 0x86 {
		return fragments(f, uint16(id), n)
	}
	payload := f[54:]
	for off := 0; off < len(payload); off += n {
		end := min(off+n, len(payload))
		at := uint16(off)
		if end < len(payload) {
			at |= 1
		}
		g := append(bytes.Clone(f[:54]), f[20], 0)
		g = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(g, at), id)
		g = append(g, payload[off:end]...)
		g[20] = byte(layers.IPProtocolIPv6Fragment)
		binary.BigEndian.PutUint16(g[18:], uint16(8+end-off))
		out = append(out, g)
	}
	return out
}

// putTogether is the datagram that fragments carry, as gopacket reads them.
func putTogether(t *testing.T, frames [][]byte) []byte {
	t.Helper()
	datagram := make([]byte, 1<<16)
	end, most := 0, 0
	for _, f := range frames {
		p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.NoCopy)
		offset, more, part := 0, false, []byte(nil)
		if ip, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4); ok {
			offset, more, part = int(ip.FragOffset)*8, ip.Flags&layers.IPv4MoreFragments != 0, ip.Payload
		} else if h, ok := p.Layer(layers.LayerTypeIPv6Fragment).(*layers.IPv6Fragment); ok {
			offset, more, part = int(h.FragmentOffset)*8, h.MoreFragments, h.Payload
		} else {
			t.Fatalf("no fragment: %x", f)
		}
		most = max(most, offset+copy(datagram[offset:], part))
		if !more {
			end = offset + len(part)
		}
	}
	if end != most {
		t.Fatalf("the last fragment ends at %d, another at %d", end, most)
	}
	return datagram[:end]
}

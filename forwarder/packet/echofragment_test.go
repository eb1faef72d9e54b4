package packet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/google/gopacket/layers"
)

// echoRequest is an ICMP message with n bytes of data, right for its addresses.
func echoRequest(t testing.TB, six bool, n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i * 7)
	}
	if six {
		return append([]byte{}, icmp6Frame(t, layers.ICMPv6TypeEchoRequest, append([]byte{0, 9, 0, 1}, data...))[ethernetLen+ipv6Len:]...)
	}
	m := append([]byte{icmpEchoRequest, 0, 0, 0, 0, 9, 0, 1}, data...)
	binary.BigEndian.PutUint16(m[2:], checksumOf(sumBytes(0, m)))
	return m
}

// icmp6Frame is an ICMPv6 message with a body, behind Ethernet and IPv6.
func icmp6Frame(t testing.TB, kind uint8, body []byte) []byte {
	t.Helper()
	m := append([]byte{kind, 0, 0, 0}, body...)
	putICMPv6Checksum(m, words(client6), words(vip6))
	frame := append(make([]byte, ethernetLen+ipv6Len), m...)
	putIPv6((*[ipv6Len]byte)(frame[ethernetLen:]), words(client6), words(vip6), len(m), 0, 64)
	copy(frame[6:], clientMAC)
	copy(frame[0:], vipMAC)
	binary.BigEndian.PutUint16(frame[12:], etherTypeIPv6)
	return frame
}

// pieces cuts a message into fragments of size bytes. extra is put in front of
// the fragment header (IPv6, its first byte left to this), or is IPv4 options.
func pieces(message []byte, six bool, size int, extra []byte) (out [][]byte) {
	for from := 0; from < len(message); from += size {
		to := min(from+size, len(message))
		var frame []byte
		more := to < len(message)
		if six {
			fragment := []byte{ProtoICMPv6, 0, byte(from >> 8), byte(from), 0, 1, 2, 3}
			if more {
				fragment[3] |= 1
			}
			next := uint8(ProtoFragment)
			if extra != nil {
				extra = append([]byte{ProtoFragment}, extra[1:]...)
				next = ProtoDstOpts
			}
			payload := append(append(append([]byte{}, extra...), fragment...), message[from:to]...)
			frame = append(make([]byte, ethernetLen+ipv6Len), payload...)
			putIPv6((*[ipv6Len]byte)(frame[ethernetLen:]), words(client6), words(vip6), len(payload), 0xb8, 60)
			frame[ethernetLen+6] = next
			binary.BigEndian.PutUint16(frame[12:], etherTypeIPv6)
		} else {
			frame = append(make([]byte, ethernetLen+ipv4Len), append(append([]byte{}, extra...), message[from:to]...)...)
			h := frame[ethernetLen:]
			putIPv4((*[ipv4Len]byte)(h), words(client4), words(vip4), len(extra)+to-from, 0xb8, ProtoICMP)
			h[0] += byte(len(extra) / 4)
			flags := uint16(from / 8)
			if more {
				flags |= fragMore
			}
			binary.BigEndian.PutUint16(h[4:], 0x4711)
			binary.BigEndian.PutUint16(h[6:], flags)
			h[10], h[11] = 0, 0
			binary.BigEndian.PutUint16(h[10:], checksumOf(sumBytes(0, h[:ipv4Len+len(extra)])))
			binary.BigEndian.PutUint16(frame[12:], etherTypeIPv4)
		}
		copy(frame[0:], vipMAC)
		copy(frame[6:], clientMAC)
		out = append(out, frame)
	}
	return out
}

// TestReplyEchoFragment puts the answers to all fragments together: they must
// be the reply to the whole.
func TestReplyEchoFragment(t *testing.T) {
	options := append([]byte{68, 8, 5, 0}, make([]byte, 4)...)
	padding := []byte{0, 0, 1, 4, 0, 0, 0, 0}
	for _, six := range []bool{false, true} {
		for _, extra := range [][]byte{nil, {}, options} {
			if len(extra) == 0 {
				extra = nil
			} else if six {
				extra = padding
			}
			for _, size := range []int{8, 16, 1000, 1480} {
				name := fmt.Sprintf("IPv6 %v, %d bytes in front, fragments of %d", six, len(extra), size)
				message := echoRequest(t, six, 3*size+5)
				got := make([]byte, len(message))
				for i, frame := range pieces(message, six, size, extra) {
					var p, q Parsed
					if problem := p.Parse(frame); problem != OK {
						t.Fatalf("%s: Parse = %v", name, problem)
					}
					first, later := p.EchoFragment()
					if first != (i == 0) || later != (i > 0) {
						t.Errorf("%s, fragment %d: first %v, later %v", name, i, first, later)
					}
					out, ok := ReplyEchoFragment(chunk(frame), &p)
					if !ok {
						t.Fatalf("%s, fragment %d: not answered", name, i)
					}
					if problem := q.Parse(out); problem != OK {
						t.Fatalf("%s, fragment %d: Parse(answer) = %v: %x", name, i, problem, out)
					}
					if q.Src != p.Dst || q.Dst != p.Src || q.FragID != p.FragID || q.TTL != hopLimitOwn || !bytes.Equal(out[:6], clientMAC) || !bytes.Equal(out[6:12], vipMAC) {
						t.Errorf("%s, fragment %d: answered by %+v", name, i, q)
					}
					if q.Flags&(IPOptions|LaterFragment|Fragment) != p.Flags&(LaterFragment|Fragment) {
						t.Errorf("%s, fragment %d: flags %x of %x", name, i, q.Flags, p.Flags)
					}
					copy(got[i*size:], out[q.L4:q.End])
				}
				sum, kind := uint64(0), uint8(icmpEchoReply)
				if six {
					sum, kind = sumPseudo6(words(vip6), words(client6), len(got), ProtoICMPv6), icmpv6EchoReply
				}
				if got[0] != kind || !validSum(sumBytes(sum, got)) || !bytes.Equal(got[4:], message[4:]) {
					t.Errorf("%s: the reply is %x", name, got)
				}
			}
		}
	}
}

// TestReplyEchoFragmentRefuses: what is no fragment of an echo request.
func TestReplyEchoFragmentRefuses(t *testing.T) {
	good4, good6 := pieces(echoRequest(t, false, 100), false, 56, nil), pieces(echoRequest(t, true, 100), true, 56, nil)
	edit := func(frame []byte, fn func(f []byte)) []byte {
		f := bytes.Clone(frame)
		fn(f)
		fixIPv4Checksum(f)
		return f
	}
	behind := icmp6Frame(t, 0, make([]byte, 40)) // destination options behind the fragment header
	copy(behind[54:], []byte{ProtoDstOpts, 0, 0, 1, 0, 0, 0, 1, ProtoICMPv6, 0, 1, 4, 0, 0, 0, 0, icmpv6EchoRequest, 0, 0, 0, 0, 0, 0, 0})
	behind[20] = ProtoFragment
	behind = behind[:54+40]
	binary.BigEndian.PutUint16(behind[18:], 40)
	for name, frame := range map[string][]byte{
		"whole":            edit(good4[0], func(f []byte) { f[20] = 0 }),
		"reply":            edit(good4[0], func(f []byte) { f[34] = icmpEchoReply }),
		"UDP":              edit(good4[1], func(f []byte) { f[23] = ProtoUDP }),
		"to a group":       edit(good4[0], func(f []byte) { f[0] = 1 }),
		"from a group":     edit(good4[1], func(f []byte) { f[26] = 224 }),
		"ICMP in IPv6":     edit(good6[1], func(f []byte) { f[54] = ProtoICMP }),
		"ICMPv6 error":     edit(good6[0], func(f []byte) { f[62] = 1 }),
		"options cut, too": behind,
	} {
		var p Parsed
		if problem := p.Parse(frame); problem != OK {
			t.Errorf("%s: Parse = %v, want ok", name, problem)
			continue
		}
		c := chunk(frame)
		if out, ok := ReplyEchoFragment(c, &p); ok || !bytes.Equal(c, frame) {
			t.Errorf("%s: answered %x", name, out)
		}
	}
}

// FuzzReplyEchoFragment: no answer leaves its chunk, and each is a fragment of
// the same datagram's reply.
func FuzzReplyEchoFragment(f *testing.F) {
	for _, six := range []bool{false, true} {
		for _, frame := range pieces(echoRequest(f, six, 200), six, 80, nil) {
			f.Add(frame, uint16(100), uint16(9))
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte, room, cut uint16) {
		fixIPv4Checksum(frame)
		var p, q Parsed
		if p.Parse(frame) != OK {
			return
		}
		c := newGuarded(frame, int(room)%2048)
		out, ok := ReplyEchoFragment(c.frame, &p)
		c.check(t, "ReplyEchoFragment")
		switch {
		case !ok && !bytes.Equal(c.frame, frame):
			t.Fatal("refused and yet changed the frame")
		case ok:
			if got := q.Parse(out); got != OK || q.VLANs != p.VLANs || q.Src != p.Dst || q.Dst != p.Src || q.FragID != p.FragID || q.Flags&(Fragment|LaterFragment) != p.Flags&(Fragment|LaterFragment) {
				t.Fatalf("answers %x: Parse = %v, %+v to %+v", out, got, q, p)
			}
		}
		c = newGuarded(frame[:int(cut)%(len(frame)+1)], 0) // a caller's fault, which must not reach beyond
		ReplyEchoFragment(c.frame, &p)
		c.check(t, "ReplyEchoFragment of what was cut")
	})
}

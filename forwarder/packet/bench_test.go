package packet

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// benchFrames lays n frames, each with its own addresses and ports, into chunks
// of 2048 bytes, as a UMEM has them, and returns them in random order.
func benchFrames(b *testing.B, n int, build func(i uint32) []byte) [][]byte {
	const chunkLen = 128
	umem := make([]byte, n*chunkLen)
	frames := make([][]byte, n)
	for i, at := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		c := umem[at*chunkLen : (at+1)*chunkLen : (at+1)*chunkLen]
		frames[i] = c[:copy(c, build(uint32(i)))]
	}
	return frames
}

func benchUDP4(b *testing.B) func(uint32) []byte {
	return func(i uint32) []byte {
		ip := ip4(layers.IPProtocolUDP)
		ip.SrcIP = binary.BigEndian.AppendUint32(nil, 0x0a000000+i)
		return serialize(b, ethernet(layers.EthernetTypeIPv4), ip,
			&layers.UDP{SrcPort: layers.UDPPort(i), DstPort: 53}, gopacket.Payload(make([]byte, 18)))
	}
}

func benchTCP4(b *testing.B) func(uint32) []byte {
	return func(i uint32) []byte {
		ip := ip4(layers.IPProtocolTCP)
		ip.SrcIP = binary.BigEndian.AppendUint32(nil, 0x0a000000+i)
		return serialize(b, ethernet(layers.EthernetTypeIPv4), ip,
			&layers.TCP{SrcPort: layers.TCPPort(i), DstPort: 443, ACK: true}, gopacket.Payload(make([]byte, 6)))
	}
}

func benchUDP6(b *testing.B) func(uint32) []byte {
	return func(i uint32) []byte {
		ip := ip6(layers.IPProtocolUDP)
		ip.SrcIP = append(append([]byte(nil), client6[:12]...), binary.BigEndian.AppendUint32(nil, i)...)
		return serialize(b, ethernet(layers.EthernetTypeIPv6), ip,
			&layers.UDP{SrcPort: layers.UDPPort(i), DstPort: 53}, gopacket.Payload(make([]byte, 18)))
	}
}

func benchTagged4(b *testing.B) func(uint32) []byte {
	return func(i uint32) []byte {
		ip := ip4(layers.IPProtocolUDP)
		ip.SrcIP = binary.BigEndian.AppendUint32(nil, 0x0a000000+i)
		return serialize(b, ethernet(layers.EthernetTypeDot1Q),
			&layers.Dot1Q{VLANIdentifier: 100, Type: layers.EthernetTypeIPv4}, ip,
			&layers.UDP{SrcPort: layers.UDPPort(i), DstPort: 53}, gopacket.Payload(make([]byte, 18)))
	}
}

func benchMixed(b *testing.B) func(uint32) []byte {
	kinds := []func(uint32) []byte{benchUDP4(b), benchTCP4(b), benchUDP6(b), benchTagged4(b)}
	r := rand.New(rand.NewPCG(3, 4))
	return func(i uint32) []byte { return kinds[r.IntN(len(kinds))](i) }
}

func BenchmarkParse(b *testing.B) {
	for _, kind := range []struct {
		name  string
		build func(*testing.B) func(uint32) []byte
	}{{"udp4", benchUDP4}, {"tcp4", benchTCP4}, {"udp6", benchUDP6}, {"vlan_udp4", benchTagged4}, {"mixed", benchMixed}} {
		for _, n := range []int{64, 65536} {
			b.Run(kind.name+"/frames="+strconv.Itoa(n), func(b *testing.B) {
				frames := benchFrames(b, n, kind.build(b))
				parsed := make([]Parsed, 64)
				b.ReportAllocs()
				packets, at := 0, 0
				for b.Loop() {
					if !parseBatch(parsed, frames[at:at+len(parsed)]) {
						b.Fatal("frame refused")
					}
					packets += len(parsed)
					at = (at + len(parsed)) & (n - 1)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/pkt")
			})
		}
	}
}

// BenchmarkRewrite is what a routed packet needs beyond parsing.
func BenchmarkRewrite(b *testing.B) {
	frames := benchFrames(b, 64, benchMixed(b))
	parsed := make([]Parsed, len(frames))
	if !parseBatch(parsed, frames) {
		b.Fatal("frame refused")
	}
	b.ReportAllocs()
	packets := 0
	for b.Loop() {
		rewriteBatch(parsed, frames)
		packets += len(frames)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/pkt")
}

func rewriteBatch(parsed []Parsed, frames [][]byte) {
	for i, frame := range frames[:len(parsed)] {
		if !DecrementTTL(frame, &parsed[i]) {
			l3 := parsed[i].L3
			h := frame[l3:]
			if parsed[i].Kind == KindIPv4 { // start over
				h[8], h[10], h[11] = 255, 0, 0
				binary.BigEndian.PutUint16(h[10:], checksumOf(sumIPv4((*[ipv4Len]byte)(h))))
			} else {
				h[7] = 255
			}
			parsed[i].TTL = 255
		}
		SetMACs(frame, &ownMAC, &ownMAC)
	}
}

// BenchmarkAnswer copies a request into its chunk and answers it there.
func BenchmarkAnswer(b *testing.B) {
	for _, v := range readVectors(b) {
		switch v.Name {
		case "arp request", "neighbour solicitation", "ping", "ping6", "ttl 1 of 1500 bytes", "hop limit 1 of 1500 bytes":
		default:
			continue
		}
		b.Run(v.Call+"/"+v.Name, func(b *testing.B) {
			request := unhex(b, v.Frame)
			frame := chunk(request)
			answer := answers[v.Call]
			var p Parsed
			b.ReportAllocs()
			for b.Loop() {
				copy(frame, request)
				if p.Parse(frame) != OK || answer(frame, &p) == nil {
					b.Fatal("no answer")
				}
			}
		})
	}
}

// parseBatch is the loop of a worker, outside of b.Loop, which would keep
// every argument and result in memory.
func parseBatch(parsed []Parsed, frames [][]byte) bool {
	var problems Problem
	for i, frame := range frames[:len(parsed)] {
		problems |= parsed[i].Parse(frame)
	}
	return problems == OK
}

package forwarder

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// BenchmarkPath measures the whole user-space path of a packet in memory, as
// the worker runs it, in batches of 64 over 65 536 frames: parse, rule, flow
// look-up, rewrite, counters. A hit finds its flow in the table; a miss selects
// a backend and makes an entry.
func BenchmarkPath(b *testing.B) {
	for _, flows := range []int{64, 1 << 20} {
		b.Run(fmt.Sprintf("hit/flows=%d", flows), func(b *testing.B) { benchHits(b, flows) })
	}
	for _, o := range []rigOptions{{backends: 10, zones: 1}, {backends: 1000, zones: 10}} {
		b.Run(fmt.Sprintf("miss/backends=%d/zones=%d", o.backends, o.zones), func(b *testing.B) { benchMisses(b, o) })
	}
}

// template is a UDP frame to the all-ports rule, whose source a benchmark
// rewrites in place: 48 bits of client address and port.
func template() []byte {
	return udpFrame(netip.AddrFrom4([4]byte{10, 1, 0, 1}), vip4, 1024, 5000)
}

// setFlow makes a frame that of flow n: client 10.1.x.y, port z. The IPv4
// checksum is made to fit by moving the difference to the identification,
// which nobody reads.
func setFlow(f []byte, n uint32) {
	f[28], f[29] = byte(n>>16), byte(n>>8)
	f[34], f[35] = byte(n>>8)|0x10, byte(n)
	// Header checksum over the changed words.
	f[24], f[25] = 0, 0
	sum := uint32(0)
	for i := 14; i < 34; i += 2 {
		sum += uint32(f[i])<<8 | uint32(f[i+1])
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	f[24], f[25] = byte(^sum>>8), byte(^sum)
}

func benchRig(b *testing.B, o rigOptions, frames int) *rig {
	o.frames = frames
	r := newRig(b, o)
	p := r.ports[0]
	p.keep, p.loop = false, true
	t := template()
	for range frames {
		p.deliver(t)
	}
	return r
}

// scatter spreads consecutive numbers over 32 bits, one to one.
func scatter(n uint32) uint32 {
	n *= 0x9e3779b1
	n ^= n >> 15
	return n * 0x85ebca77
}

func benchHits(b *testing.B, flows int) {
	frames := min(flows, 1<<16)
	r := benchRig(b, rigOptions{backends: 100, zones: 4, lines: 4 << 20}, frames)
	p := r.ports[0]
	round := 0
	// turn gives every frame another flow; with as few flows as frames once is
	// enough. Rewriting all of them also pushes the first ones out of the cache.
	turn := func() {
		for i, d := range p.rx[p.head:] {
			setFlow(p.umem.Frame(d), scatter(uint32(i+round*frames))%uint32(flows))
		}
		round++
	}
	turn()
	for range 40 * flows / frames { // until nearly every flow is in the table
		r.passes(frames)
		if flows > frames {
			turn()
		}
	}
	misses := r.table.Stats().Inserted
	b.ReportAllocs()
	packets := 0
	for b.Loop() {
		if flows > frames {
			b.StopTimer()
			turn()
			b.StartTimer()
		}
		packets += r.passes(frames)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
	b.ReportMetric(100*float64(r.table.Stats().Inserted-misses)/float64(packets), "%missed")
	r.mustForwardAll(b)
}

func benchMisses(b *testing.B, o rigOptions) {
	const frames = 1 << 14
	o.lines = 4 << 20
	r := benchRig(b, o, frames)
	p := r.ports[0]
	n := uint32(0)
	b.ReportAllocs()
	packets := 0
	for b.Loop() {
		b.StopTimer()
		for _, d := range p.rx[p.head:] {
			setFlow(p.umem.Frame(d), scatter(n))
			n++
		}
		// All unconfirmed entries of before are over by now.
		r.clock += int64(time.Minute)
		b.StartTimer()
		packets += r.passes(frames)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
	b.ReportMetric(100*float64(r.table.Stats().Inserted)/float64(packets), "%inserted")
	r.mustForwardAll(b)
}

// passes runs the worker over n frames.
func (r *rig) passes(n int) (packets int) {
	for packets < n {
		packets += r.Pass()
	}
	return packets
}

func (r *rig) mustForwardAll(b *testing.B) {
	b.Helper()
	r.publish()
	if t := r.totals(); t.DroppedTotal() != 0 {
		b.Fatalf("dropped %v", t.Dropped)
	}
}

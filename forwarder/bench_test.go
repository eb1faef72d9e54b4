package forwarder

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zonehop/conntrack"
	"zonehop/forwarder/xsk"
	"zonehop/selector"
)

// BenchmarkPath measures the whole user-space path of a packet in memory, as
// the worker runs it, in batches of 64 over as many frames as the appliance has
// for a queue: parse, rule, flow look-up, rewrite, counters. A hit finds its flow
// in the table; a miss selects a backend and makes an entry. The table is swept
// before, as the appliance does all the time: that joins its pages.
//
// cpu-ns/packet is the figure to compare: the thread's own time on a CPU, which
// other load on the machine changes through the caches alone, and which leaves
// out what prepares the frames. All memory is there before the clock starts.
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
	// The frames go round: what is sent must be a frame to the appliance again.
	d := selector.Delivery{State: selector.Deliverable, Len: 12}
	copy(d.Header[:], applianceMAC[:])
	copy(d.Header[6:], clientMAC[:])
	for i := range o.backends {
		a4, _ := backendAddr(i)
		r.builder.SetDelivery(a4, d)
	}
	r.builder.Publish(r.clock)
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
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	frames := min(flows, xsk.DefaultConfig().Frames)
	r := benchRig(b, rigOptions{backends: 100, zones: 4, lines: 4 << 20}, frames)
	p := r.ports[0]
	n := uint32(0)
	// turn gives every frame another flow: in order, so that every flow gets
	// its entry, or at random. Rewriting all of them also pushes the first ones
	// out of the cache.
	turn := func(of func(uint32) uint32) {
		for _, d := range p.rx[p.head:] {
			setFlow(p.umem.Frame(d), of(n)%uint32(flows))
			n++
		}
	}
	for range 3 * flows / frames { // the second packet confirms; some frames wait for completion
		turn(func(n uint32) uint32 { return n })
		r.passes(frames)
	}
	r.sweep()
	misses := r.table.Stats().Inserted
	b.ReportAllocs()
	var m meter
	for b.Loop() {
		if flows > frames {
			b.StopTimer()
			turn(scatter)
			b.StartTimer()
		}
		m.run(r, max(frames, 1<<12))
	}
	m.report(b)
	b.ReportMetric(100*float64(r.table.Stats().Inserted-misses)/float64(m.packets), "%missed")
	r.mustForwardAll(b)
}

func benchMisses(b *testing.B, o rigOptions) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	frames := xsk.DefaultConfig().Frames
	o.lines = 4 << 20
	r := benchRig(b, o, frames)
	p := r.ports[0]
	n := uint32(0)
	next := func() {
		for _, d := range p.rx[p.head:] {
			setFlow(p.umem.Frame(d), scatter(n))
			n++
		}
		// All unconfirmed entries of before are over by now.
		r.clock += int64(time.Minute)
	}
	for range 128 { // 2^20 entries: every page of the table has been written
		next()
		r.passes(frames)
	}
	r.sweep()
	before := r.table.Stats().Inserted
	b.ReportAllocs()
	var m meter
	for b.Loop() {
		b.StopTimer()
		next()
		b.StartTimer()
		m.run(r, frames)
	}
	m.report(b)
	b.ReportMetric(100*float64(r.table.Stats().Inserted-before)/float64(m.packets), "%inserted")
	r.mustForwardAll(b)
}

// sweep sweeps the table once and joins its pages.
func (r *rig) sweep() {
	r.table.JoinPages()
	w := r.table.NewWriter()
	defer w.Close()
	w.Sweep(conntrack.TickOf(r.clock), r.table.Lines())
}

// meter adds up passes and the CPU time that they take.
type meter struct {
	packets int
	cpu     time.Duration
}

// run has the worker handle n frames.
func (m *meter) run(r *rig, n int) {
	start := threadTime()
	m.packets += r.passes(n)
	m.cpu += threadTime() - start
}

func (m *meter) report(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(m.packets), "ns/packet")
	b.ReportMetric(float64(m.cpu.Nanoseconds())/float64(m.packets), "cpu-ns/packet")
}

// threadTime is the CPU time that the calling thread has used.
func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic("thread CPU clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

// passes runs the worker over n frames.
func (r *rig) passes(n int) (packets int) {
	for packets < n {
		got := r.Pass()
		if got == 0 {
			r.Fatalf("frames got lost: %v dropped", r.counters.local[cDropped:cDropped+NumReasons])
		}
		packets += got
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

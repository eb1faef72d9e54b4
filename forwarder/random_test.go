package forwarder

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"zonehop/conntrack"
	"zonehop/forwarder/packet"
	"zonehop/selector"
)

var (
	events     = flag.Int("events", 30_000, "random events of TestRandomEvents")
	eventsSeed = flag.Uint64("events-seed", 0, "seed of TestRandomEvents; 0 takes the time")
)

// TestRandomEvents drives the real forwarding code with random packets, health
// changes, drains, reloads and the passing of time, and compares where every
// packet goes with a model: a map of flows and the rules in words. The model
// shares only the selection hash with the code.
func TestRandomEvents(t *testing.T) {
	seed := *eventsSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d; repeat with -events-seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	left := *events
	if testing.Short() {
		left /= 10
	}
	for i := 0; left > 0 && !t.Failed(); i++ {
		n := min(left, 5000)
		left -= n
		// A test of its own: so its memory goes before the next one begins.
		t.Run(fmt.Sprintf("world %d", i), func(t *testing.T) {
			w := newWorld(t, rng)
			for range n {
				w.event()
				if t.Failed() {
					t.Fatalf("after: %s", w.last)
				}
			}
			w.settle()
		})
	}
}

// world is the forwarder under test beside the model of it.
type world struct {
	*rig
	rng      *rand.Rand
	last     string // event
	service  selector.ServiceOptions
	backends map[string]*modelBackend // by name; those configured or draining
	flows    map[conntrack.Key]*modelFlow
	datagram uint16
	role     bool // the failover backends serve
	spare    int  // number of the next new backend
}

// modelBackend is what the rules need to know of a backend.
type modelBackend struct {
	options  selector.BackendOptions
	health   selector.Health
	drained  bool
	removed  int64 // when; 0 = configured
	inactive int64 // since when its role does not serve; 0 = it serves
}

// modelFlow is an entry of the flow table.
type modelFlow struct {
	backend string
	seen    conntrack.Tick
	state   conntrack.State
}

const (
	modelHalfOpen = 30 * time.Second
	modelClosing  = time.Minute
	modelIdle     = 10 * time.Minute
	modelDrain    = 10 * time.Minute // after failover and failback
)

func newWorld(t *testing.T, rng *rand.Rand) *world {
	w := &world{
		rig: newRig(t, rigOptions{backends: 6, lines: 1 << 14}), rng: rng,
		backends: make(map[string]*modelBackend), flows: make(map[conntrack.Key]*modelFlow), spare: 100,
	}
	ratio, err := selector.ParseRatio("0.5")
	if err != nil {
		t.Fatal(err)
	}
	affinity := selector.SessionAffinity(rng.IntN(5))
	for i := range w.options.Routes {
		w.options.Routes[i].Symmetric = affinity != selector.AffinityClientIPNoDestination && rng.IntN(2) == 0
	}
	w.reconfigure(func(o *selector.ServiceOptions) {
		o.Weighted = true
		o.Affinity = affinity
		o.TrackingMode = selector.TrackingMode(rng.IntN(2))
		o.Persistence = selector.Persistence(rng.IntN(2))
		if o.TrackingMode == selector.PerConnection {
			o.Persistence = selector.Persistence(rng.IntN(3))
		}
		o.NoFailoverDrain = rng.IntN(2) == 0
		o.DrainTimeout = time.Duration(rng.IntN(3)) * time.Minute
		o.Policy.FailoverRatio = ratio
		for i := range o.Backends {
			o.Backends[i].Failover = i >= 4
		}
	})
	w.service = w.options.Services[0]
	for _, b := range w.service.Backends {
		w.backends[b.Name] = &modelBackend{options: b, health: selector.Healthy}
		if b.Failover {
			w.backends[b.Name].inactive = w.clock
		}
	}
	return w
}

// event does one random thing to both.
func (w *world) event() {
	switch n := w.rng.IntN(100); {
	case n < 70:
		w.packet()
	case n < 80:
		w.pass(time.Duration(w.rng.IntN(40)) * time.Second / 16)
	case n < 84:
		w.pass(time.Duration(w.rng.IntN(100)) * time.Second)
	case n < 85:
		w.pass(time.Duration(w.rng.IntN(15)) * time.Minute)
	case n < 91:
		w.flip()
	case n < 94:
		w.drain()
	case n < 97:
		w.reload()
	default:
		w.last = "sweep"
		w.Worker.flows.Sweep(conntrack.TickOf(w.clock), 1<<14)
	}
}

// pass lets time go by, in whole ticks, and publishes what became due.
func (w *world) pass(d time.Duration) {
	w.last = fmt.Sprintf("%v go by", d)
	w.clock += int64(d)
	w.publishModel()
}

// flip changes the health of a configured backend.
func (w *world) flip() {
	b := w.pick()
	b.health = 1 - max(b.health, 0)
	w.last = fmt.Sprintf("%s is %d", b.options.Name, b.health)
	w.builder.SetHealth("web", b.options.Name, selector.V4, b.health)
	w.publishModel()
}

func (w *world) drain() {
	b := w.pick()
	b.drained = !b.drained
	w.last = fmt.Sprintf("drain of %s: %v", b.options.Name, b.drained)
	w.builder.SetDrain(b.options.Name, b.drained)
	w.publishModel()
}

// reload removes a backend, adds one, or changes a weight.
func (w *world) reload() {
	list := append([]selector.BackendOptions(nil), w.service.Backends...)
	switch w.rng.IntN(3) {
	case 0:
		if len(list) < 4 {
			return
		}
		i := w.rng.IntN(len(list))
		w.last = "reload without " + list[i].Name
		if !w.hasRole(list, i) {
			return
		}
		w.backends[list[i].Name].removed = w.clock
		list = append(list[:i], list[i+1:]...)
	case 1:
		if len(list) > 12 {
			return
		}
		w.spare++
		a4, a6 := backendAddr(w.spare)
		b := selector.BackendOptions{Name: fmt.Sprintf("n%d", w.spare), Zone: "zone-0", Address: a4, Address6: a6, Weight: 1, Failover: w.rng.IntN(3) == 0}
		w.last = "reload with " + b.Name
		list = append(list, b)
		w.backends[b.Name] = &modelBackend{options: b, health: selector.Unknown}
		if b.Failover != w.role {
			w.backends[b.Name].inactive = w.clock
		}
		w.deliverable(w.spare, 0)
	default:
		i := w.rng.IntN(len(list))
		list[i].Weight = uint32(1 + w.rng.IntN(5))
		w.last = "reload with another weight of " + list[i].Name
	}
	w.service.Backends = list
	w.reconfigureModel()
}

// hasRole reports whether another backend than i has its role.
func (w *world) hasRole(list []selector.BackendOptions, i int) bool {
	for j := range list {
		if j != i && list[j].Failover == list[i].Failover {
			return true
		}
	}
	return false
}

func (w *world) reconfigureModel() {
	w.options.Services = []selector.ServiceOptions{w.service}
	if err := w.builder.Apply(w.options, w.clock); err != nil {
		w.Fatal(err)
	}
	w.publishModel()
}

func (w *world) pick() *modelBackend {
	list := w.service.Backends
	return w.backends[list[w.rng.IntN(len(list))].Name]
}

// publishModel publishes the real snapshot and follows the role in the model.
func (w *world) publishModel() {
	for name, b := range w.backends {
		if b.removed != 0 && w.clock >= b.removed+int64(w.service.DrainTimeout) {
			delete(w.backends, name)
		}
	}
	w.role = w.failoversServe()
	for _, o := range w.service.Backends {
		b := w.backends[o.Name]
		switch {
		case o.Failover == w.role:
			b.inactive = 0
		case b.inactive == 0:
			b.inactive = w.clock
		}
	}
	w.builder.Publish(w.clock)
}

// failoversServe is the failover decision in words: ratio 0.5, heads counted;
// drained backends and those without a verdict are not there, unless then
// nothing is left to send to, not even in the last resort.
func (w *world) failoversServe() bool {
	var there []*modelBackend
	for _, o := range w.service.Backends {
		if b := w.backends[o.Name]; !b.drained && b.health != selector.Unknown {
			there = append(there, b)
		}
	}
	useful := func(b *modelBackend) bool { return !b.options.Failover || b.health == selector.Healthy }
	if !slices.ContainsFunc(there, useful) {
		there = nil
		for _, o := range w.service.Backends {
			there = append(there, w.backends[o.Name])
		}
	}
	var primaries, healthyPrimaries, healthyFailovers int
	for _, b := range there {
		healthy := 0
		if b.health == selector.Healthy {
			healthy = 1
		}
		if b.options.Failover {
			healthyFailovers += healthy
		} else {
			primaries++
			healthyPrimaries += healthy
		}
	}
	return healthyFailovers > 0 && (healthyPrimaries == 0 || 2*healthyPrimaries < primaries)
}

// keeps is whether a tracked flow stays, in words.
func (w *world) keeps(f *modelFlow, proto uint8, syn bool) bool {
	b := w.backends[f.backend]
	if b == nil {
		return false // gone
	}
	lasting := proto == packet.ProtoTCP || proto == packet.ProtoSCTP
	if b.health == selector.Unhealthy {
		switch w.service.Persistence {
		case selector.PersistNever:
			return false
		case selector.PersistDefault:
			if !lasting || w.sessions() {
				return false
			}
		}
	}
	switch {
	case (b.removed != 0 || b.drained) && syn:
		return false
	case b.removed != 0:
		return w.clock <= b.removed+int64(w.service.DrainTimeout)
	case b.drained || b.inactive == 0:
		return true
	}
	return lasting && !w.service.NoFailoverDrain && w.clock <= b.inactive+int64(modelDrain)
}

// sessions reports whether an entry stands for all of a client's connections.
func (w *world) sessions() bool {
	switch w.service.Affinity {
	case selector.AffinityNone, selector.AffinityClientIPPortProto:
		return false
	}
	return w.service.TrackingMode == selector.PerSession
}

// packet sends a random packet of one of some hundred flows.
func (w *world) packet() {
	src := netip.AddrFrom4([4]byte{10, 1, 0, byte(1 + w.rng.IntN(6))})
	dst := vip4any
	if w.rng.IntN(3) == 0 {
		dst = netip.AddrFrom4([4]byte{192, 168, 0, byte(1 + w.rng.IntN(3))})
	}
	sport, dport := uint16(1000+w.rng.IntN(4)), uint16(80+w.rng.IntN(2))
	flags := []string{"S", "A", "A", "A", "FA", "R", "SA"}[w.rng.IntN(7)]
	var frames [][]byte
	switch w.rng.IntN(8) {
	case 0, 1, 2:
		frames = [][]byte{tcpFrame(src, dst, sport, dport, flags)}
	case 3, 4:
		frames = [][]byte{udpFrame(src, dst, sport, dport)}
	case 5:
		frames = [][]byte{frame(ip4(src, dst, layers.IPProtocolGRE), gopacket.Payload("opaque bytes"))}
	case 6: // a datagram in fragments, the later ones before or after the first
		w.datagram++
		ip := ip4(src, dst, layers.IPProtocolUDP)
		u := &layers.UDP{SrcPort: layers.UDPPort(sport), DstPort: layers.UDPPort(dport)}
		u.SetNetworkLayerForChecksum(ip)
		frames = fragments(frame(ip, u, gopacket.Payload(make([]byte, 2000))), w.datagram, 800)
		w.rng.Shuffle(len(frames), func(i, j int) { frames[i], frames[j] = frames[j], frames[i] })
	default: // an error about a packet that a backend sent
		w.error(src, dst, sport, dport)
		return
	}
	var p packet.Parsed
	for _, f := range frames {
		if problem := p.Parse(f); problem != packet.OK {
			w.Fatalf("built a frame that is %v", problem)
		}
		if p.Flags&packet.HasPorts != 0 || p.Proto == 47 {
			break // the one that identifies the flow
		}
	}
	w.last = fmt.Sprintf("packet %v:%d to %v:%d, protocol %d, flags %s, %d fragments", src, sport, dst, dport, p.Proto, flags, len(frames))
	_, key, _ := w.identifyModel(&p)
	if f := w.flows[key]; f != nil {
		w.last += fmt.Sprintf("; tracked %+v", *f)
		if b := w.backends[f.backend]; b != nil {
			w.last += fmt.Sprintf(" on %+v at %d, failovers serve %v, %+v", *b, w.clock, w.role, w.service)
		}
	}
	want := w.expect(&p)
	out := w.run(0, frames...)
	w.compare(want, out, len(frames))
}

// error sends an ICMP error about the reverse of a flow.
func (w *world) error(src, dst netip.Addr, sport, dport uint16) {
	var p packet.Parsed
	forward := udpFrame(src, dst, sport, dport)
	p.Parse(forward)
	w.last = fmt.Sprintf("error about %v:%d to %v:%d", src, sport, dst, dport)
	r, key, tuple := w.identifyModel(&p)
	want := ""
	if f := w.flows[key]; f != nil && !w.over(f) && w.keeps(f, p.Proto, false) {
		want = f.backend
	} else if c := w.builder.Current().Select(r, &tuple); c.Result == selector.Selected {
		want = w.builder.Current().Backend(c.Backend).Name
	}
	out := w.run(0, unreachable(netip.MustParseAddr("10.200.0.1"), dst, udpFrame(dst, src, dport, sport)))
	w.compare(want, out, 1)
}

// identifyModel finds the rule, key and tuple of a packet.
func (w *world) identifyModel(p *packet.Parsed) (*selector.Rule, conntrack.Key, selector.Tuple) {
	snap := w.builder.Current()
	r := snap.Route(p.Src, p.Dst, p.Proto, 0)
	if v := snap.VIP(p.Dst); v != nil {
		r = v.Rule(p.Proto, p.DstPort, p.Flags&packet.HasPorts != 0)
	}
	t := selector.Tuple{Src: p.Src, Dst: p.Dst, SrcPort: p.SrcPort, DstPort: p.DstPort, Proto: p.Proto, HasPorts: p.Flags&packet.HasPorts != 0}
	src, dst, sport, dport, proto, kind := r.TrackingKey(&t)
	return r, conntrack.Key{Src: src, Dst: dst, Meta: conntrack.MakeMeta(sport, dport, proto, keyKind(kind), r.Service.ID)}, t
}

// over reports whether an entry's time is over.
func (w *world) over(f *modelFlow) bool {
	limit := modelIdle
	switch f.state {
	case conntrack.Unconfirmed:
		limit = modelHalfOpen
	case conntrack.Closing:
		limit = modelClosing
	}
	return (conntrack.TickOf(w.clock) - f.seen).Span() >= limit
}

// expect says which backend a packet goes to, and moves the model on.
func (w *world) expect(p *packet.Parsed) string {
	r, key, tuple := w.identifyModel(p)
	now := conntrack.TickOf(w.clock)
	f := w.flows[key]
	if f != nil && w.over(f) {
		delete(w.flows, key)
		f = nil
	}
	syn := p.Proto == packet.ProtoTCP && p.Flags&(packet.SYN|packet.ACK) == packet.SYN
	single := key.Kind() == conntrack.KeyConnection
	ends := single && p.Proto == packet.ProtoTCP && p.Flags&(packet.FIN|packet.RST) != 0
	if f != nil && !(syn && !w.sessions()) && w.keeps(f, p.Proto, syn) {
		w.refresh(f, now, ends)
		return f.backend
	}
	c := w.builder.Current().Select(r, &tuple)
	if c.Result != selector.Selected {
		return ""
	}
	name := w.builder.Current().Backend(c.Backend).Name
	switch {
	case f == nil:
		w.flows[key] = &modelFlow{backend: name, seen: now, state: conntrack.Unconfirmed}
	case f.backend == name && f.state != conntrack.Closing:
		w.refresh(f, now, ends)
	default:
		f.backend, f.seen = name, now
		if single {
			f.state = conntrack.Unconfirmed
		}
	}
	return name
}

func (w *world) refresh(f *modelFlow, now conntrack.Tick, ends bool) {
	f.seen = now
	switch {
	case ends:
		f.state = conntrack.Closing
	case f.state == conntrack.Unconfirmed:
		f.state = conntrack.Confirmed
	}
}

// compare checks that all frames went to the backend that was expected.
func (w *world) compare(want string, out [][]byte, n int) {
	if want == "" {
		n = 0
	}
	if len(out) != n {
		w.Errorf("%d frames were forwarded, want %d; dropped %v", len(out), n, byReason(ptr(w.totals())))
		return
	}
	for _, f := range out {
		if got := w.nameOf(chosen(f)); got != want {
			w.Errorf("forwarded to %s, want %s", got, want)
			return
		}
	}
}

// nameOf is the name of the backend with a number in its MAC address.
func (w *world) nameOf(i int) string {
	if i > 100 {
		return fmt.Sprintf("n%d", i)
	}
	return fmt.Sprintf("b%d", i)
}

// settle compares the whole flow table with the model, and the accounts.
func (w *world) settle() {
	w.checkAccounts()
	n := 0
	for e := range w.entries {
		n++
		f := w.flows[e.Key]
		if f == nil || w.over(f) {
			w.Errorf("entry %+v is not in the model", e)
		} else if f.seen != e.LastSeen || f.state != e.State {
			w.Errorf("entry %+v, want %+v", e, *f)
		}
	}
	live := 0
	for _, f := range w.flows {
		if !w.over(f) {
			live++
		}
	}
	if n != live {
		w.Errorf("%d entries in the table, %d in the model", n, live)
	}
}

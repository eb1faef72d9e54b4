package selector

import "net/netip"

// frame is the part of a snapshot that only configuration decides.
type frame struct {
	rules   []Rule
	vips    []vipFrame
	hops    []vipFrame
	routes  []routeEntry
	ranges  []netip.Prefix
	clients *clientTable
	layout  *Layout
	zones   []string
	regions []string
	ownZone uint16
}

// vipFrame is an address and the rules that answer for it.
type vipFrame struct {
	addr    [2]uint64
	matcher *matcher
}

// rebuildFrame makes the frame from b.options and the services; the layout stays the same pointer if
// it means the same.
func (b *Builder) rebuildFrame(zones map[string]uint16) {
	o := &b.options
	f := &frame{clients: newClientTable(o, zones), ownZone: zones[o.Zone]}
	for _, z := range o.Zones {
		f.zones = append(f.zones, z.Name)
	}
	for _, r := range o.Regions {
		f.regions = append(f.regions, r.Name)
	}
	f.rules = make([]Rule, 0, len(o.Rules)+len(o.Routes)) // never grows: others point into it
	addresses := map[[2]uint64]*matcher{}
	for i := range o.Rules {
		ro := &o.Rules[i]
		r := b.addRule(f, ro.Name, ro.Service, Rule{
			Family: familyOf(ro.Address), Protocol: ro.Protocol,
			AllPorts: ro.AllPorts || ro.Protocol == 0, AllowGlobal: ro.AllowGlobalAccess,
			VIPPing: ro.VIPPing, Announce: ro.Announce, Ports: portMask(o.Ports, ro.Interfaces),
			addr: words(ro.Address),
		})
		m := addresses[r.addr]
		if m == nil {
			m = &matcher{}
			addresses[r.addr] = m
			f.vips = append(f.vips, vipFrame{r.addr, m})
		}
		m.add(r, ro.Ports)
	}
	for i := range o.Routes {
		ro := &o.Routes[i]
		dest := unmapped(ro.DestRange)
		r := b.addRule(f, ro.Name, ro.Service, Rule{
			Family: familyOf(dest.Addr()), Protocol: ro.Protocol, Route: true, AllPorts: true,
			DecrementTTL: ro.DecrementTTL, Symmetric: ro.Symmetric, AllowGlobal: true,
			Announce: ro.Announce, Ports: portMask(o.Ports, ro.Interfaces), DestRange: dest,
		})
		e := routeEntry{rule: r, dest: dest}
		if ro.SrcRange.IsValid() {
			e.source = unmapped(ro.SrcRange)
			e.src, e.mask = words(e.source.Addr()), maskOf(e.source)
		}
		f.routes = append(f.routes, e)
		f.ranges = append(f.ranges, dest)
		if ro.NextHopAddress.IsValid() {
			r.addr = words(ro.NextHopAddress)
			f.hops = addHop(f.hops, r)
		}
	}
	f.layout = b.newLayout(f)
	if b.frame != nil && f.layout.equal(b.frame.layout) {
		f.layout = b.frame.layout
	}
	b.frame = f
	b.byAddress = map[[2]uint64][]*backendEntry{}
	for _, e := range b.backends {
		for f := range 2 {
			if e != nil && e.addresses[f].IsValid() {
				w := words(e.addresses[f])
				b.byAddress[w] = append(b.byAddress[w], e)
			}
		}
	}
	b.setPorts(b.ports)
}

// addRule completes a rule and appends it.
func (b *Builder) addRule(f *frame, name, service string, r Rule) *Rule {
	s := b.byName[service].config
	r.ID, r.Name, r.Service = uint16(len(f.rules)), name, s
	r.hash, r.track = hashShapes(s.Affinity), trackShapes(s.Affinity, s.TrackingMode)
	f.rules = append(f.rules, r)
	return &f.rules[len(f.rules)-1]
}

// addHop enters a route under its next hop address; several routes may share one.
func addHop(hops []vipFrame, r *Rule) []vipFrame {
	for i := range hops {
		if hops[i].addr == r.addr {
			hops[i].matcher.rules = append(hops[i].matcher.rules, r)
			return hops
		}
	}
	return append(hops, vipFrame{r.addr, &matcher{rules: []*Rule{r}}})
}

// newLayout numbers the counters of the frame's rules and sets their bases.
func (b *Builder) newLayout(f *frame) *Layout {
	l := &Layout{Stride: len(f.zones) + 1, zones: f.zones}
	for i := range f.rules {
		r := &f.rules[i]
		r.PairBase, r.ConnBase = uint32(l.Pairs), uint32(l.Conns)
		l.Pairs += r.Service.size
		l.Conns += l.Stride * l.Stride
		l.rules = append(l.rules, layoutRule{r.Name, r.Service.index})
	}
	for _, s := range b.services {
		var members []layoutBackend
		for _, e := range append(s.listed[:len(s.listed):len(s.listed)], s.leaving...) {
			members = append(members, layoutBackend{e.name, e.ref})
		}
		l.backends = append(l.backends, members)
	}
	return l
}

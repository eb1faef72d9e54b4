package selector

import "slices"

// answer fills in what is said about addresses now.
func (b *Builder) answer(s *Snapshot) {
	all := ^uint64(0)
	if n := len(s.Ports); n < maxPorts {
		all = 1<<n - 1
	}
	for i := range s.Rules {
		r := &s.Rules[i]
		if !b.ready[r.Name] && b.services[r.Service.index].judged(r.Family) {
			b.ready[r.Name] = true
		}
	}
	fill := func(frames []vipFrame) []*VIP {
		vips := make([]VIP, len(frames))
		out := make([]*VIP, len(frames))
		for i, fr := range frames {
			v := &vips[i]
			v.Addr, v.matcher, v.L3Default = fr.addr, fr.matcher, fr.matcher.any != nil
			for _, r := range fr.matcher.rules {
				v.PingOK = v.PingOK || r.VIPPing && s.states[r.Service.index].families[r.Family].eligible
				announced := r.Announce == AnnounceAlways || r.Announce == AnnounceStandby && b.announced[r.Name]
				if announced && b.ready[r.Name] {
					v.AnswerPorts |= r.Ports & all
				}
			}
			out[i] = v
		}
		return out
	}
	s.VIPs, s.NextHops = fill(b.frame.vips), fill(b.frame.hops)
	s.vips, s.hops = newVIPIndex(s.VIPs), newVIPIndex(s.NextHops)
}

// judged reports whether every listed backend of a family has a verdict.
func (s *serviceEntry) judged(f Family) bool {
	return !slices.ContainsFunc(s.listed, func(e *backendEntry) bool {
		return e.present(f) && e.health[f] == Unknown
	})
}

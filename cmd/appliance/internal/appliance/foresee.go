package appliance

import (
	"fmt"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/conntrack"
	"zonehop/selector"
)

// foresee says what the next packet of a tracked flow would do if its backend
// turned unhealthy now.
func (a *Appliance) foresee(r *selector.Rule, t *selector.Tuple, e *conntrack.Entry) (*admin.Foresight, error) {
	b := a.builder.Current().Backend(selector.Ref(e.Backend))
	if b == nil {
		return nil, nil // it is gone already
	}
	now := a.clock()
	snap, err := a.builder.Preview(nil, now, func(p *selector.Builder) {
		p.SetHealth(r.Service.Name, b.Name, r.Family, selector.Unhealthy)
	})
	if err != nil {
		return nil, fmt.Errorf("foresee a failure of %s: %w", b.Name, err)
	}
	if f := snap.Backend(b.Ref); f != nil && f.Keeps(r.Family, t.Proto, false, now) {
		return &admin.Foresight{Stays: true, Backend: b.Name}, nil
	}
	c := snap.Select(snap.Rule(r.Name), t)
	out := &admin.Foresight{Result: c.Result.String()}
	if next := snap.Backend(c.Backend); next != nil {
		out.Backend = next.Name
	}
	return out, nil
}

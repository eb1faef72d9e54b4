package composite

import (
	"sort"
	"strings"

	"zonehop/selector"
)

// Policy says how much of a service has to be healthy. Both thresholds have to be met.
type Policy struct {
	Name    string
	Percent selector.Ratio // least share of healthy endpoints: 60 % is 0.6
	Min     int            // least number of healthy endpoints, at least 1
}

// Count is the endpoints of a service that count, by state.
type Count struct {
	Healthy, Unhealthy, Unknown int
}

// Total is the number of endpoints.
func (c Count) Total() int { return c.Healthy + c.Unhealthy + c.Unknown }

func (c *Count) add(h selector.Health) {
	switch h {
	case selector.Healthy:
		c.Healthy++
	case selector.Unhealthy:
		c.Unhealthy++
	default:
		c.Unknown++
	}
}

// met reports whether that many healthy endpoints of that many are enough. No endpoint at all never
// is, since Min is at least 1.
func (p *Policy) met(healthy, total int) bool {
	return healthy >= p.Min && p.Percent.Met(healthy, total)
}

// Judge is the state of a source with these endpoints. It equals what every way of filling in the
// unknown endpoints would lead to, and is UNKNOWN if they lead to different states.
func (p *Policy) Judge(c Count) selector.Health {
	switch {
	case p.met(c.Healthy, c.Total()):
		return selector.Healthy
	case !p.met(c.Healthy+c.Unknown, c.Total()):
		return selector.Unhealthy
	}
	return selector.Unknown
}

// PercentText is the share as a percentage in the shortest decimal text, such as "59.9".
func (p *Policy) PercentText() string {
	whole, fraction, _ := strings.Cut(p.Percent.String(), ".")
	for len(fraction) < 2 {
		fraction += "0"
	}
	percent := strings.TrimLeft(whole+fraction[:2], "0")
	if percent == "" {
		percent = "0"
	}
	if rest := fraction[2:]; rest != "" {
		percent += "." + rest
	}
	return percent
}

// Required is the least number of healthy endpoints of total that meets the policy. It is more than
// total where the policy asks for more than there are.
func (p *Policy) Required(total int) int {
	share := sort.Search(total, func(n int) bool { return p.Percent.Met(n, total) })
	return max(share, p.Min)
}

// Combine is the state of a composite with sources in these states: HEALTHY if all are, UNHEALTHY if
// one is, else UNKNOWN; of no sources nothing is known.
func Combine(sources []selector.Health) selector.Health {
	state := selector.Healthy
	for _, s := range sources {
		switch s {
		case selector.Unhealthy:
			return selector.Unhealthy
		case selector.Unknown:
			state = selector.Unknown
		}
	}
	if len(sources) == 0 {
		return selector.Unknown
	}
	return state
}

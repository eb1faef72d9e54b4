package composite

import (
	"fmt"
	"strings"

	"zonehop/selector"
)

// missingOf says in one sentence what would change the state of a source.
func missingOf(p *Policy, c Count) string {
	total := c.Total()
	need := p.Required(total)
	gain := need - c.Healthy                 // more healthy endpoints, to HEALTHY
	loss := c.Healthy + c.Unknown - need + 1 // fewer that may be healthy, to UNHEALTHY
	now := fmt.Sprintf("%d of %s healthy, %d needed", c.Healthy, plural(total, "backend"), need)
	switch p.Judge(c) {
	case selector.Healthy:
		if c.Unknown == 0 {
			return fmt.Sprintf("UNHEALTHY after %s: %s", plural(loss, "more failure"), now)
		}
		return fmt.Sprintf("UNKNOWN after %s, UNHEALTHY after %d, counting the %d without a verdict as healthy: %s",
			plural(1-gain, "more failure"), loss, c.Unknown, now)
	case selector.Unhealthy:
		if need > total {
			return fmt.Sprintf("never HEALTHY as configured: the policy needs %s and %d count", plural(need, "healthy backend"), total)
		}
		return fmt.Sprintf("HEALTHY after %s: %s", plural(gain, "more recovery"), now)
	}
	return fmt.Sprintf("HEALTHY if %d of the %d without a verdict turn healthy, UNHEALTHY after %s: %s",
		gain, c.Unknown, plural(loss, "failure"), now)
}

// missingOfComposite says in one sentence what would change the state of a composite.
func missingOfComposite(state selector.Health, sources []SourceState) string {
	by := make(map[selector.Health][]string)
	counted := 0
	for _, s := range sources {
		if !s.Ignored {
			by[s.State] = append(by[s.State], s.Name)
			counted++
		}
	}
	switch {
	case counted == 0:
		return "stays UNKNOWN: all of its sources are dry runs, which it ignores, since it is not one itself"
	case state == selector.Healthy:
		return fmt.Sprintf("UNHEALTHY once one of its %s turns UNHEALTHY", plural(counted, "source"))
	case state == selector.Unhealthy && len(by[selector.Unknown]) > 0:
		return fmt.Sprintf("HEALTHY once %s, and %s without a verdict, turn HEALTHY",
			strings.Join(by[selector.Unhealthy], ", "), strings.Join(by[selector.Unknown], ", "))
	case state == selector.Unhealthy:
		return fmt.Sprintf("HEALTHY once %s %s HEALTHY", strings.Join(by[selector.Unhealthy], ", "), turns(len(by[selector.Unhealthy])))
	}
	return fmt.Sprintf("HEALTHY once %s %s HEALTHY, UNHEALTHY once one of its %s turns UNHEALTHY",
		strings.Join(by[selector.Unknown], ", "), turns(len(by[selector.Unknown])), plural(counted, "source"))
}

func turns(n int) string {
	if n == 1 {
		return "turns"
	}
	return "turn"
}

// plural is a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

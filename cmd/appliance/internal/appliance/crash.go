package appliance

import (
	"fmt"
	"net/netip"

	"go.uber.org/zap"

	"zonehop/cmd/appliance/internal/blackhole"
	"zonehop/config"
)

// guardSeconds is how often the blackholes are looked after: network managers
// remove rules that they do not know when they are started again.
const guardSeconds = 30

// guardRoutes makes the kernel drop, or forward, the packets of routes that
// come by while nothing takes them from it: when this process is dead, and
// until a later one or `appliance cleanup` changes it.
func guardRoutes(c *config.Config) error {
	var interfaces []string
	var ranges []netip.Prefix
	if c.RouteOnCrash == config.RouteDrop {
		for i := range c.Interfaces {
			interfaces = append(interfaces, c.Interfaces[i].Name)
		}
		for i := range c.Routes {
			ranges = append(ranges, c.Routes[i].DestRange)
		}
	}
	if err := blackhole.Set(interfaces, ranges); err != nil {
		return fmt.Errorf("%w; routeOnCrash: KERNEL goes without, and lets the host forward them after a crash", err)
	}
	return nil
}

// keepGuard is guardRoutes, for the configuration in force, for those who go on
// without it.
func (a *Appliance) keepGuard() {
	a.guarding.Lock()
	defer a.guarding.Unlock()
	if err := guardRoutes(a.config.Load()); err != nil {
		a.log.Error("packets of routes may be forwarded past their backends after a crash", zap.Error(err))
	}
}

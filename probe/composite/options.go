package composite

import (
	"errors"
	"fmt"
	"net/netip"
)

// maxSources is the most sources a composite may have.
const maxSources = 10

// Options is what is aggregated, as plain data. It belongs to the tracker once it is given to one.
type Options struct {
	Services   []Service // at least those that sources name
	Sources    []Source
	Composites []Composite
}

// Service is a set of backends.
type Service struct {
	Name     string
	Backends []Backend // names are unique within a service
}

// Backend is an endpoint of a service, in one address family or both.
type Backend struct {
	Name      string
	Group     string        // what counts are shown by, such as a zone; may be empty
	Failover  bool          // shown; counts like any other
	Addresses [2]netip.Addr // by family; at least one is valid. Another address is another machine without a verdict
}

// Source aggregates one service.
type Source struct {
	Name    string
	Service string
	Policy  Policy
	DryRun  bool
}

// Composite joins 1 to 10 sources.
type Composite struct {
	Name        string
	Sources     []string
	Destination string // the forwarding rule whose health this is
	DryRun      bool
}

// Validate reports everything that a tracker cannot work with, joined into one error.
func Validate(o *Options) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	services, sources, composites := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	fresh := func(seen map[string]bool, noun, name string) {
		if seen[name] {
			fail("%s %q: there are two of that name", noun, name)
		}
		seen[name] = true
	}
	for i := range o.Services {
		s := &o.Services[i]
		fresh(services, "service", s.Name)
		backends := make(map[string]bool, len(s.Backends))
		for _, b := range s.Backends {
			fresh(backends, "service "+s.Name+": backend", b.Name)
			if !b.Addresses[0].IsValid() && !b.Addresses[1].IsValid() {
				fail("service %s: backend %q: has no address", s.Name, b.Name)
			}
		}
	}
	for _, s := range o.Sources {
		fresh(sources, "health source", s.Name)
		if !services[s.Service] {
			fail("health source %q: there is no service %q", s.Name, s.Service)
		}
		if s.Policy.Min < 1 {
			fail("health source %q: the least number of healthy endpoints is %d; use at least 1", s.Name, s.Policy.Min)
		}
	}
	for _, c := range o.Composites {
		fresh(composites, "composite health check", c.Name)
		if n := len(c.Sources); n < 1 || n > maxSources {
			fail("composite health check %q: has %d sources; use 1 to %d", c.Name, n, maxSources)
		}
		for _, s := range c.Sources {
			if !sources[s] {
				fail("composite health check %q: there is no health source %q", c.Name, s)
			}
		}
	}
	return errors.Join(errs...)
}

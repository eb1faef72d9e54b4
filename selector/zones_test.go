package selector

import (
	"strings"
	"testing"
)

func TestClientZone(t *testing.T) {
	o := grid(4, 2)
	o.Zones[0].ClientRanges = prefixes("10.0.0.0/8", "2001:db8:1::/48")
	o.Zones[1].ClientRanges = prefixes("10.1.0.0/16", "10.9.0.0/16", "::ffff:10.8.0.0/112")
	o.ZoneMap = []ZoneMapEntry{{prefixes("10.1.0.0/16")[0], "zone-a"}, {prefixes("10.1.7.0/24")[0], "zone-b"}}
	o.Incompatible = prefixes("10.9.0.0/16", "10.1.7.128/25")
	o.Regions = []RegionOptions{{"west", prefixes("10.77.0.0/16", "10.9.0.0/16")}}
	clients := healthy(mustNew(t, o), 1).clients
	for _, c := range []struct {
		name, client string
		zone         uint16
		region       int
	}{
		{"range", "10.200.0.1", 1, 0},
		{"IPv6 range", "2001:db8:1::5", 1, 0},
		{"no range", "192.0.2.1", 0, 0},
		{"no IPv6 range", "2001:db8:2::5", 0, 0},
		{"mapped range", "10.8.3.3", 2, 0},
		{"zone map wins at equal length", "10.1.0.1", 1, 0},
		{"longer zone map entry", "10.1.7.1", 2, 0},
		{"incompatible wins at equal length", "10.9.0.1", 0, 0},
		{"longer incompatible range", "10.1.7.200", 0, 0},
		{"other region", "10.77.0.1", 0, 1},
	} {
		if zone, region := clients.lookup(words(addr(c.client))); zone != c.zone || region != c.region {
			t.Errorf("%s: lookup(%s) = %d, %d, want %d, %d", c.name, c.client, zone, region, c.zone, c.region)
		}
	}
}

func TestRegionDenied(t *testing.T) {
	o := grid(2, 1)
	o.Regions = []RegionOptions{{"west", prefixes("10.77.0.0/16")}}
	tuple := tupleFrom("10.77.0.1", 1)
	for _, global := range []bool{true, false} {
		o.Rules[0].AllowGlobalAccess = global
		s := healthy(mustNew(t, o), 1)
		want := Selected
		if !global {
			want = RegionDenied
		}
		if c := s.Select(&s.Rules[0], &tuple); c.Result != want || c.ClientZone != 0 || (c.Backend != 0) != global {
			t.Errorf("global access %v: Select = %+v, want %v", global, c, want)
		}
	}
}

func TestDroppedAndNoBackend(t *testing.T) {
	tuple := tupleFrom("10.1.0.1", 1)
	dropped, err := Offline(withDrop(grid(2, 1)), []string{"b0000", "b0001"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c := dropped.Select(&dropped.Rules[0], &tuple); c != (Choice{ClientZone: 1, Result: DroppedUnhealthy}) {
		t.Errorf("Select = %+v, want a drop", c)
	}
	o := grid(2, 1)
	o.Rules[0].Address = addr("2001:db8::1") // a family no backend has
	none := healthy(mustNew(t, o), 1)
	tuple.Src, tuple.Dst = words(addr("2001:db8::9")), words(addr("2001:db8::1"))
	if c := none.Select(&none.Rules[0], &tuple); c.Result != NoBackend || c.Backend != 0 {
		t.Errorf("Select = %+v, want no backend", c)
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		want string
		edit func(*Options)
	}{
		{"listed twice", func(o *Options) { o.Ports = []string{"a", "a"} }},
		{"at most 64", func(o *Options) { o.Ports = strings.Split(strings.Repeat("x,", 64)+"y", ",") }},
		{"declared twice", func(o *Options) { o.Zones[1].Name = o.Zones[0].Name }},
		{"already", func(o *Options) { o.Zones[1].ClientRanges = o.Zones[0].ClientRanges }},
		{"own zone", func(o *Options) { o.Zone = "x" }},
		{"zone map", func(o *Options) { o.ZoneMap = []ZoneMapEntry{{prefixes("10.0.0.0/8")[0], "x"}} }},
		{`zone "x"`, func(o *Options) { o.Services[0].Backends[0].Zone = "x" }},
		{"no address", func(o *Options) { o.Services[0].Backends[0].Address = BackendOptions{}.Address }},
		{"wrong family", func(o *Options) { o.Services[0].Backends[0].Address6 = addr("10.0.0.1") }},
		{"listed twice", func(o *Options) { o.Services[0].Backends[1].Name = "b0000" }},
		{"failover backends only", func(o *Options) {
			for i := range o.Services[0].Backends {
				o.Services[0].Backends[i].Failover = true
			}
		}},
		{"not declared", func(o *Options) { o.Rules[0].Service = "x" }},
		{"not one of", func(o *Options) { o.Rules[0].Interfaces = []string{"eth9"} }},
		{"protocol 132", func(o *Options) { o.Rules[0].Protocol = protoSCTP }},
		{"one of them", func(o *Options) { o.Rules[0].AllPorts = true }},
		{"wrong way", func(o *Options) { o.Rules[0].Ports = []PortRange{{90, 80}} }},
		{"taken", func(o *Options) { o.Rules[0].Ports = []PortRange{{80, 90}, {90, 91}} }},
		{"every port", func(o *Options) {
			o.Rules[0].Ports, o.Rules[0].AllPorts = nil, true
			again := o.Rules[0]
			again.Name = "again"
			o.Rules = append(o.Rules, again)
		}},
		{"another rule", func(o *Options) { o.Routes = []RouteOptions{{Name: "vip", Service: "web"}} }},
		{"never routed", func(o *Options) {
			o.Routes = []RouteOptions{{Name: "r", Service: "web", DestRange: prefixes("169.254.3.0/24")[0]}}
		}},
		{"must be IPv4", func(o *Options) {
			o.Routes = []RouteOptions{{Name: "r", Service: "web", DestRange: prefixes("10.0.0.0/8")[0], NextHopAddress: addr("::5")}}
		}},
		{"symmetric", func(o *Options) {
			o.Services[0].Affinity = AffinityClientIPNoDestination
			o.Routes = []RouteOptions{{Name: "r", Service: "web", Symmetric: true, DestRange: prefixes("10.0.0.0/8")[0]}}
		}},
	} {
		o := grid(4, 2)
		c.edit(&o)
		if err := Validate(&o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Validate = %v, want an error with %q", err, c.want)
		}
	}
	o := grid(4, 2)
	if err := Validate(&o); err != nil {
		t.Errorf("Validate = %v, want nil", err)
	}
}

package appliance

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/config"
)

// Compare lists what is not the same in two configurations.
func Compare(old, next *config.Config) admin.Diff {
	d := admin.Diff{
		Interfaces: changes(old.Interfaces, next.Interfaces, func(v *config.Interface) string { return v.Name }),
		Zones:      changes(old.Zones, next.Zones, func(v *config.Zone) string { return v.Name }),
		Checks:     changes(old.HealthChecks, next.HealthChecks, func(v *config.HealthCheck) string { return v.Name }),
		Services:   changes(old.BackendServices, next.BackendServices, func(v *config.BackendService) string { return v.Name }, "Backends"),
		Backends:   changes(backendsOf(old), backendsOf(next), func(v *serviceBackend) string { return v.Service + "/" + v.Name }),
		Rules:      changes(old.ForwardingRules, next.ForwardingRules, func(v *config.ForwardingRule) string { return v.Name }),
		Routes:     changes(old.Routes, next.Routes, func(v *config.Route) string { return v.Name }),
		Settings: fieldChanges("", reflect.ValueOf(*old), reflect.ValueOf(*next), "Interfaces", "Zones", "HealthChecks",
			"BackendServices", "ForwardingRules", "Routes", "HashKey"),
		Effects: []admin.DiffService{},
	}
	if old.HashKey != next.HashKey {
		d.Settings = append(d.Settings, "hashKey: another one") // its value is nobody's business
	}
	if d.Settings == nil {
		d.Settings = []string{}
	}
	d.Changed = len(d.Settings) > 0
	for _, c := range []*admin.Changes{&d.Interfaces, &d.Zones, &d.Checks, &d.Services, &d.Backends, &d.Rules, &d.Routes} {
		d.Changed = d.Changed || len(c.Added)+len(c.Removed)+len(c.Changed) > 0
	}
	return d
}

// serviceBackend is a backend with the service it is of.
type serviceBackend struct {
	Service string
	config.Backend
}

func backendsOf(c *config.Config) (out []serviceBackend) {
	for i := range c.BackendServices {
		for _, b := range c.BackendServices[i].Backends {
			out = append(out, serviceBackend{c.BackendServices[i].Name, b})
		}
	}
	return out
}

// changes compares two lists by name, but for the fields left out.
func changes[T any](old, next []T, name func(*T) string, leftOut ...string) admin.Changes {
	out := admin.Changes{Added: []string{}, Removed: []string{}, Changed: []admin.Changed{}}
	before := make(map[string]*T, len(old))
	for i := range old {
		before[name(&old[i])] = &old[i]
	}
	for i := range next {
		n := name(&next[i])
		was := before[n]
		delete(before, n)
		if was == nil {
			out.Added = append(out.Added, n)
		} else if what := fieldChanges("", reflect.ValueOf(*was), reflect.ValueOf(next[i]), leftOut...); len(what) > 0 {
			out.Changed = append(out.Changed, admin.Changed{Name: n, What: what})
		}
	}
	for i := range old {
		if n := name(&old[i]); before[n] != nil {
			out.Removed = append(out.Removed, n)
		}
	}
	return out
}

// fieldChanges lists the fields of two structs of one type that differ.
func fieldChanges(path string, old, next reflect.Value, leftOut ...string) (out []string) {
fields:
	for i := range old.NumField() {
		f := old.Type().Field(i)
		for _, name := range leftOut {
			if f.Name == name {
				continue fields
			}
		}
		x, y := old.Field(i), next.Field(i)
		if reflect.DeepEqual(x.Interface(), y.Interface()) {
			continue
		}
		_, isText := x.Interface().(fmt.Stringer)
		switch {
		case f.Anonymous:
			out = append(out, fieldChanges(path, x, y)...)
		case f.Type.Kind() == reflect.Struct && !isText:
			out = append(out, fieldChanges(path+keyName(f.Name)+".", x, y)...)
		default:
			key := path + keyName(f.Name)
			if f.Type == reflect.TypeFor[time.Duration]() {
				key += "Sec"
			}
			out = append(out, fmt.Sprintf("%s: %s → %s", key, valueText(x), valueText(y)))
		}
	}
	return out
}

// otherKeys are the names in the configuration file that do not follow from
// those of the fields.
var otherKeys = map[string]string{
	"CPUs": "cpus", "IPAddress": "IPAddress", "IPProtocol": "IPProtocol", "IPv6Address": "ipv6Address",
	"HealthCheck": "healthChecks", "LogTransitions": "logConfig.enable", "Persistence": "connectionPersistenceOnUnhealthyBackends",
}

// keyName is a field's name as the configuration file writes such names: with
// its first word, or abbreviation, in lower case.
func keyName(field string) string {
	if key, other := otherKeys[field]; other {
		return key
	}
	upper := 0
	for upper < len(field) && field[upper] >= 'A' && field[upper] <= 'Z' {
		upper++
	}
	if upper > 1 && upper < len(field) {
		upper-- // the last capital begins the next word
	}
	return strings.ToLower(field[:upper]) + field[upper:]
}

func valueText(v reflect.Value) string {
	if d, ok := v.Interface().(time.Duration); ok {
		return strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
	}
	text := fmt.Sprint(v.Interface())
	if text == "" || text == "[]" || text == "invalid IP" || text == "invalid Prefix" {
		return "none"
	}
	return text
}

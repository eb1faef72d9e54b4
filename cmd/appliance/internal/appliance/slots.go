package appliance

import (
	"fmt"
	"slices"
	"strings"

	"zonehop/config"
	"zonehop/forwarder"
)

// slots are the names of interfaces by their index in the snapshot's ports.
// An interface keeps its index over reloads, since workers and frames on their
// way know it by that; the place of one that was removed stays empty, under a
// name that no interface can have.
type slots []string

// maxSlots is how many ports a snapshot has room for.
const maxSlots = 64

func emptySlot(i int) string { return fmt.Sprintf("removed %d", i) }

func isEmptySlot(name string) bool { return strings.Contains(name, " ") }

// next are the slots for another list of interfaces. The place of a removed one
// is used again only when there is no other left.
func (s slots) next(interfaces []config.Interface) slots {
	out := slices.Clone(s)
	for i, name := range out {
		if !slices.ContainsFunc(interfaces, func(c config.Interface) bool { return c.Name == name }) {
			out[i] = emptySlot(i)
		}
	}
	for _, c := range interfaces {
		switch {
		case slices.Contains(out, c.Name):
		case len(out) < maxSlots:
			out = append(out, c.Name)
		default:
			out[slices.IndexFunc(out, isEmptySlot)] = c.Name // at most maxSlots interfaces are configured
		}
	}
	return out
}

// configs are the interfaces' configurations by slot.
func (s slots) configs(c *config.Config) []forwarder.InterfaceConfig {
	out := make([]forwarder.InterfaceConfig, len(s))
	for _, i := range interfaceConfigs(c) {
		out[slices.Index(s, i.Name)] = i
	}
	return out
}

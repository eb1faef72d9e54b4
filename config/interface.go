package config

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// Interface is a network interface the appliance forwards on.
type Interface struct {
	Name string
	Mode Mode
	// Queues are the receive queues to use, each once; nil for all that the interface has.
	Queues []int
	CPUs   CPUs
	// BusyPoll makes the workers poll the driver themselves instead of waiting for its interrupts.
	BusyPoll bool
}

// Mode is how packets get between the driver and user space.
type Mode string

// The modes. Auto is zero-copy where the driver has it, else copy, and never generic: that is ten times
// slower and has to be asked for.
const (
	ModeAuto     Mode = "auto"
	ModeZeroCopy Mode = "zero-copy"
	ModeCopy     Mode = "copy"
	ModeGeneric  Mode = "generic"
)

// CPUs says where the workers of an interface's queues run.
type CPUs struct {
	Policy CPUPolicy
	// List has one CPU for each queue, in order, with CPUList; nil otherwise.
	List []int
}

// CPUPolicy is how workers are placed.
type CPUPolicy string

// The policies: the appliance chooses, the kernel's scheduler chooses, or the file lists them.
const (
	CPUAuto CPUPolicy = "auto"
	CPUNone CPUPolicy = "none"
	CPUList CPUPolicy = "list"
)

// Bounds of the kernel: rtnl_create_link (net/core/rtnetlink.c) makes at most 4096 receive queues, and
// CONFIG_NR_CPUS is at most 8192.
const (
	maxQueue = 4095
	maxCPU   = 8191
)

var interfaceTable = object[Interface]{noun: "an interface", fields: []*field[Interface]{
	key("name", interfaceName, func(i *Interface) *string { return &i.Name }, "the name that ip link shows").need(),
	key("mode", enum("", nil, ModeAuto, ModeZeroCopy, ModeCopy, ModeGeneric), func(i *Interface) *Mode { return &i.Mode },
		"auto is zero-copy, else native copy, never generic, which must be asked for").def("auto"),
	key("queues", queuesKind, func(i *Interface) *[]int { return &i.Queues }, "all, or a list of queue numbers").def("all"),
	key("cpus", cpusKind, func(i *Interface) *CPUs { return &i.CPUs },
		"where workers run: auto, none to leave it to the scheduler, or one CPU for each queue").def("auto"),
	key("busyPoll", boolean, func(i *Interface) *bool { return &i.BusyPoll },
		"workers poll the driver instead of waiting for interrupts").def("false"),
}, finish: func(d *decoder, i *Interface) {
	d.once(i.Queues, func(n int) any { return &i.Queues[n] })
	if len(i.Queues) > 0 && i.CPUs.Policy == CPUList && len(i.CPUs.List) != len(i.Queues) {
		d.errorAt(&i.CPUs, "has %d for %d queues; list one CPU for each queue", len(i.CPUs.List), len(i.Queues))
	}
}}

// checkPlacement reports a queue that two interfaces put on different CPUs: one worker serves it on all of
// them.
func (d *decoder) checkPlacement(c *Config) {
	type put struct {
		cpu, line int
	}
	placed := make(map[int]put)
	for i := range c.Interfaces {
		e := &c.Interfaces[i]
		for n := range e.CPUs.List {
			queue := n
			if e.Queues != nil {
				if n >= len(e.Queues) {
					break
				}
				if queue = e.Queues[n]; d.refused(&e.Queues[n]) {
					continue
				}
			}
			if d.refused(&e.CPUs.List[n]) {
				continue
			}
			before, again := placed[queue]
			if again && before.cpu != e.CPUs.List[n] {
				d.errorAt(&e.CPUs, "puts queue %d on CPU %d, but the interface in line %d puts it on CPU %d; one worker serves the queue of all interfaces, so use one CPU",
					queue, e.CPUs.List[n], before.line, before.cpu)
				break
			}
			placed[queue] = put{e.CPUs.List[n], d.line(e)}
		}
	}
}

// once reports numbers that a list has twice.
func (d *decoder) once(numbers []int, at func(n int) any) {
	seen := make(map[int]bool, len(numbers))
	for n, v := range numbers {
		if d.refused(at(n)) {
			continue
		}
		if seen[v] {
			d.errorAt(at(n), "%d is listed twice; list each once", v)
		}
		seen[v] = true
	}
}

// interfaceKind accepts a name alone for an interface with all defaults.
var interfaceKind = orName(interfaceTable.kind(), interfaceName, func(i *Interface) *string { return &i.Name })

// orName lets a name stand for a mapping that has only a name.
func orName[V any](k kind[V], name kind[string], at func(*V) *string) kind[V] {
	both := k
	both.read = func(d *decoder, n *yaml.Node, path string, v *V) bool {
		if m := resolve(n); m.Kind != yaml.ScalarNode || m.Tag == "!!null" {
			return k.read(d, n, path, v)
		}
		d.places[at(v)] = place{node: n, path: path}
		d.mappings = append(d.mappings, func() { k.missing(d, n, path, v) })
		return name.read(d, n, path, at(v))
	}
	both.schema = func() schema { return schema{"anyOf": []any{name.schema(), k.schema()}} }
	return both
}

var interfaceName = leaf("an interface name of 1 to 15 characters", func(text string) (string, error) {
	if text == "" || len(text) > 15 || text == "." || text == ".." || strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' || c == '/' || c == ':' }) {
		return "", fmt.Errorf("%s cannot be the name of an interface; use 1 to 15 characters without spaces, \"/\" and \":\"", show(text))
	}
	return text, nil
}, word, schema{"type": "string", "minLength": 1, "maxLength": 15})

var queueNumbers = list(integer[int](0, maxQueue), "queue numbers", 1, maxQueue+1)

var queuesKind = kind[[]int]{
	parse: func(text string) ([]int, error) {
		if text != "all" {
			return nil, fmt.Errorf("%s is not known; use all or a list of queue numbers such as [0, 1]", show(text))
		}
		return nil, nil
	},
	read: func(d *decoder, n *yaml.Node, path string, v *[]int) bool {
		return d.wordOrList(n, path, "all or a list of queue numbers such as [0, 1]", v, []string{"all"}, func(string) { *v = nil }, queueNumbers)
	},
	write: func(v *[]int) *yaml.Node {
		if *v == nil {
			return word("all")
		}
		return queueNumbers.write(v)
	},
	schema: func() schema { return schema{"anyOf": []any{schema{"const": "all"}, queueNumbers.schema()}} },
}

var cpuNumbers = list(integer[int](0, maxCPU), "CPU numbers", 1, maxCPU+1)

var cpusKind = kind[CPUs]{
	parse: func(text string) (CPUs, error) { return CPUs{Policy: CPUPolicy(text)}, nil },
	read: func(d *decoder, n *yaml.Node, path string, v *CPUs) bool {
		var numbers []int
		ok := d.wordOrList(n, path, "auto, none or a list of CPU numbers such as [2, 3]", &numbers, []string{"auto", "none"},
			func(w string) { *v = CPUs{Policy: CPUPolicy(w)} }, cpuNumbers)
		if ok && numbers != nil {
			*v = CPUs{Policy: CPUList, List: numbers}
		}
		return ok
	},
	write: func(v *CPUs) *yaml.Node {
		if v.Policy == CPUList {
			return cpuNumbers.write(&v.List)
		}
		return word(string(v.Policy))
	},
	schema: func() schema {
		return schema{"anyOf": []any{schema{"enum": []any{"auto", "none"}}, cpuNumbers.schema()}}
	},
}

// wordOrList reads one of a few words, or a list.
func (d *decoder) wordOrList(n *yaml.Node, path, allowed string, v *[]int, words []string, set func(string), numbers kind[[]int]) bool {
	m := resolve(n)
	if m.Kind == yaml.SequenceNode {
		return numbers.read(d, n, path, v)
	}
	if m.Kind == yaml.ScalarNode {
		for _, w := range words {
			if m.Value == w {
				set(w)
				return true
			}
		}
	}
	d.errorf(n, path, "%s is not known; use %s%s", describe(m), allowed, didYouMean(m.Value, words))
	return false
}

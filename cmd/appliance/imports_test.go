package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The architecture's arrows: what each package may import of this module, and
// which dependencies are confined to it. A package without a row may import
// anything.
var (
	mayImport = map[string][]string{
		"zonehop/conntrack":        {},
		"zonehop/selector":         {},
		"zonehop/config":           {},
		"zonehop/probe":            {},
		"zonehop/probe/composite":  {"zonehop/selector", "zonehop/probe"},
		"zonehop/forwarder/packet": {},
		"zonehop/forwarder/xsk":    {},
		"zonehop/forwarder/neigh":  {},
		"zonehop/forwarder/claim":  {"zonehop/forwarder/packet"},
		"zonehop/forwarder":        {"zonehop/conntrack", "zonehop/selector", "zonehop/forwarder/packet", "zonehop/forwarder/claim", "zonehop/forwarder/xsk"},
	}
	confined = map[string][]string{
		"github.com/asavie/xdp":          {"zonehop/forwarder/xsk", "zonehop/bench"},
		"gopkg.in/yaml.v3":               {"zonehop/config"},
		"zonehop/config":                 {"zonehop/cmd/appliance"},
		"github.com/google/gopacket":     {"zonehop/bench"},
		"go.uber.org/zap":                {"zonehop/cmd/appliance"},
		"github.com/spf13/cobra":         {"zonehop/cmd/appliance"},
		"github.com/prometheus":          {"zonehop/cmd/appliance"},
		"github.com/vishvananda/netlink": {"zonehop/forwarder/neigh", "zonehop/bench", "zonehop/cmd/appliance"},
		"github.com/cilium/ebpf":         {"zonehop/forwarder/xsk", "zonehop/bench"},
		"zonehop/bench":                  {"zonehop/bench", "zonehop/cmd/appliance"},
		"google.golang.org/grpc":         {},
		"pgregory.net/rapid":             {},
		"github.com/google/go-cmp":       {},
		"go.uber.org/goleak":             {},
		"C":                              {},
	}
)

// TestImports fails when an arrow points the wrong way: the packet path must
// stay free of configuration, logging and the control side, and each library
// package must be testable alone.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "zonehop/...").Output()
	if err != nil {
		t.Fatalf("list packages: %v", err)
	}
	packages := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		pkg, imports := fields[0], fields[1:]
		packages++
		for _, i := range imports {
			if allowed, ok := mayImport[pkg]; ok && strings.HasPrefix(i, "zonehop/") && !under(i, allowed) {
				t.Errorf("%s imports %s: arrows go one way, and it may import only %v of this module", pkg, i, allowed)
			}
			for dep, users := range confined {
				if within(i, dep) && !under(pkg, users) && !within(pkg, dep) {
					t.Errorf("%s imports %s, which is confined to %v", pkg, i, users)
				}
			}
		}
	}
	if packages < len(mayImport)-1 {
		t.Errorf("only %d packages were listed", packages)
	}
}

// within reports whether path is root or below it.
func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

func under(path string, roots []string) bool {
	for _, r := range roots {
		if within(path, r) {
			return true
		}
	}
	return false
}

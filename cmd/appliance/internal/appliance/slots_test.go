package appliance

import (
	"fmt"
	"slices"
	"testing"

	"zonehop/config"
)

func TestSlots(t *testing.T) {
	list := func(names ...string) (out []config.Interface) {
		for _, n := range names {
			out = append(out, config.Interface{Name: n})
		}
		return out
	}
	s := slots(nil).next(list("eth0", "eth1"))
	for _, step := range []struct{ names, want []string }{
		{[]string{"eth0", "eth1"}, []string{"eth0", "eth1"}},
		{[]string{"eth1"}, []string{"removed 0", "eth1"}},
		{[]string{"eth2", "eth1"}, []string{"removed 0", "eth1", "eth2"}},
		{[]string{"eth0", "eth2"}, []string{"removed 0", "removed 1", "eth2", "eth0"}},
	} {
		if s = s.next(list(step.names...)); !slices.Equal(s, step.want) {
			t.Fatalf("for %v: %q, want %q", step.names, s, step.want)
		}
	}
	for n := range 200 { // every place is used again in the end
		name := fmt.Sprintf("e%d", n)
		if s = s.next(list("eth2", name)); !slices.Contains(s, name) || s[2] != "eth2" || len(s) > maxSlots {
			t.Fatalf("%s: %q", name, s)
		}
	}
}

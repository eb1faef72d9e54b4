package xsk

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestErrnoOf: what the library says of its system calls reaches nobody.
func TestErrnoOf(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"syscall.Bind SockaddrXDP failed", "bind"},
		{"syscall.Socket failed", "create socket"},
		{"unix.SetsockoptUint64 XDP_UMEM_REG failed", "register umem"},
		{"unix.SetsockoptUint64 XDP_UMEM_FILL_RING failed", "make a ring"},
		{"syscall.Mmap XDP_PGOFF_RX_RING failed", "map a ring"},
		{"syscall.Mmap failed", "take memory for frames"},
	} {
		err := errnoOf(fmt.Errorf("%s: %v", c.text, unix.EBUSY))
		if !errors.Is(err, unix.EBUSY) || err.Error() != c.want+": device or resource busy" {
			t.Errorf("%q gives %q, want %q", c.text, err, c.want)
		}
	}
	if plain := errors.New("something else"); errnoOf(plain) != plain {
		t.Error("an error without a number is changed")
	}
}

func TestLackingCapabilities(t *testing.T) {
	all := uint64(1)<<unix.CAP_BPF | 1<<unix.CAP_PERFMON | 1<<unix.CAP_NET_ADMIN
	for _, c := range []struct {
		name string
		have uint64
		want []int
	}{
		{"none", 0, []int{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_NET_ADMIN}},
		{"all", all, nil},
		{"all but CAP_NET_ADMIN", all &^ (1 << unix.CAP_NET_ADMIN), []int{unix.CAP_NET_ADMIN}},
		{"CAP_SYS_ADMIN", 1 << unix.CAP_SYS_ADMIN, []int{unix.CAP_NET_ADMIN}},
	} {
		if got := lacking(c.have, loadCapabilities); !slices.Equal(got, c.want) {
			t.Errorf("%s: lacking %s, want %s", c.name, names(got), names(c.want))
		}
	}
	if text := capabilityRemedy(unix.CAP_BPF); !strings.Contains(text, "CAP_BPF") {
		t.Errorf("the remedy %q names no capability", text)
	}
}

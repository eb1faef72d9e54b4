package xsk

import (
	"strings"

	"golang.org/x/sys/unix"
)

// loadCapabilities are what loading the classifier and its maps needs.
var loadCapabilities = []int{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_NET_ADMIN}

// capabilityNames are of those that this package asks for (capabilities(7)).
var capabilityNames = map[int]string{
	unix.CAP_BPF: "CAP_BPF", unix.CAP_PERFMON: "CAP_PERFMON", unix.CAP_NET_ADMIN: "CAP_NET_ADMIN", unix.CAP_NET_RAW: "CAP_NET_RAW",
}

// missing lists which of the capabilities this process does not have.
func missing(capabilities ...int) []int {
	have, err := effective()
	if err != nil {
		return nil // not known: nothing can be said
	}
	return lacking(have, capabilities)
}

// lacking lists which of the capabilities are not in a set of them.
func lacking(have uint64, capabilities []int) (out []int) {
	if have&(1<<unix.CAP_SYS_ADMIN) != 0 { // stands in for the two (since Linux 5.8, for compatibility)
		have |= 1<<unix.CAP_BPF | 1<<unix.CAP_PERFMON
	}
	for _, c := range capabilities {
		if have&(1<<c) == 0 {
			out = append(out, c)
		}
	}
	return out
}

// effective is the set of this thread's effective capabilities.
func effective() (uint64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, err
	}
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), nil
}

// capabilityRemedy says what to do about an EPERM where these are needed.
func capabilityRemedy(needed ...int) string {
	if m := missing(needed...); len(m) > 0 {
		return names(m) + ": this process does not have it; run it as root, or grant it (AmbientCapabilities= in a systemd unit, setcap on the program)"
	}
	return names(needed) + " are needed, and this process has them: a security module or a user namespace forbids it all the same (see the kernel's log)"
}

func names(capabilities []int) string {
	var list []string
	for _, c := range capabilities {
		list = append(list, capabilityNames[c])
	}
	return strings.Join(list, ", ")
}

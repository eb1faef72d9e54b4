package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// setting is one kernel file and what to write into it.
type setting struct{ path, value string }

// sysctl writes values below /proc/sys, which shows each thread the network
// settings of its own namespace. Paths are relative, with slashes.
func (ns *namespace) sysctl(settings ...setting) error {
	return ns.do(func() error {
		for _, s := range settings {
			if err := os.WriteFile(filepath.Join("/proc/sys", s.path), []byte(s.value), 0); err != nil {
				return fmt.Errorf("set %s to %s in %s: %w", s.path, s.value, ns.name, err)
			}
		}
		return nil
	})
}

// sysfs writes values below /sys/class/net. Unlike /proc/sys, a sysfs mount
// belongs to the namespace it was mounted in; so a detached one is made here,
// which needs no place in the file system and is gone when its descriptor
// closes.
func (ns *namespace) sysfs(settings ...setting) error {
	return ns.do(func() error {
		root, err := mountSysfs()
		if err != nil {
			return fmt.Errorf("mount sysfs in %s: %w", ns.name, err)
		}
		defer unix.Close(root)
		for _, s := range settings {
			if err := writeAt(root, filepath.Join("class/net", s.path), s.value); err != nil {
				return fmt.Errorf("set %s to %s in %s: %w", s.path, s.value, ns.name, err)
			}
		}
		return nil
	})
}

// readSysfs reads one file below /sys/class/net, without the newline.
func (ns *namespace) readSysfs(path string) (value string, err error) {
	err = ns.do(func() error {
		root, err := mountSysfs()
		if err != nil {
			return fmt.Errorf("mount sysfs in %s: %w", ns.name, err)
		}
		defer unix.Close(root)
		fd, err := unix.Openat(root, filepath.Join("class/net", path), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("read %s in %s: %w", path, ns.name, err)
		}
		defer unix.Close(fd)
		buf := make([]byte, 4096) // a sysfs file is at most a page
		n, err := unix.Read(fd, buf)
		if err != nil {
			return fmt.Errorf("read %s in %s: %w", path, ns.name, err)
		}
		value = strings.TrimSpace(string(buf[:n]))
		return nil
	})
	return value, err
}

func mountSysfs() (int, error) {
	fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
}

func writeAt(root int, path, value string) error {
	fd, err := unix.Openat(root, path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}

// cpuList reads one of the kernel's lists of CPUs, such as "online".
func cpuList(name string) (cpus []int, err error) {
	text, err := os.ReadFile(filepath.Join("/sys/devices/system/cpu", name))
	if err != nil {
		return nil, fmt.Errorf("list cpus: %w", err)
	}
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		if err != nil {
			return nil, fmt.Errorf("list cpus: %q: %w", text, err)
		}
		to, err := strconv.Atoi(last)
		if err != nil {
			return nil, fmt.Errorf("list cpus: %q: %w", text, err)
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// cpuMask is a set of CPUs in the kernel's format: 32-bit groups, most
// significant first.
func cpuMask(cpus ...int) string {
	groups := make([]uint32, slices.Max(cpus)/32+1)
	for _, cpu := range cpus {
		groups[cpu/32] |= 1 << (cpu % 32)
	}
	var text []string
	for _, g := range slices.Backward(groups) {
		text = append(text, fmt.Sprintf("%08x", g))
	}
	return strings.Join(text, ",")
}

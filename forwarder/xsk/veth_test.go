package xsk

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zonehop/bench/needs"
)

func needRoot(t testing.TB) {
	t.Helper()
	needs.Root(t, "AF_XDP, with network namespaces,")
}

func run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// enterNamespace moves the calling goroutine, tied to its thread, into a fresh
// namespace for the length of the test. The thread is given up afterwards.
func enterNamespace(t testing.TB) (name string) {
	t.Helper()
	needRoot(t)
	name = fmt.Sprintf("zhxsk%d-%d", os.Getpid(), time.Now().UnixNano()%1e6)
	run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	if err := threadToNamespace(name); err != nil {
		t.Fatal(err)
	}
	return name
}

// threadToNamespace ties the goroutine to its thread for good, so that the thread
// ends with it, and moves the thread.
func threadToNamespace(name string) error {
	runtime.LockOSThread()
	fd, err := unix.Open("/run/netns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", name, err)
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace %s: %w", name, err)
	}
	return nil
}

// veth is one cable in the test's namespace: near is the end with sockets on it,
// far the end that plays the network.
type veth struct {
	near, far       string
	index, farIndex int
	mac             [6]byte
	packet          int // AF_PACKET socket on far
}

func addVeth(t testing.TB, near, far string, queues int) *veth {
	t.Helper()
	n := fmt.Sprint(queues)
	run(t, "ip", "link", "add", near, "numtxqueues", n, "numrxqueues", n, "type", "veth",
		"peer", "name", far, "numtxqueues", n, "numrxqueues", n)
	for _, i := range []string{near, far} {
		run(t, "sysctl", "-qw", "net.ipv6.conf."+i+".disable_ipv6=1")
		run(t, "ip", "link", "set", i, "up")
	}
	v := &veth{near: near, far: far}
	ni, err := net.InterfaceByName(near)
	if err != nil {
		t.Fatal(err)
	}
	fi, err := net.InterfaceByName(far)
	if err != nil {
		t.Fatal(err)
	}
	v.index, v.farIndex = ni.Index, fi.Index
	copy(v.mac[:], ni.HardwareAddr)
	all := uint16(unix.ETH_P_ALL)
	v.packet, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(v.packet) })
	be := binary.BigEndian.Uint16([]byte{byte(all), byte(all >> 8)})
	if err := unix.Bind(v.packet, &unix.SockaddrLinklayer{Protocol: be, Ifindex: v.farIndex}); err != nil {
		t.Fatal(err)
	}
	timeout := unix.Timeval{Usec: 20_000}
	if err := unix.SetsockoptTimeval(v.packet, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *veth) send(t testing.TB, frame []byte) {
	t.Helper()
	if _, err := unix.Write(v.packet, frame); err != nil {
		t.Fatalf("send on %s: %v", v.far, err)
	}
}

// expect reads frames at the far end until want arrives.
func (v *veth) expect(t testing.TB, want string) {
	t.Helper()
	buf := make([]byte, 2048)
	waitFor(t, fmt.Sprintf("frame on %s", v.far), func() bool {
		n, err := unix.Read(v.packet, buf)
		return err == nil && string(buf[:n]) == want
	})
}

// waitFor polls for a state with a deadline.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within a minute", what)
		}
	}
}

func smallConfig() Config {
	return Config{FrameSize: 2048, Frames: 1024, Fill: 256, RX: 64, TX: 64, Batch: 32, HugePages: HugePagesOff}
}

// interfaceIndex is the index of an interface in the thread's namespace.
func interfaceIndex(name string) (int, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	return i.Index, nil
}

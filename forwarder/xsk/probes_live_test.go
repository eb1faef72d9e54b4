package xsk

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// tcpSocket is an unconnected, non-blocking socket, bound to port unless that is 0.
func tcpSocket(t *testing.T, port int) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err == nil && port != 0 {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: port})
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// connectTo starts to connect to the backend's own address.
func connectTo(t *testing.T, fd int) {
	t.Helper()
	err := unix.Connect(fd, &unix.SockaddrInet4{Port: probePort, Addr: probeBackend4.As4()})
	if !errors.Is(err, unix.EINPROGRESS) {
		t.Fatal(err)
	}
}

func localPort(t *testing.T, fd int) int {
	t.Helper()
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return sa.(*unix.SockaddrInet4).Port
}

// syn waits at the far end for a SYN from a local port and returns its destination.
func (v *veth) syn(t *testing.T, port int) (dst netip.Addr) {
	t.Helper()
	buf := make([]byte, 2048)
	waitFor(t, "SYN on "+v.far, func() bool {
		n, err := unix.Read(v.packet, buf)
		f := buf[:max(n, 0)]
		if err != nil || len(f) < 54 || f[12] != 8 || f[13] != 0 || f[23] != 6 || f[47] != 2 || int(binary.BigEndian.Uint16(f[34:])) != port {
			return false
		}
		dst = netip.AddrFrom4([4]byte(f[30:34]))
		return true
	})
	return dst
}

// Packets of a probe's socket are rewritten, those of a socket that has the same
// local port and destination afterwards are not; nor is anything once it is off.
func TestProbeSockets(t *testing.T) {
	enterNamespace(t)
	v := addVeth(t, "a0", "a1", 1)
	run(t, "ip", "addr", "add", probeOwn4.String()+"/24", "dev", "a0")
	run(t, "ip", "route", "add", probeBackend4.String(), "dev", "a0")
	run(t, "ip", "neigh", "add", probeBackend4.String(), "lladdr", "02:00:00:00:00:41", "dev", "a0")
	probes, err := NewProbes()
	if err != nil {
		t.Fatal(err)
	}
	defer probes.Close()
	p, err := probes.Attach(v.index, Native)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.SetOwn([]netip.Addr{probeOwn4}); err != nil {
		t.Fatal(err)
	}
	c := Probe{Interface: v.index, Backend: probeBackend4, Rule: probeRule4, Port: probePort, Life: time.Hour}
	fd := tcpSocket(t, 0)
	if err := probes.Add(fd, c); err == nil {
		t.Error("a probe was accepted although nothing rewrites it")
	}
	if err := p.SetProbing(true); err != nil {
		t.Fatal(err)
	}
	if err := probes.Add(fd, c); err != nil {
		t.Fatal(err)
	}
	port := localPort(t, fd)
	connectTo(t, fd)
	if dst := v.syn(t, port); dst != probeRule4 {
		t.Errorf("the probe went to %s, want %s", dst, probeRule4)
	}
	unix.Close(fd)

	other := tcpSocket(t, port)
	connectTo(t, other)
	if dst := v.syn(t, port); dst != probeBackend4 {
		t.Errorf("another socket's connection went to %s, want %s", dst, probeBackend4)
	}
	unix.Close(other)

	seen := map[int]bool{}
	for range 200 {
		fd := tcpSocket(t, 0)
		defer unix.Close(fd)
		if err := probes.Add(fd, c); err != nil {
			t.Fatal(err)
		}
		connectTo(t, fd)
		if port := localPort(t, fd); seen[port] {
			t.Errorf("local port %d was given out twice", port)
		} else {
			seen[port] = true
		}
	}
	if err := p.SetProbing(false); err != nil {
		t.Fatal(err)
	}
	if r, err := link.QueryPrograms(link.QueryOptions{Target: v.index, Attach: ebpf.AttachTCXEgress}); err != nil || len(r.Programs) != 0 {
		t.Errorf("after SetProbing(false): %+v, %v", r, err)
	}
	fd = tcpSocket(t, 0)
	defer unix.Close(fd)
	if err := probes.Add(fd, c); err == nil {
		t.Error("a probe was accepted after SetProbing(false)")
	}
}

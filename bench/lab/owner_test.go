package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// childEnv makes the test binary build a lab, say so, and wait to be killed.
const childEnv = "ZONEHOP_LAB_CHILD"

func TestMain(m *testing.M) {
	if prefix := os.Getenv(childEnv); prefix != "" {
		if err := child(prefix); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		select {}
	}
	os.Exit(m.Run())
}

func child(prefix string) error {
	topology := small()
	l, err := Build(context.Background(), Options{Prefix: prefix, Topology: &topology})
	if err != nil {
		return err
	}
	p, err := l.Command("lb", "sleep", "600")
	if err != nil {
		return err
	}
	fmt.Println("ready", p.Pid(), l.Dir())
	return nil
}

// small is TwoZones cut down to one backend of each kind and one client.
func small() Topology {
	t := TwoZones()
	t.Backends = []BackendSpec{t.Backends[0], t.Backends[6]}
	t.Clients = t.Clients[:1]
	return t
}

// names lists the namespaces with a prefix.
func names(t *testing.T, prefix string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(netnsDir, prefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// checkNotRemoved cleans up, which may find leftovers of other programs, and
// expects it to spare the names with a prefix.
func checkNotRemoved(t *testing.T, prefix string) {
	t.Helper()
	removed, err := RemoveLeftovers()
	if err != nil {
		t.Error(err)
	}
	for _, name := range removed {
		if strings.HasPrefix(name, prefix) {
			t.Errorf("RemoveLeftovers() removed %s", name)
		}
	}
}

func TestLeftoversOfKilledProcessAreRemoved(t *testing.T) {
	alive := build(t, Options{Topology: &Topology{Appliance: NodeSpec{Name: "lb"}}})
	foreign := "zh-foreign-" + strconv.Itoa(os.Getpid())
	other, err := newNamespace(foreign)
	if err != nil {
		t.Fatal(err)
	}
	defer other.remove()

	prefix := "zh-child-" + strconv.Itoa(os.Getpid())
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+prefix)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var pid int
	var dir string
	if _, scanErr := fmt.Sscanf(line, "ready %d %s", &pid, &dir); scanErr != nil {
		cmd.Process.Kill()
		t.Fatalf("child said %q: %v, %v", line, err, scanErr)
	}
	defer os.RemoveAll(dir)
	checkNotRemoved(t, prefix)
	checkNotRemoved(t, alive.Prefix())
	// Labs of other programs clean up too: none may come before the count.
	unlock, err := lockOwners()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait() // killed
	err = Wait(t.Context(), "the kernel to kill what ran in the lab", patience, func() (bool, error) {
		return unix.Kill(pid, 0) != nil, nil
	})
	if err != nil {
		t.Error(err)
	}
	n := len(names(t, prefix+"-"))
	unlock()
	if n != 5 {
		t.Errorf("the killed process left %d namespaces, want 5 for this test to mean anything", n)
	}

	topology := small()
	build(t, Options{Topology: &topology})
	if left := names(t, prefix+"-"); len(left) != 0 {
		t.Errorf("Build left namespaces of a dead owner: %v", left)
	}
	if _, err := os.Stat(filepath.Join(ownerDir, prefix+recordSuffix)); !os.IsNotExist(err) {
		t.Errorf("Build left the record of a dead owner: %v", err)
	}
	for _, name := range []string{alive.Prefix() + "-lb", foreign} {
		if !slices.Contains(names(t, name), filepath.Join(netnsDir, name)) {
			t.Errorf("Build removed %s, which is not a leftover", name)
		}
	}
}

func TestPrefixIsClaimedOnce(t *testing.T) {
	empty := Topology{Appliance: NodeSpec{Name: "lb"}}
	l := build(t, Options{Topology: &empty})
	if _, err := Build(t.Context(), Options{Topology: &empty, Prefix: l.Prefix()}); err == nil {
		t.Errorf("Build with a prefix in use succeeded")
	}
	if n := len(names(t, l.Prefix()+"-")); n != 2 {
		t.Errorf("%d namespaces after a refused Build, want 2", n)
	}
}

// A name that means another namespace by now is not a leftover.
func TestReplacedNamespaceIsNotRemoved(t *testing.T) {
	needRoot(t)
	prefix := "zh-dead-" + strconv.Itoa(os.Getpid())
	o, err := claim(prefix)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := o.namespace(prefix + "-x")
	if err != nil {
		t.Fatal(err)
	}
	// The old one lives on, or the new one could get its inode number; and no
	// other program may clean up half-way.
	defer ns.file.Close()
	unlock, err := lockOwners()
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(removeName(ns.name), o.file.Close()) // as death does
	ns, newErr := newNamespace(prefix + "-x")
	unlock()
	if err != nil || newErr != nil {
		t.Fatal(err, newErr)
	}
	defer ns.remove()
	checkNotRemoved(t, prefix)
	if len(names(t, prefix+"-x")) != 1 {
		t.Error("a namespace that replaced a recorded one was removed")
	}
}

func TestKeep(t *testing.T) {
	l := build(t, Options{Topology: &Topology{Appliance: NodeSpec{Name: "lb"}}})
	var hints strings.Builder
	l.Keep(&hints)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(l.Dir())
	checkNotRemoved(t, l.Prefix())
	if !strings.Contains(hints.String(), l.Prefix()+"-lb") || len(names(t, l.Prefix()+"-")) != 2 {
		t.Errorf("kept namespaces %v, hints %q", names(t, l.Prefix()+"-"), hints.String())
	}
	if err := Remove(l.Prefix()); err != nil || len(names(t, l.Prefix()+"-")) != 0 {
		t.Errorf("Remove() = %v, left %v", err, names(t, l.Prefix()+"-"))
	}
	if err := Remove(l.Prefix()); err == nil {
		t.Error("Remove of a lab that is not there succeeded")
	}
}

// Close gives everything back: goroutines, descriptors, names, and threads
// that were inside a namespace.
func TestCloseLeavesNothing(t *testing.T) {
	warm := build(t, Options{})
	if err := warm.Close(); err != nil { // the runtime's own descriptors exist from here on
		t.Fatal(err)
	}
	goroutines := goleak.IgnoreCurrent()
	before := descriptors(t)
	home := netnsOfThreads(t)

	l := build(t, Options{})
	c := l.Client("client-b")
	ctx := ctxFor(t, 4*patience)
	for _, to := range []struct{ b *Backend }{{l.Backend("web-b1")}, {l.Backend("fw-b")}} {
		checkServers(t, c, to.b.Name(), to.b.IPv6(), []byte("payload"))
	}
	stream, err := c.OpenStream(ctx, at(l.Backend("web-c1").IPv4(), EchoPort), at(c.IPv4(), 0), 100, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	must(l.Appliance().Capture("eth0"))(t)
	p, err := l.Command("lb", "sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error("second Close:", err)
	}
	if status, err := p.Wait(ctx); err != nil || status != -int(unix.SIGTERM) {
		t.Errorf("sleep ended with %d, %v, want %d", status, err, -int(unix.SIGTERM))
	}
	if _, err := l.Command("lb", "true"); err == nil {
		t.Error("Command on a closed lab succeeded")
	}
	stream.Close()
	err = Wait(ctx, "goroutines to end", patience, func() (bool, error) {
		err := goleak.Find(goroutines)
		return err == nil, err
	})
	if err != nil {
		t.Error(err)
	}
	if left := names(t, l.Prefix()); len(left) != 0 {
		t.Errorf("namespaces left: %v", left)
	}
	if _, err := os.Stat(l.Dir()); !os.IsNotExist(err) {
		t.Errorf("directory %s left: %v", l.Dir(), err)
	}
	runtime.GC()
	err = Wait(ctx, "descriptors and threads to go", patience, func() (bool, error) {
		after, threads := descriptors(t), netnsOfThreads(t)
		if len(after) > len(before) || len(threads) != len(home) {
			return false, fmt.Errorf("descriptors %v, before %v; namespaces of threads %v, before %v", after, before, threads, home)
		}
		return true, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// descriptors lists what this process's file descriptors refer to.
func descriptors(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil { // the directory's own is gone
			list = append(list, to)
		}
	}
	return list
}

// netnsOfThreads lists the network namespaces that threads of this process
// are in.
func netnsOfThreads(t *testing.T) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && !slices.Contains(list, to) {
			list = append(list, to)
		}
	}
	return list
}

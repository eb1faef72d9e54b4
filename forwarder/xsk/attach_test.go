package xsk

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const childNamespace = "ZONEHOP_XSK_CHILD_NAMESPACE"

// TestMain lets the test binary be its own child: with childNamespace set it
// attaches the program, opens a socket, says so and waits to be killed.
func TestMain(m *testing.M) {
	if ns := os.Getenv(childNamespace); ns != "" {
		if err := attachAndWait(ns); err != nil {
			os.Stdout.WriteString("child: " + err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func attachAndWait(ns string) error {
	if err := threadToNamespace(ns); err != nil {
		return err
	}
	index, err := interfaceIndex("a0")
	if err != nil {
		return err
	}
	p, err := Attach(index, Native)
	if err != nil {
		return err
	}
	_, s, err := OpenPrimary(index, 0, smallConfig())
	if err != nil {
		return err
	}
	if err := p.SetSocket(0, s.FD()); err != nil {
		return err
	}
	os.Stdout.WriteString("ready\n")
	_, err = io.Copy(io.Discard, os.Stdin) // until the parent goes
	return err
}

func attachedTo(t testing.TB, ifindex int) uint32 {
	t.Helper()
	id, err := attachedProgramID(ifindex)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestNothingStaysAttachedAfterKill(t *testing.T) {
	ns := enterNamespace(t)
	v := addVeth(t, "a0", "a1", 1)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childNamespace+"="+ns)
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "ready\n" {
		child.Process.Kill()
		t.Fatalf("child said %q, %v", line, err)
	}
	if attachedTo(t, v.index) == 0 {
		t.Error("the child attached nothing")
	}

	// Two other things to hold against the running child.
	if p, err := Attach(v.index, Native); err == nil {
		p.Close()
		t.Error("attached a second program")
	} else if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "(classifier)") {
		t.Errorf("second program: %v, want EBUSY and the name of the first", err)
	}

	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	waitFor(t, "detachment", func() bool { return attachedTo(t, v.index) == 0 })
	// The queue is free again too, after at most the busy patience.
	openPrimary(t, v)
	p, err := Attach(v.index, Native)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Close(), p.Close()); err != nil {
		t.Error(err)
	}
	if id := attachedTo(t, v.index); id != 0 {
		t.Errorf("program %d attached after Close", id)
	}
}

func TestAttachErrorsNameTheRemedy(t *testing.T) {
	enterNamespace(t)
	v := addVeth(t, "a0", "a1", 1)
	run(t, "ip", "link", "add", "br0", "type", "bridge") // no native XDP
	bridge, err := interfaceIndex("br0")
	if err != nil {
		t.Fatal(err)
	}
	run(t, "ip", "link", "set", "a1", "mtu", "9000") // veth: the peer's MTU is what arrives
	for _, tt := range []struct {
		name    string
		ifindex int
		want    []string
	}{
		{"driver without native xdp", bridge, []string{"attach xdp to br0", `driver "bridge"`, "mode generic"}},
		{"mtu", v.index, []string{"attach xdp to a0", "MTU"}},
		{"no interface", 9999, []string{"no such interface"}},
	} {
		p, err := Attach(tt.ifindex, Native)
		if err == nil {
			p.Close()
			t.Errorf("%s: attached", tt.name)
			continue
		}
		for _, w := range tt.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %q does not say %q", tt.name, err, w)
			}
		}
		t.Log(err)
	}
	p, err := Attach(bridge, Generic)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

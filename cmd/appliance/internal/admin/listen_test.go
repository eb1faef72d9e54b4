package admin

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "admin.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if fi.Mode().Perm() != 0o600 || fi.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		t.Errorf("the socket has mode %v, want 0600 of its owner", fi.Mode())
	}
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "another appliance answers on it; stop it, or set admin.socket") {
		t.Errorf("a second one gives %v", err)
	}
	// What a process that dies leaves behind.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	again, err := Listen(path)
	if err != nil {
		t.Fatalf("the socket of a dead process is not taken over: %v", err)
	}
	again.Close()

	if err := os.WriteFile(path, []byte("notes"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "something else is there; remove it, or set admin.socket") {
		t.Errorf("a file in its place gives %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "notes" {
		t.Errorf("the file in its place is %q, %v", b, err)
	}
	if _, err := Listen(filepath.Join(path, "below")); err == nil || !strings.Contains(err.Error(), "admin socket") {
		t.Errorf("below a file: %v", err)
	}
}

//go:build race

package conntrack

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"unsafe"
)

// TestRaceDetectorSeesLines proves that under the race build a plain store to a
// line is found: it makes one in a process of its own, which must fail.
func TestRaceDetectorSeesLines(t *testing.T) {
	if os.Getenv("CONNTRACK_PLAIN_STORE") != "" {
		plainStore(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestRaceDetectorSeesLines$")
	cmd.Env = append(os.Environ(), "CONNTRACK_PLAIN_STORE=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("DATA RACE")) {
		t.Fatalf("a plain store to a line went unnoticed: %v\n%s", err, out)
	}
}

func plainStore(t *testing.T) {
	table := newTable(t, Options{Lines: 1024, Seed: 3})
	k := flowKey(0)
	w := table.NewWriter()
	w.Insert(&k, k.Hash(3), 1, 0, 60, true)
	i, _, _ := w.find(&k, k.Hash(3))
	done := make(chan struct{})
	go func() {
		defer close(done)
		*(*uint64)(unsafe.Pointer(&table.at(i).seen)) = 1<<32 | 2
	}()
	w.Lookup(&k, k.Hash(3), 0)
	<-done
}

package appliance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestZoneMapSettles: a version of the file is read once it was the same at two looks, and once only.
func TestZoneMapSettles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zones.map")
	c := parsed(t, "interfaces: [eth0]\nzones: [{name: a}]\nzoneMapFile: "+path+"\n")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("10.1.0.0/24 a\n")
	var z zoneMapFile
	if entries, err := z.load(c); err != nil || len(entries) != 1 {
		t.Fatalf("load: %d entries, %v", len(entries), err)
	}
	look := func(what string, want bool) {
		t.Helper()
		if got := z.settled(path); got != want {
			t.Errorf("%s: to be read: %v, want %v", what, got, want)
		}
	}
	look("unchanged", false)
	look("unchanged", false)
	write("") // as a shell's redirection begins
	look("emptied", false)
	write("10.1.0.0/24 a\n10.2.0.0/24 a\n")
	look("written", false)
	look("at rest", true)
	if entries, err := z.load(c); err != nil || len(entries) != 2 {
		t.Fatalf("load: %d entries, %v", len(entries), err)
	}
	look("read", false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	look("removed", false)
	look("still removed", true)
}

// TestZoneMapProblems: all of a few are told, and not all of very many.
func TestZoneMapProblems(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zones.map")
	c := parsed(t, "interfaces: [eth0]\nzones: [{name: a}]\nzoneMapFile: "+path+"\n")
	for n, want := range map[int]string{3: path + ":3:", 5000: "and 4990 more"} {
		if err := os.WriteFile(path, []byte(strings.Repeat("what\n", n)), 0o600); err != nil {
			t.Fatal(err)
		}
		entries, err := new(zoneMapFile).load(c)
		if entries != nil || err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "\n") != min(n-1, mostZoneMapProblems) {
			t.Errorf("%d bad lines: %v", n, err)
		}
	}
}

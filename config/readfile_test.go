package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestReadFile: nothing that a path can name makes it wait, or take more memory
// than it may.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	small, pipe := filepath.Join(dir, "small"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(small, []byte("12345678"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path      string
		limit     int64
		want, err string
	}{
		{small, 8, "12345678", ""},
		{small, 7, "", "it has more than 7 bytes, the most that is read; give the right file"},
		{"/dev/zero", 1000, "", "it has more than 1000 bytes"},
		{"/dev/null", 1000, "", ""},
		{pipe, 1000, "", ""}, // nobody writes: it is empty
		{dir, 1000, "", "is a directory"},
		{filepath.Join(dir, "absent"), 1000, "", "no such file"},
	} {
		began := time.Now()
		data, err := ReadFile(c.path, c.limit)
		if string(data) != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v; want %q, %s", c.path, data, err, c.want, c.err)
		}
		if took := time.Since(began); took > pipePatience/2 {
			t.Errorf("%s: took %v", c.path, took)
		}
	}
	// A pipe with a writer is read to its end, as the shell's <(…) is.
	go func() {
		w, err := os.OpenFile(pipe, os.O_RDWR, 0)
		if err != nil {
			t.Error(err)
			return
		}
		for range 10 {
			time.Sleep(10 * time.Millisecond)
			if _, err := w.WriteString("x"); err != nil {
				t.Error(err)
			}
		}
		w.Close()
	}()
	for deadline := time.Now().Add(5 * time.Second); ; {
		data, err := ReadFile(pipe, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) == 10 {
			break
		}
		if time.Now().After(deadline) || len(data) > 0 {
			t.Fatalf("the pipe gave %q", data)
		}
	}
}

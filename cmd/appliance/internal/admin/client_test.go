package admin

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestClientWaitsNotForEver: a process that is stopped accepts connections and
// answers nothing; one that dies leaves an answer out.
func TestClientWaitsNotForEver(t *testing.T) {
	answerWithin = 100 * time.Millisecond
	t.Cleanup(func() { answerWithin = 30 * time.Second })
	path := filepath.Join(t.TempDir(), "admin.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := NewClient(path).Status(); err == nil || !strings.Contains(err.Error(), path+": no answer within 100ms; its process may be stopped") {
		t.Errorf("no answer gives %v", err)
	}
	answerWithin = time.Minute
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Read(make([]byte, 4096)) // or the end may come before the request
			conn.Close()
		}
	}()
	if _, err := NewClient(path).Status(); err == nil || !strings.HasSuffix(err.Error(), "it ended, or what answers there is no appliance") || strings.Contains(err.Error(), "http") {
		t.Errorf("an end in place of an answer gives %v", err)
	}
	l.Close()
	if _, err := NewClient(path).Status(); err == nil || !strings.Contains(err.Error(), "is it running?") {
		t.Errorf("nobody there gives %v", err)
	}
}

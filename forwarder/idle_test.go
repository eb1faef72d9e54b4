package forwarder

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"zonehop/forwarder/xsk"
)

// readable is a port on which received frames wait for ever.
type readable struct {
	*fakePort
	fd int
}

func (p *readable) FD() int { return p.fd }

// TestSleepsWhileTXIsFull: frames that cannot be taken, because they could not be
// sent back, do not keep the worker from sleeping.
func TestSleepsWhileTXIsFull(t *testing.T) {
	r := newRig(t, rigOptions{backends: 1})
	fd, err := unix.Eventfd(1, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	r.bindings[0].Port = &readable{r.ports[0], fd}
	sleeps := func() time.Duration {
		began := time.Now()
		for range 10 {
			r.idle()
		}
		return time.Since(began)
	}
	r.ports[0].tx = make([]xsk.Desc, r.ports[0].txRoom)
	if took := sleeps(); took < 10*pendingTimeout/2 {
		t.Errorf("ten sleeps with a full TX ring took %v", took)
	}
	r.ports[0].tx = nil
	if took := sleeps(); took > 10*idleTimeout/2 {
		t.Errorf("frames wait and can be taken, and ten sleeps took %v", took)
	}
}

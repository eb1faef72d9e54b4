package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fake is an appliance of which some methods work.
type fake struct {
	Appliance
	flows    func(f *FlowFilter, each func(*Flow) bool) error
	backends []Backend
}

func (a *fake) Flows(f *FlowFilter, each func(*Flow) bool) error { return a.flows(f, each) }
func (a *fake) Backends() []Backend                              { return a.backends }

// serve runs a control interface until the test ends.
func serve(t *testing.T, a Appliance) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "admin.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, a) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("the control interface does not end")
		}
	})
	return path
}

// TestFlowsStream: flows arrive while the table is still being read, all of
// them, in order.
func TestFlowsStream(t *testing.T) {
	const flows = 20_000
	first := make(chan struct{})
	c := NewClient(serve(t, &fake{flows: func(_ *FlowFilter, each func(*Flow) bool) error {
		for i := range flows {
			if i == 10_000 {
				select {
				case <-first:
				case <-time.After(time.Minute):
					return errors.New("ten thousand flows are sent, and none has arrived")
				}
			}
			if !each(&Flow{Packets: uint64(i)}) {
				return errors.New("the client went away")
			}
		}
		return nil
	}}))
	n := 0
	err := c.EachFlow(FlowFilter{}, func(f *Flow) error {
		if n == 0 {
			close(first)
		}
		if f.Packets != uint64(n) {
			return fmt.Errorf("flow %d is number %d", f.Packets, n)
		}
		n++
		return nil
	})
	if err != nil || n != flows {
		t.Errorf("%d flows of %d, %v", n, flows, err)
	}
}

func TestFlowsAnswers(t *testing.T) {
	a := &fake{}
	c := NewClient(serve(t, a))
	a.flows = func(*FlowFilter, func(*Flow) bool) error { return nil }
	if list, err := c.Flows(FlowFilter{}); err != nil || list == nil || len(list) != 0 {
		t.Errorf("an empty table gives %v, %v; want an empty list", list, err)
	}
	a.flows = func(*FlowFilter, func(*Flow) bool) error { return fmt.Errorf("rule %q: %w", "x", ErrNotFound) }
	if _, err := c.Flows(FlowFilter{Rule: "x"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown rule gives %v, want ErrNotFound", err)
	}
	enough := errors.New("enough")
	a.flows = func(_ *FlowFilter, each func(*Flow) bool) error {
		for each(&Flow{}) {
		}
		return nil
	}
	if err := c.EachFlow(FlowFilter{}, func(*Flow) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("the caller's error comes back as %v", err)
	}
	for _, f := range []struct {
		FlowFilter
		want string
	}{
		{FlowFilter{State: "foo"}, `state "foo" does not exist; use unconfirmed, confirmed, closing`},
		{FlowFilter{Client: "10.0.0.300"}, `client "10.0.0.300" is not an IP address`},
		{FlowFilter{Limit: -1}, "limit -1 is out of range; use 0, which is none, or more"},
	} {
		if _, err := c.Flows(f.FlowFilter); err == nil || err.Error() != f.want {
			t.Errorf("%+v gives %v, want %s", f.FlowFilter, err, f.want)
		}
		// Also from a client that does not look at it itself.
		if err := c.post("/flows", f.FlowFilter, &struct{}{}); err == nil || !strings.HasSuffix(err.Error(), f.want) {
			t.Errorf("%+v over the socket gives %v", f.FlowFilter, err)
		}
	}
}

// TestStuckClient: one that asks and does not read is given up.
func TestStuckClient(t *testing.T) {
	patience = time.Second
	t.Cleanup(func() { patience = 30 * time.Second })
	ended := make(chan struct{})
	a := &fake{
		backends: make([]Backend, 5_000),
		flows: func(_ *FlowFilter, each func(*Flow) bool) error {
			for each(&Flow{Client: strings.Repeat("x", 4000)}) {
			}
			close(ended)
			return nil
		},
	}
	path := serve(t, a)
	for _, request := range []string{
		"POST /flows HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
		"GET /backends HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the table is read for ever")
	}
	if list, err := NewClient(path).Backends(); err != nil || len(list) != len(a.backends) {
		t.Errorf("beside them another client gets %d backends, %v", len(list), err)
	}
}

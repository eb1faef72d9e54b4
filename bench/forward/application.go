package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// The applications that are compared, and where they run. CPU 0 is the
// generator's and the kernel's for receiving.
const (
	appWorker  = "worker"
	appSwap    = "swap"
	appLibrary = "library"
	appCPU     = 1
)

var applications = []string{appWorker, appSwap, appLibrary}

// vip is where the generator sends to.
var vip = netip.MustParseAddrPort("10.0.100.10:4242")

// counts are what an application knows of its frames since it started.
type counts struct {
	Received    uint64
	Transmitted uint64 // put on the TX ring
	Dropped     uint64 // for a reason that it counts
	Waiting     uint64 // held on purpose
	Missed      uint64 // by the kernel, for want of room on the rings
	Calls       uint64 // system calls that woke the kernel to send, or to receive
	Flows       uint64 // in the flow table
}

// hello is an application's first message.
type hello struct {
	Thread   int // the one that handles packets
	Mode     string
	Flowless bool // it has no flow table
}

// application is one of the forwarders, running.
type application interface {
	hello() hello
	counts() (counts, error)
	stop() error
}

// serve runs an application until standard input ends. It says hello on
// standard output, then answers each line of input with its counts.
func serve(name, iface string) error {
	dev, err := net.InterfaceByName(iface)
	if err != nil {
		return err
	}
	var app application
	switch name {
	case appWorker:
		app, err = startWorker(dev)
	case appSwap:
		app, err = startSwap(dev)
	case appLibrary:
		app, err = startLibrary(dev)
	default:
		err = fmt.Errorf("no application %q", name)
	}
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(app.hello()); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		c, err := app.counts()
		if err == nil {
			err = out.Encode(c)
		}
		if err != nil {
			return err
		}
	}
	return app.stop()
}

// loop is a thread that handles packets in passes, for the applications that
// are no more than that.
type loop struct {
	thread  int
	mode    string
	ask     chan chan counts
	stopped atomic.Bool
	ended   chan error
}

// startLoop runs pass on a thread of its own on the application's CPU until
// stop. open and end are run by that thread too; read after a pass.
func startLoop(open func() (mode string, err error), pass func() error, read func() counts, end func() error) (*loop, error) {
	l := &loop{ask: make(chan chan counts, 1), ended: make(chan error, 1)}
	opened := make(chan error)
	go func() {
		runtime.LockOSThread()
		var err error
		if err = pin(appCPU); err == nil {
			l.mode, err = open()
		}
		l.thread = unix.Gettid()
		opened <- err
		if err != nil {
			return
		}
		for err == nil && !l.stopped.Load() {
			err = pass()
			select {
			case to := <-l.ask:
				to <- read()
			default:
			}
		}
		if endErr := end(); err == nil {
			err = endErr
		}
		l.ended <- err
	}()
	return l, <-opened
}

func (l *loop) hello() hello { return hello{Thread: l.thread, Mode: l.mode, Flowless: true} }

func (l *loop) counts() (counts, error) {
	answer := make(chan counts)
	l.ask <- answer
	select {
	case c := <-answer:
		return c, nil
	case err := <-l.ended:
		return counts{}, fmt.Errorf("packet loop ended: %w", err)
	}
}

func (l *loop) stop() error {
	l.stopped.Store(true)
	return <-l.ended
}

// pin binds the calling thread to a CPU.
func pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to cpu %d: %w; the measurement needs two CPUs", cpu, err)
	}
	return nil
}

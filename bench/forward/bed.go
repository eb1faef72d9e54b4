package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"time"

	"zonehop/bench/generator"
	"zonehop/bench/lab"
)

const (
	iface        = "eth0"
	generatorCPU = 0
	// warmUp is how long traffic flows at least before a sample.
	warmUp = 400 * time.Millisecond
	// disturbed is the share of a sample that the packet thread may wait for
	// its CPU.
	disturbed = 0.02
)

var (
	generatorMAC = net.HardwareAddr{2, 0, 0, 0, 0, 9}
	firstClient  = netip.MustParseAddr("10.1.0.1")
)

// bed is the lab, the traffic's end of the wire, and what a run needs of both.
type bed struct {
	o    options
	lab  *lab.Lab
	port lab.Port
	mac  net.HardwareAddr // the appliance's
	sink *generator.Sink  // nil once closed
}

func newBed(ctx context.Context, o options) (b *bed, err error) {
	l, err := lab.Build(ctx, lab.Options{Topology: topology(), Queues: 1})
	if err != nil {
		return nil, err
	}
	b = &bed{o: o, lab: l}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.port, err = l.Appliance().Port(iface); err != nil {
		return nil, err
	}
	if b.mac, err = l.Appliance().MAC(iface); err != nil {
		return nil, err
	}
	b.sink, err = generator.NewSink(b.port.Exec, b.port.Name, b.mac, vip.Port())
	return b, err
}

func (b *bed) close() error { return errors.Join(b.closeSink(), b.lab.Close()) }

// closeSink lets frames through to the kernel again.
func (b *bed) closeSink() error {
	if b.sink == nil {
		return nil
	}
	s := b.sink
	b.sink = nil
	return s.Close()
}

// child is an application's process.
type child struct {
	hello
	process *lab.Process
	in      io.WriteCloser
	out     *bufio.Scanner
	files   []io.Closer
}

// start starts an application and waits until it forwards.
func (b *bed) start(name string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer inRead.Close()
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		inWrite.Close()
		return nil, err
	}
	defer outWrite.Close()
	cmd := exec.Command(self, "-application", name, "-interface", iface)
	cmd.Stdin, cmd.Stdout = inRead, outWrite
	c := &child{in: inWrite, out: bufio.NewScanner(outRead), files: []io.Closer{inWrite, outRead}}
	if c.process, err = b.lab.Start(b.lab.Appliance().Name(), cmd); err != nil {
		return nil, errors.Join(err, c.release())
	}
	if err := c.receive(&c.hello); err != nil {
		return nil, errors.Join(err, c.process.Kill(), c.release())
	}
	return c, nil
}

// receive reads a message of the application.
func (c *child) receive(message any) error {
	if !c.out.Scan() {
		<-c.process.Done()
		return fmt.Errorf("the application has ended: %s", bytes.TrimSpace([]byte(c.process.Output())))
	}
	return json.Unmarshal(c.out.Bytes(), message)
}

func (c *child) counts() (n counts, err error) {
	if _, err := c.in.Write([]byte{'\n'}); err != nil {
		return n, err
	}
	return n, c.receive(&n)
}

// stop ends the application and reports how that went.
func (c *child) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := c.in.Close()
	status, waitErr := c.process.Wait(ctx)
	switch {
	case waitErr != nil:
		err = errors.Join(err, waitErr, c.process.Kill())
	case status != 0:
		err = errors.Join(err, fmt.Errorf("ended with status %d: %s", status, bytes.TrimSpace([]byte(c.process.Output()))))
	}
	c.files = c.files[1:]
	return errors.Join(err, c.release())
}

func (c *child) release() (err error) {
	for _, f := range c.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// usage is what the scheduler accounts to a thread: time on a CPU, and time
// ready to run without one.
type usage struct{ ran, waited time.Duration }

func (u usage) minus(o usage) usage { return usage{u.ran - o.ran, u.waited - o.waited} }

// usage is that of the application's packet thread.
func (c *child) usage() (usage, error) {
	return usageOf(fmt.Sprintf("/proc/%d/task/%d/schedstat", c.process.Pid(), c.Thread))
}

// all is the sum over the application's threads.
func (c *child) all() (sum usage, err error) {
	dir := fmt.Sprintf("/proc/%d/task", c.process.Pid())
	threads, err := os.ReadDir(dir)
	for _, t := range threads {
		u, err := usageOf(dir + "/" + t.Name() + "/schedstat")
		if err != nil {
			return sum, err
		}
		sum.ran += u.ran
		sum.waited += u.waited
	}
	return sum, err
}

func usageOf(path string) (usage, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return usage{}, err
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return usage{}, fmt.Errorf("%s: %q", path, text)
	}
	ran, err1 := strconv.ParseInt(string(fields[0]), 10, 64)
	waited, err2 := strconv.ParseInt(string(fields[1]), 10, 64)
	return usage{time.Duration(ran), time.Duration(waited)}, errors.Join(err1, err2)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zonehop/bench/generator"
	"zonehop/bench/lab"
	"zonehop/conntrack"
)

// sample is one measurement of one application under load.
type sample struct {
	Mode string

	// In the window.
	Mpps        float64 // frames that came back
	CPUPerFrame float64 // nanoseconds of the packet thread per frame that came back
	WaitShare   float64 // of the window, that thread waiting for its CPU
	PerCall     float64 // frames received per system call

	// From the first frame to the last, warm-up included.
	Sent, Back  uint64
	Lost        uint64 // sent and not back
	Counted     uint64 // of these, those that some counter names
	Unaccounted uint64 // received, and neither transmitted nor counted
	Flows       uint64
	Disturbed   bool
}

// sample takes one, again if it was disturbed.
func (b *bed) sample(ctx context.Context, name string, rateHz int) (s sample, err error) {
	for range b.o.retries + 1 {
		if s, err = b.sampleOnce(ctx, name, rateHz); err != nil || !s.Disturbed {
			break
		}
	}
	return s, err
}

func (b *bed) sampleOnce(ctx context.Context, name string, rateHz int) (s sample, err error) {
	app, err := b.start(name)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, app.stop()) }()
	s.Mode = app.Mode
	g, err := generator.New(generator.Options{
		Exec: b.port.Exec, Interface: b.port.Name, SourceMAC: generatorMAC, DestinationMAC: b.mac,
		Source: firstClient, Destination: vip, Flows: b.o.flows, RateHz: rateHz, CPU: generatorCPU,
	})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()

	before, err := b.sink.Counts()
	if err != nil {
		return s, err
	}
	sending, halt := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- g.Run(sending) }()
	err = b.window(ctx, app, &s)
	halt()
	if err = errors.Join(err, <-ended); err != nil {
		return s, err
	}
	if s.Sent, err = g.Sent(); err != nil {
		return s, err
	}
	// Let what is on the way arrive: until nothing has for a while.
	last := time.Now()
	back := uint64(0)
	err = lab.Wait(ctx, "the last frames", 10*time.Second, func() (bool, error) {
		now, err := b.sink.Counts()
		if n := now.Frames - before.Frames; n != back {
			back, last = n, time.Now()
		}
		return time.Since(last) > 50*time.Millisecond, err
	})
	if err != nil {
		return s, err
	}
	end, err := app.counts()
	if err != nil {
		return s, err
	}
	s.Back, s.Flows = back, end.Flows
	s.Lost = s.Sent - min(s.Sent, s.Back)
	s.Counted = end.Missed + end.Dropped
	if out := end.Transmitted + end.Dropped + end.Waiting; out < end.Received {
		s.Unaccounted = end.Received - out
	}
	return s, nil
}

// window measures while traffic flows.
func (b *bed) window(ctx context.Context, app *child, s *sample) error {
	type reading struct {
		at    time.Time
		back  generator.Counts
		app   counts
		usage usage
	}
	read := func() (r reading, err error) {
		if r.app, err = app.counts(); err != nil {
			return r, err
		}
		if r.usage, err = app.usage(); err != nil {
			return r, err
		}
		r.at = time.Now()
		r.back, err = b.sink.Counts()
		return r, err
	}
	if err := b.warmUp(ctx, app); err != nil {
		return err
	}
	from, err := read()
	if err != nil {
		return err
	}
	if err := pause(ctx, b.o.window); err != nil {
		return err
	}
	to, err := read()
	if err != nil {
		return err
	}
	took, used := to.at.Sub(from.at), to.usage.minus(from.usage)
	frames := float64(to.back.Frames - from.back.Frames)
	if frames == 0 {
		return fmt.Errorf("nothing came back in %v", took)
	}
	s.Mpps = frames / took.Seconds() / 1e6
	s.CPUPerFrame = float64(used.ran.Nanoseconds()) / frames
	s.WaitShare = used.waited.Seconds() / took.Seconds()
	s.Disturbed = s.WaitShare > disturbed
	if calls := to.app.Calls - from.app.Calls; calls > 0 {
		s.PerCall = float64(to.app.Received-from.app.Received) / float64(calls)
	}
	return nil
}

// warmUp lets traffic flow for a while, and until the flow table, where there is
// one, has nearly all flows and was swept once: each of them takes a selection,
// and at first a page of memory from the kernel, until those pages are joined.
func (b *bed) warmUp(ctx context.Context, app *child) error {
	if err := pause(ctx, warmUp); err != nil {
		return err
	}
	if app.Flowless {
		return nil
	}
	err := lab.Wait(ctx, "the flow table to have all flows", 20*time.Second, func() (bool, error) {
		c, err := app.counts()
		return c.Flows >= uint64(b.o.flows)*99/100, err
	})
	if err != nil {
		return err
	}
	return pause(ctx, conntrack.SweepPeriod)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

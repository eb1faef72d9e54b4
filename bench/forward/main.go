package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"zonehop/bench/lab"
)

// options of a run.
type options struct {
	rounds  int
	window  time.Duration // of one sample
	rateHz  int           // of the paced samples
	flows   int
	samples int // of the first packet after idle
	retries int // of a disturbed sample
}

func main() {
	var o options
	var asJSON bool
	var application, iface string
	flag.IntVar(&o.rounds, "rounds", 5, "samples of each kind, of each application")
	flag.DurationVar(&o.window, "window", 700*time.Millisecond, "length of a sample")
	flag.IntVar(&o.rateHz, "rate", 400_000, "frames per second of the paced samples")
	flag.IntVar(&o.flows, "flows", 1<<16, "number of flows, a power of two")
	flag.IntVar(&o.samples, "latencies", 300, "packets after idle, for each application")
	flag.IntVar(&o.retries, "retries", 2, "how often a disturbed sample is taken again")
	flag.BoolVar(&asJSON, "json", false, "print the report as JSON")
	flag.StringVar(&application, "application", "", "internal: be this application on -interface")
	flag.StringVar(&iface, "interface", "", "internal: see -application")
	flag.Parse()
	if flag.NArg() > 0 || o.rounds < 1 || o.window <= 0 || o.rateHz < 1 || o.samples < 1 || o.retries < 0 {
		flag.Usage()
		os.Exit(2)
	}
	err := func() error {
		if application != "" {
			return serve(application, iface)
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		report, err := run(ctx, o, os.Stderr)
		if err != nil {
			return err
		}
		if asJSON {
			out := json.NewEncoder(os.Stdout)
			out.SetIndent("", "  ")
			return out.Encode(report)
		}
		return report.print(os.Stdout)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "forward:", err)
		os.Exit(1)
	}
}

// run builds the lab and takes all samples, telling progress.
func run(ctx context.Context, o options, progress *os.File) (r *report, err error) {
	b, err := newBed(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	r = newReport(o)
	for round := range o.rounds {
		fmt.Fprintf(progress, "round %d of %d\n", round+1, o.rounds)
		for turn := range applications {
			name := applications[(turn+round)%len(applications)]
			for _, rate := range []int{0, o.rateHz} {
				s, err := b.sample(ctx, name, rate)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				r.add(name, rate, s)
			}
		}
	}
	if err := b.closeSink(); err != nil {
		return nil, err
	}
	for _, name := range applications {
		fmt.Fprintf(progress, "first packet after idle: %s\n", name)
		q, err := b.quiet(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		r.Quiet[name] = q
	}
	r.finish()
	return r, nil
}

// topology is an appliance alone on its switch.
func topology() *lab.Topology { return &lab.Topology{Appliance: lab.TwoZones().Appliance} }

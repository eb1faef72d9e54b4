package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"zonehop/cmd/appliance/internal/demo"
)

func newDemoCommand() *cobra.Command {
	var asJSON, keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Build a small network, send real traffic through the appliance, let backends fail",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.OutOrStdout(), cmd.ErrOrStderr(), asJSON, keep)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a report as JSON on stdout, progress on stderr")
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the network up until interrupted, to look around in it")
	return cmd
}

func runDemo(stdout, stderr io.Writer, asJSON, keep bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("demo: find this program: %w", err)
	}
	out := stdout
	if asJSON {
		out = stderr
	}
	report, err := demo.Run(ctx, demo.Options{Out: out, Executable: self, Keep: keep})
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if asJSON {
		if err := writeJSON(stdout, report); err != nil {
			return err
		}
	}
	if !report.OK {
		return exitStatus(1)
	}
	return nil
}

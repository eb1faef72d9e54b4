package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"zonehop/cmd/appliance/internal/admin"
	"zonehop/cmd/appliance/internal/blackhole"
	"zonehop/conntrack"
)

func newCleanupCommand() *cobra.Command {
	var file, socket string
	cmd := &cobra.Command{
		Use:   "cleanup [--config FILE]",
		Short: "Remove what a stopped or crashed appliance has left on this host",
		Long: "cleanup removes the rules and routes that keep the host from forwarding packets of routes while the\n" +
			"appliance is not running (routeOnCrash: DROP). With --config it also removes that configuration's flow\n" +
			"table and admin socket. It refuses while an appliance is running.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cleanup(cmd.OutOrStdout(), file, socket) },
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "also remove the flow table and the admin socket that this file names")
	cmd.Flags().StringVar(&socket, "socket", "", "admin socket of the appliance (default that of --config, else $ZONEHOP_SOCKET, else "+admin.DefaultSocket+")")
	return cmd
}

func cleanup(w io.Writer, file, socket string) error {
	var flowTable string
	if file != "" {
		c, err := loadValid(file)
		if err != nil {
			return err
		}
		flowTable = c.FlowTable.Path
		if socket == "" {
			socket = c.Admin.Socket
		}
	}
	if _, err := admin.NewClient(socket).Status(); err == nil {
		return errors.New("cleanup: the appliance is running; stop it first")
	}
	n, err := blackhole.Remove()
	if err != nil {
		return fmt.Errorf("cleanup: %w", err)
	}
	fmt.Fprintf(w, "removed %d rules and routes\n", n)
	if flowTable != "" {
		if err := removed(w, "flow table "+flowTable, conntrack.Remove(flowTable)); err != nil {
			return err
		}
	}
	if file != "" {
		return removed(w, "admin socket "+socket, os.Remove(socket))
	}
	return nil
}

// removed tells of a removal; what was not there is fine.
func removed(w io.Writer, what string, err error) error {
	switch {
	case err == nil:
		fmt.Fprintln(w, "removed", what)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cleanup: remove %s: %w", what, err)
	}
	return nil
}

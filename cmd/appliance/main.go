// Command appliance is the zonehop network load balancer: it forwards packets
// between AF_XDP sockets (run), explains and checks what it would do (explain,
// check), shows and changes what a running one does (status, backends, flows,
// health, drain, …), and builds a small network to show all of it (demo).
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// exitStatus is an error that only carries the program's exit status: whatever
// there was to say has been said.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func main() {
	err := newRootCommand().Execute()
	var status exitStatus
	switch {
	case err == nil:
	case errors.As(err, &status):
		os.Exit(int(status))
	default:
		fmt.Fprintf(os.Stderr, "appliance: %v\n", err)
		os.Exit(1)
	}
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "appliance",
		Short: "AF_XDP pass-through load balancer with zonal affinity",
		Long: "appliance forwards connections, packet by packet and without proxying, to the backends\n" +
			"that a YAML file names, preferring the client's own zone as far as health allows.",
		Version:       fullVersion(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		newDemoCommand(),
		newRunCommand(),
		newCheckCommand(),
		newExplainCommand(),
		newStatusCommand(),
		newBackendsCommand(),
		newFlowsCommand(),
		newHealthCommand(),
		newExplainHealthCommand(),
		newDrainCommand(),
		newUndrainCommand(),
		newAnnounceCommand(),
		newReloadCommand(),
		newDiffCommand(),
		newCleanupCommand(),
	)
	sayUsage(root)
	return root
}

package main

import (
	"github.com/spf13/cobra"

	"zonehop/cmd/appliance/internal/admin"
)

func newReloadCommand() *cobra.Command {
	return liveCommand("reload", "Read the configuration file again; wait until it is in force, or refused as a whole",
		cobra.NoArgs, func(_ *cobra.Command, c *admin.Client, _ []string) error { return c.Reload() })
}

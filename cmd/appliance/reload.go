package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"zonehop/cmd/appliance/internal/admin"
)

func newReloadCommand() *cobra.Command {
	return liveCommand("reload", "Read the configuration file again; wait until it is in force, or refused as a whole",
		cobra.NoArgs, func(_ *cobra.Command, c *admin.Client, _ []string) error {
			err := c.Reload()
			if errors.Is(err, admin.ErrRefused) {
				return fmt.Errorf("reload: %w", err) // what is wrong follows; the old configuration is in force
			}
			return err
		})
}

package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// goParser is what package strconv puts in front of what is wrong with a number.
var goParser = regexp.MustCompile(`strconv\.[A-Za-z]+: parsing "[^"]*": `)

// sayUsage makes errors about arguments and flags name the command, say what is
// wrong in its terms, and show its usage.
func sayUsage(root *cobra.Command) {
	wrong := func(cmd *cobra.Command, what string) error {
		return fmt.Errorf("%s: %s; usage: %s", cmd.Name(), what, cmd.UseLine())
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return wrong(cmd, goParser.ReplaceAllString(err.Error(), ""))
	})
	for _, cmd := range root.Commands() {
		accepts := cmd.Args
		if accepts == nil {
			continue // it takes any
		}
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := accepts(cmd, args)
			switch {
			case err == nil:
				return nil
			case strings.HasPrefix(err.Error(), "unknown command"): // cobra.NoArgs means this
				return wrong(cmd, fmt.Sprintf("unexpected argument %q", args[0]))
			}
			return wrong(cmd, err.Error())
		}
	}
}

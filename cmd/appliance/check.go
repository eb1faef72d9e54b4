package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"zonehop/config"
)

// checkOptions are the flags of the check command.
type checkOptions struct {
	file                        string
	print, strict, live, schema bool
	// hold holds a valid configuration against this host; each finding names its remedy.
	hold func(*config.Config) []string
}

func newCheckCommand() *cobra.Command {
	o := checkOptions{hold: checkLive}
	cmd := &cobra.Command{
		Use:   "check --config FILE",
		Short: "Validate a configuration file",
		Long: "check reports every problem of a configuration file, one a line:\n\n" +
			"  FILE:LINE:COL: path.to[2].field: what is wrong; what is allowed\n\n" +
			"The exit status is 0 if the file is valid, with or without warnings, and 1 if not. It touches no socket; only\n" +
			"--live looks at this host.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.file, "config", "c", "", "configuration file")
	flags.BoolVar(&o.print, "print", false, "write the configuration with every default filled in")
	flags.BoolVar(&o.strict, "strict", false, "refuse warnings too")
	flags.BoolVar(&o.live, "live", false, "also hold it against this host: interfaces, addresses, routes, files")
	flags.BoolVar(&o.schema, "schema", false, "write a JSON Schema of the format for editors, and nothing else")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}

// run returns nil if the configuration is valid.
func (o *checkOptions) run(out, problemsTo io.Writer) error {
	if o.schema {
		_, err := out.Write(config.Schema())
		return err
	}
	if o.file == "" {
		return errors.New("check: no file to check; use --config FILE")
	}
	c, problems := config.Load(o.file)
	if c != nil {
		problems = append(problems, zoneMapProblems(c)...)
	}
	reportProblems(problemsTo, problems)
	if c == nil || len(problems.Errors()) > 0 || o.strict && len(problems) > 0 {
		return exitStatus(1)
	}
	if o.print {
		if _, err := out.Write(c.YAML()); err != nil {
			return err
		}
	}
	if o.live {
		findings := o.hold(c)
		for _, f := range findings {
			fmt.Fprintf(problemsTo, "appliance: check against this host: %s\n", f)
		}
		if len(findings) > 0 {
			return exitStatus(1)
		}
	}
	return nil
}

// zoneMapProblems checks the zone map beside the configuration. A map that is not there is left to
// --live: configurations are also checked where they do not run.
func zoneMapProblems(c *config.Config) config.Problems {
	if c.ZoneMapFile == "" {
		return nil
	}
	if _, err := os.Stat(c.ZoneMapFile); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	_, problems := c.LoadZoneMap()
	return problems
}

// reportProblems writes one line for each problem. One without a place is that of a file that could not
// be read, and is the program's own message.
func reportProblems(w io.Writer, problems config.Problems) {
	for _, p := range problems {
		if p.Line == 0 {
			fmt.Fprintf(w, "appliance: %s\n", p)
			continue
		}
		fmt.Fprintln(w, p)
	}
}

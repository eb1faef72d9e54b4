package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"zonehop/cmd/appliance/internal/appliance"
	"zonehop/config"
)

// version is the release; builds from a checkout show the revision too.
const version = "0.1.0"

func fullVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return version + "+" + s.Value[:12]
			}
		}
	}
	return version
}

func newRunCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "run --config FILE",
		Short: "Run the appliance in the foreground; SIGHUP reloads, SIGTERM stops",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return run(file) },
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration file (required)")
	if err := cmd.MarkFlagRequired("config"); err != nil {
		panic(err)
	}
	return cmd
}

func run(file string) error {
	c, problems := config.Load(file)
	reportProblems(os.Stderr, problems)
	if len(problems.Errors()) > 0 {
		return exitStatus(1)
	}
	log, err := newLogger(c.Logging)
	if err != nil {
		return err
	}
	defer log.Sync() //nolint:errcheck // stderr cannot be synced on some terminals
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	a, err := appliance.New(file, c, fullVersion(), log)
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangup:
				_ = a.Reload() // logged there
			}
		}
	}()
	log.Info("starting", zap.String("version", fullVersion()), zap.String("config", file))
	if err := a.Run(ctx); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// newLogger makes the program's logger on standard error.
func newLogger(l config.Logging) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(string(l.Level))
	if err != nil {
		return nil, fmt.Errorf("set up logging: %w", err)
	}
	format := l.Format
	if format == config.LogAuto {
		format = config.LogJSON
		if _, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS); err == nil {
			format = config.LogConsole
		}
	}
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	enc.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(enc)
	if format == config.LogConsole {
		enc.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(enc)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(os.Stderr), level)), nil
}

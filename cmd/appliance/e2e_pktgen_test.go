package main

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// pktgenScript is found from this directory, which tests run in.
const pktgenScript = "../../scripts/pktgen"

// TestPktgenUsage gives the script arguments it has to refuse, with what is wrong.
func TestPktgenUsage(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   string
		status int
		says   string
	}{
		{"help", "--help", 0, "usage: scripts/pktgen -i INTERFACE"},
		{"nothing", "", 2, "usage: scripts/pktgen"},
		{"no MAC", "-i lo -d 10.0.0.1", 2, "usage: scripts/pktgen"},
		{"unknown option", "-i lo -d 10.0.0.1 -m 02:00:00:00:00:01 -z", 2, "usage: scripts/pktgen"},
		{"a word too many", "-i lo -d 10.0.0.1 -m 02:00:00:00:00:01 -t 1 -r 1000 now", 2, "usage: scripts/pktgen"},
		{"count", "-i lo -d 10.0.0.1 -m 02:00:00:00:00:01 -n many", 1, "'many' is not a number"},
		{"threads", "-i lo -d 10.0.0.1 -m 02:00:00:00:00:01 -t 0", 1, "0 threads; use 1 or more"},
		{"ports", "-i lo -d 10.0.0.1 -m 02:00:00:00:00:01 -f 5000", 1, "source ports '5000'; use FIRST-LAST"},
		{"clients", "-i lo -d 10.0.0.1 -m 02:00:00:00:00:01 -s 10.1.0.1", 1, "client addresses '10.1.0.1'; use FIRST-LAST"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, status := runScript(t, strings.Fields(c.args)...)
			if status != c.status || !strings.Contains(out, c.says) {
				t.Errorf("status %d, output:\n%s\nwant %d and %q", status, out, c.status, c.says)
			}
		})
	}
}

func runScript(t *testing.T, args ...string) (output string, status int) {
	t.Helper()
	out, err := exec.Command(pktgenScript, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	} else if err != nil {
		status = exit.ExitCode()
	}
	return string(out), status
}

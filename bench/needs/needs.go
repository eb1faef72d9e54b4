// Package needs says what a test needs of the machine. A test that cannot have it
// is skipped with the reason, or fails where ZONEHOP_E2E=required promises that
// every test runs. Whatever no such machine can be asked for is not to be skipped:
// such tests have a build constraint (race, or guest for scripts/guest).
package needs

import (
	"os"
	"testing"
)

// Root ends the test unless it runs as root. what is what needs it, such as
// "making network namespaces".
func Root(t testing.TB, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, what+" needs root")
	}
}

// Missing ends the test, for a reason.
func Missing(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("ZONEHOP_E2E") == "required" {
		t.Fatal("ZONEHOP_E2E=required forbids to skip this: " + reason)
	}
	t.Skip(reason)
}

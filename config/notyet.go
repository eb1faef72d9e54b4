package config

import (
	"slices"
	"strings"
)

// notYet are the parts of the format whose use is refused for now: they are read, checked and described
// like everything else, and only nothing acts on them yet. Taking a row out is all that enables one.
var notYet = []struct {
	// path ends the value's path, with "[]" for any index.
	path   string
	values func(value string) bool
	reason string
}{
	{"interfaces[].busyPoll", equals("true"), "leave it false"},
	{"backendServices[].delivery", otherThan("L2"), "use L2"},
}

func equals(value string) func(string) bool {
	return func(v string) bool { return v == value }
}

func otherThan(values ...string) func(string) bool {
	return func(v string) bool { return !slices.Contains(values, v) }
}

// notYetReason is what to do instead of a value that is not yet supported; empty when it is.
func notYetReason(path, value string) string {
	path = withoutIndexes(path)
	for _, row := range notYet {
		if strings.HasSuffix(path, row.path) && row.values(value) {
			return row.reason
		}
	}
	return ""
}

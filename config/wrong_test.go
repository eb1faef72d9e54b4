package config

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// fragments are lines that most cases need and none is about.
var fragments = map[string]string{
	"@interfaces": "interfaces: [eth0]",
	"@zones":      "zones: [{name: a, clientRanges: [10.1.0.0/24]}, {name: b, clientRanges: [10.1.1.0/24]}]",
	"@service": "backendServices: [{name: web, healthChecks: [{type: TCP, port: 80}], connectionDraining: {drainingTimeoutSec: 60}, " +
		"backends: [{zone: a, address: 10.1.0.11}, {zone: b, address: 10.1.1.11}]}]",
	"@rule": "forwardingRules: [{IPAddress: 10.1.255.10, ports: [80], backendService: web}]",
}

// wrongCase is one file and every line that is said about it.
type wrongCase struct{ name, yaml, want string }

// wrongCases reads testdata/wrong.txt: "=== NAME", the file, "---> ", then what is said about it.
func wrongCases(t testing.TB) []wrongCase {
	t.Helper()
	data, err := os.ReadFile("testdata/wrong.txt")
	if err != nil {
		t.Fatal(err)
	}
	var cases []wrongCase
	for _, block := range strings.Split("\n"+string(data), "\n=== ")[1:] {
		name, rest, _ := strings.Cut(block, "\n")
		text, want, ok := strings.Cut("\n"+rest, "\n--->\n")
		if !ok {
			t.Fatalf("case %q has no line --->", name)
		}
		lines := strings.Split(strings.TrimPrefix(text, "\n"), "\n")
		for i, line := range lines {
			if f, ok := fragments[line]; ok {
				lines[i] = f
			}
		}
		cases = append(cases, wrongCase{name, strings.Join(lines, "\n"), strings.TrimSpace(want)})
	}
	return cases
}

// ours are words of the implementation, which readers of messages do not know.
var ours = regexp.MustCompile(`\b(config|netip|strconv|yaml|time|json)\.\w|\[\][a-zA-Z]|\b(uint16|int64|float64|nil|struct|Duration|Atoi)\b`)

func TestWrong(t *testing.T) {
	lines := 0
	for _, c := range wrongCases(t) {
		t.Run(c.name, func(t *testing.T) {
			cfg, problems := Parse("f", []byte(c.yaml))
			var got []string
			for _, p := range problems {
				got = append(got, strings.TrimPrefix(p.String(), "f:"))
			}
			lines += len(got)
			if text := strings.Join(got, "\n"); text != c.want {
				t.Errorf("Parse said\n%s\nwant\n%s", text, c.want)
			}
			if errs := problems.Errors(); (cfg == nil) != (len(errs) > 0) {
				t.Errorf("Parse gave a configuration: %v, with %d errors", cfg != nil, len(errs))
			}
			for _, p := range problems {
				if p.Line < 1 || p.Column < 1 {
					t.Errorf("%q has no place", p)
				}
				if !strings.Contains(p.Text, "; ") {
					t.Errorf("%q does not say what is allowed", p)
				}
				if m := ours.FindString(p.Text); m != "" {
					t.Errorf("%q has %q, which is a word of this code", p, m)
				}
			}
		})
	}
	if lines < 200 {
		t.Errorf("only %d problems in all cases", lines)
	}
}

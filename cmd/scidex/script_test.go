package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

var servesAt = regexp.MustCompile(`hub serves.* url=(\S+)`)

// serveHubCmd is the command serve-hub of scripts: it runs a hub on the script's
// database and sets SCIDEX_HUB.
func serveHubCmd(t *testing.T) func(*testscript.TestScript, bool, []string) {
	t.Helper()
	return func(ts *testscript.TestScript, _ bool, _ []string) {
		p := start(t, nil, "hub", "run", "--database-url", ts.Getenv("DATABASE_URL"), "--addr", "127.0.0.1:0")
		for range 600 {
			if m := servesAt.FindStringSubmatch(p.stderr.String()); m != nil {
				ts.Setenv("SCIDEX_HUB", m[1])
				return
			}
			select {
			case <-p.done:
				ts.Fatalf("the hub ended: %v\n%s", p.err, p.stderr)
			case <-time.After(50 * time.Millisecond):
			}
		}
		ts.Fatalf("the hub does not serve\n%s", p.stderr)
	}
}

// setenvCmd is the command setenv NAME FILE [PATTERN] of scripts: it sets a variable to
// what a file says, such as stdout, or to what the pattern's first group matches there.
func setenvCmd(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 && len(args) != 3 {
		ts.Fatalf("usage: setenv NAME FILE [PATTERN]")
	}
	text := strings.TrimSpace(ts.ReadFile(args[1]))
	if len(args) == 3 {
		found := regexp.MustCompile(args[2]).FindStringSubmatch(text)
		if len(found) < 2 {
			ts.Fatalf("%s does not match %s", args[1], args[2])
		}
		text = found[1]
	}
	ts.Setenv(args[0], text)
}

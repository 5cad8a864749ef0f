package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/verb"
)

// secrets are what no log may hold: tokens, credentials of nodes among them, and
// codes by which nodes enrol.
var secrets = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.eyJ|scidex-join-[A-Za-z0-9_-]{8}`)

// checkLog refuses a log that holds a secret. Every program that the tests start
// logs at its fullest and ends with it.
func checkLog(t *testing.T, args []string, log string) {
	t.Helper()
	if at := secrets.FindStringIndex(log); at != nil {
		t.Errorf("scidex %s logs a secret: …%.60s…", strings.Join(args[:min(2, len(args))], " "), log[max(0, at[0]-40):])
	}
}

// printed runs the program to its end and decodes what it printed.
func printed(t *testing.T, into any, args ...string) {
	t.Helper()
	out := runToEnd(t, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("scidex %s printed %s: %v", strings.Join(args, " "), out, err)
	}
}

// TestLabs stands up two labs as their operators would, with separate programs.
func TestLabs(t *testing.T) {
	db := "--database-url=" + pgtest.URL(t, nil)
	runToEnd(t, "hub", "init", db)
	hubAddr := freeAddr(t)
	hubURL := "http://" + hubAddr
	startHub := func() *process {
		return start(t, nil, "hub", "run", db, "--addr", hubAddr, "--origin", "http://prism.example")
	}
	hub := startHub()
	eventually(t, "the hub is ready", func() bool { return readySeq(t.Context(), hubURL, "head") > 0 })
	token := func(sub string, permissions string) string {
		return runToEnd(t, "token", "--sub", sub, "--permissions", permissions, db)
	}
	root, ada, bob := token("root", "admin"), token("ada", "contributor"), token("bob", "contributor")
	for lab, member := range map[string]string{"lab-a": "ada", "lab-b": "bob"} {
		runToEnd(t, "scopes", "create", lab, "--title", lab, "--hub", hubURL, "--token", root)
		runToEnd(t, "scopes", "grant", lab, member, "--permissions", "contributor", "--hub", hubURL, "--token", root)
	}

	type lab struct {
		dir, addr, url string
		*process
	}
	run := func(l *lab) {
		l.process = start(t, nil, "node", "run", "--data", l.dir, "--addr", l.addr)
		eventually(t, "the node is ready", func() bool { return readySeq(t.Context(), l.url, "applied_seq") > 0 })
	}
	stand := func(scope string) *lab {
		l := &lab{dir: t.TempDir(), addr: freeAddr(t)}
		l.url = "http://" + l.addr
		var invite struct{ Code, Command string }
		printed(t, &invite, "hub", "invite", "--lab", scope, "--scopes", scope, "--hub-url", hubURL, db)
		if !strings.Contains(invite.Command, "scidex node join '"+hubURL+"#"+invite.Code+"'") {
			t.Errorf("the command is %s", invite.Command)
		}
		runToEnd(t, "node", "join", hubURL+"#"+invite.Code, "--data", l.dir)
		run(l)
		return l
	}
	a, b := stand("lab-a"), stand("lab-b")

	client := func(url, token string) *verb.Client { return &verb.Client{URL: url, Token: token} }
	made, err := verb.Create.Call(t.Context(), client(a.url, ada), verb.CreateRequest{
		Type: "hypothesis", Scope: "lab-a", Title: "A private one", Content: json.RawMessage(`{"statement":"only lab A may read this"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	get := func(url, token string) string {
		_, err := verb.Get.Call(t.Context(), client(url, token), verb.GetRequest{Ref: made.Ref})
		if err != nil {
			return string(artifact.AsError(err).Code)
		}
		return ""
	}
	has := func(l *lab) bool { return readySeq(t.Context(), l.url, "applied_seq") >= int64(made.Seq) }
	eventually(t, "both nodes have what was written", func() bool { return has(a) && has(b) })
	for name, c := range map[string]struct{ url, token, want string }{
		"ada at the hub": {hubURL, ada, ""}, "ada at her node": {a.url, ada, ""}, "ada at bob's node": {b.url, ada, "not_found"},
		"bob at the hub": {hubURL, bob, "not_found"}, "bob at ada's node": {a.url, bob, "not_found"}, "bob at his node": {b.url, bob, "not_found"},
		"nobody": {a.url, "", "permission_denied"}, "a forged token": {a.url, ada[:len(ada)-6] + "AAAAAA", "permission_denied"},
	} {
		if got := get(c.url, c.token); got != c.want {
			t.Errorf("get by %s = %q, want %q", name, got, c.want)
		}
	}

	t.Run("through crashes of hub and node", func(t *testing.T) {
		hub.signal(syscall.SIGKILL)
		<-hub.done
		if got := get(a.url, ada); got != "" {
			t.Errorf("ada at her node, without the hub: %s", got)
		}
		a.signal(syscall.SIGKILL)
		<-a.done
		run(a)
		if got := get(a.url, ada) + get(a.url, bob); got != "not_found" {
			t.Errorf("ada and bob at a node that was killed, without the hub: %s", got)
		}
		hub = startHub()
		eventually(t, "the hub is ready", func() bool { return readySeq(t.Context(), hubURL, "head") > 0 })
		runToEnd(t, "node", "verify", "--data", a.dir)
	})
	t.Run("a replica that was tampered with", func(t *testing.T) {
		damage := func() {
			t.Helper()
			file, err := sql.Open("sqlite3", "file:"+filepath.Join(a.dir, node.ReplicaFile)+"?_busy_timeout=5000")
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if _, err := file.ExecContext(t.Context(), `UPDATE artifact SET title = 'tampered' WHERE scope = 'lab-a'`); err != nil {
				t.Fatal(err)
			}
		}
		verify := func(code int, says string, args ...string) {
			t.Helper()
			p := start(t, nil, append([]string{"node", "verify", "--data", a.dir}, args...)...)
			out, err := io.ReadAll(p.stdout)
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			if exit, ok := errors.AsType[*exec.ExitError](p.wait(t)); ok {
				got = exit.ExitCode()
			}
			if got != code || !strings.Contains(string(out), says) {
				t.Errorf("node verify %v = %d, want %d and %q:\n%s", args, got, code, says, out)
			}
		}
		damage()
		verify(1, "it is not what its hash says: found")
		verify(0, "it is not what its hash says: mended", "--repair")
		verify(0, "The replica equals the hub.")
		damage()
		a.signal(syscall.SIGTERM)
		<-a.done
		verify(1, "it is not what its hash says: found")
		verify(0, `"mended":1`, "--repair", "--json")
		run(a)
		verify(0, `"differences":[]`, "--json")
	})
	t.Run("a member that is no more", func(t *testing.T) {
		runToEnd(t, "scopes", "revoke", "lab-a", "ada", "--hub", hubURL, "--token", root)
		eventually(t, "the node refuses her", func() bool { return get(a.url, ada) == "not_found" })
	})
	t.Run("a node that is no more", func(t *testing.T) {
		var nodes verb.NodesListResponse
		printed(t, &nodes, "hub", "nodes", db)
		if len(nodes.Nodes) != 2 || nodes.Nodes[0].LastSeenAt == nil {
			t.Errorf("nodes = %+v", nodes)
		}
		runToEnd(t, "hub", "nodes", "revoke", nodes.Nodes[0].ID, db)
		eventually(t, "it says so", func() bool {
			return strings.Contains(a.stderr.String()+b.stderr.String(), "credential is not valid")
		})
	})
	t.Run("a session of a browser", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, hubURL+verb.SessionPath, strings.NewReader(`{"token":"`+bob+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || len(resp.Cookies()) != 1 || !resp.Cookies()[0].HttpOnly {
			t.Errorf("sign-in = %s, %v", resp.Status, resp.Cookies())
		}
	})
	for name, l := range map[string]*lab{"a": a, "b": b} {
		if info, err := os.Stat(filepath.Join(l.dir, "node.json")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the key of %s: %v, %v", name, info, err)
		}
	}
}

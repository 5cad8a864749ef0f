package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// graphQL posts a query and returns its data.
func graphQL(t *testing.T, r ready, token, query string, into any) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"query": query})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.GraphQL, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Data   json.RawMessage
		Errors []any
	}
	if err := json.Unmarshal(raw, &answer); err != nil || len(answer.Errors) > 0 {
		t.Fatalf("%s: %s, %v", query, raw, err)
	}
	if err := json.Unmarshal(answer.Data, into); err != nil {
		t.Fatalf("%s: %s: %v", query, raw, err)
	}
}

// TestDemo holds the demo to what scripts are promised.
func TestDemo(t *testing.T) {
	dir := dataDir(t)
	p, r := startDemo(t, dir)
	for _, name := range []string{"viewer", "contributor", "reviewer", "admin"} {
		if r.Tokens[name] == "" {
			t.Errorf("no token %s", name)
		}
	}
	if !strings.HasPrefix(r.WS, "ws://") || !strings.HasSuffix(r.GraphQL, "/graphql") || !strings.HasPrefix(r.DatabaseURL, "postgres://") {
		t.Errorf("ready = %+v", r)
	}
	var sampled struct {
		Artifacts struct{ Nodes []struct{ Ref, Title string } }
		Replica   struct {
			Phase         string
			ArtifactCount int
			LagEvents     int
		}
	}
	// The stream may have broken off at this very moment, on a busy machine.
	for deadline := time.Now().Add(20 * time.Second); sampled.Replica.Phase != "LIVE" && time.Now().Before(deadline); {
		graphQL(t, r, r.Tokens["viewer"], `{ artifacts(filter: {type: {eq: "hypothesis"}}, first: 50) { nodes { ref title } } replica { phase artifactCount lagEvents } }`, &sampled)
	}
	if len(sampled.Artifacts.Nodes) < 10 || sampled.Replica.ArtifactCount < 55 || sampled.Replica.Phase != "LIVE" {
		t.Errorf("the sample on the node = %+v", sampled)
	}

	hub := &verb.Client{URL: r.Hub, Token: r.Tokens["contributor"]}
	written, err := verb.Create.Call(t.Context(), hub, verb.CreateRequest{Type: "gene", ID: "MINE", Title: "Mine", Content: json.RawMessage(`{"symbol":"MINE"}`)})
	if err != nil {
		t.Fatal(err)
	}
	// The same verbs at the node: a write is forwarded, a read is local.
	atNode := &verb.Client{URL: r.Node, Token: r.Tokens["contributor"]}
	_, err = verb.Create.Call(t.Context(), atNode, verb.CreateRequest{Type: "gene", ID: "MINE", Title: "Mine", Content: json.RawMessage(`{"symbol":"MINE"}`)})
	if e := artifact.AsError(err); e.Code != artifact.CodeVersionConflict || e.Conflict.Current.Ref != written.Ref {
		t.Errorf("a second create through the node: %v", err)
	}
	if _, err := verb.Create.Call(t.Context(), &verb.Client{URL: r.Node, Token: r.Tokens["viewer"]}, verb.CreateRequest{Type: "gene", Title: "t", Content: json.RawMessage(`{}`)}); !artifact.IsCode(err, artifact.CodePermissionDenied) {
		t.Errorf("a viewer's create through the node: %v", err)
	}

	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.wait(t); err != nil {
		t.Fatalf("after its input closed: %v\n%s", err, p.stderr)
	}

	t.Run("a second start goes on with the same data", func(t *testing.T) {
		p, r := startDemo(t, dir)
		var got struct {
			Artifact struct{ Ref string }
			Replica  struct{ ArtifactCount int }
		}
		graphQL(t, r, r.Tokens["viewer"], `{ artifact(ref: "gene:MINE") { ref } replica { artifactCount } }`, &got)
		if got.Artifact.Ref != written.Ref.String() || got.Replica.ArtifactCount != sampled.Replica.ArtifactCount+1 {
			t.Errorf("after a restart = %+v", got)
		}
		t.Run("one at a time", func(t *testing.T) {
			second := start(t, nil, "demo", "--json", "--data", dir, "--hub-addr", "127.0.0.1:0", "--node-addr", "127.0.0.1:0")
			if err := second.wait(t); exitCodeOf(err) != 1 {
				t.Errorf("a second demo on the directory: %v\n%s", err, second.stderr)
			}
			eventually(t, "it says why", func() bool { return strings.Contains(second.stderr.String(), "in use by another scidex") })
		})
		p.signal(syscall.SIGTERM)
		if err := p.wait(t); err != nil {
			t.Errorf("after SIGTERM: %v\n%s", err, p.stderr)
		}
	})
	t.Run("goes on after kill -9", func(t *testing.T) {
		p, r := startDemo(t, dir)
		hub := &verb.Client{URL: r.Hub, Token: r.Tokens["contributor"]}
		if _, err := verb.Create.Call(t.Context(), hub, verb.CreateRequest{Type: "gene", ID: "LAST", Title: "Last", Content: json.RawMessage(`{"symbol":"LAST"}`)}); err != nil {
			t.Fatal(err)
		}
		p.signal(syscall.SIGKILL)
		_ = p.wait(t) // killed
		_, r = startDemo(t, dir)
		var got struct{ Artifact struct{ Ref string } }
		graphQL(t, r, r.Tokens["viewer"], `{ artifact(ref: "gene:LAST") { ref } }`, &got)
		if got.Artifact.Ref == "" {
			t.Error("an acknowledged write is gone")
		}
	})
}

// TestClients runs the GraphQL clients that people use, unchanged, against a
// demo.
func TestClients(t *testing.T) {
	clients, err := filepath.Abs("../../test/clients")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(clients, "node_modules", "graphql-ws")); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("test/clients is not installed: make test does it")
		}
		t.Skip("test/clients is not installed: make test does it")
	}
	_, r := startDemo(t, dataDir(t), "--no-sample")
	cmd := exec.CommandContext(t.Context(), "node", "--test", "clients.mjs")
	cmd.Dir = clients
	cmd.Env = append(os.Environ(), "GRAPHQL_URL="+r.GraphQL, "WS_URL="+r.WS, "TOKEN="+r.Tokens["contributor"])
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// TestTour tries the commands that the demo prints.
func TestTour(t *testing.T) {
	var b bytes.Buffer
	dir := dataDir(t)
	_, r := startDemo(t, dir)
	if err := writeEnv(filepath.Join(dir, envFile), &r); err != nil {
		t.Fatal(err)
	}
	printTour(&b, &r, dir, 1)
	// The commands are what stands between the steps' titles; the second needs
	// packages that are not ours to install.
	script := new(strings.Builder)
	script.WriteString("set -e\n. " + filepath.Join(dir, envFile) + "\n")
	step := ""
	for line := range strings.Lines(b.String()) {
		switch {
		case len(line) > 2 && line[1] == '.' && line[0] >= '1' && line[0] <= '4':
			step = line[:1]
		case strings.HasPrefix(line, "The log is"):
			step = ""
		case step == "1" || step == "3":
			script.WriteString(line)
		}
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", script.String()).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{`"phase":"LIVE"`, `"created":true`} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("the tour printed %s, want %s", out, want)
		}
	}
}

package node_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/scidex-ai/substrate/mcp"
	"github.com/scidex-ai/substrate/verb"
)

// A bearer adds a token to each request.
type bearer string

func (b bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	if b != "" {
		req.Header.Set("Authorization", "Bearer "+string(b))
	}
	return http.DefaultTransport.RoundTrip(req)
}

func connect(t *testing.T, url, token string) (*sdk.ClientSession, error) {
	t.Helper()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: url + mcp.Path, HTTPClient: &http.Client{Transport: bearer(token)}, MaxRetries: -1}, nil)
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, err
}

func call(t *testing.T, s *sdk.ClientSession, tool, arguments string) (out map[string]any, failed bool) {
	t.Helper()
	res, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
	if err != nil {
		t.Fatalf("%s %s: %v", tool, arguments, err)
	}
	raw, err := json.Marshal(res.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	if text, ok := res.Content[0].(*sdk.TextContent); !ok || !json.Valid([]byte(text.Text)) {
		t.Errorf("%s: content %v is not the answer as text", tool, res.Content)
	}
	return out, res.IsError
}

// TestMCP uses a hub and a node as an agent does: the same tools at both.
func TestMCP(t *testing.T) {
	w := newWorld(t, initHub)
	ada := w.token("ada", verb.Contributor, verb.Viewer)
	r := w.node(t.TempDir(), "lab", verb.Viewer)
	w.caughtUp(r)
	for _, at := range []struct{ name, url string }{{"hub", w.url}, {"node", r.url}} {
		t.Run(at.name, func(t *testing.T) {
			s, err := connect(t, at.url, ada)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for tool, err := range s.Tools(t.Context(), nil) {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, tool.Name)
				if tool.Description == "" || tool.InputSchema == nil || tool.OutputSchema == nil {
					t.Errorf("tool %+v", tool)
				}
				for name, want := range map[string][2]bool{"scidex.get": {true, false}, "scidex.create": {false, false}, "scidex.redact": {false, true}} {
					if got := [2]bool{tool.Annotations.ReadOnlyHint, *tool.Annotations.DestructiveHint}; tool.Name == name && got != want {
						t.Errorf("%s reads only and destroys: %v, want %v", name, got, want)
					}
				}
			}
			for _, want := range []string{"scidex.get", "scidex.list", "scidex.search", "scidex.create", "scidex.update", "scidex.batch", "scidex.scopes.create", "scidex.poll"} {
				if !slices.Contains(names, want) {
					t.Errorf("no tool %s in %v", want, names)
				}
			}
			made, failed := call(t, s, "scidex.create", `{"type":"hypothesis","id":"h-`+at.name+`","title":"Tau spreads","content":{"statement":"tau spreads"}}`)
			if failed || made["created"] != true && made["ref"] == nil {
				t.Fatalf("create = %v, %v", made, failed)
			}
			w.caughtUp(r)
			got, failed := call(t, s, "scidex.get", `{"ref":"hypothesis:h-`+at.name+`"}`)
			if a, _ := got["artifact"].(map[string]any); failed || a["title"] != "Tau spreads" {
				t.Errorf("get = %v", got)
			}
			for arguments, code := range map[string]string{
				`{"ref":"hypothesis:none"}`:               "not_found",
				`{"ref":"hypothesis:h-hub","unknown":1}`:  "validation_failed",
				`{"ref":"../x"}`:                          "validation_failed",
				`{"ref":["a"],"include_links":"perhaps"}`: "validation_failed",
			} {
				refused, failed := call(t, s, "scidex.get", arguments)
				if !failed || refused["error"] != code || refused["request_id"] == "" {
					t.Errorf("get %s = %v, %v, want %s with a request id", arguments, refused, failed, code)
				}
			}
			resource, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "scidex://artifact/hypothesis:h-" + at.name})
			if err != nil || !strings.Contains(resource.Contents[0].Text, "Tau spreads") {
				t.Errorf("resource = %+v, %v", resource, err)
			}
			if resource, err = s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "scidex://schema/hypothesis"}); err != nil || !strings.Contains(resource.Contents[0].Text, `"statement"`) {
				t.Errorf("schema = %+v, %v", resource, err)
			}
			if _, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "scidex://artifact/hypothesis:none"}); err == nil {
				t.Error("a resource that is not there is read")
			}
			prompt, err := s.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "check_hypothesis", Arguments: map[string]string{"ref": "hypothesis:h-" + at.name}})
			if err != nil || len(prompt.Messages) != 2 {
				t.Errorf("prompt = %+v, %v", prompt, err)
			}
			if _, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "scidex.none"}); err == nil {
				t.Error("a tool that is not there is called")
			}

			// Each request is for who sends it: nothing is kept that another could use.
			reader, err := connect(t, at.url, w.token("vic", verb.Viewer))
			if err != nil {
				t.Fatal(err)
			}
			if out, failed := call(t, reader, "scidex.create", `{"type":"gene","id":"G","title":"G","content":{"symbol":"G"}}`); !failed || out["error"] != "permission_denied" {
				t.Errorf("a viewer's create = %v, %v", out, failed)
			}
			if _, err := connect(t, at.url, ""); err == nil {
				t.Error("one without a token is served")
			}
			if _, err := connect(t, at.url, "x.y.z"); err == nil {
				t.Error("one with a wrong token is served")
			}
			hostile(t, at.url, ada)
		})
	}
}

// hostile sends what no client would.
func hostile(t *testing.T, url, token string) {
	t.Helper()
	for name, c := range map[string]struct {
		method, body, host, origin string
		status                     int
	}{
		"no JSON":              {method: http.MethodPost, body: "{", status: 400},
		"a proxy's name":       {method: http.MethodPost, body: `{"jsonrpc":"2.0","id":1,"method":"ping"}`, host: "lab.example", status: 200},
		"another site's page":  {method: http.MethodPost, body: `{"jsonrpc":"2.0","id":1,"method":"ping"}`, origin: "https://evil.example", status: 403},
		"a batch, as of old":   {method: http.MethodPost, body: `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, status: 200},
		"a stream of its own":  {method: http.MethodGet, status: 405},
		"an end of no session": {method: http.MethodDelete, status: 405},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, url+mcp.Path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if c.host != "" {
			req.Host = c.host
		}
		if c.origin != "" {
			req.Header.Set("Origin", c.origin)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status {
			t.Errorf("%s: %s %.200s, %v; want %d", name, resp.Status, body, err, c.status)
		}
		if c.origin != "" && resp.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s may read the answer", name)
		}
	}
}

// TestMCPEnds: a call whose client goes away ends, and leaves nothing.
func TestMCPEnds(t *testing.T) {
	w := newWorld(t, initHub)
	s, err := connect(t, w.url, w.token("vic", verb.Viewer))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "scidex.list", Arguments: json.RawMessage(`{}`)}); err == nil {
		t.Error("a call that was taken back has an answer")
	}
	if _, failed := call(t, s, "scidex.list", `{}`); failed {
		t.Error("the next call fails")
	}
}

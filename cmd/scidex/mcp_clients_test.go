package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/mcp"
	"github.com/scidex-ai/substrate/verb"
)

// notOurs are the scenarios of the protocol's conformance suite that a server of verbs
// cannot pass, with the reason: most call tools, resources and prompts of a test server
// by their names.
var notOurs = map[string]string{
	"server-sse-multiple-streams":   "asks for a session; each request stands for itself here",
	"dns-rebinding-protection":      "is for servers that ask no token; ours may stand behind a proxy of another name",
	"tools-call-simple-text":        "calls the tool test_simple_text",
	"tools-call-image":              "calls the tool test_image_content",
	"tools-call-audio":              "calls the tool test_audio_content",
	"tools-call-embedded-resource":  "calls the tool test_embedded_resource",
	"tools-call-mixed-content":      "calls the tool test_multiple_content_types",
	"tools-call-with-logging":       "calls the tool test_tool_with_logging",
	"tools-call-error":              "calls the tool test_error_handling",
	"tools-call-with-progress":      "calls the tool test_tool_with_progress",
	"tools-call-sampling":           "calls the tool test_sampling",
	"tools-call-elicitation":        "calls the tool test_elicitation",
	"json-schema-2020-12":           "looks for the tool json_schema_2020_12_tool",
	"elicitation-sep1034-defaults":  "calls the tool test_elicitation_sep1034_defaults",
	"elicitation-sep1330-enums":     "calls the tool test_elicitation_sep1330_enums",
	"server-sse-polling":            "calls the tool test_reconnection",
	"resources-read-text":           "reads test://static-text",
	"resources-read-binary":         "reads test://static-binary",
	"resources-templates-read":      "reads test://template/123/data",
	"resources-subscribe":           "subscribes to test://watched-resource",
	"resources-unsubscribe":         "subscribes to test://watched-resource",
	"prompts-get-simple":            "gets the prompt test_simple_prompt",
	"prompts-get-with-args":         "gets the prompt test_prompt_with_arguments",
	"prompts-get-embedded-resource": "gets the prompt test_prompt_with_embedded_resource",
	"prompts-get-with-image":        "gets the prompt test_prompt_with_image",
}

// npmClient returns the directory of the installed clients, and skips or fails when the
// program is not there.
func npmClient(t *testing.T, program string) string {
	t.Helper()
	clients, err := filepath.Abs("../../test/clients")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(clients, "node_modules", program)); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("test/clients is not installed: make test does it")
		}
		t.Skip("test/clients is not installed: make test does it")
	}
	return clients
}

// withToken serves what is at base, adding a token to each request: the suite has none.
func withToken(t *testing.T, base, token string) string {
	t.Helper()
	target, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1, // streams
		Rewrite: func(req *httputil.ProxyRequest) {
			req.SetURL(target)
			req.Out.Host = req.In.Host
			req.Out.Header.Set("Authorization", "Bearer "+token)
		},
	})
	t.Cleanup(proxy.Close)
	return proxy.URL
}

// TestMCPConformance runs the protocol's own conformance suite against a hub and a node.
func TestMCPConformance(t *testing.T) {
	clients := npmClient(t, "@modelcontextprotocol/conformance")
	_, r := startDemo(t, dataDir(t))
	for name, base := range map[string]string{"hub": r.Hub, "node": r.Node} {
		t.Run(name, func(t *testing.T) {
			baseline := new(strings.Builder)
			fmt.Fprintln(baseline, "server:")
			for scenario := range notOurs {
				fmt.Fprintln(baseline, "  - "+scenario)
			}
			expected := filepath.Join(t.TempDir(), "expected.yml")
			if err := os.WriteFile(expected, []byte(baseline.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "node", filepath.Join(clients, "node_modules", ".bin", "conformance"), "server",
				"--url", withToken(t, base, r.Tokens["contributor"])+mcp.Path, "--suite", "all", "--expected-failures", expected)
			cmd.Dir = t.TempDir()
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}

// TestMCPInspector uses a hub, a node and the program on standard input and output
// through the protocol's own inspector, as a person does who tries them.
func TestMCPInspector(t *testing.T) {
	clients := npmClient(t, "@modelcontextprotocol/inspector-cli")
	_, r := startDemo(t, dataDir(t))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	token := r.Tokens["contributor"]
	if _, err := verb.Create.Call(t.Context(), &verb.Client{URL: r.Hub, Token: token}, verb.CreateRequest{
		Type: "hypothesis", ID: "h-inspected", Title: "Tau spreads", Content: json.RawMessage(`{"statement":"tau spreads"}`),
	}); err != nil {
		t.Fatal(err)
	}
	http := func(url string) []string {
		return []string{url + mcp.Path, "--transport", "http", "--header", "Authorization: Bearer " + token}
	}
	for name, server := range map[string][]string{
		"hub": http(r.Hub), "node": http(r.Node), "stdio": {"-e", asScidex + "=1", "-e", "SCIDEX_TOKEN=" + token, self, "mcp", "--hub", r.Hub},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				args []string
				want string
			}{
				{[]string{"--method", "tools/list"}, `"name": "scidex.create"`},
				{[]string{"--method", "tools/call", "--tool-name", "scidex.schema", "--tool-arg", "type=gene"}, `\"schemas\":[{\"type\":\"gene\"`},
				{[]string{"--method", "tools/call", "--tool-name", "scidex.get", "--tool-arg", "ref=hypothesis:none"}, `"error": "not_found"`},
				{[]string{"--method", "resources/list"}, `"scidex://skill"`},
				{[]string{"--method", "resources/templates/list"}, `"scidex://artifact/{+ref}"`},
				{[]string{"--method", "resources/read", "--uri", "scidex://schema/hypothesis"}, `statement`},
				{[]string{"--method", "resources/read", "--uri", "scidex://links/hypothesis:h-inspected?predicate=supports"}, `\"links\":[]`},
				{[]string{"--method", "prompts/list"}, `"name": "check_hypothesis"`},
				{[]string{"--method", "prompts/get", "--prompt-name", "check_hypothesis", "--prompt-args", "ref=hypothesis:h-inspected"}, `Tau spreads`},
			} {
				if name == "node" && c.args[1] != "tools/call" {
					continue // the code is the hub's
				}
				args := slices.Concat([]string{filepath.Join(clients, "node_modules", ".bin", "mcp-inspector-cli"), "--cli"}, server, c.args)
				cmd := exec.CommandContext(t.Context(), "node", args...)
				if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte(c.want)) {
					t.Errorf("%v: %v\n%.2000s\nwant %s", c.args, err, out, c.want)
				}
			}
		})
	}
}

package node_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/mcp"
	"github.com/scidex-ai/substrate/verb"
)

// postMCP sends what stands for a message of the protocol, and returns the answer as it came.
func postMCP(t *testing.T, url, token, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+mcp.Path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// stamps differ from request to request.
var stamps = regexp.MustCompile(`request_id\\*":\\*"[0-9a-f-]*|as_of\\*":[0-9]*`)

// TestMCPHidesScopes asks, as who is no member, for a thing of a lab and for what is
// nowhere: through every tool, resource, prompt and completion the answers are the same
// bytes, at the hub and at the lab's own node, which has the thing.
func TestMCPHidesScopes(t *testing.T) {
	l := newLabs(t)
	const secret, absent, shown = "lab-a/h-secret", "lab-a/h-absent", len("lab-a/h-se")
	must(t, verb.Create, l.as(t, "ada"), verb.CreateRequest{
		Type: "hypothesis", ID: strings.TrimPrefix(secret, "lab-a/"), Scope: "lab-a", Title: "Zugzwang", Content: json.RawMessage(`{"statement":"zugzwang"}`),
	})
	bob, ada := l.token(t, "bob"), l.token(t, "ada")
	get := `"method":"tools/call","params":{"name":"scidex.get","arguments":{"ref":"hypothesis:` + secret + `"}}`
	answer := ""
	defer func() {
		if t.Failed() {
			t.Log(answer)
		}
	}()
	eventually(t, 60*time.Second, "the lab's node has it", func() bool {
		_, answer = postMCP(t, l.a.url, ada, `{"jsonrpc":"2.0","id":1,`+get+`}`)
		return strings.Contains(answer, "Zugzwang")
	})
	for name, message := range map[string]string{
		"tool get":            get,
		"tool links":          `"method":"tools/call","params":{"name":"scidex.links","arguments":{"ref":"hypothesis:` + secret + `"}}`,
		"tool history":        `"method":"tools/call","params":{"name":"scidex.history","arguments":{"ref":"hypothesis:` + secret + `"}}`,
		"tool signals":        `"method":"tools/call","params":{"name":"scidex.signals","arguments":{"ref":"hypothesis:` + secret + `"}}`,
		"tool list":           `"method":"tools/call","params":{"name":"scidex.list","arguments":{"count":true,"filter":{"field":"id","op":"eq","value":"` + secret + `"}}}`,
		"tool search":         `"method":"tools/call","params":{"name":"scidex.search","arguments":{"query":"` + secret + ` zugzwang"}}`,
		"tool comment":        `"method":"tools/call","params":{"name":"scidex.comment","arguments":{"ref":"hypothesis:` + secret + `","body":"is it here?"}}`,
		"resource artifact":   `"method":"resources/read","params":{"uri":"scidex://artifact/hypothesis:` + secret + `"}`,
		"resource links":      `"method":"resources/read","params":{"uri":"scidex://links/hypothesis:` + secret + `"}`,
		"prompt":              `"method":"prompts/get","params":{"name":"check_hypothesis","arguments":{"ref":"hypothesis:` + secret + `"}}`,
		"completion":          `"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"scidex://artifact/{+ref}"},"argument":{"name":"ref","value":"hypothesis:` + secret + `"}}`,
		"completion, a part":  `"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"check_hypothesis"},"argument":{"name":"ref","value":"` + secret[:shown] + `"}}`,
		"completion of links": `"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"scidex://links/{+ref}{?predicate}"},"argument":{"name":"ref","value":"hypothesis:` + secret + `"}}`,
	} {
		for at, url := range map[string]string{"hub": l.hubURL, "its node": l.a.url, "another node": l.b.url} {
			ask := func(id string) string {
				status, answer := postMCP(t, url, bob, `{"jsonrpc":"2.0","id":1,`+strings.NewReplacer(secret, id, secret[:shown], id[:shown]).Replace(message)+`}`)
				answer = strings.NewReplacer(id, "<id>", id[:shown], "<part>").Replace(answer)
				return fmt.Sprint(status, " ", stamps.ReplaceAllString(answer, "<one>"))
			}
			hidden, none := ask(secret), ask(absent)
			if hidden != none || strings.Contains(hidden, "Zugzwang") {
				t.Errorf("%s, at %s, differs:\n%s\n%s", name, at, hidden, none)
			}
			if strings.HasPrefix(name, "tool comment") {
				continue // it would be made
			}
			if _, seen := postMCP(t, url, ada, `{"jsonrpc":"2.0","id":1,`+message+`}`); at != "another node" && seen == hidden {
				t.Errorf("%s, at %s, is the same for a member: %s", name, at, seen)
			}
		}
	}
}

// TestMCPMalformed sends what is no message, or not one that is known. Each gets an
// answer, and the server goes on.
func TestMCPMalformed(t *testing.T) {
	w := newWorld(t, initHub)
	token := w.token("vic", verb.Viewer)
	for name, c := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"nothing":                      {"", 400, ""},
		"text":                         {"hello", 400, ""},
		"null":                         {"null", 400, ""},
		"a number":                     {"1", 400, ""},
		"an answer to no question":     {`{"jsonrpc":"2.0","id":1}`, 202, ""},
		"another version":              {`{"jsonrpc":"1.0","id":1,"method":"ping"}`, 400, ""},
		"an empty batch":               {`[]`, 400, ""},
		"a method not there":           {`{"jsonrpc":"2.0","id":1,"method":"tools/none"}`, 400, `unsupported`},
		"a tool not there":             {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"none"}}`, 200, `-32602`},
		"parameters of a list":         {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}`, 200, `"error"`},
		"arguments that are no object": {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"scidex.get","arguments":"x"}}`, 200, `validation_failed`},
		"a deep message":               {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"scidex.get","arguments":{"ref":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}}}`, 0, ""},
		"a large message":              {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"scidex.get","arguments":{"ref":"` + strings.Repeat("x", verb.MaxRequestBytes) + `"}}}`, 200, `too_large`},
		"a huge message":               {`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("x", verb.MaxBatchBytes+128<<10) + `"}}`, 413, `too_large`},
		"an unknown uri":               {`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}`, 200, `Resource not found`},
		"a path in a uri":              {`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"scidex://artifact/../../etc/passwd"}}`, 200, `Resource not found`},
		"a completion of nothing":      {`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"none"},"argument":{"name":"x","value":""}}}`, 200, `"values":[]`},
	} {
		status, answer := postMCP(t, w.url, token, c.body)
		if c.status != 0 && status != c.status || !strings.Contains(answer, c.want) || status >= 500 {
			t.Errorf("%s: %d %.300s, want %d %s", name, status, answer, c.status, c.want)
		}
		if strings.Contains(answer, token) {
			t.Errorf("%s: the answer shows the token", name)
		}
	}
	if status, answer := postMCP(t, w.url, token, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); status != 200 {
		t.Errorf("afterwards: %d %s", status, answer)
	}
}

// TestMCPSlowBody begins a body and stalls: the server gives up on it.
func TestMCPSlowBody(t *testing.T) {
	w := newWorld(t, initHub)
	token := w.token("vic", verb.Viewer)
	server := httptest.NewServer(mcp.HTTP(&verb.Server{Registry: w.hub.Verbs(), Verifier: w.hub.Verifier(), BodyTimeout: 200 * time.Millisecond}, nil, "1"))
	defer server.Close()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: 1000\r\n\r\n{", mcp.Path, token)
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, " 400 ") {
		t.Errorf("a body that stalls: %q, %v", line, err)
	}
}

// TestMCPLeaksNothing connects and drops 10,000 times amid requests: in the end there
// are as many goroutines and files as before.
func TestMCPLeaksNothing(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 500
	}
	l := newLabs(t)
	host, token := strings.TrimPrefix(l.a.url, "http://"), l.token(t, "ada")
	messages := []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"scidex.list","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,`, // half a message
	}
	connect := func(i int) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", host)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		message := messages[i%len(messages)]
		_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s",
			mcp.Path, token, len(message)+i%2, message) // each other body does not end
		if i%3 == 0 {
			return // it does not wait for the answer
		}
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		_, _ = bufio.NewReader(conn).ReadString('\n')
	}
	run := func(n int) {
		var wait sync.WaitGroup
		slots := make(chan struct{}, 32)
		for i := range n {
			slots <- struct{}{}
			wait.Go(func() {
				connect(i)
				<-slots
			})
		}
		wait.Wait()
	}
	run(100) // what is made once
	settled := func() (int, int) {
		files, goroutines := open(t)
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			f, g := open(t)
			if f == files && g == goroutines {
				break
			}
			files, goroutines = f, g
		}
		return files, goroutines
	}
	files, goroutines := settled()
	run(n)
	eventually(t, 60*time.Second, "files and goroutines are as many as before", func() bool {
		f, g := open(t)
		return f <= files+8 && g <= goroutines+16 // an idle connection of the hub's, and who reads it
	})
	f, g := open(t)
	t.Logf("before %d files and %d goroutines, after %d connections %d and %d", files, goroutines, n, f, g)
	if _, answer := postMCP(t, l.a.url, token, messages[2]); !strings.Contains(answer, `"result"`) {
		t.Errorf("afterwards: %s", answer)
	}
}

package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/verb"
)

func initHub(ctx context.Context, db *pgxpool.Pool) error {
	_, err := hub.Init(ctx, db)
	return err
}

// prism is a front end on another origin.
const prism = "http://prism.example"

// A network is a hub and a node that follows it, over HTTP on loopback.
type network struct {
	db      *pgxpool.Pool // the hub's
	hub     *hub.Hub
	hubURL  string
	stopHub func()
	dir     string
	url     string
	stop    func()
	tokens  map[string]string
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	db := pgtest.New(t, initHub)
	h, err := hub.Open(t.Context(), hub.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	n := &network{db: db, hub: h, dir: t.TempDir(), tokens: map[string]string{}}
	for _, p := range verb.Permissions {
		c := verb.Claims{ActorKind: "human", Permissions: []string{p}}
		c.Subject = "a-" + p
		if n.tokens[p], err = h.SigningKey().Sign(c, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	srv := httptest.NewServer(h.Handler(nil, done))
	n.hubURL = srv.URL
	running, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- h.Run(running) }()
	n.stopHub = once(func() {
		close(done)
		srv.Close()
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(n.stopHub)
	n.start(t)
	return n
}

// once returns f to be called at most once.
func once(f func()) func() {
	called := false
	return func() {
		if !called {
			called = true
			f()
		}
	}
}

// start starts the node on its directory.
func (n *network) start(t *testing.T) {
	t.Helper()
	nd, err := node.Open(t.Context(), node.Config{Dir: n.dir, HubURL: n.hubURL, Token: n.tokens[verb.Viewer], Introspection: true, Origins: []string{prism}})
	if err != nil {
		t.Fatal(err)
	}
	server := nd.Server(nil)
	srv := httptest.NewServer(server)
	n.url = srv.URL
	running, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- nd.Run(running) }()
	n.stop = once(func() {
		if err := server.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		srv.Close()
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if err := nd.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(n.stop)
	head, err := n.hub.Head(t.Context())
	if err == nil {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := nd.WaitApplied(ctx, head); err != nil {
			t.Fatal(err)
		}
	}
}

// query posts a GraphQL query and returns the whole answer.
func (n *network) query(t *testing.T, token, query string, variables map[string]any) (status int, answer struct {
	Data   json.RawMessage
	Errors []struct {
		Message    string
		Extensions map[string]any
	}
	Extensions struct {
		Replica struct {
			Seq   string
			Stale bool
		}
	}
},
) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.url+"/graphql", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return resp.StatusCode, answer
}

func (n *network) hubClient(permission string) *verb.Client {
	return &verb.Client{URL: n.hubURL, Token: n.tokens[permission]}
}

func (n *network) nodeClient(permission string) *verb.Client {
	return &verb.Client{URL: n.url, Token: n.tokens[permission]}
}

const createMutation = `mutation($in: CreateArtifactInput!) { createArtifact(input: $in) {
	__typename ... on WriteResult { ref revision eventId consistencyToken idempotency artifact { ref title content(path: "/statement") lifecycleState createdBy { id } } }
	... on ValidationFailed { problems { path constraint suggestion } } ... on VersionConflict { current { ref content } } ... on HubUnavailable { outcomeUnknown }
	... on PermissionDenied { needs } ... on Problem { code reason message requestId } } }`

const updateMutation = `mutation($in: UpdateArtifactInput!) { updateArtifact(input: $in) {
	__typename ... on WriteResult { ref revision idempotency artifact { content } } ... on VersionConflict { yourBase current { ref revision content changedBy { id } } }
	... on ValidationFailed { problems { path constraint } } ... on Problem { code reason } } }`

type outcome struct {
	Typename  string `json:"__typename"`
	Ref       string
	Revision  int
	EventID   string `json:"eventId"`
	Reason    string
	Needs     string
	RequestID string `json:"requestId"`
	Artifact  struct {
		Ref, Title, LifecycleState string
		Content                    json.RawMessage
		CreatedBy                  struct{ ID string }
	}
	Problems []struct{ Path, Constraint string }
	Current  struct {
		Ref     string
		Content json.RawMessage
	}
	OutcomeUnknown bool
}

func (n *network) mutate(t *testing.T, permission, mutation string, in map[string]any) outcome {
	t.Helper()
	status, a := n.query(t, n.tokens[permission], mutation, map[string]any{"in": in})
	if status != http.StatusOK || len(a.Errors) > 0 {
		t.Fatalf("mutation: %d, %+v", status, a.Errors)
	}
	var data map[string]outcome
	if err := json.Unmarshal(a.Data, &data); err != nil {
		t.Fatal(err)
	}
	for _, o := range data {
		return o
	}
	return outcome{}
}

func TestGraphQL(t *testing.T) {
	n := newNetwork(t)
	first := n.mutate(t, verb.Contributor, createMutation, map[string]any{"type": "hypothesis", "localId": "h-1", "title": "One <&>", "content": map[string]any{"statement": "Aβ"}})
	t.Run("a mutation answers what it wrote", func(t *testing.T) {
		a := first.Artifact
		if first.Typename != "WriteResult" || first.Revision != 1 || a.Ref != first.Ref || a.Title != "One <&>" || string(a.Content) != `"Aβ"` || a.LifecycleState != "proposed" || a.CreatedBy.ID != "a-contributor" {
			t.Errorf("create = %+v", first)
		}
	})
	t.Run("what was written can be read at once", func(t *testing.T) {
		_, a := n.query(t, n.tokens[verb.Viewer], `query($r: Ref!) { artifact(ref: $r) { id ref isLatest } none: artifact(ref: "gene:none") { ref } }`, map[string]any{"r": first.Ref})
		if got, want := string(a.Data), `{"artifact":{"id":"`+first.Ref+`","ref":"`+first.Ref+`","isLatest":true},"none":null}`; got != want {
			t.Errorf("data = %s, want %s", got, want)
		}
		if a.Extensions.Replica.Seq < first.EventID || a.Extensions.Replica.Stale {
			t.Errorf("extensions.replica = %+v, the write's event is %s", a.Extensions.Replica, first.EventID)
		}
	})
	t.Run("problems are data", func(t *testing.T) {
		o := n.mutate(t, verb.Contributor, createMutation, map[string]any{"type": "hypothesis", "title": "x", "content": map[string]any{"claim": "y"}})
		if o.Typename != "ValidationFailed" || len(o.Problems) != 1 || o.Problems[0].Path != "/content/statement" || o.RequestID == "" {
			t.Errorf("invalid content = %+v", o)
		}
		o = n.mutate(t, verb.Contributor, createMutation, map[string]any{"type": "hypothesis", "localId": "h-1", "title": "x", "content": map[string]any{"statement": "y"}})
		if o.Typename != "VersionConflict" || o.Reason != artifact.ReasonExists || o.Current.Ref != first.Ref {
			t.Errorf("a second create = %+v", o)
		}
		o = n.mutate(t, verb.Viewer, createMutation, map[string]any{"type": "hypothesis", "title": "x", "content": map[string]any{"statement": "y"}})
		if o.Typename != "PermissionDenied" || o.Needs != "CONTRIBUTOR" {
			t.Errorf("a viewer's create = %+v", o)
		}
	})
	t.Run("an update of a stale base conflicts", func(t *testing.T) {
		hash := first.Ref[strings.Index(first.Ref, "@")+1:]
		o := n.mutate(t, verb.Contributor, updateMutation, map[string]any{"ref": "hypothesis:h-1", "baseContentHash": hash, "change": map[string]any{"replace": map[string]any{"statement": "second"}}})
		if o.Typename != "WriteResult" || o.Revision != 2 || string(o.Artifact.Content) != `{"statement":"second"}` {
			t.Errorf("update = %+v", o)
		}
		second := o.Ref
		o = n.mutate(t, verb.Contributor, updateMutation, map[string]any{"ref": "hypothesis:h-1", "baseContentHash": hash, "change": map[string]any{"mergePatch": map[string]any{"disease": "AD"}}})
		if o.Typename != "VersionConflict" || o.Current.Ref != second || string(o.Current.Content) != `{"statement":"second"}` {
			t.Errorf("a stale update = %+v", o)
		}
		o = n.mutate(t, verb.Contributor, updateMutation, map[string]any{"ref": "hypothesis:h-1", "baseContentHash": hash, "change": map[string]any{"replace": map[string]any{}, "mergePatch": map[string]any{}}})
		if o.Typename != "ValidationFailed" {
			t.Errorf("two ways of changing = %+v", o)
		}
	})
	t.Run("without a token nothing is answered", func(t *testing.T) {
		for _, token := range []string{"", "nonsense"} {
			if status, a := n.query(t, token, `{ replica { phase } }`, nil); status != http.StatusUnauthorized || a.Data != nil {
				t.Errorf("token %q: %d %s", token, status, a.Data)
			}
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.url+"/graphql", strings.NewReader(`{"query":"{__schema{queryType{name}}}"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Upgrade", "x")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("a POST that claims to upgrade: %s", resp.Status)
		}
	})
	t.Run("bad arguments are told", func(t *testing.T) {
		for query, code := range map[string]string{
			`{ artifacts(first: 101) { nodes { ref } } }`:                        "validation_failed",
			`{ artifacts(first: 0) { nodes { ref } } }`:                          "validation_failed",
			`{ artifacts(after: "x") { nodes { ref } } }`:                        "validation_failed",
			`{ artifacts(filter: {type: {eq: "none"}}) { nodes { ref } } }`:      "validation_failed",
			`{ artifact(ref: "hypothesis:h-1") { content(path: "statement") } }`: "validation_failed",
		} {
			_, a := n.query(t, n.tokens[verb.Viewer], query, nil)
			if len(a.Errors) != 1 || a.Errors[0].Extensions["code"] != code {
				t.Errorf("%s: %+v, want %s", query, a.Errors, code)
			}
		}
	})
}

// TestLimits checks that one request cannot take more than its share.
func TestLimits(t *testing.T) {
	n := newNetwork(t)
	big := strings.Repeat("x", 900<<10)
	o := n.mutate(t, verb.Contributor, createMutation, map[string]any{"type": "hypothesis", "localId": "big", "title": "Big", "content": map[string]any{"statement": big}})
	if o.Typename != "WriteResult" {
		t.Fatalf("create = %+v", o)
	}
	aliases := func(k int) string {
		var b strings.Builder
		for i := range k {
			b.WriteString(" c" + strconv.Itoa(i) + ":content")
		}
		return `{ artifact(ref: "hypothesis:big") {` + b.String() + ` } }`
	}
	for query, want := range map[string]string{
		aliases(100): "response_too_large",
		aliases(300): "limit_exceeded",
	} {
		_, a := n.query(t, n.tokens[verb.Viewer], query, nil)
		if len(a.Errors) == 0 || a.Errors[0].Extensions["code"] != want && a.Errors[0].Extensions["reason"] != want {
			t.Errorf("%.60s…: %+v, want %s", query, a.Errors, want)
		}
		if len(a.Data) > 20<<20 {
			t.Errorf("%.60s…: %d bytes", query, len(a.Data))
		}
	}
	for query, variables := range map[string]map[string]any{
		`query($r: Ref!) { artifact(ref: $r) { ref } }`: {"r": "garbage"},
		`{ artifact(ref: 5) { ref } }`:                  nil,
		`mutation { updateArtifact(input: {ref: "gene:a", baseContentHash: "sha256:…", change: {replace: {}}}) { __typename } }`: nil,
	} {
		_, a := n.query(t, n.tokens[verb.Viewer], query, variables)
		if len(a.Errors) != 1 || a.Errors[0].Extensions["code"] == "internal_error" || a.Errors[0].Message == "" {
			t.Errorf("%s: %+v, want the caller's error", query, a.Errors)
		}
	}
}

// TestHeaders checks what a page of another origin gets, and reads that wait for
// a write.
func TestHeaders(t *testing.T) {
	n := newNetwork(t)
	send := func(method string, head map[string]string) (status int, header http.Header) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, n.url+"/graphql", strings.NewReader(`{"query":"{replica{phase}}"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+n.tokens[verb.Viewer])
		for k, v := range head {
			req.Header.Set(k, v)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode, resp.Header
	}
	for origin, want := range map[string]string{prism: prism, "http://evil.example": ""} {
		for _, method := range []string{http.MethodOptions, http.MethodPost} {
			_, header := send(method, map[string]string{"Origin": origin})
			if got := header.Get("Access-Control-Allow-Origin"); got != want {
				t.Errorf("%s from %s allows %q, want %q", method, origin, got, want)
			}
		}
	}
	head, err := n.hub.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for token, status := range map[string]int{
		"1:" + strconv.FormatInt(int64(head), 10):      http.StatusOK,
		"1:" + strconv.FormatInt(int64(head)+1000, 10): http.StatusServiceUnavailable,
		"2:1":  http.StatusServiceUnavailable,
		"soon": http.StatusBadRequest,
	} {
		if got, _ := send(http.MethodPost, map[string]string{"SciDEX-Consistency": token}); got != status {
			t.Errorf("consistency %s: %d, want %d", token, got, status)
		}
	}
}

// TestConformance holds the node's answers to the hub's, byte for byte.
func TestConformance(t *testing.T) {
	n := newNetwork(t)
	ctx, write := t.Context(), n.hubClient(verb.Contributor)
	var refs []artifact.Ref
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		r, err := verb.Create.Call(ctx, write, verb.CreateRequest{Type: "gene", ID: id, Title: "Gene " + id, Content: json.RawMessage(`{"symbol":"<` + id + `>"}`)})
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, r.Ref)
	}
	u, err := verb.Update.Call(ctx, write, verb.UpdateRequest{Ref: "gene:a", BaseContentHash: refs[0].Hash, MergePatch: json.RawMessage(`{"description":"x"}`), Title: "Renamed"})
	if err != nil {
		t.Fatal(err)
	}
	back, err := verb.Update.Call(ctx, write, verb.UpdateRequest{Ref: "gene:a", BaseContentHash: u.ContentHash, Content: json.RawMessage(`{"symbol":"<a>"}`), Title: "Gene a"})
	if err != nil || back.ContentHash != refs[0].Hash {
		t.Fatal(back, err)
	}
	wait := time.Now().Add(20 * time.Second)
	for {
		got, err := verb.Get.Call(ctx, n.nodeClient(verb.Viewer), verb.GetRequest{Ref: artifact.Ref{Type: "gene", ID: "a"}})
		if err == nil && got.Artifact.Revision == 3 {
			break
		}
		if time.Now().After(wait) {
			t.Fatal("the node does not catch up")
		}
		<-time.After(10 * time.Millisecond)
	}
	none := false
	for name, call := range map[string]struct {
		verb string
		in   any
	}{
		"current":                {"get", verb.GetRequest{Ref: artifact.Ref{Type: "gene", ID: "a"}}},
		"first version":          {"get", verb.GetRequest{Ref: refs[0]}},
		"second version":         {"get", verb.GetRequest{Ref: u.Ref}},
		"without content":        {"get", verb.GetRequest{Ref: refs[1], IncludeContent: &none}},
		"absent":                 {"get", verb.GetRequest{Ref: artifact.Ref{Type: "gene", ID: "z"}}},
		"a version that was not": {"get", verb.GetRequest{Ref: artifact.Ref{Type: "gene", ID: "a", Hash: refs[1].Hash}}},
		"all":                    {"list", verb.ListRequest{}},
		"of a type":              {"list", verb.ListRequest{Type: "gene", Limit: 2, IncludeContent: true}},
		"of an empty type":       {"list", verb.ListRequest{Type: "paper"}},
		"of no type":             {"list", verb.ListRequest{Type: "gnee"}},
		"a bad limit":            {"list", verb.ListRequest{Limit: 500}},
		"a bad cursor":           {"list", verb.ListRequest{Cursor: "x"}},
		"all schemas":            {"schema", verb.SchemaRequest{}},
		"a schema":               {"schema", verb.SchemaRequest{Type: "gene"}},
		"a version of it":        {"schema", verb.SchemaRequest{Type: "gene", Version: 1}},
		"a version it lacks":     {"schema", verb.SchemaRequest{Type: "gene", Version: 9}},
		"no schema":              {"schema", verb.SchemaRequest{Type: "none"}},
	} {
		t.Run(name, func(t *testing.T) {
			atHub, atNode := invoke(t, n.hubClient(verb.Viewer), call.verb, call.in), invoke(t, n.nodeClient(verb.Viewer), call.verb, call.in)
			if !reflect.DeepEqual(atHub, atNode) {
				t.Errorf("hub  %s\nnode %s", atHub, atNode)
			}
		})
	}
}

// invoke returns an answer or an error as JSON, without the request's id.
func invoke(t *testing.T, c *verb.Client, name string, in any) string {
	t.Helper()
	var out json.RawMessage
	if err := c.Invoke(t.Context(), name, in, &out); err != nil {
		e := artifact.AsError(err)
		e.RequestID = ""
		raw, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	return string(bytes.TrimSpace(out))
}

// TestOffline checks what a node does while its hub is away: reads and tokens go
// on, over a restart too, and writes say that they cannot.
func TestOffline(t *testing.T) {
	n := newNetwork(t)
	first := n.mutate(t, verb.Contributor, createMutation, map[string]any{"type": "hypothesis", "localId": "h-1", "title": "One", "content": map[string]any{"statement": "x"}})
	n.stopHub()
	check := func(t *testing.T) {
		t.Helper()
		_, a := n.query(t, n.tokens[verb.Viewer], `{ artifact(ref: "hypothesis:h-1") { ref } }`, nil)
		if want := `{"artifact":{"ref":"` + first.Ref + `"}}`; string(a.Data) != want {
			t.Errorf("a read without the hub = %s, want %s", a.Data, want)
		}
		o := n.mutate(t, verb.Contributor, createMutation, map[string]any{"type": "hypothesis", "title": "x", "content": map[string]any{"statement": "y"}})
		if o.Typename != "HubUnavailable" || o.OutcomeUnknown {
			t.Errorf("a write without the hub = %+v", o)
		}
	}
	t.Run("running", check)
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, a := n.query(t, n.tokens[verb.Viewer], `{ replica { phase } }`, nil)
		if string(a.Data) == `{"replica":{"phase":"DISCONNECTED"}}` && a.Extensions.Replica.Stale {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the node does not tell that its hub is away: %s", a.Data)
		}
		<-time.After(20 * time.Millisecond)
	}
	n.stop()
	nd, err := node.Open(t.Context(), node.Config{Dir: n.dir, HubURL: n.hubURL, Token: n.tokens[verb.Viewer]})
	if err != nil {
		t.Fatal(err)
	}
	defer nd.Close()
	srv := httptest.NewServer(nd.Server(nil))
	defer srv.Close()
	n.url = srv.URL
	t.Run("started without it", check)
}

// TestResume follows events over sockets that break, from a cursor each time:
// nothing is lost and nothing comes twice.
func TestResume(t *testing.T) {
	n := newNetwork(t)
	write := n.hubClient(verb.Contributor)
	var want []string
	for range 60 {
		r, err := verb.Create.Call(t.Context(), write, verb.CreateRequest{Type: "gene", Title: "G", Content: json.RawMessage(`{"symbol":"G"}`)})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, r.Ref.String())
	}
	var got []string
	cursor := "0"
	for len(got) < len(want) {
		got, cursor = n.someEvents(t, got, cursor, min(7, len(want)-len(got)))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%d events of genes over broken sockets, want %d in order", len(got), len(want))
	}
}

// someEvents reads a few events after a cursor, over one socket.
func (n *network) someEvents(t *testing.T, got []string, cursor string, most int) ([]string, string) {
	t.Helper()
	ws, resp, err := (&websocket.Dialer{Subprotocols: []string{"graphql-transport-ws"}}).DialContext(t.Context(), "ws"+strings.TrimPrefix(n.url, "http")+"/graphql", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer ws.Close()
	for _, m := range []any{
		map[string]any{"type": "connection_init", "payload": map[string]any{"authorization": "Bearer " + n.tokens[verb.Viewer]}},
		map[string]any{"type": "subscribe", "id": "1", "payload": map[string]any{
			"query":     `subscription($s: EventId) { events(types: ["gene.*"], since: $s, maxBatch: 3) { events { ref } cursor } }`,
			"variables": map[string]any{"s": cursor},
		}},
	} {
		if err := ws.WriteJSON(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := ws.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for read := 0; read < most; {
		var m struct {
			Type    string
			Payload struct {
				Data struct {
					Events struct {
						Events []struct{ Ref string }
						Cursor string
					}
				}
			}
		}
		if err := ws.ReadJSON(&m); err != nil {
			t.Fatal(err)
		}
		if m.Type != "next" {
			continue
		}
		batch := m.Payload.Data.Events
		cursor = batch.Cursor
		for _, e := range batch.Events {
			got = append(got, e.Ref)
			read++
		}
	}
	return got, cursor
}

// Package rights_test tries, over HTTP on a hub and on nodes, what each caller may
// see and do. outsider_test.go asks every verb for what the caller may not know
// of; matrix_test.go tries every verb in every role. The world that both share is
// in this file.
package rights_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/declared"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/verb"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// Whatever only lab A may know has a name with secret in it. The same name with
// absent in its place names nothing. Both are of one length, and no visible name
// stands between them in any order.
const (
	secret = "zqpriv"
	absent = "zqnone"
)

const (
	labA = "lab-" + secret
	labB = "lab-b"
)

// twin returns the name of nothing that is like a private thing's.
func twin(name string) string { return strings.ReplaceAll(name, secret, absent) }

// A world is a hub and two nodes: one holds both labs, the other lab B alone.
type world struct {
	db     *pgxpool.Pool
	hub    *hub.Hub
	hubURL string
	nodes  map[string]*node.Node // by the door's name
	doors  map[string]string     // name → URL
	root   *verb.Client
}

// The doors of a world.
const (
	atHub   = "hub"
	atNode  = "node"
	atNodeB = "node of lab B"
)

func initHub(ctx context.Context, db *pgxpool.Pool) error {
	_, err := hub.Init(ctx, db)
	return err
}

func metrics() (*prometheus.Registry, http.Handler) {
	r := prometheus.NewRegistry()
	return r, promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

var noLimits = verb.Limits{Read: verb.Rate{PerSecond: -1}, Write: verb.Rate{PerSecond: -1}, Unauthenticated: verb.Rate{PerSecond: -1}}

// newWorld makes a world with two labs and root, who is an admin everywhere.
func newWorld(t *testing.T, labs ...string) *world {
	t.Helper()
	return newWorldOn(t, pgtest.New(t, initHub), labs...)
}

func newWorldOn(t *testing.T, db *pgxpool.Pool, labs ...string) *world {
	t.Helper()
	w := &world{db: db, nodes: map[string]*node.Node{}, doors: map[string]string{}}
	registry, served := metrics()
	h, err := hub.Open(t.Context(), hub.Config{DB: w.db, Limits: noLimits, Metrics: registry, AnonymousRead: true})
	if err != nil {
		t.Fatal(err)
	}
	w.hub = h
	done := make(chan struct{})
	srv := httptest.NewServer(declared.Handler(t, h.Verbs(), h.Handler(served, done)))
	w.hubURL, w.doors[atHub] = srv.URL, srv.URL
	running(t, h.Run, func() {
		close(done)
		srv.Close()
	})
	w.root = w.client(t, atHub, "root", nil, verb.Viewer, verb.Contributor, verb.Reviewer, verb.Admin)
	must(t, w.root, verb.Create, verb.CreateRequest{Type: artifact.SchemaType, Title: "Trial", Content: object(map[string]any{
		"type": "trial", "id_strategy": map[string]any{"format": "tr-{uuid}"}, "mutability": "mutable_with_history", "write_policy": "propose",
		"content_schema": map[string]any{"type": "object"}, "links": map[string]any{"derives_from": map[string]any{"to_types": []string{}}},
	})})
	for _, lab := range labs {
		must(t, w.root, verb.ScopesCreate, verb.ScopesCreateRequest{ID: lab, Title: "The lab " + lab})
		w.grant(t, lab, "root", verb.Permissions...)
	}
	return w
}

// running runs f until the test ends, and stop before that.
func running(t *testing.T, f func(context.Context) error, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- f(ctx) }()
	t.Cleanup(sync.OnceFunc(func() {
		stop()
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}))
}

// enrol starts a node that holds some scopes.
func (w *world) enrol(t *testing.T, door, lab string, scopes ...string) {
	t.Helper()
	invitation := must(t, w.root, verb.NodesInvite, verb.NodesInviteRequest{Lab: lab, Scopes: scopes})
	dir := t.TempDir()
	identity, err := node.Join(t.Context(), dir, w.hubURL, invitation.Code, nil)
	if err != nil {
		t.Fatal(err)
	}
	registry, served := metrics()
	n, err := node.Open(t.Context(), node.Config{Dir: dir, HubURL: w.hubURL, Identity: identity, Limits: noLimits, Metrics: registry, AnonymousRead: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	server := n.Server(served)
	srv := httptest.NewServer(declared.Handler(t, w.hub.Verbs(), server))
	running(t, n.Run, func() {
		if err := server.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		srv.Close()
	})
	w.nodes[door], w.doors[door] = n, srv.URL
	w.settle(t)
}

// settle waits until each node has what the hub has.
func (w *world) settle(t *testing.T) {
	t.Helper()
	head, err := w.hub.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for door, n := range w.nodes {
		if err := n.WaitApplied(ctx, head); err != nil {
			t.Fatalf("%s: %v", door, err)
		}
	}
}

// token returns a token with these permissions in commons. Scopes narrow what the
// agent is a member of; nil does not.
func (w *world) token(t *testing.T, agent string, scopes []string, permissions ...string) string {
	t.Helper()
	c := verb.Claims{ActorKind: "human", Permissions: permissions, Scopes: scopes}
	c.Subject = agent
	token, err := w.hub.SigningKey().Sign(c, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (w *world) client(t *testing.T, door, agent string, scopes []string, permissions ...string) *verb.Client {
	t.Helper()
	return &verb.Client{URL: w.doors[door], Token: w.token(t, agent, scopes, permissions...)}
}

// propose makes a candidate and returns its id.
func (w *world) propose(t *testing.T, c *verb.Client, scope, title string) string {
	t.Helper()
	return must(t, c, verb.Create, verb.CreateRequest{Type: "trial", Scope: scope, Title: title, Content: object(map[string]any{"text": title})}).Candidate.CandidateID
}

func (w *world) grant(t *testing.T, scope, agent string, roles ...string) {
	t.Helper()
	must(t, w.root, verb.ScopesGrant, verb.ScopesGrantRequest{Scope: scope, Agent: agent, Roles: roles})
}

func must[In, Out any](t *testing.T, c *verb.Client, v verb.Verb[In, Out], in In) Out {
	t.Helper()
	out, err := v.Call(t.Context(), c, in)
	if err != nil {
		t.Fatalf("%s %+v: %v", v.Name, in, err)
	}
	return out
}

func object(v map[string]any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// contents are valid contents by type, for texts that hold a name.
func contents(typ, name string) map[string]any {
	switch typ {
	case "comment", "wiki_page":
		return map[string]any{"markdown": "About " + name}
	case "disease":
		return map[string]any{"name": name}
	case "evidence", "hypothesis":
		return map[string]any{"statement": "About " + name}
	case "gene":
		return map[string]any{"symbol": name}
	case "group":
		return map[string]any{"members": []string{name + "-ada", name + "-bo"}}
	case "message":
		return map[string]any{"recipient": "agents:*", "body": "About " + name}
	case "paper":
		return map[string]any{"journal": name}
	}
	return nil // a type that this does not know yet
}

// tried returns the schemas of the types that are tried: those that contents knows.
// The others differ from them in their documents alone, or are not written by the
// verbs that are tried.
func tried(t *testing.T) []*artifact.Schema {
	t.Helper()
	return slices.DeleteFunc(artifact.ShippedSchemas(), func(s *artifact.Schema) bool {
		known := contents(s.Type, "x") != nil
		if !known && s.Visibility == artifact.VisibilityParticipants {
			t.Errorf("type %s: teach contents what it holds", s.Type)
		}
		return !known
	})
}

// An answer is what came of a request, but for what differs each time.
type answer struct {
	status int
	head   http.Header
	body   string
}

// post sends a body with a token.
func post(t *testing.T, url, token string, body any) answer {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return send(t, req, token)
}

func send(t *testing.T, req *http.Request, token string) answer {
	t.Helper()
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
	head := resp.Header.Clone()
	id := head.Get("X-Request-Id")
	for name := range head {
		if name == "X-Request-Id" || name == "Date" || strings.HasPrefix(name, "Ratelimit") {
			delete(head, name)
		}
	}
	body := string(raw)
	if id != "" {
		body = strings.ReplaceAll(body, id, "<request>")
	}
	return answer{resp.StatusCode, head, body}
}

// ask calls a verb by HTTP.
func (w *world) ask(t *testing.T, door, token, name string, body any) answer {
	t.Helper()
	return post(t, w.doors[door]+verb.PathPrefix+name, token, body)
}

// verbs are all verbs of the product.
func verbs() []verb.Info { return new(hub.Hub).Verbs().Verbs() }

// another returns a hash that no version has.
func another(h artifact.Hash) artifact.Hash {
	h[0] ^= 0xff
	return h
}

func newKey() string { return uuid.NewString() }

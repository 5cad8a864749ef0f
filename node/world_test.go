package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/verb"
)

// A world is a hub that may be stopped, restored and trimmed, behind a URL that
// stays, with whatever stands between it and its nodes.
type world struct {
	t       testing.TB
	db      *pgxpool.Pool
	config  hub.Config // of the next start, beside what a world needs
	hub     *hub.Hub
	url     string
	stop    func()
	between atomic.Pointer[func(http.Handler) http.Handler]
	served  atomic.Pointer[http.Handler]
	tokens  map[string]string
}

func newWorld(t testing.TB, init func(context.Context, *pgxpool.Pool) error) *world {
	t.Helper()
	return newWorldOn(t, pgtest.New(t, init))
}

// newWorldOn makes a world on a database that holds a hub.
func newWorldOn(t testing.TB, db *pgxpool.Pool) *world {
	t.Helper()
	w := &world{t: t, db: db, tokens: make(map[string]string)}
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		h := w.served.Load()
		if h == nil {
			http.Error(rw, "away", http.StatusBadGateway)
			return
		}
		if between := w.between.Load(); between != nil {
			(*between)(*h).ServeHTTP(rw, req)
			return
		}
		(*h).ServeHTTP(rw, req)
	}))
	t.Cleanup(srv.Close)
	w.url = srv.URL
	w.start()
	return w
}

// start opens the hub on its database.
func (w *world) start() {
	w.t.Helper()
	c := w.config
	c.DB, c.PartitionRows, c.RingBytes = w.db, 64, 1
	h, err := hub.Open(w.t.Context(), c)
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(w.t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- h.Run(ctx) }()
	handler := h.Handler(nil, done)
	w.hub = h
	w.served.Store(&handler)
	w.stop = once(func() {
		w.served.Store(nil)
		close(done)
		cancel()
		if err := <-stopped; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(w.stop)
}

// meddle puts something between the hub and its nodes; nil takes it away.
func (w *world) meddle(f func(http.Handler) http.Handler) {
	if f == nil {
		w.between.Store(nil)
		return
	}
	w.between.Store(&f)
}

func (w *world) as(sub string, permissions ...string) context.Context {
	return verb.WithCaller(w.t.Context(), &verb.Caller{
		Actor: artifact.Actor{ID: sub, Kind: "human"}, Permissions: permissions, Access: w.hub.Verifier().Access,
		SessionID: "s", RequestID: uuid.NewString(), Now: artifact.Now(),
	})
}

func (w *world) token(sub string, permissions ...string) string {
	w.t.Helper()
	if w.tokens[sub] == "" {
		c := verb.Claims{ActorKind: "human", Permissions: permissions}
		c.Subject = sub
		token, err := w.hub.SigningKey().Sign(c, time.Hour)
		if err != nil {
			w.t.Fatal(err)
		}
		w.tokens[sub] = token
	}
	return w.tokens[sub]
}

// do runs a verb at the hub.
func do[In, Out any](w *world, ctx context.Context, v verb.Verb[In, Out], in In) Out { //nolint:revive // w comes first, as a receiver would
	w.t.Helper()
	out, err := v.Call(ctx, w.hub.Verbs(), in)
	if err != nil {
		w.t.Fatalf("%s %+v: %v", v.Name, in, err)
	}
	return out
}

// lab makes a private scope with ada as a contributor and root as an admin.
func (w *world) lab(id string) {
	w.t.Helper()
	root := w.as("root", verb.Admin)
	do(w, root, verb.ScopesCreate, verb.ScopesCreateRequest{ID: id, Title: id})
	do(w, root, verb.ScopesGrant, verb.ScopesGrantRequest{Scope: id, Agent: "ada", Roles: []string{verb.Contributor}})
	do(w, root, verb.ScopesGrant, verb.ScopesGrantRequest{Scope: id, Agent: "root", Roles: []string{verb.Admin}})
}

// some writes artifacts with all that hangs on them.
func (w *world) some(prefix, scope string, n, size int) (refs []string) {
	w.t.Helper()
	ada := w.as("ada", verb.Contributor)
	for i := range n {
		content, err := json.Marshal(map[string]any{"statement": strings.Repeat("y", size)})
		if err != nil {
			w.t.Fatal(err)
		}
		made := do(w, ada, verb.Create, verb.CreateRequest{Type: "hypothesis", ID: fmt.Sprintf("%s%d", prefix, i), Scope: scope, Title: prefix, Content: content})
		ref := made.Ref.Current().String()
		refs = append(refs, ref)
		do(w, ada, verb.Signal, verb.SignalRequest{Ref: ref, Kind: "vote", Value: "1"})
		if i%2 == 0 {
			do(w, ada, verb.Comment, verb.CommentRequest{Ref: ref, Body: "so"})
		}
	}
	return refs
}

// keepWriting writes, moves and redacts until the returned function is called.
func (w *world) keepWriting(private string) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var g sync.WaitGroup
	write := func(name string) {
		verbs := w.hub.Verbs()
		for i := 0; ctx.Err() == nil; i++ {
			in := verb.CreateRequest{Type: "hypothesis", ID: fmt.Sprint(name, i), Title: name, Content: json.RawMessage(`{"statement":"written meanwhile"}`)}
			if private != "" && i%3 == 0 {
				in.Scope = private
			}
			made, err := verb.Create.Call(w.as("ada", verb.Contributor), verbs, in)
			if err != nil {
				w.t.Error(err)
				return
			}
			ref := made.Ref.Current().String()
			_, err = verb.Signal.Call(w.as("ada", verb.Contributor), verbs, verb.SignalRequest{Ref: ref, Kind: "vote", Value: "-1"})
			if err == nil && i%5 == 1 {
				made, err = verb.Update.Call(w.as("ada", verb.Contributor), verbs, verb.UpdateRequest{Ref: ref, BaseContentHash: made.ContentHash, Title: "Again"})
			}
			if err == nil && i%7 == 2 && private != "" {
				to := artifact.Commons
				if in.Scope == "" {
					to = private
				}
				_, err = verb.Move.Call(w.as("root", verb.Admin), verbs, verb.MoveRequest{Ref: ref, BaseContentHash: made.ContentHash, Scope: to, Reason: "so"})
			}
			if err == nil && i%11 == 3 {
				_, err = verb.Redact.Call(w.as("root", verb.Admin), verbs, verb.RedactRequest{Ref: ref, Reason: "so", Revisions: made.Revision})
			}
			if err != nil && ctx.Err() == nil {
				w.t.Errorf("write %s: %v", ref, err)
				return
			}
		}
	}
	g.Go(func() { write("x") })
	g.Go(func() { write("y") })
	return once(func() { cancel(); g.Wait() })
}

// A runner is a node of a world.
type runner struct {
	*node.Node
	t     testing.TB
	dir   string
	url   string
	token string
	stop  func()
}

func (w *world) node(dir, sub string, permissions ...string) *runner {
	w.t.Helper()
	return w.nodeWith(node.Config{Dir: dir, Token: w.token(sub, permissions...)})
}

func (w *world) nodeWith(c node.Config) *runner {
	w.t.Helper()
	if c.HubURL == "" {
		c.HubURL = w.url
	}
	c.RebuildWait = time.Millisecond
	if err := node.Recover(c.Dir); err != nil {
		w.t.Fatal(err)
	}
	nd, err := node.Open(w.t.Context(), c)
	if err != nil {
		w.t.Fatal(err)
	}
	server := nd.Server(nil)
	srv := httptest.NewServer(server)
	ctx, cancel := context.WithCancel(w.t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- nd.Run(ctx) }()
	r := &runner{Node: nd, t: w.t, dir: c.Dir, url: srv.URL, token: c.Token}
	r.stop = once(func() {
		_ = server.Shutdown(context.WithoutCancel(w.t.Context()))
		srv.Close()
		cancel()
		if err := <-stopped; err != nil {
			w.t.Error(err)
		}
		if err := nd.Close(); err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(r.stop)
	return r
}

// caughtUp waits until a node has all that the hub has now.
func (w *world) caughtUp(r *runner) {
	w.t.Helper()
	head, err := w.hub.Head(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 60*time.Second)
	defer cancel()
	if err := r.WaitApplied(ctx, head); err != nil {
		w.t.Fatalf("the node does not come to %d: %v; %+v", head, err, r.Building())
	}
}

// equal checks that a node equals the hub.
func (w *world) equal(r *runner) {
	w.t.Helper()
	w.caughtUp(r)
	report, err := r.Verify(w.t.Context())
	if err != nil || len(report.Differences) > 0 || len(report.Rows) > 0 {
		w.t.Errorf("the replica differs: %v, %v, %v", report.Differences, report.Rows, err)
	}
}

// ask gets a path of the node.
func (r *runner) ask(path string) (status int, body string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+path, http.NoBody)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// get reads an artifact at the node over HTTP.
func (r *runner) get(t *testing.T, ref string) error {
	t.Helper()
	parsed, err := artifact.ParseRef(ref)
	if err != nil {
		t.Fatal(err)
	}
	_, err = verb.Get.Call(t.Context(), &verb.Client{URL: r.url, Token: r.token}, verb.GetRequest{Ref: parsed})
	return err
}

package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// A twin is a hub and a store that holds what the hub sends to a follower of some
// scopes.
type twin struct {
	hub   *hub.Hub
	verbs *verb.Registry // of the hub
	store *node.Store
	reads *verb.Registry // of the store
	feed  replicate.Reader
	path  string // of the store
}

func newTwin(t *testing.T, scopes ...string) *twin {
	t.Helper()
	return newTwinOf(t, hub.Config{}, scopes...)
}

// newTwinOf makes a twin of a hub with a configuration.
func newTwinOf(t *testing.T, c hub.Config, scopes ...string) *twin {
	t.Helper()
	c.DB = pgtest.New(t, initHub)
	h, err := hub.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	running, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- h.Run(running) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	path := t.TempDir() + "/replica.db"
	w := &twin{hub: h, verbs: h.Verbs(), path: path, store: openStore(t, path)}
	w.reads = registry(w.store)
	reader, hello, err := h.Open(t.Context(), replicate.Position{}, scopes)
	if err != nil {
		t.Fatal(err)
	}
	hello.Scopes = scopes
	if err := w.store.Hello(t.Context(), hello); err != nil {
		t.Fatal(err)
	}
	w.feed = reader
	return w
}

// as returns the context of a caller at one of the two sides, which knows the
// caller's memberships.
func (w *twin) as(ctx context.Context, access verb.Access, agent string, permissions ...string) context.Context {
	return verb.WithCaller(ctx, &verb.Caller{
		Actor: artifact.Actor{ID: agent, Kind: "human"}, Permissions: permissions, Access: access, RequestID: uuid.NewString(), Now: artifact.Now(),
	})
}

func (w *twin) atHub(ctx context.Context, agent string, permissions ...string) context.Context {
	return w.as(ctx, w.hub.Verifier().Access, agent, permissions...)
}

func (w *twin) atNode(ctx context.Context, agent string, permissions ...string) context.Context {
	return w.as(ctx, w.store.Access(), agent, permissions...)
}

// reopen closes the store and opens it again.
func (w *twin) reopen(t *testing.T) {
	t.Helper()
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	w.store = openStore(t, w.path)
	w.reads = registry(w.store)
}

// catchUp applies what the hub has written.
func (w *twin) catchUp(t *testing.T) {
	t.Helper()
	head, err := w.hub.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for w.store.Applied() < head {
		page, err := w.feed.Next(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		batch := replicate.Batch{To: page.To, Chain: page.Chain, Partial: page.Partial}
		for _, raw := range page.Rows {
			var row replicate.Row
			if err := json.Unmarshal(raw, &row); err != nil {
				t.Fatal(err)
			}
			batch.Rows = append(batch.Rows, row)
		}
		apply(t, w.store, batch)
	}
}

func mustCall[In, Out any](t *testing.T, ctx context.Context, inv verb.Invoker, v verb.Verb[In, Out], in In) Out {
	t.Helper()
	out, err := v.Call(ctx, inv, in)
	if err != nil {
		t.Fatalf("%s %+v: %v", v.Name, in, err)
	}
	return out
}

// populate makes agents in commons and in lab-a, with handles, roles and groups.
func (w *twin) populate(t *testing.T) {
	t.Helper()
	root := w.atHub(t.Context(), "root", verb.Admin, verb.Contributor)
	mustCall(t, root, w.verbs, verb.ScopesCreate, verb.ScopesCreateRequest{ID: "lab-a", Title: "Lab A"})
	for _, agent := range []string{"ada", "zoe"} {
		mustCall(t, root, w.verbs, verb.ScopesGrant, verb.ScopesGrantRequest{Scope: "lab-a", Agent: agent, Roles: []string{verb.Contributor}})
	}
	rename := func(agent, handle string, roles ...string) {
		ctx := w.atHub(t.Context(), agent, verb.Contributor)
		mustCall(t, ctx, w.verbs, verb.AgentsUpdate, verb.AgentsUpdateRequest{Handle: &handle, Roles: roles})
	}
	rename("ada", "ada-z", "curator")
	rename("ada", "ada-a")
	rename("ada", "ada-l")
	rename("zoe", "curator")
	for i := range 5 {
		id := fmt.Sprintf("bot-%d", i)
		mustCall(t, root, w.verbs, verb.AgentsRegister, verb.AgentsRegisterRequest{ID: id, Kind: "ai_local", Title: "Bot", Handle: id})
		mustCall(t, root, w.verbs, verb.AgentsUpdate, verb.AgentsUpdateRequest{Agent: id, Roles: []string{"helper", "curator"}})
	}
	rename("bob", "bob-1", "curator")
	for id, scope := range map[string]string{"open": "", "closed": "lab-a"} {
		ctx := w.atHub(t.Context(), "ada", verb.Contributor)
		if scope == "" {
			ctx = w.atHub(t.Context(), "bob", verb.Contributor)
		}
		mustCall(t, ctx, w.verbs, verb.Create, verb.CreateRequest{Type: "group", ID: id, Scope: scope, Title: id, Content: []byte(`{"members":["zoe","ada","nobody"]}`)})
	}
}

// TestAgentsConform checks that hub and node give the same answers.
func TestAgentsConform(t *testing.T) {
	w := newTwin(t, artifact.Commons, "lab-a")
	w.populate(t)
	w.catchUp(t)
	errorOf := func(err error) any {
		if err == nil {
			return nil
		}
		return artifact.AsError(err)
	}
	answered := 0
	for _, agent := range []string{"ada", "zoe", "bob", "eve", "root"} {
		atHub, atNode := w.atHub(t.Context(), agent, verb.Viewer), w.atNode(t.Context(), agent, verb.Viewer)
		for _, name := range []string{"", "ada", "zoe", "bob", "eve", "bot-0", "scidex", "@ada-l", "@ada-a", "@ada-z", "@curator", "@bob-1", "@none", "none", "@", "a b", "@A"} {
			want, err := verb.AgentsGet.Call(atHub, w.verbs, verb.AgentsGetRequest{Agent: name})
			got, err2 := verb.AgentsGet.Call(atNode, w.reads, verb.AgentsGetRequest{Agent: name})
			if diff := cmp.Diff(want, got) + cmp.Diff(errorOf(err), errorOf(err2)); diff != "" {
				t.Errorf("%s gets %q (-hub +node)\n%s", agent, name, diff)
			} else if err == nil {
				answered++
			}
		}
		for _, to := range []string{
			"agent:ada", "agent:none", "agent:eve", "@ada-l", "@ada-a", "@curator", "@helper", "@none", "agents:role:curator", "agents:role:none", "agents:role:No",
			"group:open", "group:lab-a/closed", "group:none", "group:a b", "agents:*", "agents", "", "@",
		} {
			want, err := verb.AgentsResolve.Call(atHub, w.verbs, verb.AgentsResolveRequest{Recipient: to})
			got, err2 := verb.AgentsResolve.Call(atNode, w.reads, verb.AgentsResolveRequest{Recipient: to})
			if diff := cmp.Diff(want, got) + cmp.Diff(errorOf(err), errorOf(err2)); diff != "" {
				t.Errorf("%s resolves %q (-hub +node)\n%s", agent, to, diff)
			} else if err == nil {
				answered++
			}
		}
		for _, in := range []verb.AgentsListRequest{{}, {Limit: 2}, {Role: "curator"}, {Role: "curator", Limit: 1}, {Kind: "human"}, {Kind: "ai_local", Role: "helper"}, {Role: "none"}, {Kind: "robot"}, {Limit: 201}, {Cursor: "x"}} {
			for page := 0; ; page++ {
				want, err := verb.AgentsList.Call(atHub, w.verbs, in)
				got, err2 := verb.AgentsList.Call(atNode, w.reads, in)
				if diff := cmp.Diff(want, got) + cmp.Diff(errorOf(err), errorOf(err2)); diff != "" {
					t.Errorf("%s lists %+v (-hub +node)\n%s", agent, in, diff)
				}
				if in.Cursor = want.NextCursor; in.Cursor == "" || page > 20 {
					break
				}
			}
		}
	}
	if answered < 60 {
		t.Errorf("only %d requests were answered: the comparison says little", answered)
	}
	stranger := w.atNode(t.Context(), "mal")
	if _, err := verb.AgentsGet.Call(stranger, w.reads, verb.AgentsGetRequest{}); !artifact.IsCode(err, artifact.CodePermissionDenied) {
		t.Errorf("get by one who may not read = %v, want permission_denied", err)
	}
}

// TestAgentsOfOtherScopes checks that a follower of commons alone learns nothing of
// agents that were seen only in a private scope.
func TestAgentsOfOtherScopes(t *testing.T) {
	w := newTwin(t, artifact.Commons)
	w.populate(t)
	w.catchUp(t)
	root := w.atNode(t.Context(), "root", verb.Admin)
	list := mustCall(t, root, w.reads, verb.AgentsList, verb.AgentsListRequest{Limit: 200})
	var ids []string
	for _, a := range list.Agents {
		ids = append(ids, a.ID)
	}
	if want := []string{"bob", "bot-0", "bot-1", "bot-2", "bot-3", "bot-4", "root", "scidex"}; !slices.Equal(ids, want) {
		t.Errorf("list = %v, want %v", ids, want)
	}
	for _, name := range []string{"ada", "@ada-l", "@ada-a", "zoe"} {
		if _, err := verb.AgentsGet.Call(root, w.reads, verb.AgentsGetRequest{Agent: name}); !artifact.IsCode(err, artifact.CodeNotFound) {
			t.Errorf("get %s = %v, want not_found", name, err)
		}
	}
	out := mustCall(t, root, w.reads, verb.AgentsResolve, verb.AgentsResolveRequest{Recipient: "@curator"})
	if want := []string{"bob", "bot-0", "bot-1", "bot-2", "bot-3", "bot-4"}; !slices.Equal(out.Agents, want) {
		t.Errorf("resolve @curator = %v, want the role's %v: the handle is a lab's", out.Agents, want)
	}
	if _, known := w.store.Access().MayDelegate("ada"); known {
		t.Error("the replica knows ada")
	}
}

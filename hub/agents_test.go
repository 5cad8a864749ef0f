package hub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/verb"
)

func (f *fixture) updateAgent(ctx context.Context, in verb.AgentsUpdateRequest) (verb.AgentResult, error) {
	return verb.AgentsUpdate.Call(ctx, f.verbs, in)
}

func (f *fixture) mustUpdateAgent(t *testing.T, ctx context.Context, in verb.AgentsUpdateRequest) verb.AgentResult {
	t.Helper()
	out, err := f.updateAgent(ctx, in)
	if err != nil {
		t.Fatalf("agents/update %+v: %v", in, err)
	}
	return out
}

func (f *fixture) agent(ctx context.Context, name string) (verb.AgentResponse, error) {
	return verb.AgentsGet.Call(ctx, f.verbs, verb.AgentsGetRequest{Agent: name})
}

func (f *fixture) resolve(ctx context.Context, recipient string) (verb.AgentsResolveResponse, error) {
	return verb.AgentsResolve.Call(ctx, f.verbs, verb.AgentsResolveRequest{Recipient: recipient})
}

func (f *fixture) register(t *testing.T, id, kind string) {
	t.Helper()
	if _, err := verb.AgentsRegister.Call(f.admin(t.Context()), f.verbs, verb.AgentsRegisterRequest{ID: id, Kind: kind}); err != nil {
		t.Fatalf("agents/register %s: %v", id, err)
	}
}

// agentRows counts the rows of the log that tell of an agent in a scope.
func (f *fixture) agentRows(t *testing.T, scope, id string) int {
	t.Helper()
	return f.count(t, `SELECT count(*) FROM feed.change WHERE kind = 'agent' AND scope = $1 AND ref = $2`, scope, "agent:"+id)
}

func TestAgentsUpdate(t *testing.T) {
	f := newHub(t)
	ada := f.member(t.Context(), "ada", verb.Contributor)

	t.Run("one that was seen nowhere knows itself", func(t *testing.T) {
		want := verb.Agent{ID: "ada", Kind: "human", FormerHandles: []string{}, Roles: []string{}, MayDelegate: true}
		for _, name := range []string{"", "ada"} {
			out, err := f.agent(ada, name)
			if diff := cmp.Diff(want, out.Agent); err != nil || diff != "" {
				t.Errorf("get %q = %v (-want +got)\n%s", name, err, diff)
			}
		}
		out := f.mustUpdateAgent(t, ada, verb.AgentsUpdateRequest{Title: new("")})
		if diff := cmp.Diff(want, out.Agent); out.Idempotency != verb.IdempotencyDeduplicated || diff != "" {
			t.Errorf("an update of nothing = %s (-want +got)\n%s", out.Idempotency, diff)
		}
	})
	t.Run("changes what is given and keeps the rest", func(t *testing.T) {
		first := f.mustUpdateAgent(t, ada, verb.AgentsUpdateRequest{Handle: new("ada-l"), Title: new("Ada"), Roles: []string{"steward", "curator", "steward"}})
		if a := first.Agent; a.Handle != "ada-l" || a.Title != "Ada" || !slices.Equal(a.Roles, []string{"curator", "steward"}) || first.Seq == 0 {
			t.Errorf("update = %+v", first)
		}
		second := f.mustUpdateAgent(t, ada, verb.AgentsUpdateRequest{Roles: []string{}})
		want := first.Agent
		want.Roles, want.UpdatedAt = []string{}, second.Agent.UpdatedAt
		if diff := cmp.Diff(want, second.Agent); diff != "" {
			t.Errorf("after an update of the roles alone (-want +got)\n%s", diff)
		}
		got, err := f.agent(f.member(t.Context(), "bob", verb.Viewer), "@ada-l")
		if diff := cmp.Diff(verb.AgentResponse{Agent: want}, got); err != nil || diff != "" {
			t.Errorf("get = %v (-want +got)\n%s", err, diff)
		}
		var payload string
		const last = `SELECT e.payload::text FROM event e WHERE e.type = 'agent.updated' ORDER BY e.seq DESC LIMIT 1`
		if err := f.db.QueryRow(t.Context(), last).Scan(&payload); err != nil || payload != `{"changed":["roles"]}` {
			t.Errorf("the event's payload = %s, %v", payload, err)
		}
	})
	t.Run("writes nothing when nothing changes", func(t *testing.T) {
		out := f.mustUpdateAgent(t, ada, verb.AgentsUpdateRequest{Agent: "@ada-l", Handle: new("ada-l"), Title: new("Ada"), Roles: []string{}})
		if out.Seq != 0 || out.Idempotency != verb.IdempotencyDeduplicated || out.Agent.Title != "Ada" {
			t.Errorf("update = %+v", out)
		}
	})
	t.Run("leaves to an admin what is an admin's", func(t *testing.T) {
		root := f.admin(t.Context())
		for what, in := range map[string]verb.AgentsUpdateRequest{
			"may_delegate":        {MayDelegate: new(false)},
			"no handle":           {Handle: new("")},
			"a permission's name": {Roles: []string{"curator", verb.Reviewer}},
			"such a handle":       {Handle: new(verb.Admin)},
			"another agent":       {Agent: "bob", Title: new("x")},
		} {
			f.register(t, "bob", "human")
			if _, err := f.updateAgent(ada, in); code(err) != "permission_denied" {
				t.Errorf("%s: %v, want permission_denied", what, err)
			}
			if in.Agent == "" {
				in.Agent = "ada"
			}
			f.mustUpdateAgent(t, root, in)
		}
		if may, _ := f.Verifier().Access.MayDelegate("ada"); may {
			t.Error("ada may delegate right after an admin said otherwise")
		}
		f.mustUpdateAgent(t, root, verb.AgentsUpdateRequest{Agent: "ada", Roles: []string{verb.Reviewer}})
		out := f.mustUpdateAgent(t, ada, verb.AgentsUpdateRequest{Roles: []string{verb.Reviewer, "curator"}})
		if !slices.Equal(out.Agent.Roles, []string{"curator", verb.Reviewer}) {
			t.Errorf("roles = %v: an agent keeps what an admin gave it", out.Agent.Roles)
		}
	})
	t.Run("names every fault", func(t *testing.T) {
		_, err := f.updateAgent(ada, verb.AgentsUpdateRequest{Handle: new("@Ada"), Title: new("a\nb"), Roles: []string{"ok", "9lives", ""}})
		var paths []string
		for _, p := range artifact.AsError(err).Problems {
			paths = append(paths, p.Path)
		}
		if want := []string{"/roles/1", "/roles/2", "/handle", "/title"}; code(err) != "validation_failed" || !slices.Equal(paths, want) {
			t.Errorf("problems at %v, want %v: %v", paths, want, err)
		}
		_, err = f.updateAgent(ada, verb.AgentsUpdateRequest{Roles: slices.Repeat([]string{"a"}, verb.MaxAgentRoles+1)})
		if code(err) != "validation_failed" {
			t.Errorf("too many roles: %v", err)
		}
	})
	t.Run("a reader's token writes nothing", func(t *testing.T) {
		if _, err := f.updateAgent(f.member(t.Context(), "ada", verb.Viewer), verb.AgentsUpdateRequest{Title: new("x")}); code(err) != "permission_denied" {
			t.Errorf("update = %v, want permission_denied", err)
		}
	})
}

func TestHandles(t *testing.T) {
	f := newHub(t)
	ada, bob := f.member(t.Context(), "ada", verb.Contributor), f.member(t.Context(), "bob", verb.Contributor)
	f.mustUpdateAgent(t, ada, verb.AgentsUpdateRequest{Handle: new("first")})
	f.mustUpdateAgent(t, ada, verb.AgentsUpdateRequest{Handle: new("second")})

	t.Run("a former handle leads to the agent", func(t *testing.T) {
		out, err := f.agent(bob, "@first")
		if err != nil || out.Agent.ID != "ada" || out.Agent.Handle != "second" || out.RedirectedFrom != "@first" || !slices.Equal(out.Agent.FormerHandles, []string{"first"}) {
			t.Errorf("get = %+v, %v", out, err)
		}
		if out, err := f.agent(bob, "@second"); err != nil || out.RedirectedFrom != "" {
			t.Errorf("get by the current handle = %+v, %v", out, err)
		}
		to, err := f.resolve(bob, "@first")
		if diff := cmp.Diff(verb.AgentsResolveResponse{Agents: []string{"ada"}, RedirectedFrom: "@first"}, to); err != nil || diff != "" {
			t.Errorf("resolve: %v (-want +got)\n%s", err, diff)
		}
	})
	t.Run("a handle stays its first agent's", func(t *testing.T) {
		for _, handle := range []string{"first", "second"} {
			_, err := f.updateAgent(bob, verb.AgentsUpdateRequest{Handle: &handle})
			want := &artifact.Error{
				Code: artifact.CodeVersionConflict, Reason: artifact.ReasonHandleTaken, Message: "the handle is taken: choose another",
				Details: map[string]any{"handle": handle},
			}
			if diff := cmp.Diff(want, artifact.AsError(err)); diff != "" {
				t.Errorf("bob takes %s (-want +got)\n%s", handle, diff)
			}
		}
		out := f.mustUpdateAgent(t, ada, verb.AgentsUpdateRequest{Handle: new("first")})
		if a := out.Agent; a.Handle != "first" || !slices.Equal(a.FormerHandles, []string{"second"}) {
			t.Errorf("taken back: %+v", a)
		}
	})
	t.Run("wins over a role", func(t *testing.T) {
		f.mustUpdateAgent(t, bob, verb.AgentsUpdateRequest{Roles: []string{"first", "curator"}})
		for recipient, want := range map[string][]string{"@first": {"ada"}, "agents:role:first": {"bob"}, "@curator": {"bob"}} {
			if out, err := f.resolve(bob, recipient); err != nil || !slices.Equal(out.Agents, want) {
				t.Errorf("resolve %s = %v, %v, want %v", recipient, out.Agents, err, want)
			}
		}
	})
	t.Run("goes to one of two who race for it", func(t *testing.T) {
		const racers = 8
		errs := make([]error, racers)
		var wg sync.WaitGroup
		for i := range racers {
			wg.Go(func() {
				ctx := f.member(t.Context(), fmt.Sprintf("racer-%d", i), verb.Contributor)
				_, errs[i] = f.updateAgent(ctx, verb.AgentsUpdateRequest{Handle: new("wanted")})
			})
		}
		wg.Wait()
		won := 0
		for i, err := range errs {
			switch code(err) {
			case "":
				won++
			case "version_conflict/handle_taken":
			default:
				t.Errorf("racer %d: %v", i, err)
			}
		}
		if won != 1 {
			t.Errorf("%d agents took the handle, want 1", won)
		}
	})
	t.Run("are not hoarded", func(t *testing.T) {
		var err error
		taken := 0
		for ; err == nil && taken <= verb.MaxHandles; taken++ {
			_, err = f.updateAgent(bob, verb.AgentsUpdateRequest{Handle: new(fmt.Sprintf("bob-%d", taken))})
		}
		if code(err) != "validation_failed" || taken != verb.MaxHandles+1 {
			t.Errorf("handle %d: %v, want validation_failed after %d", taken, err, verb.MaxHandles)
		}
		f.mustUpdateAgent(t, bob, verb.AgentsUpdateRequest{Handle: new("bob-0")})
	})
}

// TestPrivateAgents checks that an agent that was seen only in a private scope is
// for an outsider as if it were not.
func TestPrivateAgents(t *testing.T) {
	f := twoLabs(t)
	ada, bob, eve := f.member(t.Context(), "ada", verb.Contributor), f.member(t.Context(), "bob", verb.Viewer), f.member(t.Context(), "eve", verb.Contributor)
	f.grant(t, "lab-a", "zoe", verb.Viewer)
	zoe := f.member(t.Context(), "zoe")
	f.mustUpdateAgent(t, ada, verb.AgentsUpdateRequest{Handle: new("ada-old"), Roles: []string{"curator"}})
	f.mustUpdateAgent(t, ada, verb.AgentsUpdateRequest{Handle: new("ada-l")})

	t.Run("get, list and resolve do not know it", func(t *testing.T) {
		for _, ctx := range []context.Context{bob, eve} {
			for name, ref := range map[string]string{"ada": "agent:ada", "@ada-l": "@ada-l", "@ada-old": "@ada-old", "nobody": "agent:nobody", "@nobody": "@nobody", "@No": "@No", "a b": "agent:a b"} {
				if _, err := f.agent(ctx, name); cmp.Diff(artifact.NotFound(ref), artifact.AsError(err)) != "" {
					t.Errorf("get %s = %v, want not_found", name, err)
				}
			}
			for _, recipient := range []string{"agent:ada", "@ada-l", "@ada-old", "@curator", "agents:role:curator", "agent:nobody", "@nobody", "agents:role:nothing", "group:nothing"} {
				if _, err := f.resolve(ctx, recipient); cmp.Diff(artifact.NotFound(recipient), artifact.AsError(err)) != "" {
					t.Errorf("resolve %s = %v, want not_found", recipient, err)
				}
			}
			out, err := verb.AgentsList.Call(ctx, f.verbs, verb.AgentsListRequest{Limit: 200})
			if raw, _ := json.Marshal(out); err != nil || strings.Contains(string(raw), "ada") || strings.Contains(string(raw), "zoe") {
				t.Errorf("list = %s, %v", raw, err)
			}
		}
		for _, ref := range []string{"ada", "nobody"} {
			_, err := f.updateAgent(eve, verb.AgentsUpdateRequest{Agent: ref, Title: new("x")})
			if cmp.Diff(artifact.NotFound("agent:"+ref), artifact.AsError(err)) != "" {
				t.Errorf("update of %s = %v, want not_found", ref, err)
			}
		}
	})
	t.Run("a taken handle is answered alike whoever holds it", func(t *testing.T) {
		f.mustUpdateAgent(t, eve, verb.AgentsUpdateRequest{Handle: new("eve-1")})
		_, private := f.updateAgent(f.member(t.Context(), "mal", verb.Contributor), verb.AgentsUpdateRequest{Handle: new("ada-l")})
		_, public := f.updateAgent(f.member(t.Context(), "mal", verb.Contributor), verb.AgentsUpdateRequest{Handle: new("eve-1")})
		want := *artifact.AsError(public)
		want.Details = map[string]any{"handle": "ada-l"}
		if diff := cmp.Diff(&want, artifact.AsError(private)); diff != "" {
			t.Errorf("(-public +private)\n%s", diff)
		}
	})
	t.Run("those of its scope and itself know it", func(t *testing.T) {
		out, err := f.agent(zoe, "@ada-old")
		if err != nil || out.Agent.ID != "ada" || out.RedirectedFrom != "@ada-old" {
			t.Errorf("get = %+v, %v", out, err)
		}
		if to, err := f.resolve(zoe, "@curator"); err != nil || !slices.Equal(to.Agents, []string{"ada"}) {
			t.Errorf("resolve = %v, %v", to, err)
		}
		outside := f.member(t.Context(), "ada", verb.Viewer)
		if c, err := verb.CallerFrom(outside); err == nil {
			c.Scopes = []string{} // the token leaves lab-a out
		}
		if own, err := f.agent(outside, "@ada-l"); err != nil || own.Agent.Handle != "ada-l" {
			t.Errorf("get of itself = %+v, %v", own, err)
		}
		if to, err := f.resolve(outside, "agents:role:curator"); err != nil || !slices.Equal(to.Agents, []string{"ada"}) {
			t.Errorf("resolve of its own role = %v, %v", to, err)
		}
	})
	t.Run("its rows are in its scope alone, until it is seen elsewhere", func(t *testing.T) {
		if n, public := f.agentRows(t, "lab-a", "ada"), f.agentRows(t, artifact.Commons, "ada"); n != 3 || public != 0 {
			t.Errorf("%d rows in lab-a and %d in commons, want 3 and 0", n, public)
		}
		before, err := f.agent(zoe, "ada")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := verb.Create.Call(ada, f.verbs, hypothesis("h1", "for all")); err != nil {
			t.Fatal(err)
		}
		after, err := f.agent(eve, "@ada-l")
		if diff := cmp.Diff(before, after); err != nil || diff != "" {
			t.Errorf("known by commons: %v (-by lab-a +by commons)\n%s", err, diff)
		}
		f.mustUpdateAgent(t, ada, verb.AgentsUpdateRequest{Title: new("Ada")})
		if n, public := f.agentRows(t, "lab-a", "ada"), f.agentRows(t, artifact.Commons, "ada"); n != 4 || public != 2 {
			t.Errorf("%d rows in lab-a and %d in commons, want 4 and 2", n, public)
		}
		if n := f.count(t, `SELECT count(*) FROM event WHERE type = 'agent.updated' AND ref = 'agent:ada' AND scope = 'commons'`); n != 1 {
			t.Errorf("%d events in commons, want that of the last update", n)
		}
	})
	t.Run("all rows of one commit say the same", func(t *testing.T) {
		const query = `
			SELECT count(DISTINCT data) FROM feed.change
			WHERE kind = 'agent' AND ref = 'agent:ada' AND commit_seq = (SELECT max(commit_seq) FROM feed.change WHERE kind = 'agent' AND ref = 'agent:ada')`
		if n := f.count(t, query); n != 1 {
			t.Errorf("%d forms, want 1", n)
		}
	})
}

func TestAgentsRegister(t *testing.T) {
	f := twoLabs(t)
	root, eve := f.admin(t.Context()), f.member(t.Context(), "eve", verb.Contributor)
	in := verb.AgentsRegisterRequest{ID: "bot-1", Kind: "ai_local", Title: "Bot", Handle: "bot"}
	out, err := verb.AgentsRegister.Call(root, f.verbs, in)
	if err != nil || out.Agent.MayDelegate || out.Agent.Handle != "bot" || out.Seq == 0 {
		t.Fatalf("register = %+v, %v", out, err)
	}
	if got, err := f.agent(eve, "@bot"); err != nil || cmp.Diff(out.Agent, got.Agent) != "" {
		t.Errorf("get = %+v, %v", got, err)
	}
	if again, err := verb.AgentsRegister.Call(root, f.verbs, in); err != nil || again.Seq != 0 || again.Idempotency != verb.IdempotencyDeduplicated {
		t.Errorf("register again = %+v, %v", again, err)
	}
	for want, in := range map[string]verb.AgentsRegisterRequest{
		"version_conflict/exists":       {ID: "bot-1", Kind: "human"},
		"version_conflict/handle_taken": {ID: "bot-2", Kind: "human", Handle: "bot"},
		"validation_failed":             {ID: "@bot", Kind: "robot", Handle: "Bot"},
	} {
		if _, err := verb.AgentsRegister.Call(root, f.verbs, in); code(err) != want {
			t.Errorf("register %+v = %v, want %s", in, err, want)
		}
	}
	if _, err := verb.AgentsRegister.Call(eve, f.verbs, verb.AgentsRegisterRequest{ID: "x", Kind: "human"}); code(err) != "permission_denied" {
		t.Errorf("register by a contributor = %v", err)
	}
	if _, err := f.agent(eve, "ada"); code(err) != "not_found" {
		t.Errorf("get of one in a lab = %v", err)
	}
	f.register(t, "ada", "human")
	if got, err := f.agent(eve, "ada"); err != nil || got.Agent.ID != "ada" {
		t.Errorf("get of one that was made known = %+v, %v", got, err)
	}
}

func TestAgentsList(t *testing.T) {
	f := newHub(t)
	eve := f.member(t.Context(), "eve", verb.Viewer)
	var want []string
	for i := range 7 {
		id, kind := fmt.Sprintf("agent-%d", i), "human"
		if i%2 == 1 {
			kind = "ai_local"
		}
		f.register(t, id, kind)
		if i > 2 {
			f.mustUpdateAgent(t, f.admin(t.Context()), verb.AgentsUpdateRequest{Agent: id, Roles: []string{"curator"}})
			want = append(want, id)
		}
	}
	var got []string
	in := verb.AgentsListRequest{Role: "curator", Limit: 3}
	for {
		page, err := verb.AgentsList.Call(eve, f.verbs, in)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range page.Agents {
			got = append(got, a.ID)
		}
		if in.Cursor = page.NextCursor; in.Cursor == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("list = %v, want %v", got, want)
	}
	page, err := verb.AgentsList.Call(eve, f.verbs, verb.AgentsListRequest{Kind: "ai_local"})
	if err != nil || len(page.Agents) != 4 { // and the hub itself
		t.Errorf("list of programs = %+v, %v", page.Agents, err)
	}
	first, err := verb.AgentsList.Call(eve, f.verbs, verb.AgentsListRequest{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	for want, in := range map[string]verb.AgentsListRequest{
		"validation_failed":                {Kind: "robot", Role: "No"},
		"validation_failed/invalid_cursor": {Role: "curator", Cursor: first.NextCursor},
	} {
		if _, err := verb.AgentsList.Call(eve, f.verbs, in); code(err) != want {
			t.Errorf("list %+v = %v, want %s", in, err, want)
		}
	}
}

func TestGroups(t *testing.T) {
	f := twoLabs(t)
	ada, eve := f.member(t.Context(), "ada", verb.Contributor), f.member(t.Context(), "eve", verb.Contributor)
	group := func(ctx context.Context, id, scope string, members ...string) {
		t.Helper()
		in := verb.CreateRequest{Type: "group", ID: id, Scope: scope, Title: id, Content: content(map[string]any{"members": members})}
		if _, err := verb.Create.Call(ctx, f.verbs, in); err != nil {
			t.Fatal(err)
		}
	}
	group(eve, "open", "", "zoe", "ada", "eve")
	group(eve, "empty", "", []string{}...)
	group(ada, "closed", "lab-a", "ada")
	for recipient, want := range map[string][]string{"group:open": {"zoe", "ada", "eve"}, "group:empty": {}, "group:lab-a/closed": {"ada"}} {
		out, err := f.resolve(ada, recipient)
		if diff := cmp.Diff(verb.AgentsResolveResponse{Agents: want}, out); err != nil || diff != "" {
			t.Errorf("resolve %s: %v (-want +got)\n%s", recipient, err, diff)
		}
	}
	if _, err := f.resolve(eve, "group:lab-a/closed"); code(err) != "not_found" {
		t.Errorf("an outsider's resolve = %v, want not_found", err)
	}
	out, err := f.resolve(eve, "agents:*")
	if diff := cmp.Diff(verb.AgentsResolveResponse{Agents: []string{}, Everyone: true}, out); err != nil || diff != "" {
		t.Errorf("resolve of everyone: %v (-want +got)\n%s", err, diff)
	}
	for _, bad := range []string{"", "ada", "agent:", "@", "agents:ada", "agents:role:"} {
		if _, err := f.resolve(eve, bad); code(err) != "validation_failed" {
			t.Errorf("resolve %q = %v, want validation_failed", bad, err)
		}
	}
}

// TestAgentRowsAgree checks that the last row of each scope says how an agent is,
// though it changes while it becomes known in others.
func TestAgentRowsAgree(t *testing.T) {
	f := newHub(t)
	other, err := hub.Open(t.Context(), hub.Config{DB: f.db})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		f.scope(t, fmt.Sprintf("lab-%d", i))
	}
	root, ada := f.admin(t.Context()), f.member(t.Context(), "ada", verb.Contributor)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 12 {
			if _, err := f.updateAgent(ada, verb.AgentsUpdateRequest{Title: new(fmt.Sprint("Ada ", i)), Handle: new(fmt.Sprint("ada-", i))}); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for i := range 6 {
			if _, err := verb.ScopesGrant.Call(root, other.Verbs(), verb.ScopesGrantRequest{Scope: fmt.Sprintf("lab-%d", i), Agent: "ada", Roles: []string{verb.Viewer}}); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	const query = `
		SELECT count(DISTINCT data) FROM (
			SELECT DISTINCT ON (scope) scope, data FROM feed.change WHERE kind = 'agent' AND ref = 'agent:ada' ORDER BY scope, seq DESC) last`
	if n := f.count(t, query); n != 1 {
		t.Errorf("the last rows have %d forms, want 1", n)
	}
}

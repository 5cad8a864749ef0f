package hub_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// member returns a context of an agent with these permissions in commons, whose
// memberships are the hub's.
func (f *fixture) member(ctx context.Context, sub string, permissions ...string) context.Context {
	return verb.WithCaller(ctx, &verb.Caller{
		Actor: artifact.Actor{ID: sub, Kind: "human"}, Permissions: permissions, Access: f.Verifier().Access,
		SessionID: "s", RequestID: uuid.NewString(), Now: artifact.Now(),
	})
}

func (f *fixture) admin(ctx context.Context) context.Context {
	return f.member(ctx, "root", verb.Admin)
}

func (f *fixture) scope(t *testing.T, id string) {
	t.Helper()
	if _, err := verb.ScopesCreate.Call(f.admin(t.Context()), f.verbs, verb.ScopesCreateRequest{ID: id, Title: id}); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) grant(t *testing.T, scope, agent string, roles ...string) {
	t.Helper()
	if _, err := verb.ScopesGrant.Call(f.admin(t.Context()), f.verbs, verb.ScopesGrantRequest{Scope: scope, Agent: agent, Roles: roles}); err != nil {
		t.Fatal(err)
	}
}

// twoLabs has lab-a and lab-b, each with a contributor of its own: ada and bob.
func twoLabs(t *testing.T) *fixture {
	t.Helper()
	f := newHub(t)
	f.scope(t, "lab-a")
	f.scope(t, "lab-b")
	f.grant(t, "lab-a", "ada", verb.Contributor)
	f.grant(t, "lab-b", "bob", verb.Contributor)
	return f
}

func code(err error) string {
	if err == nil {
		return ""
	}
	e := artifact.AsError(err)
	if e.Reason != "" {
		return string(e.Code) + "/" + e.Reason
	}
	return string(e.Code)
}

func TestScopes(t *testing.T) {
	f := twoLabs(t)
	ada, bob := f.member(t.Context(), "ada", verb.Viewer), f.member(t.Context(), "bob", verb.Viewer)
	private := hypothesis("h1", "only for lab A")
	private.Scope = "lab-a"
	made, err := verb.Create.Call(ada, f.verbs, private)
	if err != nil || made.Ref.Current().String() != "hypothesis:lab-a/h1" {
		t.Fatalf("create in lab-a = %v, %v", made.Ref, err)
	}
	get := func(ctx context.Context, ref artifact.Ref) error {
		_, err := verb.Get.Call(ctx, f.verbs, verb.GetRequest{Ref: ref})
		return err
	}
	t.Run("a member reads and writes, another does neither", func(t *testing.T) {
		for _, ref := range []artifact.Ref{made.Ref, made.Ref.Current()} {
			if err := get(ada, ref); err != nil {
				t.Errorf("get by a member: %v", err)
			}
			if err := get(bob, ref); code(err) != "not_found" {
				t.Errorf("get by another = %v", err)
			}
		}
		list, err := verb.List.Call(bob, f.verbs, verb.ListRequest{Type: "hypothesis"})
		if err != nil || len(list.Artifacts) != 0 {
			t.Errorf("list by another = %v, %v", list.Artifacts, err)
		}
		_, err = verb.Update.Call(bob, f.verbs, verb.UpdateRequest{Ref: made.Ref.Current().String(), BaseContentHash: made.ContentHash, Title: "mine"})
		if code(err) != "not_found" {
			t.Errorf("update by another = %v", err)
		}
		_, err = verb.Signal.Call(bob, f.verbs, verb.SignalRequest{Ref: made.Ref.Current().String(), Kind: "vote", Value: "1"})
		if code(err) != "not_found" {
			t.Errorf("signal by another = %v", err)
		}
		update := verb.UpdateRequest{Ref: made.Ref.Current().String(), BaseContentHash: made.ContentHash, Title: "Again"}
		again, err := verb.Update.Call(ada, f.verbs, update)
		if err != nil {
			t.Errorf("update by a member: %v", err)
		}
		made = again
	})
	t.Run("a scope one may not see is one that is not there", func(t *testing.T) {
		for _, scope := range []string{"lab-a", "lab-x"} {
			in := hypothesis("h2", "x")
			in.Scope = scope
			_, err := verb.Create.Call(bob, f.verbs, in)
			e := artifact.AsError(err)
			if e.Code != artifact.CodeValidationFailed || len(e.Problems) != 1 || e.Problems[0].Constraint != "scope" {
				t.Errorf("create in %s = %v", scope, err)
			}
			if _, err := verb.ScopesMembers.Call(bob, f.verbs, verb.ScopesMembersRequest{Scope: scope}); code(err) != "not_found" {
				t.Errorf("members of %s = %v", scope, err)
			}
		}
		list, err := verb.ScopesList.Call(bob, f.verbs, verb.ScopesListRequest{})
		if err != nil || len(list.Scopes) != 2 || list.Scopes[1].ID != "lab-b" {
			t.Errorf("scopes = %+v, %v", list, err)
		}
	})
	t.Run("what a token may in commons it may not in a scope", func(t *testing.T) {
		outsider := f.member(t.Context(), "eve", verb.Contributor, verb.Reviewer, verb.Admin)
		if err := get(outsider, made.Ref); code(err) != "not_found" {
			t.Errorf("get by an admin of commons = %v", err)
		}
		in := hypothesis("c1", "x")
		if _, err := verb.Create.Call(ada, f.verbs, in); code(err) != "permission_denied" {
			t.Errorf("create in commons by a viewer there = %v", err)
		}
		f.grant(t, "lab-a", "vic", verb.Viewer)
		vic := f.member(t.Context(), "vic", verb.Contributor)
		in.Scope = "lab-a"
		if _, err := verb.Create.Call(vic, f.verbs, in); code(err) != "permission_denied" {
			t.Errorf("create by a viewer of the scope = %v", err)
		}
	})
	t.Run("a token's claim narrows its memberships", func(t *testing.T) {
		c, _ := verb.CallerFrom(ada)
		narrow := *c
		narrow.Scopes = []string{}
		if err := get(verb.WithCaller(t.Context(), &narrow), made.Ref); code(err) != "not_found" {
			t.Errorf("get with a token for commons alone = %v", err)
		}
		narrow.Scopes, narrow.NodeScopes = nil, []string{artifact.Commons, "lab-b"}
		if err := get(verb.WithCaller(t.Context(), &narrow), made.Ref); code(err) != "not_found" {
			t.Errorf("get through a node of another lab = %v", err)
		}
	})
	t.Run("ids in commons do not look private", func(t *testing.T) {
		for id, want := range map[string]string{"lab-a/h1": "validation_failed", "lab-x/h1": "validation_failed", "Lab/h1": "", "h-1": ""} {
			in := hypothesis(id, "x")
			if _, err := verb.Create.Call(contributor(t.Context()), f.verbs, in); code(err) != want {
				t.Errorf("create of %s in commons = %v, want %q", id, err, want)
			}
		}
	})
	t.Run("links live in the narrower scope", func(t *testing.T) {
		f.mustCreate(t, verb.CreateRequest{Type: "paper", ID: "PMID:1", Title: "P", Content: content(map[string]any{})})
		link, err := verb.Link.Call(ada, f.verbs, verb.LinkRequest{From: made.Ref.Current().String(), LinkSpec: verb.LinkSpec{Predicate: "supports", To: "paper:PMID:1"}})
		if err != nil {
			t.Fatal(err)
		}
		if n := f.count(t, "SELECT count(*) FROM link WHERE id = $1 AND scope = 'lab-a'", strings.TrimPrefix(link.Ref, "kg_edge:")); n != 1 {
			t.Error("the link is not in lab-a")
		}
	})
	t.Run("a comment stands with what it is on", func(t *testing.T) {
		comment := verb.CreateRequest{
			Type: "comment", Title: "C", Content: content(map[string]any{"markdown": "x"}),
			Links: []verb.LinkSpec{{Predicate: "comments_on", To: made.Ref.Current().String()}},
		}
		both := f.member(t.Context(), "ada", verb.Contributor)
		_, err := verb.Create.Call(both, f.verbs, comment)
		if e := artifact.AsError(err); e.Code != artifact.CodeValidationFailed || e.Problems[0].Constraint != "scope" {
			t.Errorf("a comment in commons on what is in lab-a: %v", err)
		}
		comment.Scope = "lab-a"
		if _, err := verb.Create.Call(both, f.verbs, comment); err != nil {
			t.Errorf("a comment in lab-a: %v", err)
		}
	})
	t.Run("a membership ends at once", func(t *testing.T) {
		if _, err := verb.ScopesRevoke.Call(f.admin(t.Context()), f.verbs, verb.ScopesRevokeRequest{Scope: "lab-a", Agent: "ada"}); err != nil {
			t.Fatal(err)
		}
		if err := get(ada, made.Ref); code(err) != "not_found" {
			t.Errorf("get after the end = %v", err)
		}
	})
	f.checkDense(t)
}

// TestAccessOfSeveralHubs checks that a hub learns of what another grants and
// revokes.
func TestAccessOfSeveralHubs(t *testing.T) {
	f := twoLabs(t)
	other := newHubOn(t, f.db)
	in := hypothesis("h1", "x")
	in.Scope = "lab-a"
	made, err := verb.Create.Call(other.member(t.Context(), "ada"), other.verbs, in)
	if err != nil {
		t.Fatal(err)
	}
	token := f.token(t, "ada", verb.Viewer)
	get := func() string {
		c, err := other.Verifier().Verify(t.Context(), token)
		if err != nil {
			return code(err)
		}
		_, err = verb.Get.Call(verb.WithCaller(t.Context(), c), other.verbs, verb.GetRequest{Ref: made.Ref})
		return code(err)
	}
	if got := get(); got != "" {
		t.Errorf("get = %s", got)
	}
	if _, err := verb.ScopesRevoke.Call(f.admin(t.Context()), f.verbs, verb.ScopesRevokeRequest{Scope: "lab-a", Agent: "ada"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other hub refuses a member that was", func() bool { return get() == "not_found" })
	f.grant(t, "lab-a", "ada", verb.Viewer)
	eventually(t, "the other hub takes a member", func() bool { return get() == "" })
	if _, err := verb.TokensRevoke.Call(f.admin(t.Context()), f.verbs, verb.TokensRevokeRequest{Agent: "ada"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other hub refuses a revoked token", func() bool { return get() == "permission_denied/unauthenticated" })
	fresh := newHubOn(t, f.db)
	if _, err := fresh.Verifier().Verify(t.Context(), token); code(err) != "permission_denied/unauthenticated" {
		t.Errorf("a hub begun later: %v", err)
	}
}

func TestParticipants(t *testing.T) {
	f := newHub(t)
	for _, agent := range []string{"ada", "bob", "eve"} {
		in := hypothesis("by-"+agent, "x")
		if _, err := verb.Create.Call(f.member(t.Context(), agent, verb.Contributor), f.verbs, in); err != nil {
			t.Fatal(err)
		}
	}
	head := f.head(t)
	ada, bob, eve := f.member(t.Context(), "ada", verb.Contributor), f.member(t.Context(), "bob", verb.Viewer), f.member(t.Context(), "eve", verb.Viewer, verb.Admin)
	send := func(recipient string) (verb.WriteResult, error) {
		return verb.Create.Call(ada, f.verbs, verb.CreateRequest{
			Type: "message", Title: "Hello", Content: content(map[string]any{"recipient": recipient, "body": "the secret"}),
		})
	}
	message, err := send("agent:bob")
	if err != nil {
		t.Fatal(err)
	}
	check := func(ctx context.Context, who, want string) {
		t.Helper()
		if _, err := verb.Get.Call(ctx, f.verbs, verb.GetRequest{Ref: message.Ref}); code(err) != want {
			t.Errorf("get by %s = %v, want %q", who, err, want)
		}
		list, err := verb.List.Call(ctx, f.verbs, verb.ListRequest{Type: "message"})
		if err != nil || len(list.Artifacts) != 1 && want == "" || len(list.Artifacts) != 0 && want != "" {
			t.Errorf("list by %s = %d messages, %v", who, len(list.Artifacts), err)
		}
		all, err := verb.List.Call(ctx, f.verbs, verb.ListRequest{})
		if err != nil || slices.ContainsFunc(all.Artifacts, func(a artifact.Artifact) bool { return a.Type == "message" }) {
			t.Errorf("list of all by %s holds messages, or %v", who, err)
		}
	}
	check(ada, "its author", "")
	check(bob, "its addressee", "")
	check(eve, "an admin", "not_found")
	if _, err := verb.Signal.Call(f.member(t.Context(), "eve", verb.Contributor), f.verbs, verb.SignalRequest{Ref: message.Ref.Current().String(), Kind: "vote", Value: "1"}); code(err) != "not_found" {
		t.Errorf("signal on another's message = %v", err)
	}
	if _, err := verb.Create.Call(f.member(t.Context(), "eve", verb.Contributor), f.verbs, verb.CreateRequest{
		Type: "message", ID: message.Ref.ID, Title: "Mine", Content: content(map[string]any{"recipient": "agent:ada", "body": "x"}),
	}); code(err) != "validation_failed" {
		t.Errorf("create with the id of another's message = %v", err)
	}
	if _, err := send("agent:nobody"); code(err) != "validation_failed" {
		t.Errorf("message to nobody = %v", err)
	}
	if _, err := send("agents:*"); err != nil {
		t.Error(err)
	}
	if list, err := verb.List.Call(eve, f.verbs, verb.ListRequest{Type: "message"}); err != nil || len(list.Artifacts) != 1 {
		t.Errorf("a broadcast reaches %d, %v", len(list.Artifacts), err)
	}
	f.checkDigest(t)
	t.Run("are in no feed", func(t *testing.T) {
		s, _ := follow(t, f.serve(t), f.token(t, "ada", verb.Contributor), "cursor=0", plain)
		s.until(f.head(t))
		if text := strings.Join(s.rows, "\n"); strings.Contains(text, "the secret") || strings.Contains(text, message.Ref.ID) {
			t.Error("a message is in the feed")
		}
		if n := f.count(t, "SELECT count(*) FROM feed.change WHERE seq > $1 AND class = 'public'", int64(head)); n != 0 {
			t.Errorf("%d public rows of messages", n)
		}
	})
}

func (f *fixture) mustGet(t *testing.T, ctx context.Context, ref artifact.Ref) artifact.Artifact {
	t.Helper()
	got, err := verb.Get.Call(ctx, f.verbs, verb.GetRequest{Ref: ref})
	if err != nil {
		t.Fatalf("get %s: %v", ref, err)
	}
	return got.Artifact
}

func TestMove(t *testing.T) {
	f := twoLabs(t)
	f.grant(t, "lab-a", "root", verb.Admin)
	f.grant(t, "lab-b", "root", verb.Admin)
	ada := f.member(t.Context(), "ada", verb.Contributor)
	ref := artifact.Ref{Type: "hypothesis", ID: "h1"}
	first, err := verb.Create.Call(ada, f.verbs, hypothesis("h1", "the first secret"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := verb.Update.Call(ada, f.verbs, verb.UpdateRequest{
		Ref: ref.String(), BaseContentHash: first.ContentHash, Content: content(map[string]any{"statement": "the second secret"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	comment, err := verb.Create.Call(ada, f.verbs, verb.CreateRequest{
		Type: "comment", ID: "c1", Title: "C", Content: content(map[string]any{"markdown": "a secret remark"}),
		Links: []verb.LinkSpec{{Predicate: "comments_on", To: ref.String()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verb.Signal.Call(ada, f.verbs, verb.SignalRequest{Ref: ref.String(), Kind: "vote", Value: "1", Reason: "a secret reason"}); err != nil {
		t.Fatal(err)
	}
	move := func(ctx context.Context, to string, history bool) (verb.WriteResult, error) {
		return verb.Move.Call(ctx, f.verbs, verb.MoveRequest{Ref: ref.String(), Scope: to, BaseContentHash: second.ContentHash, Reason: "not public yet", WithHistory: history})
	}
	outsider := f.member(t.Context(), "vic", verb.Viewer)
	url, vic := f.serve(t), f.token(t, "vic", verb.Viewer)
	live, _ := follow(t, url, vic, "cursor=0", plain)

	t.Run("takes an admin of both scopes", func(t *testing.T) {
		if _, err := move(ada, "lab-a", false); code(err) != "permission_denied" {
			t.Errorf("move by a contributor = %v", err)
		}
		if _, err := move(f.member(t.Context(), "eve", verb.Admin), "lab-a", false); code(err) != "validation_failed" {
			t.Errorf("move by an admin of commons alone = %v", err)
		}
	})
	t.Run("out of commons", func(t *testing.T) {
		before := f.head(t)
		if _, err := move(f.admin(t.Context()), "lab-a", false); err != nil {
			t.Fatal(err)
		}
		for _, r := range []artifact.Ref{ref, first.Ref, second.Ref, comment.Ref} {
			if _, err := verb.Get.Call(outsider, f.verbs, verb.GetRequest{Ref: r}); code(err) != "not_found" {
				t.Errorf("get %s by an outsider = %v", r, err)
			}
			if a := f.mustGet(t, ada, r); a.Scope != "lab-a" {
				t.Errorf("%s is in %s", r, a.Scope)
			}
		}
		f.checkDigest(t)
		live.until(f.head(t))
		gone := map[string]bool{}
		for _, raw := range live.rows {
			var r replicate.Row
			if err := json.Unmarshal([]byte(raw), &r); err != nil {
				t.Fatal(err)
			}
			if r.Seq > before {
				if strings.Contains(raw, "secret") || strings.Contains(raw, "lab-a") {
					t.Errorf("an outsider's feed has %s", raw)
				}
				gone[r.Kind] = gone[r.Kind] || r.Op == replicate.Delete
			}
		}
		for _, kind := range []string{replicate.KindArtifact, replicate.KindRevision, replicate.KindLink, replicate.KindSignal} {
			if !gone[kind] {
				t.Errorf("no %s was taken back", kind)
			}
		}
	})
	t.Run("leaves nothing for those who begin later, from memory or the table", func(t *testing.T) {
		for name, h := range map[string]*fixture{"the ring": f, "the table": newHubOn(t, f.db)} {
			s, _ := follow(t, h.serve(t), h.token(t, "vic", verb.Viewer), "cursor=0", plain)
			s.until(f.head(t))
			if text := strings.Join(s.rows, "\n"); strings.Contains(text, "secret") {
				t.Errorf("%s still tells: %.300s", name, text[strings.Index(text, "secret")-100:])
			}
			if s.chain != live.chain {
				t.Errorf("chain by %s = %s, want %s", name, s.chain, live.chain)
			}
		}
	})
	t.Run("an id that was public stays taken", func(t *testing.T) {
		if _, err := verb.Create.Call(f.member(t.Context(), "eve", verb.Contributor), f.verbs, hypothesis("h1", "x")); code(err) != "version_conflict/id_taken" {
			t.Errorf("create = %v", err)
		}
	})
	t.Run("into commons without its history", func(t *testing.T) {
		if _, err := move(f.admin(t.Context()), artifact.Commons, false); err != nil {
			t.Fatal(err)
		}
		if a := f.mustGet(t, outsider, ref); a.Scope != artifact.Commons {
			t.Errorf("scope = %s", a.Scope)
		}
		if _, err := verb.Get.Call(outsider, f.verbs, verb.GetRequest{Ref: first.Ref}); code(err) != "not_found" {
			t.Errorf("the first version by an outsider = %v", err)
		}
		f.mustGet(t, ada, first.Ref)
		update := verb.UpdateRequest{Ref: ref.String(), BaseContentHash: first.ContentHash, Title: "x"}
		if _, err := verb.Update.Call(f.member(t.Context(), "eve", verb.Contributor), f.verbs, update); code(err) != "validation_failed/unknown_base" {
			t.Errorf("update from a version that was kept back = %v", err)
		}
		f.checkDigest(t)
		live.until(f.head(t))
		if text := live.rows[len(live.rows)-1]; strings.Contains(strings.Join(live.rows[len(live.rows)-12:], ""), "the first secret") {
			t.Errorf("the first version is in an outsider's feed: %s", text)
		}
	})
	t.Run("retracts links that no scope may hold", func(t *testing.T) {
		in := hypothesis("a1", "x")
		in.Scope = "lab-a"
		a1, err := verb.Create.Call(ada, f.verbs, in)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := verb.Link.Call(ada, f.verbs, verb.LinkRequest{From: a1.Ref.Current().String(), LinkSpec: verb.LinkSpec{Predicate: "contradicts", To: ref.String(), EvidenceRefs: []string{ref.String()}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := move(f.admin(t.Context()), "lab-b", false); err != nil {
			t.Fatal(err)
		}
		if n := f.count(t, "SELECT count(*) FROM link WHERE predicate = 'contradicts'"); n != 0 {
			t.Error("a link joins two private scopes")
		}
		f.checkDigest(t)
	})
	f.checkDense(t)
}

func TestRedact(t *testing.T) {
	f := newHub(t)
	ref := artifact.Ref{Type: "hypothesis", ID: "h1"}
	first := f.mustCreate(t, hypothesis("h1", "the first secret"))
	second, err := verb.Update.Call(contributor(t.Context()), f.verbs, verb.UpdateRequest{
		Ref: ref.String(), BaseContentHash: first.ContentHash, Title: "A secret title", Note: "a secret note",
		Content: content(map[string]any{"statement": "the second secret"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	lost := verb.BatchRequest{IdempotencyKey: uuid.NewString(), Items: []verb.BatchItem{
		{Update: &verb.UpdateRequest{Ref: ref.String(), BaseContentHash: first.ContentHash, MergePatch: json.RawMessage(`{"mechanism":null}`)}},
		{Create: &verb.CreateRequest{Type: "hypothesis", ID: "h2", Title: "t", Content: content(map[string]any{"statement": "s"})}},
	}}
	if out, err := verb.Batch.Call(contributor(t.Context()), f.verbs, lost); err != nil || out.Items[0].Error == nil || !strings.Contains(string(out.Items[0].Error.Conflict.Current.Content), "secret") {
		t.Fatalf("a batch that loses = %+v, %v", out, err)
	}
	url, vic := f.serve(t), f.token(t, "vic", verb.Viewer)
	live, _ := follow(t, url, vic, "cursor=0", plain)
	redact := func(ctx context.Context, n int, dry bool) error {
		in := verb.RedactRequest{Ref: ref.String(), Reason: "names a patient", Revisions: n}
		in.DryRun = dry
		_, err := verb.Redact.Call(ctx, f.verbs, in)
		return err
	}
	if err := redact(contributor(t.Context()), 2, false); code(err) != "permission_denied" {
		t.Errorf("redact by a contributor = %v", err)
	}
	if err := redact(f.admin(t.Context()), 0, false); code(err) != "validation_failed/unconfirmed" {
		t.Errorf("redact without the number = %v", err)
	}
	if err := redact(f.admin(t.Context()), 0, true); err != nil {
		t.Errorf("dry run = %v", err)
	}
	before := f.head(t)
	if err := redact(f.admin(t.Context()), 2, false); err != nil {
		t.Fatal(err)
	}
	for _, r := range []artifact.Ref{ref, first.Ref, second.Ref} {
		a := f.mustGet(t, contributor(t.Context()), r)
		if strings.Contains(a.Title+string(a.Content), "secret") || !strings.Contains(string(a.Redaction), "names a patient") {
			t.Errorf("%s is %s with title %q, redaction %s", r, a.Content, a.Title, a.Redaction)
		}
		if r.IsPinned() && a.ContentHash != r.Hash {
			t.Errorf("%s has hash %s", r, a.ContentHash)
		}
	}
	f.checkDigest(t)
	live.until(f.head(t))
	told := 0
	for _, raw := range live.rows[int(before):] {
		if strings.Contains(raw, "names a patient") && strings.Contains(raw, `"content":{}`) {
			told++
		}
	}
	if told != 2 {
		t.Errorf("%d versions are told of as redacted, want 2", told)
	}
	for _, raw := range live.rows[int(before):] {
		if strings.Contains(raw, "secret") {
			t.Errorf("after the redaction the feed has %s", raw)
		}
	}
	for name, h := range map[string]*fixture{"the ring": f, "the table": newHubOn(t, f.db)} {
		s, _ := follow(t, h.serve(t), h.token(t, "vic", verb.Viewer), "cursor=0", plain)
		s.until(f.head(t))
		if text := strings.Join(s.rows, "\n"); strings.Contains(text, "secret") || s.chain != live.chain {
			t.Errorf("%s still tells of it, or has chain %s and not %s", name, s.chain, live.chain)
		}
	}
	for _, table := range []string{"artifact", "artifact_revision", "feed.change", "event", "idempotency", "write_journal", "search_document", "facet"} {
		if n := f.count(t, "SELECT count(*) FROM "+table+" AS t WHERE t::text LIKE '%secret%'"); n != 0 {
			t.Errorf("%s holds it still", table)
		}
	}
	if out, err := verb.Batch.Call(contributor(t.Context()), f.verbs, lost); err != nil || out.Idempotency != verb.IdempotencyReplayed ||
		out.Items[0].Error.Conflict.Current.Ref != second.Ref || out.Items[0].Error.Conflict.YourBase != first.ContentHash.String() || out.Items[1].Write == nil {
		t.Errorf("the batch again = %+v, %v", out, err)
	}
	if err := redact(f.admin(t.Context()), 2, false); err != nil {
		t.Errorf("redact again = %v, want deduplicated", err)
	}
	for name, in := range map[string]verb.UpdateRequest{"title": {Title: "another"}, "state": {State: "investigating"}} {
		in.Ref, in.BaseContentHash = ref.String(), second.ContentHash
		if _, err := verb.Update.Call(contributor(t.Context()), f.verbs, in); code(err) != "validation_failed" || artifact.AsError(err).Problems[0].Constraint != "redacted" {
			t.Errorf("an update of the %s of what has no content = %v", name, err)
		}
	}
	f.checkDense(t)
}

func TestSignatures(t *testing.T) {
	f := newHub(t)
	in := hypothesis("h1", "x")
	in.AdditionalSignatures = []json.RawMessage{[]byte(`{"b":1,"a":"ed25519:…"}`)}
	made := f.mustCreate(t, in)
	const want = `[{"a":"ed25519:…","b":1}]`
	if got := f.mustGet(t, contributor(t.Context()), made.Ref); string(made.Signatures) != want || string(got.Signatures) != want {
		t.Errorf("signatures are %s and then %s", made.Signatures, got.Signatures)
	}
	in.ID, in.AdditionalSignatures = "h2", slices.Repeat(in.AdditionalSignatures, verb.MaxSignatures+1)
	if _, err := verb.Create.Call(contributor(t.Context()), f.verbs, in); code(err) != "validation_failed" {
		t.Errorf("too many signatures: %v", err)
	}
	f.checkDigest(t)
}

// TestFeedEndsWithRights checks that a stream ends soon after the right to it.
func TestFeedEndsWithRights(t *testing.T) {
	f := twoLabs(t)
	url := f.serve(t)
	end := func(name string, token string, revoke func() error) {
		t.Helper()
		s, _ := follow(t, url, token, "cursor=0", plain)
		s.until(f.head(t))
		begun := time.Now()
		if err := revoke(); err != nil {
			t.Fatal(err)
		}
		for {
			switch r := s.next(); {
			case r.Type == replicate.FrameReset && time.Since(begun) < 2*time.Second:
				return
			case r.Type == replicate.FrameReset || time.Since(begun) > 2*time.Second:
				t.Errorf("%s: after %s %+v", name, time.Since(begun), r)
				return
			}
		}
	}
	end("a membership that ends", f.token(t, "ada", verb.Viewer), func() error {
		_, err := verb.ScopesRevoke.Call(f.admin(t.Context()), f.verbs, verb.ScopesRevokeRequest{Scope: "lab-a", Agent: "ada"})
		return err
	})
	end("a token that is revoked", f.token(t, "bob", verb.Viewer), func() error {
		_, err := verb.TokensRevoke.Call(f.admin(t.Context()), f.verbs, verb.TokensRevokeRequest{Agent: "bob"})
		return err
	})
}

func TestAnonymousRead(t *testing.T) {
	for _, open := range []bool{true, false} {
		f := newHubWith(t, hub.Config{DB: pgtest.New(t, initHub), AnonymousRead: open})
		f.scope(t, "lab-a")
		f.grant(t, "lab-a", "ada", verb.Contributor)
		public := f.mustCreate(t, hypothesis("pub", "x"))
		in := hypothesis("priv", "x")
		in.Scope = "lab-a"
		private, err := verb.Create.Call(f.member(t.Context(), "ada"), f.verbs, in)
		if err != nil {
			t.Fatal(err)
		}
		url := f.serve(t)
		call := func(name, body string) int {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+verb.PathPrefix+name, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp.StatusCode
		}
		for _, c := range []struct {
			verb, body string
			status     int // while it is open
		}{
			{"get", `{"ref":"` + public.Ref.String() + `"}`, http.StatusOK},
			{"list", `{}`, http.StatusOK},
			{"schema", `{}`, http.StatusOK},
			{"get", `{"ref":"` + private.Ref.String() + `"}`, http.StatusNotFound},
			{"create", `{"type":"gene","title":"x","content":{"symbol":"X"}}`, http.StatusUnauthorized},
			{"tokens/revoke", `{"agent":"anonymous"}`, http.StatusUnauthorized},
			{"agents/update", `{"title":"x"}`, http.StatusUnauthorized},
			{"nodes/list", `{}`, http.StatusForbidden},
		} {
			want := http.StatusUnauthorized
			if open {
				want = c.status
			}
			if got := call(c.verb, c.body); got != want {
				t.Errorf("open %v: %s without a token = %d, want %d", open, c.verb, got, want)
			}
		}
		if status, _ := getError(t, url+"/feed", ""); status != http.StatusUnauthorized {
			t.Errorf("open %v: the feed without a token = %d", open, status)
		}
	}
}

// TestSecret checks that HS256 is for hubs that are given a secret, and for no
// node.
func TestSecret(t *testing.T) {
	secret := []byte("a secret of thirty-two bytes or more")
	c := verb.Claims{ActorKind: "human", Permissions: []string{verb.Viewer}, RegisteredClaims: jwt.RegisteredClaims{
		ID: "t", Subject: "ada", Audience: jwt.ClaimStrings{verb.Audience},
		IssuedAt: jwt.NewNumericDate(time.Now()), ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour)),
	}}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, &c).SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	with := newHubWith(t, hub.Config{DB: pgtest.New(t, initHub), Secret: secret})
	if _, err := with.Verifier().Verify(t.Context(), token); err != nil {
		t.Errorf("a hub with the secret: %v", err)
	}
	without := newHubOn(t, with.db)
	if _, err := without.Verifier().Verify(t.Context(), token); code(err) != "permission_denied/unauthenticated" {
		t.Errorf("a hub without it: %v", err)
	}
	if _, err := hub.Open(t.Context(), hub.Config{DB: with.db, Secret: secret[:31]}); err == nil {
		t.Error("a hub opens with a short secret")
	}
}

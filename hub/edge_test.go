package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

func linkOf(c context.Context, t *testing.T, f *fixture, from, predicate, to string) string {
	t.Helper()
	out, err := verb.Link.Call(c, f.verbs, verb.LinkRequest{From: from, LinkSpec: verb.LinkSpec{Predicate: predicate, To: to}})
	if err != nil {
		t.Fatalf("link %s to %s: %v", from, to, err)
	}
	return out.Ref
}

func voteOn(c context.Context, t *testing.T, f *fixture, ref string) string {
	t.Helper()
	out, err := verb.Signal.Call(c, f.verbs, verb.SignalRequest{Ref: ref, Kind: "vote", Value: "1"})
	if err != nil {
		t.Fatalf("vote on %s: %v", ref, err)
	}
	return out.Ref
}

func remarkOn(c context.Context, t *testing.T, f *fixture, ref, body, answers string) string {
	t.Helper()
	out, err := verb.Comment.Call(c, f.verbs, verb.CommentRequest{Ref: ref, Body: body, ThreadParent: answers})
	if err != nil {
		t.Fatalf("comment on %s: %v", ref, err)
	}
	return out.Ref.Current().String()
}

// onQuery counts links of a comment to what it is on.
const onQuery = `
	SELECT count(*) FROM link WHERE from_type || ':' || from_id = $1 AND predicate = 'comments_on' AND to_ref = $2 AND to_type = split_part($2, ':', 1) AND to_type || ':' || to_id = $2`

// TestCommentOnLinksAndSignals: links and signals are commented on as artifacts are.
func TestCommentOnLinksAndSignals(t *testing.T) {
	f := twoLabs(t)
	ada, bob := f.member(t.Context(), "ada", verb.Contributor), f.member(t.Context(), "bob", verb.Contributor)
	secret := hypothesis("s", "for lab A")
	secret.Scope = "lab-a"
	if _, err := verb.Create.Call(ada, f.verbs, secret); err != nil {
		t.Fatal(err)
	}
	f.mustCreate(t, hypothesis("a", "x"))
	f.mustCreate(t, hypothesis("b", "x"))
	link, vote := linkOf(ada, t, f, "hypothesis:a", "supports", "hypothesis:b"), voteOn(ada, t, f, "hypothesis:a")
	hidden, hiddenVote := linkOf(ada, t, f, "hypothesis:lab-a/s", "supports", "hypothesis:b"), voteOn(ada, t, f, "hypothesis:lab-a/s")

	for ref, scope := range map[string]string{link: "commons", vote: "commons", hidden: "lab-a", hiddenVote: "lab-a"} {
		comment := remarkOn(ada, t, f, ref, "is this so?", "")
		answer := remarkOn(ada, t, f, ref, "it is", comment)
		for _, c := range []string{comment, answer} {
			if f.count(t, onQuery, c, ref) != 1 || f.count(t, "SELECT count(*) FROM artifact WHERE type || ':' || id = $1 AND scope = $2", c, scope) != 1 {
				t.Errorf("%s is not on %s in %s", c, ref, scope)
			}
		}
		typ, _, _ := strings.Cut(ref, ":")
		if n := f.count(t, "SELECT count(*) FROM event WHERE type = $1 AND ref = $2 AND scope = $3", typ+".commented", ref, scope); n != 2 {
			t.Errorf("%d events tell of comments on %s, want 2", n, ref)
		}
		if _, err := verb.Comment.Call(ada, f.verbs, verb.CommentRequest{Ref: "hypothesis:a", Body: "elsewhere", ThreadParent: comment}); code(err) != "validation_failed" {
			t.Errorf("an answer on something else = %v", err)
		}
	}
	t.Run("in a narrower scope, not in a wider one", func(t *testing.T) {
		if _, err := verb.Comment.Call(ada, f.verbs, verb.CommentRequest{Ref: link, Body: "between us", Scope: "lab-a"}); err != nil {
			t.Error(err)
		}
		if _, err := verb.Comment.Call(ada, f.verbs, verb.CommentRequest{Ref: hidden, Body: "aloud", Scope: artifact.Commons}); code(err) != "validation_failed" {
			t.Errorf("a comment in commons on a link of a lab = %v", err)
		}
	})
	t.Run("what one may not see is as if it were not there", func(t *testing.T) {
		for _, pair := range [][2]string{{hidden, "kg_edge:k-none"}, {hiddenVote, "signal:s-none"}} {
			for name, call := range edgeWrites(bob, f) {
				was, want := call(pair[0]), call(pair[1])
				if was == nil || want == nil || strings.ReplaceAll(was.Error(), pair[0], "x") != strings.ReplaceAll(want.Error(), pair[1], "x") || code(was) == "mutability_violation/not_updated" {
					t.Errorf("%s of %s = %v, of nothing %v", name, pair[0], was, want)
				}
			}
		}
	})
	t.Run("they are written once", func(t *testing.T) {
		root := f.member(t.Context(), "ada", verb.Contributor, verb.Admin)
		for _, ref := range []string{link, vote} {
			for name, call := range edgeWrites(root, f) {
				err := call(ref)
				if name == "comment" || name == "link" {
					if err != nil {
						t.Errorf("%s of %s = %v", name, ref, err)
					}
					continue
				}
				if code(err) != "mutability_violation/not_updated" || artifact.AsError(err).Details["allowed_verbs"] == nil {
					t.Errorf("%s of %s = %v", name, ref, err)
				}
			}
		}
		for _, ref := range []string{link, vote, hidden, "signal:s-none"} {
			if _, err := verb.Supersede.Call(ada, f.verbs, verb.SupersedeRequest{Ref: "hypothesis:b", ReplacementRef: ref, Reason: "r"}); code(err) != "validation_failed" {
				t.Errorf("an artifact replaced by %s = %v", ref, err)
			}
		}
		if _, err := verb.Link.Call(ada, f.verbs, verb.LinkRequest{From: link, LinkSpec: verb.LinkSpec{Predicate: "supports", To: "hypothesis:a"}}); code(err) != "validation_failed" {
			t.Errorf("a link from a link = %v", err)
		}
	})
	t.Run("a comment outlives the link that it is on", func(t *testing.T) {
		comment := remarkOn(ada, t, f, link, "take it back", "")
		for _, ref := range []string{link, vote} { // by their one version too
			typ, id, _ := strings.Cut(ref, ":")
			remarkOn(ada, t, f, f.mustGet(t, ada, artifact.Ref{Type: typ, ID: id}).Ref.String(), "as it is said", "")
		}
		f.mustBeWhole(t)
		if _, err := verb.Unlink.Call(ada, f.verbs, verb.UnlinkRequest{Ref: link, Reason: "wrong"}); err != nil {
			t.Fatal(err)
		}
		if f.count(t, onQuery, comment, link) != 1 {
			t.Error("the comment's link is gone")
		}
		if _, err := verb.Comment.Call(ada, f.verbs, verb.CommentRequest{Ref: link, Body: "too late"}); code(err) != "not_found" {
			t.Errorf("a comment on a link that is taken back = %v", err)
		}
		if _, err := verb.Unlink.Call(ada, f.verbs, verb.UnlinkRequest{From: comment, Predicate: "comments_on", To: link, Reason: "so is this"}); err != nil {
			t.Errorf("the comment's link cannot be taken back: %v", err)
		}
	})
	f.checkScopes(t)
	f.checkDigest(t)
	f.mustBeWhole(t)
}

// edgeWrites are writes that name a ref.
func edgeWrites(c context.Context, f *fixture) map[string]func(ref string) error {
	base := artifact.HashBytes([]byte("x"))
	return map[string]func(ref string) error{
		"comment": func(ref string) error {
			_, err := verb.Comment.Call(c, f.verbs, verb.CommentRequest{Ref: ref, Body: "x"})
			return err
		},
		"link": func(ref string) error {
			made, err := verb.Comment.Call(c, f.verbs, verb.CommentRequest{Ref: "hypothesis:b", Body: "x"})
			if err == nil {
				_, err = verb.Link.Call(c, f.verbs, verb.LinkRequest{From: made.Ref.Current().String(), LinkSpec: verb.LinkSpec{Predicate: "comments_on", To: ref}})
			}
			return err
		},
		"update": func(ref string) error {
			_, err := verb.Update.Call(c, f.verbs, verb.UpdateRequest{Ref: ref, Title: "T", BaseContentHash: base})
			return err
		},
		"supersede": func(ref string) error {
			_, err := verb.Supersede.Call(c, f.verbs, verb.SupersedeRequest{Ref: ref, Reason: "r"})
			return err
		},
		"signal": func(ref string) error {
			_, err := verb.Signal.Call(c, f.verbs, verb.SignalRequest{Ref: ref, Kind: "vote", Value: "1"})
			return err
		},
		"redact": func(ref string) error {
			_, err := verb.Redact.Call(c, f.verbs, verb.RedactRequest{Ref: ref, Reason: "r", Revisions: 1})
			return err
		},
		"move": func(ref string) error {
			_, err := verb.Move.Call(c, f.verbs, verb.MoveRequest{Ref: ref, Scope: artifact.Commons, BaseContentHash: base, Reason: "r"})
			return err
		},
	}
}

// TestBatchOnEdges: items are about links and signals that others make, or find there.
func TestBatchOnEdges(t *testing.T) {
	f := newHub(t)
	f.mustCreate(t, hypothesis("a", "x"))
	f.mustCreate(t, hypothesis("b", "x"))
	for round := range 3 { // what the first makes the others find
		var items []verb.BatchItem
		add := func(alias string, it verb.BatchItem) {
			it.RefAlias = alias
			items = append(items, it)
		}
		add("l", verb.BatchItem{Link: &verb.LinkRequest{From: "hypothesis:a", LinkSpec: verb.LinkSpec{Predicate: "supports", To: "hypothesis:b"}}})
		add("v", verb.BatchItem{Signal: &verb.SignalRequest{Ref: "hypothesis:a", Kind: "vote", Value: "1"}})
		add("c", verb.BatchItem{Comment: &verb.CommentRequest{Ref: "@l", Body: "x"}})
		add("", verb.BatchItem{Comment: &verb.CommentRequest{Ref: "@l", Body: "y", ThreadParent: "@c"}})
		add("", verb.BatchItem{Comment: &verb.CommentRequest{Ref: "@v", Body: "z"}})
		add("", verb.BatchItem{Update: &verb.UpdateRequest{Ref: "@l", Title: "T"}})
		add("", verb.BatchItem{Signal: &verb.SignalRequest{Ref: "@v", Kind: "vote", Value: "1"}})
		add("n", verb.BatchItem{Link: &verb.LinkRequest{From: "comment:c", LinkSpec: verb.LinkSpec{Predicate: "comments_on", To: "@l"}}})
		add("", verb.BatchItem{Link: &verb.LinkRequest{From: "comment:c", LinkSpec: verb.LinkSpec{Predicate: "comments_on", To: "@n"}}})
		add("", verb.BatchItem{Supersede: &verb.SupersedeRequest{Ref: "hypothesis:b", ReplacementRef: "@l", Reason: "r"}})
		add("", verb.BatchItem{Supersede: &verb.SupersedeRequest{Ref: "hypothesis:b", ReplacementRef: "@v", Reason: "r"}})
		if round == 2 {
			add("", verb.BatchItem{Unlink: &verb.UnlinkRequest{Ref: "@l", Reason: "r"}})
			add("", verb.BatchItem{Comment: &verb.CommentRequest{Ref: "@l", Body: "gone"}})
		}
		if round == 0 {
			if _, err := verb.Create.Call(contributor(t.Context()), f.verbs, verb.CreateRequest{Type: "comment", ID: "c", Title: "T", Content: content(map[string]any{"markdown": "x"})}); err != nil {
				t.Fatal(err)
			}
		}
		out := f.batchOf(t, false, items...)
		want := []string{"", "", "", "", "", "mutability_violation/not_updated", "mutability_violation/not_updated", "", "", "validation_failed", "validation_failed", "", "not_found"}
		for i, r := range out.Items {
			var err error
			if r.Error != nil {
				err = r.Error
			}
			if code(err) != want[i] {
				t.Errorf("round %d, item %d = %v, want %q", round, i, err, want[i])
			}
		}
	}
	for query, want := range map[string]int{
		"SELECT count(*) FROM link WHERE from_id = 'c' AND to_type = 'kg_edge'":                                2,
		"SELECT count(*) FROM link WHERE from_id <> 'c' AND to_type = 'kg_edge' AND predicate = 'comments_on'": 6,
		"SELECT count(*) FROM link WHERE to_type = 'signal' AND predicate = 'comments_on'":                     3,
		"SELECT count(*) FROM link WHERE predicate = 'supports'":                                               0,
	} {
		if n := f.count(t, query); n != want {
			t.Errorf("%s = %d, want %d", query, n, want)
		}
	}
	f.checkDigest(t)
}

// TestMoveTakesRemarks: comments on an artifact's links and signals go where those go,
// and nobody reads of what is private by what stays.
func TestMoveTakesRemarks(t *testing.T) {
	f := twoLabs(t)
	f.grant(t, "lab-a", "root", verb.Admin, verb.Contributor)
	f.grant(t, "lab-b", "root", verb.Admin, verb.Contributor)
	root := f.member(t.Context(), "root", verb.Admin, verb.Contributor)
	a := f.mustCreate(t, hypothesis("a", "x"))
	b := f.mustCreate(t, hypothesis("b", "x"))
	link, vote := linkOf(root, t, f, "hypothesis:a", "supports", "hypothesis:b"), voteOn(root, t, f, "hypothesis:a")
	onLink, onVote := remarkOn(root, t, f, link, "x", ""), remarkOn(root, t, f, vote, "x", "")
	answer := remarkOn(root, t, f, link, "y", onLink)
	of := linkOf(root, t, f, onLink, "comments_on", link) // it is there
	nested := remarkOn(root, t, f, of, "on the remark's link", "")
	apart, err := verb.Comment.Call(f.member(t.Context(), "bob", verb.Contributor), f.verbs, verb.CommentRequest{Ref: link, Body: "lab B thinks", Scope: "lab-b"})
	if err != nil {
		t.Fatal(err)
	}
	bobs := apart.Ref.Current().String()
	move := func(w verb.WriteResult, to string) {
		t.Helper()
		if _, err := verb.Move.Call(root, f.verbs, verb.MoveRequest{Ref: w.Ref.Current().String(), Scope: to, BaseContentHash: w.ContentHash, Reason: "r", WithHistory: true}); err != nil {
			t.Fatal(err)
		}
		f.checkScopes(t)
		f.checkEdgeScopes(t)
		f.checkDigest(t)
	}
	in := func(scope string, refs ...string) {
		t.Helper()
		for _, ref := range refs {
			if f.count(t, "SELECT count(*) FROM artifact WHERE type || ':' || id = $1 AND scope = $2", ref, scope) != 1 {
				t.Errorf("%s is not in %s", ref, scope)
			}
		}
	}
	move(a, "lab-a")
	in("lab-a", onLink, onVote, answer, nested)
	in("lab-b", bobs)
	if f.count(t, onQuery, bobs, link) != 0 {
		t.Error("lab B has a link to a link of lab A")
	}
	if f.count(t, onQuery, onLink, link)+f.count(t, onQuery, onVote, vote)+f.count(t, onQuery, nested, of) != 3 {
		t.Error("comments lost what they are on")
	}
	move(b, "lab-a")
	in("lab-a", onLink, answer, nested)
	move(a, artifact.Commons) // the link stays in lab-a, as b does
	in("lab-a", onLink, answer, nested)
	in(artifact.Commons, onVote)
	move(b, artifact.Commons)
	in(artifact.Commons, onLink, onVote, answer, nested)
	move(b, "lab-b")
	in("lab-b", onLink, answer, nested)
	in(artifact.Commons, onVote)
}

// checkEdgeScopes checks that nothing about a link or a signal is seen by more than
// see that.
func (f *fixture) checkEdgeScopes(t *testing.T) {
	t.Helper()
	const query = `
		SELECT count(*) FROM link l JOIN (SELECT 'kg_edge:' || id AS ref, scope FROM link UNION ALL SELECT 'signal:' || id, scope FROM signal) e ON l.to_type || ':' || l.to_id = e.ref
		JOIN artifact a ON a.type = l.from_type AND a.id = l.from_id
		WHERE e.scope <> 'commons' AND (l.scope <> e.scope OR a.scope <> e.scope) OR l.scope <> CASE WHEN a.scope = 'commons' THEN e.scope ELSE a.scope END`
	if n := f.count(t, query); n != 0 {
		t.Errorf("%d links to links or signals are seen by more than see those", n)
	}
}

// TestRemarkRaces comments on links and signals, on two hubs, while those are taken
// back and moved.
func TestRemarkRaces(t *testing.T) {
	f := twoLabs(t)
	other := newHubOn(t, f.db)
	f.grant(t, "lab-a", "root", verb.Admin, verb.Contributor)
	eventually(t, "the other hub knows the member", func() bool { return len(other.Verifier().Access.Roles("root")) == 1 })
	made := []verb.WriteResult{f.mustCreate(t, hypothesis("h0", "x")), f.mustCreate(t, hypothesis("h1", "x")), f.mustCreate(t, hypothesis("h2", "x"))}
	const things = 3
	var mu sync.Mutex
	var edges []string // guarded by mu
	some := func(i int) string {
		mu.Lock()
		defer mu.Unlock()
		if len(edges) == 0 {
			return "kg_edge:k-none"
		}
		return edges[len(edges)-1-i%min(len(edges), 6)]
	}
	ctx, stop := context.WithTimeout(t.Context(), 6*time.Second)
	defer stop()
	var wg sync.WaitGroup
	done := make(map[string]int) // guarded by mu
	run := func(name string, h *fixture, act func(c context.Context, i int) (string, error)) {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				ref, err := act(h.member(t.Context(), "root", verb.Admin, verb.Contributor), i)
				if e := artifact.AsError(err); err != nil && (e.Code == artifact.CodeInternal || e.Code == artifact.CodeUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", name, err)
					return
				}
				mu.Lock()
				if err == nil {
					done[name]++
				}
				if ref != "" {
					edges = append(edges, ref)
				}
				mu.Unlock()
			}
		})
	}
	for n, h := range []*fixture{f, other} {
		run("move", h, func(c context.Context, i int) (string, error) {
			w := made[(i+n)%things]
			_, err := verb.Move.Call(c, h.verbs, verb.MoveRequest{Ref: w.Ref.Current().String(), Scope: []string{"lab-a", artifact.Commons}[i/things%2], BaseContentHash: w.ContentHash, Reason: "race"})
			return "", err
		})
		run("link", h, func(c context.Context, i int) (string, error) {
			out, err := verb.Link.Call(c, h.verbs, verb.LinkRequest{From: fmt.Sprintf("hypothesis:h%d", i%things), LinkSpec: verb.LinkSpec{Predicate: "supports", To: fmt.Sprintf("hypothesis:h%d", (i+1)%things)}})
			return out.Ref, err
		})
		run("vote", h, func(c context.Context, i int) (string, error) {
			out, err := verb.Signal.Call(c, h.verbs, verb.SignalRequest{Ref: fmt.Sprintf("hypothesis:h%d", i%things), Kind: "vote", Value: json.Number([]string{"1", "-1"}[i/7%2])})
			return out.Ref, err
		})
		run("unlink", h, func(c context.Context, i int) (string, error) {
			if i%4 != 0 {
				return "", nil
			}
			_, err := verb.Unlink.Call(c, h.verbs, verb.UnlinkRequest{Ref: some(i), Reason: "race"})
			return "", err
		})
		run("comment", h, func(c context.Context, i int) (string, error) {
			_, err := verb.Comment.Call(c, h.verbs, verb.CommentRequest{Ref: some(i), Body: "a remark"})
			return "", err
		})
		run("batch", h, func(c context.Context, i int) (string, error) {
			_, err := verb.Batch.Call(c, h.verbs, verb.BatchRequest{Items: []verb.BatchItem{
				{RefAlias: "l", Link: &verb.LinkRequest{From: fmt.Sprintf("hypothesis:h%d", i%things), LinkSpec: verb.LinkSpec{Predicate: "supports", To: fmt.Sprintf("hypothesis:h%d", (i+1)%things)}}},
				{Comment: &verb.CommentRequest{Ref: "@l", Body: "a remark"}},
				{Comment: &verb.CommentRequest{Ref: some(i), Body: "a remark"}},
				{Comment: &verb.CommentRequest{Ref: some(i + 3), Body: "a remark"}},
				{Unlink: &verb.UnlinkRequest{Ref: some(i + 1), Reason: "race"}},
			}})
			return "", err
		})
	}
	wg.Wait()
	for _, name := range []string{"move", "link", "vote", "unlink", "comment", "batch"} {
		if done[name] < 3 {
			t.Errorf("%s was done %d times: the test tests little", name, done[name])
		}
	}
	t.Log(done)
	if n := f.count(t, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	f.checkScopes(t)
	f.checkEdgeScopes(t)
	f.checkDigest(t)
}

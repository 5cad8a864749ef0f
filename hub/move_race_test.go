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
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// checkScopes checks what must hold of links, comments and signals whatever was
// moved.
func (f *fixture) checkScopes(t *testing.T) {
	t.Helper()
	for what, query := range map[string]string{
		"links in another scope than the narrower of their ends'": `
			SELECT count(*) FROM link l JOIN artifact a ON a.type = l.from_type AND a.id = l.from_id JOIN artifact b ON b.type = l.to_type AND b.id = l.to_id
			WHERE l.scope <> CASE WHEN a.scope = 'commons' THEN b.scope ELSE a.scope END OR a.scope <> 'commons' AND b.scope <> 'commons' AND a.scope <> b.scope`,
		"comments in a wider scope than what they are on": `
			SELECT count(*) FROM link l JOIN artifact a ON a.type = l.from_type AND a.id = l.from_id JOIN artifact b ON b.type = l.to_type AND b.id = l.to_id
			WHERE l.predicate IN ('comments_on', 'replies_to') AND b.scope <> 'commons' AND a.scope <> b.scope`,
		"signals in another scope than their target's": `
			SELECT count(*) FROM signal s JOIN artifact a ON a.type = s.type AND a.id = s.artifact WHERE s.scope <> a.scope`,
		"heads in another scope than their version": `
			SELECT count(*) FROM artifact a JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision WHERE r.scope <> a.scope`,
	} {
		if n := f.count(t, query); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
	f.checkDense(t)
	// Each follower's rows lead to the hub's digest, from the start.
	scopes := []string{artifact.Commons, "lab-a", "lab-b"}
	head := f.head(t)
	reader, _, err := f.Open(t.Context(), replicate.Position{}, scopes)
	if err != nil {
		t.Fatal(err)
	}
	sums := make(replicate.Sums)
	for at := artifact.Seq(0); int64(at) < int64(head); {
		page, err := reader.Next(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range page.Rows {
			r := decodeRow(t, raw)
			sums.Apply(&r, false)
		}
		at = page.To
	}
	want, err := f.Digest(t.Context(), scopes, head)
	if err != nil {
		t.Fatal(err)
	}
	if diff := sums.Digest(head).Diff(want); diff != nil {
		t.Errorf("followers differ from the hub: %s", strings.Join(diff, "; "))
	}
}

// TestMoveRaces moves artifacts to and fro, on two hubs, while others link,
// comment, signal, update and redact.
func TestMoveRaces(t *testing.T) {
	f := twoLabs(t)
	other := newHubOn(t, f.db)
	for _, lab := range []string{"lab-a", "lab-b"} {
		f.grant(t, lab, "root", verb.Admin, verb.Contributor)
	}
	eventually(t, "the other hub knows the members", func() bool {
		return len(other.Verifier().Access.Roles("root")) == 2
	})
	const things = 5
	ref := func(i int) string { return fmt.Sprintf("hypothesis:h%d", i%things) }
	for i := range things {
		f.mustCreate(t, hypothesis(fmt.Sprintf("h%d", i), "x"))
	}
	ctx, stop := context.WithTimeout(t.Context(), 6*time.Second)
	defer stop()
	var wg sync.WaitGroup
	run := func(name string, h *fixture, act func(c context.Context, i int) error) {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				err := act(h.member(t.Context(), "root", verb.Admin, verb.Contributor), i)
				if e := artifact.AsError(err); err != nil && e.Code == artifact.CodeInternal && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}
	current := func(c context.Context, h *fixture, r string) artifact.Hash {
		parsed, err := artifact.ParseRef(r)
		if err != nil {
			t.Error(err)
		}
		got, err := verb.Get.Call(c, h.verbs, verb.GetRequest{Ref: parsed})
		if err != nil {
			t.Error(err)
		}
		return got.Artifact.ContentHash
	}
	for n, h := range []*fixture{f, other} {
		run("move", h, func(c context.Context, i int) error {
			to := []string{"lab-a", "lab-b", artifact.Commons}[(i+n)%3]
			_, err := verb.Move.Call(c, h.verbs, verb.MoveRequest{Ref: ref(i), Scope: to, BaseContentHash: current(c, h, ref(i)), Reason: "race", WithHistory: i%2 == 0})
			return err
		})
		run("link", h, func(c context.Context, i int) error {
			_, err := verb.Link.Call(c, h.verbs, verb.LinkRequest{From: ref(i), LinkSpec: verb.LinkSpec{Predicate: "contradicts", To: ref(i + 1 + i/things%(things-1)), EvidenceRefs: []string{ref(i)}}})
			return err
		})
		run("unlink", h, func(c context.Context, i int) error {
			_, err := verb.Unlink.Call(c, h.verbs, verb.UnlinkRequest{From: ref(i), Predicate: "contradicts", To: ref(i + 1 + i/things%(things-1)), Reason: "race"})
			return err
		})
		run("comment", h, func(c context.Context, i int) error {
			out, err := verb.Comment.Call(c, h.verbs, verb.CommentRequest{Ref: ref(i), Body: "a remark"})
			if err != nil {
				return err
			}
			_, err = verb.Comment.Call(c, h.verbs, verb.CommentRequest{Ref: ref(i), Body: "an answer", ThreadParent: out.Ref.Current().String()})
			return err
		})
		run("signal", h, func(c context.Context, i int) error {
			_, err := verb.Signal.Call(c, h.verbs, verb.SignalRequest{Ref: ref(i), Kind: "vote", Value: json.Number([]string{"1", "-1"}[i/7%2])})
			return err
		})
	}
	run("update", f, func(c context.Context, i int) error {
		_, err := verb.Update.Call(c, f.verbs, verb.UpdateRequest{Ref: ref(i), BaseContentHash: current(c, f, ref(i)), Title: fmt.Sprint("title ", i)})
		return err
	})
	run("redact", other, func(c context.Context, i int) error {
		if i%10 != 0 {
			return nil
		}
		n := other.count(t, "SELECT count(*) FROM artifact_revision WHERE type || ':' || id = $1 AND redaction IS NULL", ref(i))
		_, err := verb.Redact.Call(c, other.verbs, verb.RedactRequest{Ref: ref(i), Reason: "race", Revisions: n})
		return err
	})
	wg.Wait()
	f.checkScopes(t)
	f.checkDigest(t)
	newHubOn(t, f.db).checkScopes(t) // from the table
	if n := f.count(t, "SELECT count(*) FROM feed.change WHERE event_type LIKE '%.moved'"); n < 10 {
		t.Errorf("only %d moves", n)
	}
}

// TestMoveTwice checks that nothing of what moved on, or was redacted since, is told
// by the rows of a scope that it came through.
func TestMoveTwice(t *testing.T) {
	f := twoLabs(t)
	for _, lab := range []string{"lab-a", "lab-b"} {
		f.grant(t, lab, "root", verb.Admin)
	}
	ada := f.member(t.Context(), "ada", verb.Contributor)
	create := func(id string) verb.WriteResult {
		in := hypothesis(id, "the secret of "+id)
		in.Scope = "lab-a"
		out, err := verb.Create.Call(ada, f.verbs, in)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	move := func(w verb.WriteResult, to string) {
		t.Helper()
		if _, err := verb.Move.Call(f.admin(t.Context()), f.verbs, verb.MoveRequest{Ref: w.Ref.Current().String(), Scope: to, BaseContentHash: w.ContentHash, Reason: "r"}); err != nil {
			t.Fatal(err)
		}
	}
	through, redacted := create("through"), create("redacted")
	move(through, artifact.Commons)
	move(through, "lab-b")
	move(redacted, artifact.Commons)
	redact := func(n int) {
		t.Helper()
		if _, err := verb.Redact.Call(f.admin(t.Context()), f.verbs, verb.RedactRequest{Ref: redacted.Ref.Current().String(), Reason: "r", Revisions: n}); err != nil {
			t.Fatal(err)
		}
	}
	redact(1)
	if _, err := verb.Update.Call(ada, f.verbs, verb.UpdateRequest{Ref: redacted.Ref.Current().String(), BaseContentHash: redacted.ContentHash, Content: content(map[string]any{"statement": "the second secret"})}); err != nil {
		t.Fatal(err)
	}
	redact(1)
	for name, h := range map[string]*fixture{"the ring": f, "the table": newHubOn(t, f.db)} {
		s, _ := follow(t, h.serve(t), h.token(t, "ada", verb.Viewer), "cursor=0", plain)
		s.until(f.head(t))
		versions := 0
		for _, raw := range s.rows {
			if strings.Contains(raw, "secret") {
				t.Errorf("%s tells a member of lab-a: %.200s", name, raw)
			}
			if strings.Contains(raw, `"kind":"revision"`) && strings.Contains(raw, `"content":{}`) {
				versions++
			}
		}
		if versions != 2 {
			t.Errorf("%s tells of %d redacted versions, want 2", name, versions)
		}
		h.checkScopes(t)
	}
	t.Run("a redaction takes an admin of all scopes of its versions", func(t *testing.T) {
		first := create("split")
		second, err := verb.Update.Call(ada, f.verbs, verb.UpdateRequest{Ref: first.Ref.Current().String(), BaseContentHash: first.ContentHash, Title: "Two"})
		if err != nil {
			t.Fatal(err)
		}
		move(second, artifact.Commons)
		_, err = verb.Redact.Call(f.member(t.Context(), "eve", verb.Admin), f.verbs, verb.RedactRequest{Ref: first.Ref.Current().String(), Reason: "r", Revisions: 2})
		if code(err) != "permission_denied" {
			t.Errorf("redact by an admin of commons alone = %v", err)
		}
		t.Run("and a link to a version that stayed does not go along", func(t *testing.T) {
			third := create("linked")
			fourth, err := verb.Update.Call(ada, f.verbs, verb.UpdateRequest{Ref: third.Ref.Current().String(), BaseContentHash: third.ContentHash, Title: "Two"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := verb.Link.Call(ada, f.verbs, verb.LinkRequest{From: second.Ref.Current().String(), LinkSpec: verb.LinkSpec{Predicate: "supports", To: third.Ref.String()}}); err != nil {
				t.Fatal(err)
			}
			move(fourth, artifact.Commons)
			if n := f.count(t, "SELECT count(*) FROM link WHERE to_ref = $1", third.Ref.String()); n != 0 {
				t.Error("a link in commons names a version that stayed in lab-a")
			}
		})
	})
	t.Run("evidence is where all see it who see the link", func(t *testing.T) {
		f.mustCreate(t, hypothesis("open1", "x"))
		f.mustCreate(t, hypothesis("open2", "x"))
		hidden := create("evidence")
		_, err := verb.Link.Call(ada, f.verbs, verb.LinkRequest{From: "hypothesis:open1", LinkSpec: verb.LinkSpec{Predicate: "supports", To: "hypothesis:open2", EvidenceRefs: []string{hidden.Ref.Current().String()}}})
		if e := artifact.AsError(err); e.Code != artifact.CodeValidationFailed || e.Problems[0].Path != "/evidence_refs/0" {
			t.Errorf("link = %v", err)
		}
	})
}

func decodeRow(t *testing.T, raw []byte) (r replicate.Row) {
	t.Helper()
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestMoveUnlinkRace moves one artifact to and fro while its links are made and
// taken back on another hub.
func TestMoveUnlinkRace(t *testing.T) {
	f := twoLabs(t)
	other := newHubOn(t, f.db)
	f.grant(t, "lab-a", "root", verb.Admin, verb.Contributor)
	eventually(t, "the other hub knows the member", func() bool { return len(other.Verifier().Access.Roles("root")) == 1 })
	moved := f.mustCreate(t, hypothesis("m", "x"))
	ctx, stop := context.WithTimeout(t.Context(), 4*time.Second)
	defer stop()
	var wg sync.WaitGroup
	for n := range 2 {
		f.mustCreate(t, hypothesis(fmt.Sprint("n", n), "x"))
		wg.Go(func() {
			for ctx.Err() == nil {
				c := other.member(t.Context(), "root", verb.Contributor)
				link, err := verb.Link.Call(c, other.verbs, verb.LinkRequest{From: fmt.Sprint("hypothesis:n", n), LinkSpec: verb.LinkSpec{Predicate: "supports", To: "hypothesis:m"}})
				if err == nil {
					_, err = verb.Unlink.Call(c, other.verbs, verb.UnlinkRequest{Ref: link.Ref, Reason: "race"})
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := 0; ctx.Err() == nil; i++ {
		to := []string{"lab-a", artifact.Commons}[i%2]
		if _, err := verb.Move.Call(f.member(t.Context(), "root", verb.Admin), f.verbs, verb.MoveRequest{Ref: "hypothesis:m", Scope: to, BaseContentHash: moved.ContentHash, Reason: "race"}); err != nil {
			t.Error(err)
			break
		}
	}
	wg.Wait()
	f.checkScopes(t)
	f.checkDigest(t)
}

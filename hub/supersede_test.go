package hub_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

func (f *fixture) supersede(t *testing.T, in verb.SupersedeRequest) (verb.WriteResult, error) {
	t.Helper()
	in.Reason = "outdated"
	return verb.Supersede.Call(contributor(t.Context()), f.verbs, in)
}

func TestSupersede(t *testing.T) {
	f := newHub(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		f.mustCreate(t, hypothesis(id, "x"))
	}
	ref := func(id string) string { return "hypothesis:" + id }
	get := func(id string) artifact.Artifact {
		return f.mustGet(t, contributor(t.Context()), artifact.Ref{Type: "hypothesis", ID: id})
	}
	t.Run("by one that is there", func(t *testing.T) {
		before := get("a")
		out, err := f.supersede(t, verb.SupersedeRequest{Ref: ref("a"), ReplacementRef: ref("b"), BaseContentHash: &before.ContentHash})
		if err != nil || out.SupersededBy != ref("b") || out.Ref != before.Ref {
			t.Fatalf("supersede = %+v, %v", out, err)
		}
		if a := get("a"); a.IsLatest || a.SupersededBy != ref("b") || string(a.Content) != string(before.Content) || a.Revision != before.Revision {
			t.Errorf("afterwards it is %+v", a)
		}
		list, err := verb.List.Call(contributor(t.Context()), f.verbs, verb.ListRequest{Type: "hypothesis"})
		if err != nil || len(list.Artifacts) != 3 {
			t.Errorf("%d are listed, %v", len(list.Artifacts), err)
		}
		again, err := f.supersede(t, verb.SupersedeRequest{Ref: ref("a"), ReplacementRef: ref("b")})
		if err != nil || again.Idempotency != verb.IdempotencyDeduplicated {
			t.Errorf("again = %+v, %v", again, err)
		}
		if _, err := f.supersede(t, verb.SupersedeRequest{Ref: ref("a"), ReplacementRef: ref("c")}); code(err) != "version_conflict/superseded" {
			t.Errorf("by another = %v", err)
		}
	})
	t.Run("never in a circle", func(t *testing.T) {
		if _, err := f.supersede(t, verb.SupersedeRequest{Ref: ref("b"), ReplacementRef: ref("b")}); code(err) != "validation_failed" {
			t.Errorf("by itself = %v", err)
		}
		if _, err := f.supersede(t, verb.SupersedeRequest{Ref: ref("b"), ReplacementRef: ref("c")}); err != nil {
			t.Fatal(err)
		}
		_, err := f.supersede(t, verb.SupersedeRequest{Ref: ref("c"), ReplacementRef: ref("a")})
		if e := artifact.AsError(err); e.Code != artifact.CodeValidationFailed || e.Problems[0].Constraint != "no_cycle" {
			t.Errorf("by what it replaced = %v", err)
		}
		// Two that would close a circle together.
		done := make(chan error, 2)
		for from, to := range map[string]string{"c": "d", "d": "c"} {
			go func() {
				_, err := verb.Supersede.Call(contributor(t.Context()), f.verbs, verb.SupersedeRequest{Ref: ref(from), ReplacementRef: ref(to), Reason: "r"})
				done <- err
			}()
		}
		first, second := <-done, <-done
		if (first == nil) == (second == nil) {
			t.Errorf("two at once: %v and %v, want one of them refused", first, second)
		}
	})
	t.Run("also of those who have no artifact in common", func(t *testing.T) {
		other := newHubOn(t, f.db)
		for i := range 12 {
			id := func(s string) string { return fmt.Sprintf("ring%d%s", i, s) }
			for _, s := range []string{"a", "b", "c", "d"} {
				f.mustCreate(t, hypothesis(id(s), "x"))
			}
			by := func(h *fixture, from, to string) error {
				_, err := verb.Supersede.Call(contributor(t.Context()), h.verbs, verb.SupersedeRequest{Ref: ref(id(from)), ReplacementRef: ref(id(to)), Reason: "r"})
				return err
			}
			if err := errors.Join(by(f, "a", "b"), by(f, "c", "d")); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 2)
			go func() { done <- by(f, "b", "c") }()
			go func() { done <- by(other, "d", "a") }()
			if first, second := <-done, <-done; (first == nil) == (second == nil) {
				t.Fatalf("two at once: %v and %v, want one of them refused", first, second)
			}
		}
	})
	t.Run("by one that is made with it", func(t *testing.T) {
		f.mustCreate(t, hypothesis("e", "x"))
		out, err := f.supersede(t, verb.SupersedeRequest{Ref: ref("e"), Replacement: &verb.NewArtifact{
			Type: "hypothesis", ID: "e2", Title: "Better", Content: content(map[string]any{"statement": "y"}),
		}})
		if err != nil || out.SupersededBy != ref("e2") || get("e2").Title != "Better" {
			t.Errorf("supersede = %+v, %v", out, err)
		}
		_, err = f.supersede(t, verb.SupersedeRequest{Ref: ref("e2"), Replacement: &verb.NewArtifact{Type: "hypothesis", Title: "", Content: content(map[string]any{})}})
		if e := artifact.AsError(err); e.Code != artifact.CodeValidationFailed || e.Problems[0].Path != "/replacement/title" {
			t.Errorf("a bad replacement = %v", err)
		}
	})
	t.Run("by nothing", func(t *testing.T) {
		if out, err := f.supersede(t, verb.SupersedeRequest{Ref: ref("e2")}); err != nil || out.SupersededBy != "" {
			t.Errorf("retire = %+v, %v", out, err)
		}
		if a := get("e2"); a.IsLatest || a.SupersededBy != "" {
			t.Errorf("a retired one is %+v", a)
		}
	})
	t.Run("refuses what is not there and a stale base", func(t *testing.T) {
		f.mustCreate(t, hypothesis("g", "x"))
		if _, err := f.supersede(t, verb.SupersedeRequest{Ref: ref("g"), ReplacementRef: ref("none")}); code(err) != "link_target_missing" {
			t.Errorf("by nothing there = %v", err)
		}
		stale := get("e").ContentHash
		if _, err := f.supersede(t, verb.SupersedeRequest{Ref: ref("g"), BaseContentHash: &artifact.Hash{1}}); code(err) != "version_conflict/stale_base" {
			t.Errorf("from %s = %v", stale, err)
		}
	})
	f.checkDigest(t)
	f.checkDense(t)
}

// TestSupersedeScopes checks that nobody is told of a replacement that they may not
// know of.
func TestSupersedeScopes(t *testing.T) {
	f := twoLabs(t)
	ada := f.member(t.Context(), "ada", verb.Contributor)
	f.mustCreate(t, hypothesis("open", "x"))
	in := hypothesis("private", "x")
	in.Scope = "lab-a"
	private, err := verb.Create.Call(ada, f.verbs, in)
	if err != nil {
		t.Fatal(err)
	}
	_, err = verb.Supersede.Call(ada, f.verbs, verb.SupersedeRequest{Ref: "hypothesis:open", ReplacementRef: private.Ref.Current().String(), Reason: "r"})
	if e := artifact.AsError(err); e.Code != artifact.CodeValidationFailed || e.Problems[0].Constraint != "scope" {
		t.Errorf("one in commons by one in a lab = %v", err)
	}
	if _, err := verb.Supersede.Call(ada, f.verbs, verb.SupersedeRequest{Ref: private.Ref.Current().String(), ReplacementRef: "hypothesis:open", Reason: "r"}); err != nil {
		t.Errorf("one in a lab by one in commons = %v", err)
	}
}

func TestComment(t *testing.T) {
	f := twoLabs(t)
	ada := f.member(t.Context(), "ada", verb.Contributor)
	in := hypothesis("h1", "x")
	in.Scope = "lab-a"
	made, err := verb.Create.Call(ada, f.verbs, in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := verb.Comment.Call(ada, f.verbs, verb.CommentRequest{Ref: made.Ref.String(), Body: "Is this so?\nI wonder.", Kind: "question"})
	if err != nil || len(out.Links) != 1 {
		t.Fatalf("comment = %+v, %v", out, err)
	}
	a := f.mustGet(t, ada, out.Ref)
	if a.Scope != "lab-a" || a.Title != "Is this so?" || string(a.Content) != `{"kind":"question","markdown":"Is this so?\nI wonder."}` {
		t.Errorf("the comment is %+v", a)
	}
	answer, err := verb.Comment.Call(ada, f.verbs, verb.CommentRequest{Ref: made.Ref.Current().String(), Body: "It is.", ThreadParent: out.Ref.Current().String()})
	if err != nil || len(answer.Links) != 2 {
		t.Errorf("answer = %+v, %v", answer, err)
	}
	if n := f.count(t, "SELECT count(*) FROM event WHERE type = 'hypothesis.commented' AND scope = 'lab-a'"); n != 2 {
		t.Errorf("%d events tell of comments, want 2", n)
	}
	for name, bad := range map[string]verb.CommentRequest{
		"an empty one":            {Ref: made.Ref.String(), Body: " \n"},
		"an answer to no comment": {Ref: made.Ref.String(), Body: "x", ThreadParent: made.Ref.String()},
		"one in a wider scope":    {Ref: made.Ref.String(), Body: "x", Scope: artifact.Commons},
		"one in an unknown scope": {Ref: made.Ref.String(), Body: "x", Scope: "lab-x"},
		"one with a bad ref":      {Ref: "x", Body: "x"},
	} {
		if _, err := verb.Comment.Call(ada, f.verbs, bad); code(err) != "validation_failed" {
			t.Errorf("%s = %v", name, err)
		}
	}
	if _, err := verb.Comment.Call(f.member(t.Context(), "bob", verb.Contributor), f.verbs, verb.CommentRequest{Ref: made.Ref.String(), Body: "x"}); code(err) != "not_found" {
		t.Errorf("by one outside = %v", err)
	}
	f.checkDigest(t)
	f.checkDense(t)
}

func TestUnlink(t *testing.T) {
	f := newHub(t)
	f.mustCreate(t, hypothesis("a", "x"))
	f.mustCreate(t, hypothesis("b", "x"))
	link := func() verb.LinkResult {
		t.Helper()
		out, err := verb.Link.Call(contributor(t.Context()), f.verbs, verb.LinkRequest{From: "hypothesis:a", LinkSpec: verb.LinkSpec{Predicate: "supports", To: "hypothesis:b"}})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := link()
	if _, err := verb.Unlink.Call(as(t.Context(), "bob", verb.Contributor), f.verbs, verb.UnlinkRequest{Ref: first.Ref, Reason: "r"}); code(err) != "permission_denied" {
		t.Errorf("another's = %v", err)
	}
	out, err := verb.Unlink.Call(contributor(t.Context()), f.verbs, verb.UnlinkRequest{Ref: first.Ref, Reason: "wrong paper"})
	if err != nil || out.Ref != first.Ref || out.To != "hypothesis:b" || out.Seq == 0 {
		t.Fatalf("unlink = %+v, %v", out, err)
	}
	if n := f.count(t, "SELECT count(*) FROM link_retraction WHERE reason = 'wrong paper' AND retracted_by = 'ada'"); n != 1 {
		t.Error("the retraction is not kept")
	}
	if _, err := verb.Unlink.Call(contributor(t.Context()), f.verbs, verb.UnlinkRequest{Ref: first.Ref, Reason: "r"}); code(err) != "not_found" {
		t.Errorf("twice = %v", err)
	}
	if again := link(); again.Ref == first.Ref || again.Idempotency == verb.IdempotencyDeduplicated {
		t.Errorf("linked again = %+v", again)
	}
	if _, err := verb.Unlink.Call(contributor(t.Context()), f.verbs, verb.UnlinkRequest{From: "hypothesis:a", Predicate: "supports", To: "hypothesis:b", Reason: "r"}); err != nil {
		t.Errorf("by its ends = %v", err)
	}
	third := link()
	if _, err := verb.Unlink.Call(as(t.Context(), "rev", verb.Reviewer), f.verbs, verb.UnlinkRequest{Ref: third.Ref, Reason: "r"}); err != nil {
		t.Errorf("by a reviewer = %v", err)
	}
	for name, bad := range map[string]verb.UnlinkRequest{
		"nothing": {Reason: "r"}, "both": {Ref: third.Ref, From: "hypothesis:a", Reason: "r"}, "no reason": {Ref: third.Ref}, "another type": {Ref: "hypothesis:a", Reason: "r"},
	} {
		if _, err := verb.Unlink.Call(contributor(t.Context()), f.verbs, bad); code(err) != "validation_failed" {
			t.Errorf("%s = %v", name, err)
		}
	}
	f.checkDigest(t)
	f.checkDense(t)
}

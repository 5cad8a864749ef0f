package hub_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

func paper(id, scope string, fields map[string]any) verb.CreateRequest {
	return verb.CreateRequest{Type: "paper", ID: id, Scope: scope, Title: "A paper", Content: content(fields)}
}

func TestCite(t *testing.T) {
	f := twoLabs(t)
	ada := f.member(t.Context(), "ada", verb.Contributor)
	f.mustCreate(t, hypothesis("h", "x"))
	f.mustCreate(t, paper("PMID:11", "", map[string]any{}))
	f.mustCreate(t, paper("by-content", "", map[string]any{"pmid": "22", "doi": "10.1000/ABC"}))
	if _, err := verb.Create.Call(ada, f.verbs, paper("PMID:33", "lab-a", map[string]any{})); err != nil {
		t.Fatal(err)
	}
	in := hypothesis("h", "x")
	in.Scope = "lab-a"
	if _, err := verb.Create.Call(ada, f.verbs, in); err != nil {
		t.Fatal(err)
	}
	cite := func(ref, pmid string) (verb.LinkResult, error) {
		return verb.Cite.Call(ada, f.verbs, verb.CiteRequest{Ref: ref, PMID: pmid, Span: "a passage", Claim: "that it is so"})
	}
	for _, c := range []struct{ ref, pmid, to, want string }{
		{"hypothesis:h", "11", "paper:PMID:11", ""},
		{"hypothesis:h", "22", "paper:by-content", ""},
		{"hypothesis:h", "33", "", "link_target_missing"}, // in a lab alone
		{"hypothesis:lab-a/h", "33", "paper:lab-a/PMID:33", ""},
		{"hypothesis:lab-a/h", "22", "paper:by-content", ""},
		{"hypothesis:h", "44", "", "link_target_missing"},
		{"hypothesis:h", "x", "", "validation_failed"},
		{"hypothesis:none", "11", "", "not_found"},
		{"gene:none", "11", "", "not_found"},
	} {
		out, err := cite(c.ref, c.pmid)
		if code(err) != c.want || err == nil && (out.To != c.to || out.Predicate != "cites") {
			t.Errorf("cite of %s by %s = %+v, %v; want %s %s", c.pmid, c.ref, out, err, c.to, c.want)
		}
	}
	again, err := cite("hypothesis:h", "11")
	if err != nil || again.Idempotency != verb.IdempotencyDeduplicated {
		t.Errorf("cited twice = %+v, %v", again, err)
	}
	if n := f.count(t, `SELECT count(*) FROM link WHERE predicate = 'cites' AND evidence = '{"claim":"that it is so","span":"a passage"}'`); n != 4 {
		t.Errorf("%d citations with their passage, want 4", n)
	}
	f.checkDigest(t)
}

// TestPapers checks that a PubMed id or DOI means one current paper in a scope.
func TestPapers(t *testing.T) {
	f := twoLabs(t)
	ada := f.member(t.Context(), "ada", verb.Contributor)
	first := f.mustCreate(t, paper("one", "", map[string]any{"pmid": "11", "doi": "10.1000/Abc"}))
	for name, in := range map[string]verb.CreateRequest{
		"its PubMed id in an id": paper("PMID:11", "", map[string]any{}), "its PubMed id": paper("two", "", map[string]any{"pmid": "11"}),
		"its DOI in other case": paper("two", "", map[string]any{"doi": "10.1000/aBC"}),
	} {
		_, err := verb.Create.Call(contributor(t.Context()), f.verbs, in)
		if e := artifact.AsError(err); e.Code != artifact.CodeValidationFailed || e.Problems[0].Constraint != "unique" {
			t.Errorf("a second paper with %s = %v", name, err)
		}
	}
	if _, err := verb.Create.Call(ada, f.verbs, paper("two", "lab-a", map[string]any{"pmid": "11"})); err != nil {
		t.Errorf("a lab's own copy: %v", err)
	}
	second := f.mustCreate(t, paper("two", "", map[string]any{"pmid": "22"}))
	update := func(w verb.WriteResult, merge string) error {
		_, err := verb.Update.Call(contributor(t.Context()), f.verbs, verb.UpdateRequest{Ref: w.Ref.Current().String(), BaseContentHash: w.ContentHash, MergePatch: json.RawMessage(merge)})
		return err
	}
	if err := update(second, `{"pmid":"11"}`); code(err) != "validation_failed" {
		t.Errorf("an update to another's PubMed id = %v", err)
	}
	if err := update(first, `{"pmid":"33"}`); err != nil {
		t.Fatal(err)
	}
	if err := update(second, `{"pmid":"11"}`); err != nil {
		t.Errorf("an update to a PubMed id that was given up = %v", err)
	}
	third := f.mustCreate(t, paper("three", "", map[string]any{"pmid": "44"}))
	if _, err := f.supersede(t, verb.SupersedeRequest{Ref: third.Ref.Current().String()}); err != nil {
		t.Fatal(err)
	}
	f.mustCreate(t, paper("four", "", map[string]any{"pmid": "44"}))
	t.Run("and moves with it", func(t *testing.T) {
		f.grant(t, "lab-a", "root", verb.Admin)
		moved := f.mustCreate(t, paper("moved", "", map[string]any{"pmid": "66"}))
		if _, err := verb.Move.Call(f.admin(t.Context()), f.verbs, verb.MoveRequest{Ref: moved.Ref.Current().String(), Scope: "lab-a", BaseContentHash: moved.ContentHash, Reason: "r"}); err != nil {
			t.Fatal(err)
		}
		f.mustCreate(t, paper("after", "", map[string]any{"pmid": "66"}))
		if n := f.count(t, "SELECT count(*) FROM paper_key WHERE key = '66'"); n != 2 {
			t.Errorf("%d papers have the PubMed id, one in each scope", n)
		}
	})
	t.Run("not where another has its id", func(t *testing.T) {
		f.grant(t, "lab-a", "root", verb.Admin)
		both := f.mustCreate(t, paper("both", "", map[string]any{"pmid": "77"}))
		if _, err := verb.Create.Call(ada, f.verbs, paper("both", "lab-a", map[string]any{"pmid": "77"})); err != nil {
			t.Fatal(err)
		}
		_, err := verb.Move.Call(f.admin(t.Context()), f.verbs, verb.MoveRequest{Ref: both.Ref.Current().String(), Scope: "lab-a", BaseContentHash: both.ContentHash, Reason: "r"})
		if e := artifact.AsError(err); e.Code != artifact.CodeValidationFailed || e.Problems[0].Constraint != "unique" {
			t.Errorf("move = %v", err)
		}
	})
	t.Run("an id keeps what it says wherever it moves", func(t *testing.T) {
		made, err := verb.Create.Call(ada, f.verbs, paper("PMID:88", "lab-a", map[string]any{}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := verb.Move.Call(f.admin(t.Context()), f.verbs, verb.MoveRequest{Ref: made.Ref.Current().String(), Scope: artifact.Commons, BaseContentHash: made.ContentHash, Reason: "r"}); err != nil {
			t.Fatal(err)
		}
		if _, err := verb.Update.Call(ada, f.verbs, verb.UpdateRequest{Ref: made.Ref.Current().String(), BaseContentHash: made.ContentHash, Title: "Other"}); err != nil {
			t.Fatal(err)
		}
		if _, err := verb.Create.Call(ada, f.verbs, paper("again", "", map[string]any{"pmid": "88"})); code(err) != "validation_failed" {
			t.Errorf("a second one = %v", err)
		}
	})
	t.Run("a redaction frees what its content said", func(t *testing.T) {
		odd := f.mustCreate(t, paper("odd", "", map[string]any{"pmid": "99", "doi": "10.1000/odd"}))
		if _, err := verb.Redact.Call(f.admin(t.Context()), f.verbs, verb.RedactRequest{Ref: odd.Ref.Current().String(), Reason: "r", Revisions: 1}); err != nil {
			t.Fatal(err)
		}
		f.mustCreate(t, paper("even", "", map[string]any{"pmid": "99", "doi": "10.1000/odd"}))
	})
	t.Run("what replaces it may take its ids", func(t *testing.T) {
		old := f.mustCreate(t, paper("old", "", map[string]any{"pmid": "111"}))
		if _, err := f.supersede(t, verb.SupersedeRequest{Ref: old.Ref.Current().String(), Replacement: &verb.NewArtifact{
			Type: "paper", ID: "new", Title: "A paper", Content: content(map[string]any{"pmid": "111"}),
		}}); err != nil {
			t.Errorf("supersede = %v", err)
		}
	})
	t.Run("also of several at once", func(t *testing.T) {
		done := make(chan error, 6)
		for i := range cap(done) {
			go func() {
				_, err := verb.Create.Call(contributor(t.Context()), f.verbs, paper("race"+string(rune('a'+i)), "", map[string]any{"pmid": "55"}))
				done <- err
			}()
		}
		made := 0
		for range cap(done) {
			if err := <-done; err == nil {
				made++
			} else if code(err) != "validation_failed" {
				t.Error(err)
			}
		}
		if made != 1 {
			t.Errorf("%d papers with one PubMed id", made)
		}
	})
	f.checkDense(t)
}

// TestPaperIDs checks which id a paper gets that brings none.
func TestPaperIDs(t *testing.T) {
	f := twoLabs(t)
	ada := f.member(t.Context(), "ada", verb.Contributor)
	create := func(scope string, fields map[string]any) verb.WriteResult {
		t.Helper()
		out, err := verb.Create.Call(ada, f.verbs, paper("", scope, fields))
		if err != nil {
			t.Fatalf("%v: %v", fields, err)
		}
		return out
	}
	for _, c := range []struct {
		scope  string
		fields map[string]any
		want   string
	}{
		{"", map[string]any{"pmid": "11", "doi": "10.1000/Abc"}, "PMID:11"},
		{"", map[string]any{"doi": "10.1000/DEF"}, "DOI:10.1000/def"},
		{"lab-a", map[string]any{"pmid": "11"}, "lab-a/PMID:11"},
	} {
		if out := create(c.scope, c.fields); out.Ref.ID != c.want {
			t.Errorf("%v in %q got the id %s, want %s", c.fields, c.scope, out.Ref.ID, c.want)
		}
	}
	if out := create("", map[string]any{"journal": "J"}); !strings.HasPrefix(out.Ref.ID, "p-") {
		t.Errorf("one that is cited by nothing got the id %s", out.Ref.ID)
	}
	if _, err := verb.Create.Call(ada, f.verbs, paper("", "", map[string]any{"pmid": "11"})); code(err) != "validation_failed" || !strings.Contains(err.Error(), "paper:PMID:11") {
		t.Errorf("a second one = %v", err)
	}
	for name, fields := range map[string]map[string]any{
		"a URL":         {"doi": "https://doi.org/10.1000/DEF"},
		"with a scheme": {"doi": "doi: 10.1000/def"},
	} {
		if _, err := verb.Create.Call(ada, f.verbs, paper("", "", fields)); code(err) != "validation_failed" || artifact.AsError(err).Problems[0].Constraint != "unique" {
			t.Errorf("a second one, %s: %v", name, err)
		}
	}
	if out := create("", map[string]any{"doi": "https://dx.doi.org/10.1000/GHI"}); out.Ref.ID != "DOI:10.1000/ghi" {
		t.Errorf("one whose DOI is a URL got the id %s", out.Ref.ID)
	}
	t.Run("the DOI in an id is cited", func(t *testing.T) {
		f.mustCreate(t, paper("DOI:10.1000/by-id", "", map[string]any{}))
		f.mustCreate(t, hypothesis("cites", "As in [DOI:10.1000/BY-ID]."))
	})
	t.Run("an earlier paper keeps its id", func(t *testing.T) {
		fields := map[string]any{"pmid": "11", "journal": "J"}
		out, err := f.supersede(t, verb.SupersedeRequest{Ref: "paper:PMID:11", Replacement: &verb.NewArtifact{Type: "paper", Title: "Mended", Content: content(fields)}})
		if err != nil || !strings.HasPrefix(out.SupersededBy, "paper:p-") {
			t.Fatalf("supersede = %+v, %v", out, err)
		}
		cited, err := verb.Cite.Call(ada, f.verbs, verb.CiteRequest{Ref: "paper:DOI:10.1000/def", PMID: "11"})
		if err != nil || cited.To != out.SupersededBy {
			t.Errorf("cite = %+v, %v; want the replacement", cited, err)
		}
	})
	f.checkDense(t)
	f.checkDigest(t)
}

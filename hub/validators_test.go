package hub_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestValidators checks what the types' validators refuse, and what they only tell.
func TestValidators(t *testing.T) {
	f := twoLabs(t)
	f.mustCreate(t, paper("PMID:11", "", map[string]any{}))
	ada := f.member(t.Context(), "ada", verb.Contributor)
	if _, err := verb.Create.Call(ada, f.verbs, paper("PMID:33", "lab-a", map[string]any{})); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ text, scope, constraint string }{
		"a paper that is here":            {"So it is [PMID:11].", "", ""},
		"a paper that is not":             {"So it is [PMID:11] and [PMID:99].", "", artifact.GuardResolvePMID},
		"a lab's paper in commons":        {"So it is [PMID:33].", "", artifact.GuardResolvePMID},
		"a lab's paper in the lab":        {"So it is [PMID:33] [PMID:11].", "lab-a", ""},
		"a trial number with 7 digits":    {"As in NCT0123456.", "", artifact.GuardNCT},
		"a trial number":                  {"As in NCT01234567.", "", ""},
		"a PubMed id outside of a marker": {"So it is, PMID: 12345.", "", "warning"},
	} {
		in := hypothesis("", c.text)
		in.Scope = c.scope
		out, err := verb.Create.Call(ada, f.verbs, in)
		e := artifact.AsError(err)
		switch {
		case c.constraint == "" && (err != nil || len(out.Warnings) > 0):
			t.Errorf("%s: %v, warnings %v", name, err, out.Warnings)
		case c.constraint == "warning" && (err != nil || len(out.Warnings) != 1 || out.Warnings[0].Constraint != artifact.GuardInlinePMID):
			t.Errorf("%s: %v, warnings %v", name, err, out.Warnings)
		case c.constraint != "" && c.constraint != "warning" && (e.Code != artifact.CodeValidationFailed || len(e.Problems) == 0 || e.Problems[0].Constraint != c.constraint || e.Problems[0].Path != "/content/statement"):
			t.Errorf("%s: %v", name, err)
		}
	}
	made := f.mustCreate(t, hypothesis("h", "x"))
	update := verb.UpdateRequest{Ref: made.Ref.Current().String(), BaseContentHash: made.ContentHash, MergePatch: json.RawMessage(`{"description":"Not so [PMID:99]."}`)}
	if _, err := verb.Update.Call(ada, f.verbs, update); code(err) != "validation_failed" || !strings.Contains(err.Error(), "/content/description") {
		t.Errorf("an update that cites no paper = %v", err)
	}
	update.MergePatch = json.RawMessage(`{"description":"So [PMID:11]."}`)
	if _, err := verb.Update.Call(ada, f.verbs, update); err != nil {
		t.Errorf("an update that cites a paper = %v", err)
	}
	t.Run("see what a batch made before", func(t *testing.T) {
		p, h := paper("PMID:77", "", map[string]any{}), hypothesis("after", "As in [PMID:77].")
		out, err := verb.Batch.Call(ada, f.verbs, verb.BatchRequest{Atomic: true, Items: []verb.BatchItem{{Create: &p}, {Create: &h}}})
		if err != nil || !out.Committed {
			t.Errorf("batch = %+v, %v", out, err)
		}
	})
	t.Run("of a comment are told by its own members", func(t *testing.T) {
		_, err := verb.Comment.Call(ada, f.verbs, verb.CommentRequest{Ref: "hypothesis:h", Body: "See [PMID:99]."})
		if e := artifact.AsError(err); e.Code != artifact.CodeValidationFailed || e.Problems[0].Path != "/body" {
			t.Errorf("comment = %v", err)
		}
	})
	f.checkDense(t)
}

// TestPartialBatch checks that an item which fails leaves nothing behind, and the
// others alone.
func TestPartialBatch(t *testing.T) {
	f := newHub(t)
	bad := paper("half", "", map[string]any{"pmid": "55"})
	bad.Links = []verb.LinkSpec{{Predicate: "cites", To: "paper:none"}}
	message := verb.CreateRequest{Type: "message", Title: "M", Content: content(map[string]any{"recipient": "agent:nobody", "body": "x"})}
	good := hypothesis("good", "x")
	out, err := verb.Batch.Call(contributor(t.Context()), f.verbs, verb.BatchRequest{Items: []verb.BatchItem{{Create: &bad}, {Create: &message}, {Create: &good}}})
	if err != nil || !out.Committed || out.Items[0].Error == nil || out.Items[1].Error == nil || out.Items[2].Write == nil {
		t.Fatalf("batch = %+v, %v", out, err)
	}
	if n := f.count(t, "SELECT count(*) FROM paper_key"); n != 0 {
		t.Error("a paper that was not made has a PubMed id")
	}
	f.mustCreate(t, paper("whole", "", map[string]any{"pmid": "55"}))
	f.checkDense(t)
}

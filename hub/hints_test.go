package hub_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// told returns paths, constraints and suggestions of problems.
func told(problems []artifact.Problem) string {
	var all []string
	for _, p := range problems {
		text := p.Path + " " + p.Constraint
		if p.Suggestion != nil {
			text += " " + string(p.Suggestion)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// TestUndeclaredFields: fields that a type does not declare are kept, with a warning.
func TestUndeclaredFields(t *testing.T) {
	f := newHub(t)
	c := contributor(t.Context())
	create := func(id string, fields map[string]any) verb.WriteResult {
		return f.mustCreate(t, verb.CreateRequest{Type: "hypothesis", ID: id, Title: "T", Content: content(fields)})
	}
	if got := told(create("s", map[string]any{"statement": "x", "diseas": "y", "colour": "red"}).Warnings); got != `/content/diseas undeclared "disease"` {
		t.Errorf("a slip: warnings = %s", got)
	}
	made := create("h", map[string]any{"statement": "x"})
	if got := told(made.Warnings); got != "" {
		t.Errorf("declared fields: warnings = %s", got)
	}
	update := func(in verb.UpdateRequest) verb.WriteResult {
		t.Helper()
		in.Ref, in.BaseContentHash = "hypothesis:h", made.ContentHash
		out, err := verb.Update.Call(c, f.verbs, in)
		if err != nil {
			t.Fatal(err)
		}
		made = out
		return out
	}
	out := update(verb.UpdateRequest{MergePatch: json.RawMessage(`{"content":{"statement":"z"}}`)})
	if got := told(out.Warnings); got != "/content/content undeclared" || !strings.Contains(out.Warnings[0].Message, "inside the content") {
		t.Errorf("a nested merge_patch: warnings = %+v", out.Warnings)
	}
	for name, c := range map[string]struct {
		in   verb.UpdateRequest
		want string
	}{
		"what was there":    {verb.UpdateRequest{MergePatch: json.RawMessage(`{"content":1}`)}, ""},
		"by a patch":        {verb.UpdateRequest{Patch: json.RawMessage(`[{"op":"add","path":"/content/colour","value":"red"}]`)}, "/content/colour undeclared"},
		"the whole":         {verb.UpdateRequest{Content: json.RawMessage(`{"statement":"x","shade":"red"}`)}, ""},
		"a slip in a whole": {verb.UpdateRequest{Content: json.RawMessage(`{"statement":"x","mechanizm":"something that is long enough"}`)}, `/content/mechanizm undeclared "mechanism"`},
	} {
		in := c.in
		in.DryRun = true
		in.Ref, in.BaseContentHash = "hypothesis:h", made.ContentHash
		out, err := verb.Update.Call(contributor(t.Context()), f.verbs, in)
		if err != nil || told(out.Warnings) != c.want {
			t.Errorf("%s: warnings = %s, %v, want %s", name, told(out.Warnings), err, c.want)
		}
	}
	replaced, err := verb.Supersede.Call(c, f.verbs, verb.SupersedeRequest{Ref: "hypothesis:h", Reason: "r", Replacement: &verb.NewArtifact{
		Type: "hypothesis", Title: "T", Content: json.RawMessage(`{"statement":"x","diseas":"y"}`),
	}})
	if err != nil || told(replaced.Warnings) != `/replacement/content/diseas undeclared "disease"` {
		t.Errorf("of a replacement: warnings = %s, %v", told(replaced.Warnings), err)
	}
}

// TestDryRunNames: an answer to a dry run says of a name that it made that nothing will
// have it.
func TestDryRunNames(t *testing.T) {
	f := newHub(t)
	c := contributor(t.Context())
	f.mustCreate(t, hypothesis("h", "x"))
	f.mustCreate(t, hypothesis("i", "x"))
	for _, dry := range []bool{true, false} {
		o := verb.WriteOptions{DryRun: dry}
		named, unnamed := hypothesis("named", "x"), hypothesis("", "x")
		named.WriteOptions, unnamed.WriteOptions = o, o
		cited := verb.CreateRequest{Type: "paper", Title: "T", Content: content(map[string]any{"pmid": "77"}), WriteOptions: o}
		link := verb.LinkRequest{From: "hypothesis:h", LinkSpec: verb.LinkSpec{Predicate: "supports", To: "hypothesis:i"}, WriteOptions: o}
		for name, write := range map[string]struct {
			passing bool
			call    func() ([]artifact.Problem, error)
		}{
			"a name that was given": {false, func() ([]artifact.Problem, error) {
				out, err := verb.Create.Call(c, f.verbs, named)
				return out.Warnings, err
			}},
			"a name that was made": {true, func() ([]artifact.Problem, error) {
				out, err := verb.Create.Call(c, f.verbs, unnamed)
				return out.Warnings, err
			}},
			"a paper's by its PubMed id": {false, func() ([]artifact.Problem, error) {
				out, err := verb.Create.Call(c, f.verbs, cited)
				return out.Warnings, err
			}},
			"a comment's": {true, func() ([]artifact.Problem, error) {
				out, err := verb.Comment.Call(c, f.verbs, verb.CommentRequest{Ref: "hypothesis:h", Body: "x", WriteOptions: o})
				return out.Warnings, err
			}},
			"a link's": {true, func() ([]artifact.Problem, error) {
				out, err := verb.Link.Call(c, f.verbs, link)
				return out.Warnings, err
			}},
			"a signal's": {true, func() ([]artifact.Problem, error) {
				out, err := verb.Signal.Call(c, f.verbs, verb.SignalRequest{Ref: "hypothesis:h", Kind: "vote", Value: "1", WriteOptions: o})
				return out.Warnings, err
			}},
		} {
			want := ""
			if dry && write.passing {
				want = " dry_run"
			}
			if got, err := write.call(); err != nil || told(got) != want {
				t.Errorf("%s, dry %v: warnings = %q, %v, want %q", name, dry, told(got), err, want)
			}
		}
	}
	link := verb.LinkRequest{From: "hypothesis:h", LinkSpec: verb.LinkSpec{Predicate: "supports", To: "hypothesis:i"}, WriteOptions: verb.WriteOptions{DryRun: true}}
	if out, err := verb.Link.Call(c, f.verbs, link); err != nil || told(out.Warnings) != "" {
		t.Errorf("a link that is there: warnings = %s, %v", told(out.Warnings), err)
	}
}

// TestBatchOfFailures: a batch none of whose items was done committed nothing.
func TestBatchOfFailures(t *testing.T) {
	f := newHub(t)
	f.mustCreate(t, hypothesis("h", "x"))
	missing := verb.BatchItem{Signal: &verb.SignalRequest{Ref: "hypothesis:none", Kind: "vote", Value: "1"}}
	vote := verb.BatchItem{Signal: &verb.SignalRequest{Ref: "hypothesis:h", Kind: "vote", Value: "1"}}
	key := uuid.NewString()
	for range 2 { // the second is the stored answer
		out, err := verb.Batch.Call(contributor(t.Context()), f.verbs, verb.BatchRequest{Items: []verb.BatchItem{missing, missing}, IdempotencyKey: key})
		if err != nil || out.Committed || out.Seq != 0 || out.Items[0].Error == nil || out.Items[0].Skipped {
			t.Errorf("all failed = %+v, %v", out, err)
		}
	}
	for _, when := range []string{"anew", "again"} { // and found done
		if out := f.batchOf(t, false, missing, vote); !out.Committed {
			t.Errorf("one done %s: committed = %v", when, out.Committed)
		}
	}
}

// TestUnknownTypes: a ref of a type that there is not says so, and which may be meant.
func TestUnknownTypes(t *testing.T) {
	f := newHub(t)
	c := as(t.Context(), "ada", verb.Contributor, verb.Admin)
	for _, r := range []struct{ ref, want string }{
		{"hypothesys:h", `/ref registered_type "hypothesis:h"`},
		{"kg_edg:k-1", `/ref registered_type "kg_edge:k-1"`},
		{"qqqqqqqqqqqq:h", "/ref registered_type"},
		{"hypothesis:none", ""},
		{"signal:s-none", ""},
	} {
		ref, err := artifact.ParseRef(r.ref)
		if err != nil {
			t.Fatal(err)
		}
		_, got := verb.Get.Call(c, f.verbs, verb.GetRequest{Ref: ref})
		_, summed := verb.Signals.Call(c, f.verbs, verb.SignalsRequest{Ref: ref})
		_, linked := verb.Link.Call(c, f.verbs, verb.LinkRequest{From: r.ref, LinkSpec: verb.LinkSpec{Predicate: "supports", To: "hypothesis:h"}})
		errs := edgeWrites(c, f)
		delete(errs, "link")
		tried := map[string]error{"get": got, "signals": summed}
		for name, write := range errs {
			tried[name] = write(r.ref)
		}
		if ref.Type != "kg_edge" && ref.Type != "signal" {
			tried["link"] = linked
		}
		for name, err := range tried {
			want := r.want
			if name == "link" {
				want = strings.Replace(want, "/ref", "/from", 1)
			}
			if name == "signals" && ref.Type == "signal" {
				continue // signals are summed up of artifacts
			}
			if e := artifact.AsError(err); e.Code != artifact.CodeNotFound || told(e.Problems) != want {
				t.Errorf("%s %s = %v, want %s", name, r.ref, err, want)
			}
		}
	}
}

// TestContradictions checks that of two things that a request asks for neither wins
// in silence, and that types and reasons are more than words.
func TestContradictions(t *testing.T) {
	f := newHub(t)
	made := f.mustCreate(t, hypothesis("h", "x"))
	update := func(title, patch string) error {
		_, err := verb.Update.Call(contributor(t.Context()), f.verbs, verb.UpdateRequest{
			Ref: "hypothesis:h", BaseContentHash: made.ContentHash, Title: title, Patch: json.RawMessage(patch), WriteOptions: verb.WriteOptions{DryRun: true},
		})
		return err
	}
	const retitle = `[{"op":"replace","path":"/title","value":"One"}]`
	if e := artifact.AsError(update("Another", retitle)); e.Code != artifact.CodeValidationFailed || len(e.Problems) != 1 || e.Problems[0].Path != "/title" {
		t.Errorf("a title beside a patch to another = %+v", e)
	}
	if err := update("One", retitle); err != nil {
		t.Errorf("the same title twice: %v", err)
	}
	if err := update("Another", `[{"op":"replace","path":"/content/statement","value":"y"}]`); err != nil {
		t.Errorf("a title beside a patch of something else: %v", err)
	}
	_, err := verb.Supersede.Call(contributor(t.Context()), f.verbs, verb.SupersedeRequest{Ref: "schema:hypothesis", Reason: "old"})
	if !artifact.IsCode(err, artifact.CodeMutability) {
		t.Errorf("a type that is superseded = %v", err)
	}
	_, err = verb.Supersede.Call(contributor(t.Context()), f.verbs, verb.SupersedeRequest{Ref: "hypothesis:h", Reason: " \t"})
	if !artifact.IsCode(err, artifact.CodeValidationFailed) {
		t.Errorf("a blank reason = %v", err)
	}
}

package hub_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestWritesTellEvents makes one write of each verb and reads what the log tells of
// them, in order.
func TestWritesTellEvents(t *testing.T) {
	f := newHub(t)
	ctx := contributor(t.Context())
	base := f.mustCreate(t, hypothesis("h", "x"))
	f.mustCreate(t, hypothesis("g", "y"))
	f.mustCreate(t, paper("PMID:1", "", map[string]any{}))
	head := f.head(t)
	var taken string
	for _, call := range []func() error{
		func() error {
			_, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: "hypothesis:h", BaseContentHash: base.ContentHash, State: "investigating"})
			return err
		},
		func() error {
			_, err := verb.Signal.Call(ctx, f.verbs, verb.SignalRequest{Ref: "hypothesis:h", Kind: "rank", Dimension: "novelty", Value: "0.5"})
			return err
		},
		func() error {
			out, err := verb.Link.Call(ctx, f.verbs, verb.LinkRequest{From: "hypothesis:h", LinkSpec: verb.LinkSpec{Predicate: "supports", To: "hypothesis:g"}})
			taken = out.Ref
			return err
		},
		func() error {
			_, err := verb.Unlink.Call(ctx, f.verbs, verb.UnlinkRequest{Ref: taken, Reason: "r"})
			return err
		},
		func() error {
			_, err := verb.Cite.Call(ctx, f.verbs, verb.CiteRequest{Ref: "hypothesis:h", PMID: "1"})
			return err
		},
		func() error {
			_, err := verb.Comment.Call(ctx, f.verbs, verb.CommentRequest{Ref: "hypothesis:h", Body: "b"})
			return err
		},
		func() error {
			_, err := verb.Supersede.Call(ctx, f.verbs, verb.SupersedeRequest{Ref: "hypothesis:g", ReplacementRef: "hypothesis:h", Reason: "r"})
			return err
		},
	} {
		if err := call(); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := f.db.Query(t.Context(), "SELECT type FROM event WHERE seq > $1 ORDER BY seq", head)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	got = slices.DeleteFunc(got, func(typ string) bool { return strings.HasPrefix(typ, "agent.") })
	want := []string{
		"hypothesis.updated", "hypothesis.lifecycle", "hypothesis.signaled", "kg_edge.created", "hypothesis.linked", "kg_edge.retracted", "hypothesis.unlinked",
		"kg_edge.created", "hypothesis.linked", "comment.created", "kg_edge.created", "comment.linked", "hypothesis.commented", "hypothesis.superseded",
	}
	if !slices.Equal(got, want) {
		t.Errorf("events:\n%v\nwant:\n%v", got, want)
	}
}

// TestMergedContentIsValid lets two agents take a line each out of a text: each
// keeps enough, both together do not. The merge is not clean, says why, and is not
// written.
func TestMergedContentIsValid(t *testing.T) {
	f := newHub(t)
	ctx := contributor(t.Context())
	const first, last = "the first line\n", "and the last one"
	with := func(mechanism string) json.RawMessage {
		return content(map[string]any{"statement": "s", "mechanism": mechanism})
	}
	in := hypothesis("h", "")
	in.Content = with(first + "between\n" + last)
	base := f.mustCreate(t, in)
	update := func(mechanism string) (verb.WriteResult, error) {
		return verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: "hypothesis:h", BaseContentHash: base.ContentHash, Content: with(mechanism), AutoMerge: true})
	}
	ours, err := update("between\n" + last)
	if err != nil {
		t.Fatal(err)
	}
	_, err = update(first + "between\n")
	e := artifact.AsError(err)
	if e.Code != artifact.CodeVersionConflict || e.Conflict == nil || e.Conflict.Merge == nil {
		t.Fatalf("the second update = %v", err)
	}
	hint := e.Conflict.Merge
	if hint.Clean || len(hint.Conflicting) > 0 || len(hint.Problems) != 1 || hint.Problems[0].Path != "/content/mechanism" || hint.Problems[0].Constraint != "minLength" {
		t.Errorf("merge_hint = %+v", hint)
	}
	if got, err := verb.Get.Call(ctx, f.verbs, verb.GetRequest{Ref: base.Ref.Current()}); err != nil || got.Artifact.ContentHash != ours.ContentHash {
		t.Errorf("current = %+v, %v", got.Artifact, err)
	}
}

// TestMergedContentIsGuarded merges a change that cites what is not here: the merge
// is not clean, says why, and is not written.
func TestMergedContentIsGuarded(t *testing.T) {
	f := newHub(t)
	ctx := contributor(t.Context())
	base := f.mustCreate(t, hypothesis("h", "s"))
	update := func(patch string, merge bool) error {
		_, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: "hypothesis:h", BaseContentHash: base.ContentHash, MergePatch: json.RawMessage(patch), AutoMerge: merge})
		return err
	}
	if err := update(`{"disease":"AD"}`, false); err != nil {
		t.Fatal(err)
	}
	for _, merge := range []bool{false, true} {
		e := artifact.AsError(update(`{"description":"as in [PMID:77777777]"}`, merge))
		if e.Code != artifact.CodeVersionConflict || e.Conflict == nil || e.Conflict.Merge == nil {
			t.Fatalf("auto_merge %t: %v", merge, e)
		}
		hint := e.Conflict.Merge
		if hint.Clean || hint.Content != nil || len(hint.Problems) != 1 || hint.Problems[0].Path != "/content/description" || hint.Problems[0].Constraint != artifact.GuardResolvePMID {
			t.Errorf("auto_merge %t: merge_hint = %+v", merge, hint)
		}
	}
	e := artifact.AsError(update(`{"description":"as anyone knows"}`, false))
	if e.Conflict == nil || e.Conflict.Merge == nil || !e.Conflict.Merge.Clean {
		t.Errorf("a change that cites nothing = %+v", e)
	}
}

// TestImportKeepsProse writes a text with a bare PubMed id to a type that refuses
// those: an import by an admin goes through and is told, another write does not.
func TestImportKeepsProse(t *testing.T) {
	f := newHub(t)
	f.makeType(t, assay(object{"validators": []string{artifact.GuardInlinePMID}, "validator_modes": object{artifact.GuardInlinePMID: "enforce"}}))
	in := verb.CreateRequest{Type: "assay", ID: "a", Title: "T", Content: json.RawMessage(`{"reagent":"As PMID: 12345 says."}`)}
	if _, err := verb.Create.Call(contributor(t.Context()), f.verbs, in); faults(err) != "validation_failed: /content/reagent "+artifact.GuardInlinePMID {
		t.Errorf("create = %v", err)
	}
	out, err := verb.Batch.Call(as(t.Context(), "root", verb.Admin), f.verbs, verb.BatchRequest{Import: true, Items: []verb.BatchItem{{Create: &in}}})
	if err != nil || out.Items[0].Write == nil || len(out.Items[0].Write.Warnings) != 1 {
		t.Errorf("import = %+v, %v", out, err)
	}
}

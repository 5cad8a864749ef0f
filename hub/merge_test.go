package hub_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestMerge updates an artifact from a base that is no longer current.
func TestMerge(t *testing.T) {
	f := newHub(t)
	ref := artifact.Ref{Type: "hypothesis", ID: "h1"}
	base := f.mustCreate(t, verb.CreateRequest{
		Type: "hypothesis", ID: "h1", Title: "One", Content: content(map[string]any{
			"statement": "Tau spreads", "target_gene": "MAPT", "mechanism": "first line, long enough\nsecond line\nthird line\n",
		}),
	})
	update := func(in verb.UpdateRequest) (verb.WriteResult, error) {
		in.Ref = ref.String()
		return verb.Update.Call(contributor(t.Context()), f.verbs, in)
	}
	now, err := update(verb.UpdateRequest{BaseContentHash: base.ContentHash, MergePatch: json.RawMessage(
		`{"target_gene":"APOE","mechanism":"first line, long enough\nsecond line\nthird line, mended\n"}`)})
	if err != nil {
		t.Fatal(err)
	}
	conflictOf := func(in verb.UpdateRequest) *artifact.Conflict {
		t.Helper()
		_, err := update(in)
		e := artifact.AsError(err)
		if e.Code != artifact.CodeVersionConflict || e.Reason != artifact.ReasonStaleBase || e.Conflict == nil || e.Conflict.Merge == nil {
			t.Fatalf("update = %v", err)
		}
		return e.Conflict
	}
	t.Run("tells all that is needed to try again", func(t *testing.T) {
		c := conflictOf(verb.UpdateRequest{BaseContentHash: base.ContentHash, Title: "Two", MergePatch: json.RawMessage(
			`{"statement":"Tau spreads fast","mechanism":"first line, mended too\nsecond line\nthird line\n"}`)})
		if c.YourBase != base.ContentHash.String() || c.Current.Ref != now.Ref || c.Current.ChangedBy.ID != "ada" || c.Current.Revision != 2 {
			t.Errorf("conflict = %+v", c)
		}
		var patch []map[string]any
		if err := json.Unmarshal(c.Diff, &patch); err != nil || len(patch) != 2 {
			t.Errorf("diff = %s", c.Diff)
		}
		before, problems := artifact.Version{Content: f.mustGet(t, contributor(t.Context()), base.Ref).Content, State: "proposed", Title: "One"}.Patch(c.Diff, "")
		if after := f.mustGet(t, contributor(t.Context()), now.Ref); problems != nil || string(before.Content) != string(after.Content) {
			t.Errorf("the diff leads from the base to %s, want %s; %v", before.Content, after.Content, problems)
		}
		h := c.Merge
		if !h.Clean || len(h.Conflicting) != 0 || h.Base != now.ContentHash || h.Title != "Two" {
			t.Errorf("hint = %+v", h)
		}
		want := `{"mechanism":"first line, mended too\nsecond line\nthird line, mended\n","statement":"Tau spreads fast","target_gene":"APOE"}`
		if diff := cmp.Diff(want, string(h.Content)); diff != "" {
			t.Errorf("merged content: %s", diff)
		}
		if a := f.mustGet(t, contributor(t.Context()), ref); a.Ref != now.Ref {
			t.Error("a conflict wrote something")
		}
	})
	t.Run("names what cannot be merged", func(t *testing.T) {
		for _, auto := range []bool{false, true} {
			c := conflictOf(verb.UpdateRequest{BaseContentHash: base.ContentHash, AutoMerge: auto, MergePatch: json.RawMessage(`{"target_gene":"TREM2","statement":"x"}`)})
			if c.Merge.Clean || !cmp.Equal(c.Merge.Conflicting, []string{"/content/target_gene"}) || c.Merge.Content != nil {
				t.Errorf("hint = %+v", c.Merge)
			}
		}
	})
	t.Run("merges when asked", func(t *testing.T) {
		out, err := update(verb.UpdateRequest{BaseContentHash: base.ContentHash, AutoMerge: true, MergePatch: json.RawMessage(`{"statement":"Tau spreads fast"}`)})
		if err != nil || !out.Merged || out.Revision != 3 {
			t.Fatalf("update = %+v, %v", out, err)
		}
		a := f.mustGet(t, contributor(t.Context()), ref)
		want := `{"mechanism":"first line, long enough\nsecond line\nthird line, mended\n","statement":"Tau spreads fast","target_gene":"APOE"}`
		if string(a.Content) != want {
			t.Errorf("content = %s", a.Content)
		}
	})
	t.Run("makes nothing of what is so already", func(t *testing.T) {
		out, err := update(verb.UpdateRequest{BaseContentHash: now.ContentHash, MergePatch: json.RawMessage(`{"statement":"Tau spreads fast"}`)})
		if err != nil || out.Idempotency != verb.IdempotencyDeduplicated || out.Revision != 3 || out.Seq != 0 {
			t.Errorf("update = %+v, %v", out, err)
		}
	})
	f.checkDigest(t)
	f.checkDense(t)
}

package hub_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// constraints returns where and of what warnings are.
func constraints(warnings []artifact.Problem) (out []string) {
	for _, w := range warnings {
		out = append(out, w.Path+" "+w.Constraint)
	}
	return out
}

// TestLinkSaysWhatItKeeps makes a link again that says otherwise: it stays as it was,
// which the answer warns of.
func TestLinkSaysWhatItKeeps(t *testing.T) {
	f := newHub(t)
	ctx := contributor(t.Context())
	f.mustCreate(t, hypothesis("a", "x"))
	b := f.mustCreate(t, hypothesis("b", "y"))
	f.mustCreate(t, paper("PMID:1", "", map[string]any{}))
	link := func(spec verb.LinkSpec) verb.LinkResult {
		t.Helper()
		spec.Predicate = "supports"
		out, err := verb.Link.Call(ctx, f.verbs, verb.LinkRequest{From: "hypothesis:a", LinkSpec: spec})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := verb.LinkSpec{To: "hypothesis:b", EvidenceRefs: []string{"paper:PMID:1"}, Evidence: json.RawMessage(`{"p":0.05,"n":1}`)}
	made := link(first)
	for name, c := range map[string]struct {
		spec verb.LinkSpec
		want []string
	}{
		"the same":         {first, nil},
		"in another order": {verb.LinkSpec{To: "hypothesis:b", Evidence: json.RawMessage(`{"n":1,"p":5e-2}`)}, nil},
		"less":             {verb.LinkSpec{To: "hypothesis:b"}, nil},
		"all else":         {verb.LinkSpec{To: b.Ref.String(), EvidenceRefs: []string{"hypothesis:b"}, Evidence: json.RawMessage(`{"n":2}`)}, []string{"/to kept", "/evidence_refs kept", "/evidence kept"}},
	} {
		if got := link(c.spec); got.Ref != made.Ref || got.Idempotency != verb.IdempotencyDeduplicated || !slices.Equal(constraints(got.Warnings), c.want) {
			t.Errorf("%s: %s %s warns of %v, want %v", name, got.Ref, got.Idempotency, constraints(got.Warnings), c.want)
		}
	}
	for claim, want := range map[string][]string{"one": nil, "another": {" kept"}} {
		for _, claim := range []string{"one", claim} {
			got, err := verb.Cite.Call(ctx, f.verbs, verb.CiteRequest{Ref: "hypothesis:a", PMID: "1", Claim: claim})
			if err != nil || claim != "one" && !slices.Equal(constraints(got.Warnings), want) {
				t.Errorf("the claim %s: %v, %v", claim, constraints(got.Warnings), err)
			}
		}
	}
}

// TestUpdateOfSuperseded updates what is current no more: it is written, and warned
// of.
func TestUpdateOfSuperseded(t *testing.T) {
	f := newHub(t)
	ctx := contributor(t.Context())
	f.mustCreate(t, hypothesis("new", "y"))
	for by, want := range map[string]string{"": "null", "hypothesis:new": `"hypothesis:new"`} {
		base := f.mustCreate(t, hypothesis("", "x"))
		update := func(title string) verb.WriteResult {
			out, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: base.Ref.Current().String(), BaseContentHash: base.ContentHash, Title: title})
			if err != nil {
				t.Fatal(err)
			}
			base = out
			return out
		}
		if got := update("before"); len(got.Warnings) > 0 {
			t.Errorf("before it is superseded: %+v", got.Warnings)
		}
		if _, err := verb.Supersede.Call(ctx, f.verbs, verb.SupersedeRequest{Ref: base.Ref.Current().String(), ReplacementRef: by, Reason: "r"}); err != nil {
			t.Fatal(err)
		}
		got := update("after")
		if len(got.Warnings) != 1 || got.Warnings[0].Constraint != "superseded" {
			t.Fatalf("after it is superseded by %q: %+v", by, got.Warnings)
		}
		if s := got.Warnings[0].Suggestion; string(s) != want && (by != "" || s != nil) {
			t.Errorf("superseded by %q: the suggestion is %s", by, s)
		}
	}
}

package hub_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// faults returns an error's code and its problems, path and constraint, in order.
func faults(err error) string {
	e := artifact.AsError(err)
	var all []string
	for _, p := range e.Problems {
		all = append(all, p.Path+" "+p.Constraint)
	}
	slices.Sort(all)
	return string(e.Code) + ": " + strings.Join(all, ", ")
}

// TestAllProblemsAtOnce breaks several rules with each request: those of its shape,
// of the type's schema, and of what is only known by a look at the database. All
// are told, each once.
func TestAllProblemsAtOnce(t *testing.T) {
	f := twoLabs(t)
	ada := f.member(t.Context(), "ada", verb.Contributor)
	f.mustCreate(t, paper("PMID:11", "", map[string]any{"doi": "10.1000/eleven"}))
	for _, p := range []string{"lab-a", "lab-b"} {
		in := paper("PMID:33", p, map[string]any{})
		if _, err := verb.Create.Call(f.member(t.Context(), map[string]string{"lab-a": "ada", "lab-b": "bob"}[p], verb.Contributor), f.verbs, in); err != nil {
			t.Fatal(err)
		}
	}
	base := f.mustCreate(t, hypothesis("h", "x"))
	const bad = `{"statement":"As in [PMID:11], [PMID:98].","mechanism":"TBD","description":"See [DOI:10.1000/none] and [PMID:99].","target_gene":"trem2","therapies":[7]}`
	const all = "/content/description resolve_doi_citations, /content/description resolve_pmid_citations, /content/mechanism minLength, /content/statement resolve_pmid_citations, /content/target_gene hgnc_symbol, /content/therapies/0 type"
	create := func(change func(*verb.CreateRequest)) verb.CreateRequest {
		in := verb.CreateRequest{Type: "hypothesis", Title: "T", Content: json.RawMessage(bad)}
		if change != nil {
			change(&in)
		}
		return in
	}
	prefixed := func(prefix, problems string) string {
		return prefix + strings.ReplaceAll(problems, ", ", ", "+prefix)
	}
	cases := map[string]struct {
		call func() error
		want string
	}{
		"a create": {func() error {
			_, err := verb.Create.Call(ada, f.verbs, create(nil))
			return err
		}, "validation_failed: " + all},
		"a create whose title, state and key are wrong too": {func() error {
			_, err := verb.Create.Call(ada, f.verbs, create(func(in *verb.CreateRequest) {
				in.Title, in.State, in.IdempotencyKey = "", "propsed", "again"
			}))
			return err
		}, "validation_failed: " + all + ", /idempotency_key uuid, /state enum, /title required"},
		"a create that begins in another state": {func() error {
			_, err := verb.Create.Call(ada, f.verbs, create(func(in *verb.CreateRequest) { in.State = "resolved" }))
			return err
		}, "validation_failed: " + all + ", /state lifecycle_transition_allowed"},
		"a sound content in another state that cites nothing here": {func() error {
			in := hypothesis("", "As in [PMID:98].")
			in.State = "resolved"
			_, err := verb.Create.Call(ada, f.verbs, in)
			return err
		}, "lifecycle_violation: /content/statement resolve_pmid_citations, /state lifecycle_transition_allowed"},
		"a create with links": {func() error {
			_, err := verb.Create.Call(ada, f.verbs, create(func(in *verb.CreateRequest) {
				in.Links = []verb.LinkSpec{
					{Predicate: "about", To: "gene:NONE"},
					{Predicate: "abuot", To: "gene:NONE", EvidenceRefs: []string{"paper:PMID:11", "paper:none"}},
					{Predicate: "cites", To: "paper:PMID:11"},
					{Predicate: "supports", To: "no ref"},
				}
			}))
			return err
		}, "validation_failed: " + all + ", /links/0/to link_targets_exist, /links/1/evidence_refs/1 evidence_supports_claim, /links/1/predicate predicate, /links/1/to link_targets_exist, /links/3/to ref"},
		"a sound content whose links are wrong, and that cites nothing here": {func() error {
			in := hypothesis("", "As in [PMID:98].")
			in.Links = []verb.LinkSpec{{Predicate: "about", To: "gene:NONE"}, {Predicate: "cites", To: "gene:NONE"}}
			_, err := verb.Create.Call(ada, f.verbs, in)
			return err
		}, "validation_failed: /content/statement resolve_pmid_citations, /links/0/to link_targets_exist, /links/1/to link_targets_exist, /links/1/to to_types"},
		"links that lead nowhere": {func() error {
			in := hypothesis("", "x")
			in.Links = []verb.LinkSpec{
				{Predicate: "about", To: "gene:A"},
				{Predicate: "cites", To: "paper:PMID:11"},
				{Predicate: "about", To: "gene:B", EvidenceRefs: []string{"paper:none"}},
				{Predicate: "supports", To: "hypothesis:h@" + artifact.HashBytes([]byte("x")).String()},
			}
			_, err := verb.Create.Call(ada, f.verbs, in)
			if refs, _ := artifact.AsError(err).Details["refs"].([]string); len(refs) != 4 {
				t.Errorf("details.refs = %v", refs)
			}
			return err
		}, "link_target_missing: /links/0/to link_targets_exist, /links/2/evidence_refs/0 evidence_supports_claim, /links/2/to link_targets_exist, /links/3/to link_targets_exist"},
		"one link": {func() error {
			_, err := verb.Link.Call(ada, f.verbs, verb.LinkRequest{From: "hypothesis:h", LinkSpec: verb.LinkSpec{Predicate: "abuot", To: "gene:NONE", EvidenceRefs: []string{"paper:none"}}})
			return err
		}, "validation_failed: /evidence_refs/0 evidence_supports_claim, /predicate predicate, /to link_targets_exist"},
		"a link that is no link": {func() error {
			_, err := verb.Link.Call(ada, f.verbs, verb.LinkRequest{From: "hypothesis:h", LinkSpec: verb.LinkSpec{Predicate: "abuot", To: "", Evidence: json.RawMessage(`[]`)}})
			return err
		}, "validation_failed: /evidence type, /predicate predicate, /to ref"},
		"a paper that is here": {func() error {
			_, err := verb.Create.Call(ada, f.verbs, verb.CreateRequest{Type: "paper", ID: "again", Title: "P", Content: json.RawMessage(`{"pmid":"11","doi":"10.1000/ELEVEN","year":"soon"}`)})
			return err
		}, "validation_failed: /content/doi unique, /content/pmid unique, /content/year pattern"},
		"an update of the whole": {func() error {
			_, err := verb.Update.Call(ada, f.verbs, verb.UpdateRequest{Ref: "hypothesis:h", BaseContentHash: base.ContentHash, Content: json.RawMessage(bad), State: "propsed"})
			return err
		}, "validation_failed: " + all + ", /state enum"},
		"an update of what is not there": {func() error {
			_, err := verb.Update.Call(ada, f.verbs, verb.UpdateRequest{Ref: "hypothesis:none", BaseContentHash: base.ContentHash, Content: json.RawMessage(bad)})
			return err
		}, "validation_failed: /content/mechanism minLength, /content/therapies/0 type"},
		"an update by a merge patch": {func() error {
			_, err := verb.Update.Call(ada, f.verbs, verb.UpdateRequest{Ref: "hypothesis:h", BaseContentHash: base.ContentHash, MergePatch: json.RawMessage(bad)})
			return err
		}, "validation_failed: " + all},
		"an update by a patch": {func() error {
			_, err := verb.Update.Call(ada, f.verbs, verb.UpdateRequest{Ref: "hypothesis:h", BaseContentHash: base.ContentHash, Patch: json.RawMessage(`[{"op":"replace","path":"/content","value":` + bad + `},{"op":"replace","path":"/title","value":" "}]`)})
			return err
		}, "validation_failed: " + all + ", /title required"},
		"an update that moves where none leads": {func() error {
			_, err := verb.Update.Call(ada, f.verbs, verb.UpdateRequest{Ref: "hypothesis:h", BaseContentHash: base.ContentHash, MergePatch: json.RawMessage(`{"statement":"As in [PMID:98]."}`), State: "resolved"})
			return err
		}, "lifecycle_violation: /content/statement resolve_pmid_citations, /state lifecycle_transition_allowed"},
		"a replacement, and no reason": {func() error {
			_, err := verb.Supersede.Call(ada, f.verbs, verb.SupersedeRequest{Ref: "hypothesis:h", Replacement: &verb.NewArtifact{Type: "hypothesis", Title: "", Content: json.RawMessage(bad)}})
			return err
		}, "validation_failed: " + prefixed("/replacement", all) + ", /replacement/title required, /reason required"},
		"a comment": {func() error {
			_, err := verb.Comment.Call(ada, f.verbs, verb.CommentRequest{Ref: "hypothesis:h", Body: "See [PMID:98] and [DOI:10.1000/none].", ThreadParent: "hypothesis:h"})
			return err
		}, "validation_failed: /body resolve_doi_citations, /body resolve_pmid_citations, /thread_parent to_types"},
		"a signal": {func() error {
			_, err := verb.Signal.Call(ada, f.verbs, verb.SignalRequest{Ref: "hypothesis:h", Kind: "rank", Dimension: "noveltie", Value: "7", Weight: "-1", Voter: "import:x"})
			return err
		}, "validation_failed: /dimension enum, /value range, /voter import_only, /weight minimum"},
		"what a lab has is known in the lab": {func() error {
			_, err := verb.Create.Call(ada, f.verbs, create(func(in *verb.CreateRequest) {
				in.Scope, in.Content = "lab-a", json.RawMessage(`{"statement":"[PMID:33] [PMID:11]","mechanism":"TBD"}`)
			}))
			return err
		}, "validation_failed: /content/mechanism minLength"},
		"and not in commons": {func() error {
			_, err := verb.Create.Call(ada, f.verbs, create(func(in *verb.CreateRequest) {
				in.Content = json.RawMessage(`{"statement":"[PMID:33] [PMID:11]","mechanism":"TBD"}`)
			}))
			return err
		}, "validation_failed: /content/mechanism minLength, /content/statement resolve_pmid_citations"},
	}
	before := f.rowCounts(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := faults(c.call()); got != sorted(c.want) {
				t.Errorf("faults:\n%s\nwant:\n%s", got, sorted(c.want))
			}
		})
	}
	for _, atomic := range []bool{false, true} {
		t.Run("an item of a batch", func(t *testing.T) {
			bad := create(func(in *verb.CreateRequest) {
				in.Links = []verb.LinkSpec{{Predicate: "about", To: "gene:NONE"}}
			})
			out, err := verb.Batch.Call(ada, f.verbs, verb.BatchRequest{Atomic: atomic, Items: []verb.BatchItem{{Create: &bad}}, IdempotencyKey: uuid.NewString(), DryRun: true})
			if err != nil || out.Items[0].Error == nil {
				t.Fatalf("batch = %+v, %v", out, err)
			}
			if got, want := faults(out.Items[0].Error), sorted("validation_failed: "+all+", /links/0/to link_targets_exist"); got != want {
				t.Errorf("faults:\n%s\nwant:\n%s", got, want)
			}
		})
	}
	if after := f.rowCounts(t); after != before {
		t.Errorf("rows = %s, before %s", after, before)
	}
}

// sorted puts the problems of a text as faults returns it in order.
func sorted(faults string) string {
	code, problems, _ := strings.Cut(faults, ": ")
	all := strings.Split(problems, ", ")
	slices.Sort(all)
	return code + ": " + strings.Join(all, ", ")
}

package hub_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// batchOf runs a batch as ada.
func (f *fixture) batchOf(t *testing.T, atomic bool, items ...verb.BatchItem) verb.BatchResult {
	t.Helper()
	out, err := verb.Batch.Call(contributor(t.Context()), f.verbs, verb.BatchRequest{Atomic: atomic, Items: items})
	if err != nil {
		t.Fatalf("batch: %v", err)
	}
	return out
}

// outcomes tells a batch's items apart: "" for those that were done, "skipped", or
// the code of the error.
func outcomes(r verb.BatchResult) []string {
	all := make([]string, len(r.Items))
	for i, it := range r.Items {
		switch {
		case it.Error != nil:
			all[i] = string(it.Error.Code)
		case it.Skipped:
			all[i] = "skipped"
		}
	}
	return all
}

func wantOutcomes(t *testing.T, r verb.BatchResult, want ...string) {
	t.Helper()
	if got := outcomes(r); !slices.Equal(got, want) {
		raw, err := json.MarshalIndent(r, "", " ")
		t.Fatalf("outcomes = %q, want %q: %s %v", got, want, raw, err)
	}
}

func (f *fixture) must(t *testing.T, r verb.BatchResult) verb.BatchResult {
	t.Helper()
	for i, it := range r.Items {
		if it.Error != nil || it.Skipped {
			t.Fatalf("item %d = %+v, %v", i, it, it.Error)
		}
	}
	return r
}

// itemHypothesis is a hypothesis to be made, with links that lead to these refs.
func itemHypothesis(alias, id string, to ...string) verb.BatchItem {
	in := hypothesis(id, "a statement of "+alias+id)
	in.Title = "About something"
	for _, ref := range to {
		in.Links = append(in.Links, verb.LinkSpec{Predicate: "derives_from", To: ref, ToCreateInBatch: !strings.HasPrefix(ref, "@")})
	}
	return verb.BatchItem{RefAlias: alias, Create: &in}
}

func itemLink(from, to string) verb.BatchItem {
	return verb.BatchItem{Link: &verb.LinkRequest{From: from, LinkSpec: verb.LinkSpec{Predicate: "derives_from", To: to}}}
}

func itemVote(ref string) verb.BatchItem {
	return verb.BatchItem{Signal: &verb.SignalRequest{Ref: ref, Kind: "vote", Value: "1"}}
}

func itemPaper(alias, pmid string) verb.BatchItem {
	return verb.BatchItem{RefAlias: alias, Create: &verb.CreateRequest{
		Type: "paper", ID: "PMID:" + pmid, Title: "A paper", Content: content(map[string]any{"pmid": pmid}),
	}}
}

func statement(s string) json.RawMessage { return content(map[string]any{"statement": s}) }

// TestBatchVerbs: a batch takes create, update, supersede, comment, signal, link,
// unlink and cite, and @alias stands for an earlier item's ref in any ref position.
func TestBatchVerbs(t *testing.T) {
	f := newHub(t)
	out := f.must(t, f.batchOf(t, true,
		itemHypothesis("h", ""),
		itemPaper("p", "100"),
		verb.BatchItem{RefAlias: "c", Comment: &verb.CommentRequest{Ref: "@h", Body: "why?"}},
		verb.BatchItem{RefAlias: "d", Comment: &verb.CommentRequest{Ref: "@h", Body: "because", ThreadParent: "@c"}},
		verb.BatchItem{RefAlias: "l", Link: &verb.LinkRequest{From: "@h", LinkSpec: verb.LinkSpec{Predicate: "derives_from", To: "@p", EvidenceRefs: []string{"@p"}}}},
		verb.BatchItem{RefAlias: "k", Cite: &verb.CiteRequest{Ref: "@h", PMID: "100", Claim: "so it is said"}},
		itemVote("@h"),
		verb.BatchItem{RefAlias: "u", Update: &verb.UpdateRequest{Ref: "@h", MergePatch: statement("a better statement")}},
		itemVote("@u"),
		verb.BatchItem{Unlink: &verb.UnlinkRequest{Ref: "@l", Reason: "wrong"}},
		verb.BatchItem{RefAlias: "n", Create: &verb.CreateRequest{Type: "hypothesis", Title: "Another", Content: statement("it is otherwise")}},
		verb.BatchItem{Supersede: &verb.SupersedeRequest{Ref: "@u", ReplacementRef: "@n", Reason: "better"}},
		verb.BatchItem{RefAlias: "r", Supersede: &verb.SupersedeRequest{Ref: "@n", Reason: "best", Replacement: &verb.NewArtifact{Type: "hypothesis", Title: "Third", Content: statement("third")}}},
		itemVote("@r"),
	))
	h := out.Items[0].Write.Ref
	if u := out.Items[7].Write; u.Ref.Current() != h.Current() || u.Revision != 2 || u.Ref.Hash == h.Hash {
		t.Errorf("update = %+v, want revision 2 of %s", u, h)
	}
	if a := out.Items[8].Signal.Aggregate; a.Count != 1 || out.Items[8].Signal.Idempotency != verb.IdempotencyDeduplicated {
		t.Errorf("a second equal vote, by the update's alias: %+v", out.Items[8].Signal)
	}
	if s := out.Items[11].Write; s.SupersededBy != out.Items[10].Write.Ref.Current().String() {
		t.Errorf("supersede = %+v", s)
	}
	if n := f.count(t, "SELECT count(*) FROM link WHERE predicate = 'derives_from'"); n != 0 {
		t.Errorf("%d links are left of one that was taken back where it was made", n)
	}
	if n := f.count(t, "SELECT count(*) FROM link_retraction WHERE reason = 'wrong' AND link::jsonb ->> 'from_id' = $1", h.ID); n != 1 {
		t.Errorf("%d retractions, want 1", n)
	}
	if n := f.count(t, "SELECT count(*) FROM link WHERE predicate IN ('comments_on', 'replies_to', 'cites')"); n != 4 {
		t.Errorf("%d links of comments and citations, want 4", n)
	}
	if n := f.count(t, "SELECT count(DISTINCT commit_seq) FROM feed.change WHERE commit_seq >= $1", int64(out.Seq)); n != 1 {
		t.Error("the batch is not one commit")
	}
	f.checkDigest(t)
}

// TestBatchUpdates: an update of what the batch made needs no base, any other does;
// of two updates of one artifact the second is based on the first, or conflicts.
func TestBatchUpdates(t *testing.T) {
	f := newHub(t)
	h := f.mustCreate(t, hypothesis("h-u", "one"))
	ref := h.Ref.Current().String()
	update := func(alias, ref string, base artifact.Hash, s string) verb.BatchItem {
		return verb.BatchItem{RefAlias: alias, Update: &verb.UpdateRequest{Ref: ref, BaseContentHash: base, Content: statement(s)}}
	}
	t.Run("a base may be absent for an alias alone", func(t *testing.T) {
		wantOutcomes(t, f.batchOf(t, false, update("", ref, artifact.Hash{}, "two")), "validation_failed")
	})
	t.Run("the second of two conflicts", func(t *testing.T) {
		out := f.batchOf(t, false, update("", ref, h.ContentHash, "two"), update("", ref, h.ContentHash, "three"))
		wantOutcomes(t, out, "", "version_conflict")
		c := out.Items[1].Error.Conflict
		if c == nil || c.Current.Ref != out.Items[0].Write.Ref || string(c.Current.Content) != `{"statement":"two"}` || c.Merge == nil || c.Merge.Clean {
			t.Errorf("conflict = %+v", c)
		}
	})
	t.Run("the second is based on the first", func(t *testing.T) {
		two := artifact.ContentHash("hypothesis", h0Title, "proposed", []byte(`{"statement":"two"}`))
		four := artifact.ContentHash("hypothesis", h0Title, "proposed", []byte(`{"statement":"four"}`))
		out := f.must(t, f.batchOf(t, true, update("", ref, two, "four"), update("a", ref, four, "five"), update("", "@a", artifact.Hash{}, "six")))
		if r := out.Items[2].Write; r.Revision != 5 {
			t.Errorf("update = %+v, want revision 5", r)
		}
	})
	t.Run("the second merges with the first", func(t *testing.T) {
		m := f.mustCreate(t, verb.CreateRequest{Type: "hypothesis", Title: "About", Content: content(map[string]any{"statement": "s", "disease": "AD"})})
		merge := func(member string) verb.BatchItem {
			return verb.BatchItem{Update: &verb.UpdateRequest{Ref: m.Ref.Current().String(), BaseContentHash: m.ContentHash, AutoMerge: true, MergePatch: content(map[string]any{member: "new"})}}
		}
		out := f.must(t, f.batchOf(t, true, merge("statement"), merge("disease")))
		if r := out.Items[1].Write; !r.Merged || r.Revision != 3 {
			t.Errorf("update = %+v, want a merge", r)
		}
	})
	t.Run("of nothing that the batch makes later", func(t *testing.T) {
		wantOutcomes(t, f.batchOf(t, false, update("", "@late", artifact.Hash{}, "x"), itemHypothesis("late", "")), "validation_failed", "")
	})
	t.Run("of papers keep their ids apart", func(t *testing.T) {
		f.must(t, f.batchOf(t, true, itemPaper("p", "200"),
			verb.BatchItem{Update: &verb.UpdateRequest{Ref: "@p", Patch: json.RawMessage(`[{"op":"add","path":"/content/doi","value":"10.1234/a"}]`)}}))
		out := f.batchOf(t, false, itemPaper("q", "201"),
			verb.BatchItem{Update: &verb.UpdateRequest{Ref: "@q", Patch: json.RawMessage(`[{"op":"add","path":"/content/doi","value":"10.1234/a"}]`)}},
			verb.BatchItem{RefAlias: "w", Create: &verb.CreateRequest{Type: "wiki_page", Title: "w", Content: content(map[string]any{"markdown": "nothing"})}},
			verb.BatchItem{Update: &verb.UpdateRequest{Ref: "@w", MergePatch: content(map[string]any{"markdown": "As [PMID:200] says."})}})
		wantOutcomes(t, out, "", "validation_failed", "", "")
	})
	t.Run("supersede in a circle", func(t *testing.T) {
		a, b, c := f.mustCreate(t, hypothesis("c-a", "a")), f.mustCreate(t, hypothesis("c-b", "b")), f.mustCreate(t, hypothesis("c-c", "c"))
		by := func(old, next verb.WriteResult) verb.BatchItem {
			return verb.BatchItem{Supersede: &verb.SupersedeRequest{Ref: old.Ref.Current().String(), ReplacementRef: next.Ref.Current().String(), Reason: "r"}}
		}
		wantOutcomes(t, f.batchOf(t, false, by(a, b), by(b, c), by(c, a)), "", "", "validation_failed")
	})
	f.checkDigest(t)
}

const h0Title = "About h-u"

// TestToCreateInBatch: targets that a later item makes are checked at the end.
func TestToCreateInBatch(t *testing.T) {
	f := newHub(t)
	missing, invalid := string(artifact.CodeLinkTargetMissing), string(artifact.CodeValidationFailed)
	bad := func(alias string) verb.BatchItem {
		return verb.BatchItem{RefAlias: alias, Create: &verb.CreateRequest{Type: "hypothesis", Title: "t", Content: json.RawMessage(`{}`)}}
	}
	t.Run("in a circle, by alias and by ref", func(t *testing.T) {
		out := f.must(t, f.batchOf(t, true, itemHypothesis("a", "", "@b"), itemHypothesis("b", "", "@a"), itemHypothesis("", "x", "hypothesis:y"), itemHypothesis("", "y", "hypothesis:x")))
		for i, it := range out.Items {
			if len(it.Write.Links) != 1 || it.Write.Links[0] == "kg_edge:" {
				t.Errorf("item %d: links = %q", i, it.Write.Links)
			}
		}
		if n := f.count(t, "SELECT count(*) FROM link"); n != 4 {
			t.Errorf("%d links, want 4", n)
		}
	})
	t.Run("as a link, and as its evidence", func(t *testing.T) {
		l := itemLink("@a", "@b")
		l.Link.EvidenceRefs = []string{"@c"}
		f.must(t, f.batchOf(t, true, itemHypothesis("a", ""), l, itemHypothesis("b", ""), itemHypothesis("c", "")))
	})
	t.Run("a ref that is not marked must be there", func(t *testing.T) {
		first := itemHypothesis("", "m", "hypothesis:n")
		first.Create.Links[0].ToCreateInBatch = false
		wantOutcomes(t, f.batchOf(t, false, first, itemHypothesis("", "n")), missing, "")
	})
	t.Run("an item whose target did not come to be fails as a whole", func(t *testing.T) {
		out := f.batchOf(t, false, itemHypothesis("a", "whole", "@b"), itemVote("@a"), bad("b"), itemHypothesis("", "other"))
		wantOutcomes(t, out, missing, invalid, invalid, "")
		if n := f.count(t, "SELECT count(*) FROM artifact WHERE id IN ('whole', 'other')"); n != 1 {
			t.Errorf("%d of two artifacts are there, want 1", n)
		}
	})
	t.Run("a link alone fails alone", func(t *testing.T) {
		wantOutcomes(t, f.batchOf(t, false, itemHypothesis("a", ""), itemLink("@a", "@b"), bad("b")), "", missing, invalid)
	})
	t.Run("what hangs on a failed item fails", func(t *testing.T) {
		// z hangs on y, y on x, x on w, which is not made.
		out := f.batchOf(t, false, itemHypothesis("z", "", "@y"), itemHypothesis("y", "", "@x"), itemHypothesis("x", "", "@w"), itemHypothesis("free", ""), bad("w"))
		wantOutcomes(t, out, missing, missing, missing, "", invalid)
	})
	t.Run("what only seemed to fail is done", func(t *testing.T) {
		// The second of one id fails because of the first, which fails in the end.
		out := f.batchOf(t, false, itemHypothesis("", "twice", "@w"), itemHypothesis("", "twice"), bad("w"))
		wantOutcomes(t, out, missing, "", invalid)
	})
	t.Run("a target that was there before needs no item", func(t *testing.T) {
		f.mustCreate(t, hypothesis("there", "s"))
		again := itemHypothesis("", "there")
		wantOutcomes(t, f.batchOf(t, false, itemHypothesis("", "", "hypothesis:there", "hypothesis:nowhere"), itemHypothesis("", "", "hypothesis:there"), again), missing, "", "version_conflict")
	})
	t.Run("atomic", func(t *testing.T) {
		out := f.batchOf(t, true, itemHypothesis("", "atom"), itemHypothesis("", "", "hypothesis:never"), itemHypothesis("", ""))
		wantOutcomes(t, out, "skipped", missing, "skipped")
		if p := out.Items[1].Error.Details["refs"]; fmt.Sprint(p) != "[hypothesis:never]" {
			t.Errorf("refs = %v", p)
		}
		if n := f.count(t, "SELECT count(*) FROM artifact WHERE id = 'atom'"); n != 0 {
			t.Error("a failed atomic batch wrote")
		}
	})
	t.Run("tangled beyond reason", func(t *testing.T) {
		// Each pass fails one more: 2k waits for 2k+1, which names 2k+2 before it is made.
		var items []verb.BatchItem
		for i := range 400 {
			items = append(items, itemHypothesis(fmt.Sprintf("a%d", i), "", fmt.Sprintf("@a%d", i+1)))
		}
		out := f.batchOf(t, false, append(items, bad("a400"))...)
		for i, o := range outcomes(out) {
			if o == "" {
				t.Fatalf("item %d was done", i)
			}
		}
	})
	f.checkDigest(t)
}

// TestBatchSavepoint: an item that fails leaves nothing behind, whatever it had
// done before it failed.
func TestBatchSavepoint(t *testing.T) {
	f := newHub(t)
	p := f.must(t, f.batchOf(t, true, itemPaper("", "300"))).Items[0].Write.Ref.Current().String()
	before := f.count(t, "SELECT count(*) FROM feed.change")
	late := itemHypothesis("x", "sp", "hypothesis:none")
	late.Create.Links[0].ToCreateInBatch = false
	out := f.batchOf(t, false,
		// It gives up the paper's ids, and then its replacement is refused.
		verb.BatchItem{RefAlias: "s", Supersede: &verb.SupersedeRequest{Ref: p, Reason: "r", Replacement: &verb.NewArtifact{
			Type: "paper", Title: "t", Content: content(map[string]any{"pmid": "300"}), Links: []verb.LinkSpec{{Predicate: "cites", To: "paper:none"}},
		}}},
		// It adds the artifact, and then its link is refused.
		late,
		itemVote("@x"), itemVote("@s"),
		// The ids are still the paper's.
		verb.BatchItem{Create: &verb.CreateRequest{Type: "paper", Title: "t", Content: content(map[string]any{"pmid": "300"})}},
		verb.BatchItem{Create: &verb.CreateRequest{Type: "wiki_page", ID: "sp-w", Title: "t", Content: content(map[string]any{"markdown": "[PMID:300]"})}},
		verb.BatchItem{Create: &verb.CreateRequest{Type: "hypothesis", ID: "sp", Title: "t", Content: statement("s")}},
	)
	wantOutcomes(t, out, "link_target_missing", "link_target_missing", "validation_failed", "validation_failed", "validation_failed", "", "")
	if n := f.count(t, "SELECT count(*) FROM feed.change"); n != before+4 {
		t.Errorf("%d rows, want those of two creates", n-before)
	}
	if n := f.count(t, "SELECT count(*) FROM paper_key WHERE key = '300' AND 'paper:' || id = $1", p); n != 1 {
		t.Error("a failed item took the paper's ids away")
	}
	f.checkDigest(t)
}

// TestBatchRefusals: the key and dry_run are the batch's, an
// unlink has no alias, and an import changes nothing.
func TestBatchRefusals(t *testing.T) {
	f := newHub(t)
	url := f.serve(t)
	h := f.mustCreate(t, hypothesis("h-r", "s"))
	ref := h.Ref.Current().String()
	for name, tt := range map[string]struct{ body, code, path string }{
		"an item's key":              {`{"items":[{"op":"comment","ref":"` + ref + `","body":"b","idempotency_key":"` + uuid.NewString() + `"}]}`, "validation_failed", "/idempotency_key"},
		"an item's dry_run":          {`{"items":[{"op":"unlink","ref":"kg_edge:k","reason":"r","dry_run":true}]}`, "validation_failed", "/dry_run"},
		"an alias with a space":      {`{"items":[{"op":"comment","ref":"` + ref + `","body":"b","ref_alias":"a b"}]}`, "validation_failed", "/ref_alias"},
		"an update without a change": {`{"items":[{"op":"update","ref":"` + ref + `","base_content_hash":"` + h.ContentHash.String() + `"}]}`, "validation_failed", ""},
		"an update without a base":   {`{"items":[{"op":"update","ref":"` + ref + `","title":"t"}]}`, "validation_failed", "/base_content_hash"},
		"an unknown alias":           {`{"items":[{"op":"update","ref":"@a","title":"t"}]}`, "validation_failed", "/ref"},
		"an alias that is no link":   {`{"items":[{"op":"comment","ref":"` + ref + `","body":"b","ref_alias":"c"},{"op":"unlink","ref":"@c","reason":"r"}]}`, "validation_failed", "/ref"},
	} {
		t.Run(name, func(t *testing.T) {
			status, raw := f.batchJSON(t, url, tt.body)
			var out verb.BatchResult
			if err := json.Unmarshal(raw, &out); err != nil || status != 200 {
				t.Fatalf("%d %s: %v", status, raw, err)
			}
			e := out.Items[len(out.Items)-1].Error
			if e == nil || string(e.Code) != tt.code || len(e.Problems) != 1 || e.Problems[0].Path != tt.path {
				t.Errorf("answer = %s, want %s at %q", raw, tt.code, tt.path)
			}
		})
	}
	for name, tt := range map[string]struct{ body, path string }{
		"an unlink's alias":      {`{"items":[{"op":"signal","ref":"` + ref + `","kind":"vote","value":1},{"op":"unlink","ref_alias":"a","ref":"kg_edge:k","reason":"r"}]}`, "/items/1/ref_alias"},
		"an unknown op":          {`{"items":[{"op":"creat"}]}`, "/items/0/op"},
		"an update's wrong base": {`{"items":[{"op":"update","ref":"` + ref + `","base_content_hash":"sha256:1","title":"t"}]}`, "/items/0/base_content_hash"},
	} {
		t.Run(name, func(t *testing.T) {
			status, raw := f.batchJSON(t, url, tt.body)
			var e artifact.Error
			if err := json.Unmarshal(raw, &e); err != nil || status != 422 || len(e.Problems) != 1 || e.Problems[0].Path != tt.path {
				t.Errorf("%d %s, want a problem at %s", status, raw, tt.path)
			}
		})
	}
	t.Run("an import changes nothing", func(t *testing.T) {
		out, err := verb.Batch.Call(as(t.Context(), "root", verb.Admin), f.verbs, verb.BatchRequest{Import: true, Items: []verb.BatchItem{
			{Update: &verb.UpdateRequest{Ref: ref, BaseContentHash: h.ContentHash, Title: "t"}}, {Comment: &verb.CommentRequest{Ref: ref, Body: "b"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		wantOutcomes(t, out, "validation_failed", "validation_failed")
	})
	t.Run("more than 1,000 items", func(t *testing.T) {
		_, err := verb.Batch.Call(contributor(t.Context()), f.verbs, verb.BatchRequest{Items: make([]verb.BatchItem, verb.MaxBatchItems+1)})
		if e := artifact.AsError(err); len(e.Problems) != 1 || e.Problems[0].Path != "/items" {
			t.Errorf("error = %v", err)
		}
	})
	t.Run("more than 16 MiB", func(t *testing.T) {
		status, _ := f.batchJSON(t, url, `{"items":[`+strings.Repeat(" ", verb.MaxBatchBytes)+`]}`)
		if status != 413 {
			t.Errorf("status = %d", status)
		}
	})
	t.Run("a dry run writes nothing", func(t *testing.T) {
		before := f.count(t, "SELECT count(*) FROM feed.change")
		out, err := verb.Batch.Call(contributor(t.Context()), f.verbs, verb.BatchRequest{DryRun: true, IdempotencyKey: uuid.NewString(), Items: []verb.BatchItem{itemHypothesis("a", "", "@b"), itemHypothesis("b", "")}})
		if err != nil || out.Committed || out.Seq != 0 || out.Items[0].Write == nil {
			t.Errorf("batch = %+v, %v", out, err)
		}
		if n := f.count(t, "SELECT count(*) FROM feed.change") + f.count(t, "SELECT count(*) FROM idempotency"); n != before {
			t.Error("a dry run wrote")
		}
	})
}

// batchJSON sends a batch's JSON as ada.
func (f *fixture) batchJSON(t *testing.T, url, body string) (status int, raw []byte) {
	t.Helper()
	a := request(t, "POST", url+verb.PathPrefix+"batch", f.token(t, "ada", verb.Contributor), []byte(body))
	return a.status, a.body
}

// TestBatchReplay: the whole result is kept for its key, of a success, a partial
// failure, and a failure of all.
func TestBatchReplay(t *testing.T) {
	f := newHub(t)
	f.mustCreate(t, hypothesis("taken", "s"))
	bad := verb.BatchItem{Create: &verb.CreateRequest{Type: "hypothesis", Title: "t", Content: json.RawMessage(`{}`)}}
	for name, in := range map[string]verb.BatchRequest{
		"success":                  {Items: []verb.BatchItem{itemHypothesis("", "r1"), itemVote("hypothesis:taken")}},
		"partial failure":          {Items: []verb.BatchItem{itemHypothesis("", "r2"), itemHypothesis("", "taken"), bad}},
		"failure of all":           {Items: []verb.BatchItem{itemHypothesis("", "taken"), bad}},
		"atomic failure":           {Atomic: true, Items: []verb.BatchItem{itemHypothesis("", "r3"), itemHypothesis("", "taken"), bad}},
		"atomic, and wrong":        {Atomic: true, Items: []verb.BatchItem{bad}},
		"nothing that was new":     {Items: []verb.BatchItem{{Unlink: &verb.UnlinkRequest{Ref: "kg_edge:none", Reason: "r"}}}},
		"a target that is no more": {Items: []verb.BatchItem{itemHypothesis("", "r4", "hypothesis:nowhere")}},
	} {
		t.Run(name, func(t *testing.T) {
			in.IdempotencyKey = uuid.NewString()
			first, err := verb.Batch.Call(contributor(t.Context()), f.verbs, in)
			if err != nil || first.Idempotency != verb.IdempotencyFresh {
				t.Fatalf("batch = %+v, %v", first, err)
			}
			before := f.count(t, "SELECT count(*) FROM feed.change")
			again, err := verb.Batch.Call(contributor(t.Context()), f.verbs, in)
			if err != nil || again.Idempotency != verb.IdempotencyReplayed {
				t.Fatalf("replay = %+v, %v", again, err)
			}
			again.Idempotency = first.Idempotency
			if a, b := asJSON(t, first), asJSON(t, again); a != b {
				t.Errorf("replay = %s, first %s", b, a)
			}
			if n := f.count(t, "SELECT count(*) FROM feed.change"); n != before {
				t.Error("the replay wrote")
			}
			in.Items = append(in.Items, bad)
			if _, err := verb.Batch.Call(contributor(t.Context()), f.verbs, in); artifact.AsError(err).Reason != artifact.ReasonIdempotencyConflict {
				t.Errorf("another request with the key: %v", err)
			}
		})
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestBatchOneKey: of concurrent requests with one key one runs, the others wait and
// get its answer.
func TestBatchOneKey(t *testing.T) {
	f := newHub(t)
	other := newHubOn(t, f.db)
	for _, all := range []bool{true, false} { // items are done, or fail
		in := verb.BatchRequest{IdempotencyKey: uuid.NewString(), Items: []verb.BatchItem{itemHypothesis("", ""), itemVote("hypothesis:none")}}
		if !all {
			in.Items = in.Items[1:]
		}
		before := f.count(t, "SELECT count(*) FROM artifact")
		answers := make([]verb.BatchResult, 8)
		var wg sync.WaitGroup
		for i := range answers {
			verbs := f.verbs
			if i%2 == 0 {
				verbs = other.verbs
			}
			wg.Go(func() {
				var err error
				if answers[i], err = verb.Batch.Call(contributor(t.Context()), verbs, in); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		fresh := 0
		for i := range answers {
			if answers[i].Idempotency == verb.IdempotencyFresh {
				fresh++
			}
			answers[i].Idempotency = ""
			if a, b := asJSON(t, answers[0]), asJSON(t, answers[i]); !reflect.DeepEqual(a, b) {
				t.Errorf("answers differ: %s and %s", a, b)
			}
		}
		if fresh != 1 {
			t.Errorf("%d ran, want 1", fresh)
		}
		if n := f.count(t, "SELECT count(*) FROM artifact") - before; all && n != 1 {
			t.Errorf("%d artifacts, want 1", n)
		}
	}
}

// TestRankDecidedAgain checks that the score of an artifact is kept, though the
// batch that ranks it is decided again without the items that failed.
func TestRankDecidedAgain(t *testing.T) {
	f := newHub(t)
	f.mustCreate(t, hypothesis("h", "x"))
	leads := hypothesis("a", "leads to what is not made")
	leads.Links = []verb.LinkSpec{{Predicate: "supports", To: "@b"}}
	out := f.batchOf(t, false,
		verb.BatchItem{Signal: &verb.SignalRequest{Ref: "hypothesis:h", Kind: "rank", Dimension: "novelty", Value: "0.5"}},
		verb.BatchItem{Create: &leads},
		verb.BatchItem{RefAlias: "b", Create: new(hypothesis("h", "taken"))},
	)
	if out.Items[0].Error != nil || out.Items[1].Error == nil || out.Items[2].Error == nil {
		t.Fatalf("batch = %+v", out.Items)
	}
	ref := artifact.Ref{Type: "hypothesis", ID: "h"}
	if score := f.mustGet(t, contributor(t.Context()), ref).QualityScore; score == nil || *score != 0.5 {
		t.Errorf("quality score = %v, want 0.5", score)
	}
	f.checkDigest(t)
}

package rights_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// update writes a version on the current one.
func (w *world) update(t *testing.T, c *verb.Client, ref string, in verb.UpdateRequest) artifact.Ref {
	t.Helper()
	in.Ref, in.BaseContentHash = ref, must(t, c, verb.Get, verb.GetRequest{Ref: parsed(t, ref)}).Artifact.ContentHash
	return must(t, c, verb.Update, in).Ref
}

// revisions returns which versions a history tells of.
func revisions(versions []verb.PastVersion) (all []int) {
	for _, v := range versions {
		all = append(all, v.Revision)
	}
	return all
}

// TestHistory lists versions, at hub and node alike.
func TestHistory(t *testing.T) {
	w := newPair(t)
	ada, out := w.client(t, atHub, "ada", nil, verb.Viewer, verb.Contributor), w.token(t, "out", nil, verb.Viewer)
	w.update(t, ada, "hypothesis:h", verb.UpdateRequest{MergePatch: object(map[string]any{"disease": "α"}), Note: "a disease"})
	w.update(t, ada, "hypothesis:h", verb.UpdateRequest{MergePatch: object(map[string]any{"disease": nil}), Title: "T2", State: "investigating"})
	t.Run("newest first, with who, why and what changed", func(t *testing.T) {
		got := alikeAs[verb.HistoryResponse](t, w, out, "history", request{"ref": "hypothesis:h", "include_content": true})
		if !slices.Equal(revisions(got.Versions), []int{3, 2, 1}) || got.NextCursor != "" {
			t.Fatalf("history = %v", revisions(got.Versions))
		}
		patches := []string{
			`[{"op":"remove","path":"/content/disease"},{"op":"replace","path":"/state","value":"investigating"},{"op":"replace","path":"/title","value":"T2"}]`,
			`[{"op":"add","path":"/content/disease","value":"α"}]`, ``,
		}
		for i, v := range got.Versions {
			writer := "ada"
			if i == 2 {
				writer = "root"
			}
			if string(v.Patch) != patches[i] || v.UpdatedBy != writer || v.IsLatest != (i == 0) || v.PreviousRevision != 2-i || !strings.Contains(string(v.Provenance), `"actor_kind":"human"`) {
				t.Errorf("version %d = %s", v.Revision, text(v))
			}
			pinned := w.got(t, out, request{"ref": v.Ref.String()})
			if string(pinned.Content) != string(v.Content) || pinned.Title != v.Title || pinned.State != v.State {
				t.Errorf("version %d is not what get answers: %s", v.Revision, text(pinned))
			}
		}
		if got.Versions[1].Note != "a disease" {
			t.Errorf("note = %q", got.Versions[1].Note)
		}
	})
	t.Run("page by page, each patch from the page after", func(t *testing.T) {
		whole := alikeAs[verb.HistoryResponse](t, w, out, "history", request{"ref": "hypothesis:h"})
		var all []verb.PastVersion
		r := request{"ref": "hypothesis:h", "limit": 1}
		for {
			page := alikeAs[verb.HistoryResponse](t, w, out, "history", r)
			all = append(all, page.Versions...)
			if page.NextCursor == "" {
				break
			}
			r = r.with(request{"cursor": page.NextCursor})
		}
		if text(all) != text(whole.Versions) {
			t.Errorf("by one: %s\nwhole: %s", text(all), text(whole.Versions))
		}
		if all[0].Content != nil {
			t.Error("content that nobody asked for")
		}
	})
	t.Run("two versions that are alike", func(t *testing.T) {
		first := must(t, w.root, verb.Get, verb.GetRequest{Ref: parsed(t, "hypothesis:i")}).Artifact
		w.update(t, ada, "hypothesis:i", verb.UpdateRequest{Title: "Other"})
		w.update(t, ada, "hypothesis:i", verb.UpdateRequest{Title: first.Title})
		got := alikeAs[verb.HistoryResponse](t, w, out, "history", request{"ref": "hypothesis:i"})
		if v := got.Versions; len(v) != 3 || v[0].ContentHash != v[2].ContentHash || v[0].ContentHash == v[1].ContentHash {
			t.Errorf("history = %s", text(got))
		}
	})
	t.Run("a redacted one", func(t *testing.T) {
		must(t, w.root, verb.Redact, verb.RedactRequest{Ref: "hypothesis:i", Reason: "a patient", Revisions: 3})
		got := alikeAs[verb.HistoryResponse](t, w, out, "history", request{"ref": "hypothesis:i"})
		for i, v := range got.Versions {
			if v.Patch != nil || len(v.Redaction) == 0 || i < 2 && v.PatchOmitted != verb.PatchRedacted {
				t.Errorf("version %d = %s", v.Revision, text(v))
			}
		}
	})
	t.Run("a change too large to tell", func(t *testing.T) {
		w.update(t, ada, "hypothesis:j", verb.UpdateRequest{MergePatch: object(map[string]any{"statement": strings.Repeat("x", 100_000)})})
		w.update(t, ada, "hypothesis:j", verb.UpdateRequest{Title: "Short"})
		got := alikeAs[verb.HistoryResponse](t, w, out, "history", request{"ref": "hypothesis:j"})
		if v := got.Versions; v[0].Patch == nil || v[1].Patch != nil || v[1].PatchOmitted != verb.PatchTooLarge {
			t.Errorf("history = %s", text(got))
		}
	})
	t.Run("large versions make short pages", func(t *testing.T) {
		big := must(t, ada, verb.Create, verb.CreateRequest{Type: "hypothesis", ID: "big", Title: "0", Content: object(map[string]any{"statement": strings.Repeat("x", 1<<20-100)})}).Ref.Current().String()
		for i := range 9 {
			w.update(t, ada, big, verb.UpdateRequest{Title: strconv.Itoa(i + 1)})
		}
		first := alikeAs[verb.HistoryResponse](t, w, out, "history", request{"ref": big})
		rest := alikeAs[verb.HistoryResponse](t, w, out, "history", request{"ref": big, "cursor": first.NextCursor})
		if got := slices.Concat(revisions(first.Versions), revisions(rest.Versions)); len(first.Versions) != 8 || !slices.Equal(got, []int{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}) || rest.NextCursor != "" {
			t.Errorf("history = %v and %v", revisions(first.Versions), revisions(rest.Versions))
		}
	})
	t.Run("what stayed behind, for its lab alone", func(t *testing.T) {
		moved := w.update(t, w.root, "hypothesis:lab-a/h", verb.UpdateRequest{Title: "Public"})
		must(t, w.root, verb.Move, verb.MoveRequest{Ref: "hypothesis:lab-a/h", Scope: artifact.Commons, BaseContentHash: moved.Hash, Reason: "r"})
		for token, want := range map[string][]int{out: {2}, w.token(t, "ada", nil, verb.Viewer): {2, 1}} {
			got := alikeAs[verb.HistoryResponse](t, w, token, "history", request{"ref": "hypothesis:lab-a/h"})
			if !slices.Equal(revisions(got.Versions), want) || (got.Versions[0].PreviousRevision == 0) != (len(want) == 1) {
				t.Errorf("history = %s, want %v", text(got), want)
			}
		}
	})
	t.Run("a link and a signal", func(t *testing.T) { w.pastOfLinks(t, ada, out) })
	for name, c := range map[string]struct {
		r      request
		status int
		tells  string
	}{
		"what is not there":           {request{"ref": "hypothesis:none"}, 404, `not_found`},
		"a page of too many":          {request{"ref": "hypothesis:h", "limit": 201}, 422, `/limit`},
		"a cursor of another request": {request{"ref": "hypothesis:h", "cursor": verb.HistoryCursor(parsed(t, "hypothesis:i"), 2)}, 400, `invalid_cursor`},
		"a cursor below the first":    {request{"ref": "hypothesis:h", "cursor": verb.HistoryCursor(parsed(t, "hypothesis:h"), 1)}, 404, `not_found`},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			if a := w.alike(t, out, "history", c.r); a.status != c.status || !strings.Contains(a.body, c.tells) {
				t.Errorf("history %s = %d %s, want %d with %s", text(c.r), a.status, a.body, c.status, c.tells)
			}
		})
	}
}

// pastOfLinks reads what became of links and signals.
func (w *world) pastOfLinks(t *testing.T, ada *verb.Client, out string) {
	t.Helper()
	vote := must(t, ada, verb.Signal, verb.SignalRequest{Ref: "hypothesis:h", Kind: "vote", Value: "1"}).Ref
	link := w.link(t, ada, "hypothesis:h", "supports", "paper:p")
	for _, ref := range []string{vote, link} {
		if got := alikeAs[verb.HistoryResponse](t, w, out, "history", request{"ref": ref}); len(got.Versions) != 1 || got.Versions[0].UpdatedBy != "ada" {
			t.Errorf("history of %s = %s", ref, text(got))
		}
	}
	must(t, w.root, verb.Unlink, verb.UnlinkRequest{Ref: link, Reason: "it does not"})
	got := alikeAs[verb.HistoryResponse](t, w, out, "history", request{"ref": link})
	if v := got.Versions; len(v) != 2 || v[0].State != "retracted" || v[0].UpdatedBy != "root" || v[0].CreatedBy != "ada" || v[0].Note != "it does not" ||
		v[1].UpdatedBy != "ada" || v[1].Title != "hypothesis:h supports paper:p" {
		t.Errorf("history = %s", text(got))
	}
	if a := w.alike(t, out, "history", request{"ref": "kg_edge:k-none"}); a.status != 404 {
		t.Errorf("history of no link = %d %s", a.status, a.body)
	}
	// Once an end is private, so is what was said of it.
	h := must(t, w.root, verb.Get, verb.GetRequest{Ref: parsed(t, "hypothesis:h")}).Artifact
	must(t, w.root, verb.Move, verb.MoveRequest{Ref: "hypothesis:h", Scope: "lab-a", BaseContentHash: h.ContentHash, Reason: "r"})
	w.settle(t)
	for _, door := range []string{atHub, atNode} {
		gone, never := w.ask(t, door, out, "history", request{"ref": link}), w.ask(t, door, out, "history", request{"ref": "kg_edge:k-none"})
		if strings.ReplaceAll(gone.body, link, "kg_edge:k-none") != never.body || gone.status != never.status {
			t.Errorf("at the %s: a link of what is private now = %d %s, want %d %s", door, gone.status, gone.body, never.status, never.body)
		}
	}
	var again verb.HistoryResponse
	if a := w.alike(t, w.token(t, "ada", nil, verb.Viewer), "history", request{"ref": link}); json.Unmarshal([]byte(a.body), &again) != nil || len(again.Versions) != 2 {
		t.Errorf("for the lab: %d %s", a.status, a.body)
	}
}

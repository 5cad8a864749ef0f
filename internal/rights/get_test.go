package rights_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestGetWithMore reads an artifact with its links and signals, at hub and node
// alike.
func TestGetWithMore(t *testing.T) {
	w := newPair(t)
	ada, out := w.client(t, atHub, "ada", nil, verb.Viewer, verb.Contributor), w.token(t, "out", nil, verb.Viewer)
	all := request{"ref": "hypothesis:h", "include_links": true, "include_signals": true}
	bare := alikeAs[verb.GetResponse](t, w, out, "get", all)
	if bare.Links == nil || len(bare.Links.Links) != 0 || bare.Signals == nil || len(bare.Signals) != 0 {
		t.Errorf("without any: %s", text(bare))
	}
	if plain := w.alike(t, out, "get", request{"ref": "hypothesis:h"}); strings.Contains(plain.body, `"links"`) || strings.Contains(plain.body, `"signals"`) {
		t.Errorf("what nobody asked for: %s", plain.body)
	}
	w.link(t, ada, "hypothesis:h", "supports", "paper:p")
	w.link(t, ada, "hypothesis:h", "supports", "hypothesis:lab-a/h")
	must(t, ada, verb.Signal, verb.SignalRequest{Ref: "hypothesis:h", Kind: "vote", Value: "1"})
	b := verb.BatchRequest{Atomic: true}
	for i := range verb.LinksInGet + 1 {
		id := fmt.Sprint("e", i)
		b.Items = append(
			b.Items, verb.BatchItem{Create: &verb.CreateRequest{Type: "evidence", ID: id, Title: "E", Content: object(map[string]any{"statement": "s"})}},
			verb.BatchItem{Link: &verb.LinkRequest{From: "evidence:" + id, LinkSpec: verb.LinkSpec{Predicate: "supports", To: "hypothesis:h"}}},
		)
	}
	must(t, ada, verb.Batch, b)
	got := alikeAs[verb.GetResponse](t, w, out, "get", all)
	if l := got.Links; len(l.Links) != verb.LinksInGet+1 || l.Links[0].Target == nil || len(l.Counts) != 2 || l.Counts[0].Count != 1 || l.Counts[1].Count != verb.LinksInGet+1 || len(l.More) != 1 {
		t.Errorf("links = %s", text(l))
	} else if rest := alikeAs[verb.LinksResponse](t, w, out, "links", l.More[0]); len(rest.Links) != 1 || rest.NextCursor != "" {
		t.Errorf("more = %s", text(rest))
	}
	if len(got.Signals) != 1 || got.Signals[0].Count != 1 {
		t.Errorf("signals = %s", text(got.Signals))
	}
	for _, ref := range []string{got.Links.Links[0].Ref, "hypothesis:lab-a/h"} {
		if a := w.alike(t, w.token(t, "ada", nil, verb.Viewer), "get", all.with(request{"ref": ref})); a.status != 200 {
			t.Errorf("get %s = %d %s", ref, a.status, a.body)
		}
	}
}

// TestAsOf reads artifacts as they stood at places in the log, at hub and node
// alike.
func TestAsOf(t *testing.T) {
	w := newPair(t)
	ada := w.client(t, atHub, "ada", nil, verb.Viewer, verb.Contributor)
	out, member := w.token(t, "out", nil, verb.Viewer), w.token(t, "ada", nil, verb.Viewer)
	here := func() artifact.Seq {
		t.Helper()
		head, err := w.hub.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return head
	}
	// was is what get answered at each place, and how it is asked for now.
	type was struct {
		seq     artifact.Seq
		token   string
		request request
		version string // "" for none
	}
	version := func(a *artifact.Artifact) string {
		if a == nil {
			return ""
		}
		return fmt.Sprint(a.Ref, " ", a.Revision, " ", a.Title, " ", a.State, " ", a.IsLatest, " ", a.SupersededBy, " ", string(a.Content))
	}
	var all []was
	note := func() {
		t.Helper()
		seq := here()
		for _, ref := range []string{"hypothesis:h", "hypothesis:i", "hypothesis:n", "schema:gene"} {
			r := request{"ref": ref}
			all = append(all, was{seq, out, r, version(w.got(t, out, r))})
		}
		r := request{"ref": "hypothesis:lab-a/i"}
		all = append(all, was{seq, member, r, version(w.got(t, member, r))})
	}
	note()
	first := must(t, w.root, verb.Get, verb.GetRequest{Ref: parsed(t, "hypothesis:h")}).Artifact
	w.update(t, ada, "hypothesis:h", verb.UpdateRequest{Title: "T2", State: "investigating"})
	note()
	w.update(t, ada, "hypothesis:h", verb.UpdateRequest{MergePatch: object(map[string]any{"disease": "d"})})
	must(t, ada, verb.Create, verb.CreateRequest{Type: "hypothesis", ID: "n", Title: "N", Content: object(map[string]any{"statement": "new"})})
	note()
	must(t, ada, verb.Signal, verb.SignalRequest{Ref: "hypothesis:h", Kind: "rank", Dimension: "novelty", Value: "0.5"})
	must(t, ada, verb.Supersede, verb.SupersedeRequest{Ref: "hypothesis:h", ReplacementRef: "hypothesis:n", Reason: "r"})
	note()
	moved := w.update(t, ada, "hypothesis:lab-a/i", verb.UpdateRequest{Title: "L2"})
	note()
	must(t, w.root, verb.Move, verb.MoveRequest{Ref: "hypothesis:lab-a/i", Scope: artifact.Commons, BaseContentHash: moved.Hash, Reason: "r"})
	note()
	w.update(t, w.root, "hypothesis:lab-a/i", verb.UpdateRequest{Title: "L3"})
	note()
	for _, c := range all {
		got := w.got(t, c.token, c.request.with(request{"as_of_seq": c.seq}))
		if version(got) != c.version {
			t.Errorf("%s at %d = %q, want %q", text(c.request), c.seq, version(got), c.version)
		}
		if got != nil && got.QualityScore != nil {
			t.Error("a quality score, which is not kept")
		}
	}
	t.Run("what others may not have seen then", func(t *testing.T) {
		for _, c := range all {
			if c.token != member {
				continue
			}
			got := w.got(t, out, c.request.with(request{"as_of_seq": c.seq}))
			now := w.got(t, out, c.request)
			if (got != nil) != strings.Contains(c.version, "L3") && (got == nil || got.Revision != 2) {
				t.Errorf("at %d: %s; now %s", c.seq, text(got), text(now))
			}
		}
	})
	t.Run("a pinned version", func(t *testing.T) {
		r := request{"ref": first.Ref.String(), "as_of_seq": all[0].seq}
		if got := w.got(t, out, r); got == nil || !got.IsLatest || got.Revision != 1 {
			t.Errorf("then = %s", text(got))
		}
		if got := w.got(t, out, r.with(request{"as_of_seq": here()})); got == nil || got.IsLatest {
			t.Errorf("now = %s", text(got))
		}
		later := must(t, w.root, verb.Get, verb.GetRequest{Ref: parsed(t, "hypothesis:h")}).Artifact.Ref.String()
		if got := w.got(t, out, request{"ref": later, "as_of_seq": all[0].seq}); got != nil {
			t.Errorf("a later one then = %s", text(got))
		}
	})
	link := w.link(t, ada, "hypothesis:n", "supports", "paper:p")
	w.settle(t)
	refused := func(name string, r request, status int, tells ...string) {
		t.Helper()
		a := w.alike(t, out, "get", r)
		if a.status != status || slices.ContainsFunc(tells, func(s string) bool { return !strings.Contains(a.body, s) }) {
			t.Errorf("%s: get %s = %d %s, want %d with %q", name, text(r), a.status, a.body, status, tells)
		}
	}
	refused("a seq to come", request{"ref": "hypothesis:h", "as_of_seq": here() + 1}, 422, "/as_of_seq", fmt.Sprint("the log ends at ", here()))
	refused("no seq", request{"ref": "hypothesis:h", "as_of_seq": -1}, 422, "/as_of_seq")
	refused("with what is known of now alone", request{"ref": "hypothesis:h", "as_of_seq": 1, "follow": true, "include_links": true, "include_signals": true}, 422, "/follow", "/include_links", "/include_signals")
	refused("of a link", request{"ref": link, "as_of_seq": 1}, 422, "/as_of_seq")
	refused("of nothing", request{"ref": "hypothesis:none", "as_of_seq": here()}, 404)
	t.Run("a log that does not reach back", func(t *testing.T) {
		if _, err := w.db.Exec(t.Context(), `DELETE FROM event WHERE seq < $1`, all[5].seq); err != nil {
			t.Fatal(err)
		}
		r := request{"ref": "hypothesis:i", "as_of_seq": 1}
		a := w.ask(t, atHub, out, "get", r)
		if want := fmt.Sprintf(`"oldest_seq":%d`, all[5].seq); a.status != 410 || !strings.Contains(a.body, "history_trimmed") || !strings.Contains(a.body, want) {
			t.Errorf("get %s = %d %s", text(r), a.status, a.body)
		}
		// What was made before is known by what came after.
		for _, c := range all[5:] {
			if got := w.got(t, c.token, c.request.with(request{"as_of_seq": c.seq})); version(got) != c.version {
				t.Errorf("%s at %d = %q, want %q", text(c.request), c.seq, version(got), c.version)
			}
		}
	})
}

// TestDiff compares versions, at hub and node alike.
func TestDiff(t *testing.T) {
	w := newPair(t)
	ada, out := w.client(t, atHub, "ada", nil, verb.Viewer, verb.Contributor), w.token(t, "out", nil, verb.Viewer)
	first := must(t, w.root, verb.Get, verb.GetRequest{Ref: parsed(t, "hypothesis:h")}).Artifact.Ref.String()
	second := w.update(t, ada, "hypothesis:h", verb.UpdateRequest{MergePatch: object(map[string]any{"mechanism": "Amyloid β comes first.\nTau comes later.\n"})}).String()
	w.update(t, ada, "hypothesis:h", verb.UpdateRequest{MergePatch: object(map[string]any{"mechanism": "Amyloid β comes first.\nTau comes a decade later.\n"})})
	got := alikeAs[verb.DiffResponse](t, w, out, "diff", request{"ref_a": second, "ref_b": "hypothesis:h"})
	if !strings.Contains(got.Unified, "\n-    Tau comes later.\n+    Tau comes a decade later.\n") || !strings.HasPrefix(got.Unified, "--- "+second+"\n+++ "+got.B.Ref.String()+"\n@@ ") {
		t.Errorf("unified:\n%s", got.Unified)
	}
	if want := `[{"op":"replace","path":"/content/mechanism","value":"Amyloid β comes first.\nTau comes a decade later.\n"}]`; string(got.Patch) != want || got.Equal {
		t.Errorf("patch = %s, want %s", got.Patch, want)
	}
	if got.A.Revision != 2 || got.B.Revision != 3 || got.A.Content != nil {
		t.Errorf("a = %s, b = %s", text(got.A), text(got.B))
	}
	same := alikeAs[verb.DiffResponse](t, w, out, "diff", request{"ref_a": first, "ref_b": first})
	if !same.Equal || same.Unified != "" || string(same.Patch) != "[]" {
		t.Errorf("of one with itself: %s", text(same))
	}
	link := w.link(t, ada, "hypothesis:h", "supports", "paper:p")
	for _, pair := range [][2]string{{"hypothesis:h", "paper:p"}, {"hypothesis:h", link}, {"paper:p", "schema:gene"}} {
		if got := alikeAs[verb.DiffResponse](t, w, out, "diff", request{"ref_a": pair[0], "ref_b": pair[1]}); got.Equal || got.Unified == "" {
			t.Errorf("diff of %s = %s", pair, text(got))
		}
	}
	for name, c := range map[string]struct {
		a, b   string
		status int
		tells  string
	}{
		"what is not there":    {"hypothesis:h", "hypothesis:none", 404, `"ref":"hypothesis:none"`},
		"a type that is none":  {"hypothesi:h", "hypothesis:h", 404, `"/ref_a"`},
		"what others may know": {"hypothesis:lab-a/h", "hypothesis:h", 404, `"ref":"hypothesis:lab-a/h"`},
		"too much": {
			must(t, ada, verb.Create, verb.CreateRequest{Type: "hypothesis", Title: "X", Content: object(map[string]any{"statement": strings.Repeat("x", 1<<20-100)})}).Ref.String(),
			must(t, ada, verb.Create, verb.CreateRequest{Type: "hypothesis", Title: "Y", Content: object(map[string]any{"statement": strings.Repeat("y", 1<<20-20)})}).Ref.String(), 422, "response_too_large",
		},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			if a := w.alike(t, out, "diff", request{"ref_a": c.a, "ref_b": c.b}); a.status != c.status || !strings.Contains(a.body, c.tells) {
				t.Errorf("diff %s %s = %d %s, want %d with %s", c.a, c.b, a.status, a.body, c.status, c.tells)
			}
		})
	}
}

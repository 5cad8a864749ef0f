package hub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/embedtest"
	"github.com/scidex-ai/substrate/verb"
)

// several writes hypotheses in one commit.
func (f *fixture) several(t *testing.T, n int) {
	t.Helper()
	var items []verb.BatchItem
	for i := range n {
		items = append(items, verb.BatchItem{Create: &verb.CreateRequest{
			Type: "hypothesis", ID: fmt.Sprintf("h-%03d", i), Title: fmt.Sprint("Case ", i),
			Content: content(map[string]any{"statement": fmt.Sprint("case number ", i), "disease": fmt.Sprint("d", i%7), "target_gene": fmt.Sprint("G", i)}),
		}})
	}
	if out := callOK(t, verb.Batch, contributor(t.Context()), f.verbs, verb.BatchRequest{Items: items, Atomic: true}); !out.Committed {
		t.Fatalf("%+v", out)
	}
}

// facetAnswers are lists and searches of what was declared before and of what is
// declared after, and of what never was, as a hub answers them.
func facetAnswers(t *testing.T, c verb.Invoker, constraint string) (all []string) {
	t.Helper()
	for _, filter := range []string{
		`{"field":"/content/disease","op":"eq","value":"d3"}`, `{"field":"/content/target_gene","op":"in","value":["G7","G250","none"]}`,
		`{"field":"/content/statement","op":"starts_with","value":"case number 12"}`, `{"not":{"field":"/content/disease","op":"gt","value":"d1"}}`,
	} {
		out, err := verb.List.Call(t.Context(), c, verb.ListRequest{Type: "hypothesis", Filter: json.RawMessage(filter), Sort: json.RawMessage(`["-/content/target_gene"]`), Limit: 200, Count: true})
		if err != nil {
			t.Fatal(err)
		}
		found, err := verb.Search.Call(t.Context(), c, verb.SearchRequest{Mode: verb.SearchStructured, Types: []string{"hypothesis"}, Filter: json.RawMessage(filter), Limit: 200, Facets: []string{"type"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range append(out.Warnings, found.Warnings...) {
			if w.Constraint != constraint && w.Constraint != "undeclared_facet" {
				t.Errorf("%s warns %+v", filter, w)
			}
		}
		if constraint == "facet_building" && (len(out.Warnings) == 0 || len(found.Warnings) == 0) {
			t.Errorf("%s warns of nothing: %+v, %+v", filter, out.Warnings, found.Warnings)
		}
		out.Warnings, found.Warnings, out.AsOf, found.AsOf = nil, nil, 0, 0
		all = append(all, string(content(out)), string(content(found)))
	}
	return all
}

// TestFacetsGoOn kills a hub amid making facets anew: another one goes on where it was
// and ends right, and answers are the same before, meanwhile and after.
func TestFacetsGoOn(t *testing.T) {
	f := newHub(t)
	const n = 350 // of which 100 are made at once
	f.several(t, n)
	f.until(t, "facets of hypotheses", "SELECT count(*) FROM facet_build WHERE type = 'hypothesis' AND done", 1)
	admin := f.token(t, "root", verb.Admin)
	url := f.db.Config().ConnString()
	f.stop()
	first := startChild(t, url)
	defer first.kill()
	c := &verb.Client{URL: first.url, Token: admin}
	before := facetAnswers(t, c, "")
	if len(before) == 0 || len(before[0]) < 1000 {
		t.Fatalf("the lists find nothing: %s", before)
	}
	// Who holds one of them keeps the hub from making its facets.
	hold := func(id string) (release func()) {
		tx, err := f.db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `SELECT FROM artifact WHERE type = 'hypothesis' AND id = $1 FOR UPDATE`, id); err != nil {
			t.Fatal(err)
		}
		return func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }
	}
	release := hold("h-250")
	defer release()
	schema, err := verb.Get.Call(t.Context(), c, verb.GetRequest{Ref: artifact.Ref{Type: "schema", ID: "hypothesis"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verb.Update.Call(t.Context(), c, verb.UpdateRequest{
		Ref: "schema:hypothesis", BaseContentHash: schema.Artifact.ContentHash, MergePatch: json.RawMessage(`{"search":{"facets":["/statement","/target_gene"]}}`),
	}); err != nil {
		t.Fatal(err)
	}
	f.until(t, "facets up to the one that is held", "SELECT count(*) FROM facet_build WHERE type = 'hypothesis' AND NOT done AND after = 'h-199'", 1)
	if d := cmp.Diff(before[:4], facetAnswers(t, c, "facet_building")[:4]); d != "" {
		t.Errorf("meanwhile the hub answers otherwise:\n%s", d)
	}
	first.kill()
	release()
	if got := f.count(t, "SELECT count(*) FROM facet WHERE type = 'hypothesis' AND path = '/statement'"); got != 200 {
		t.Errorf("%d facets are made after the kill, want 200", got)
	}
	defer hold("h-050")() // whose are made
	second := startChild(t, url)
	defer second.kill()
	f.until(t, "facets of hypotheses", "SELECT count(*) FROM facet_build WHERE type = 'hypothesis' AND done", 1)
	if d := cmp.Diff(before, facetAnswers(t, &verb.Client{URL: second.url, Token: admin}, "")); d != "" {
		t.Errorf("afterwards the hub answers otherwise:\n%s", d)
	}
	report, err := hub.Verify(t.Context(), f.db, nil)
	if err != nil || report.Total > 0 || f.count(t, "SELECT count(*) FROM facet WHERE type = 'hypothesis'") != 2*n {
		t.Errorf("the facets are not whole: %+v, %v", report.Faults, err)
	}
}

// TestVectorsGoOnAfterAKill kills a hub while a model answers it: another one asks for
// what is left and for nothing else.
func TestVectorsGoOnAfterAKill(t *testing.T) {
	f := newHub(t)
	const n = 150
	f.several(t, n)
	url := f.db.Config().ConnString()
	f.stop()
	s := embedtest.New(t)
	reached, over := make(chan struct{}), make(chan struct{})
	s.Fail(func(n int, _ http.ResponseWriter, req *http.Request) bool {
		if n == 3 {
			close(reached)
			select { // until the one that asked is no more
			case <-req.Context().Done():
			case <-over:
			}
			return true
		}
		return false
	})
	first := startChild(t, url, modelEnv+"="+s.URL)
	defer first.kill()
	<-reached
	first.kill()
	close(over)
	done := f.count(t, vectorsQuery)
	if done == 0 || done >= n {
		t.Fatalf("%d vectors were made, which is not amid", done)
	}
	s.Texts()
	s.Fail(func(int, http.ResponseWriter, *http.Request) bool { return false })
	second := startChild(t, url, modelEnv+"="+s.URL)
	defer second.kill()
	f.until(t, "vectors that serve", "SELECT count(*) FROM vector_model WHERE serves", 1)
	f.until(t, "vectors", vectorsQuery, n)
	again := make(map[string]bool)
	for _, text := range s.Texts() {
		again[text] = true
	}
	if len(again) != n-done {
		t.Errorf("the model was asked of %d texts, and %d were left", len(again), n-done)
	}
	c := &verb.Client{URL: second.url, Token: f.token(t, "vic", verb.Viewer)}
	out, err := verb.Search.Call(t.Context(), c, verb.SearchRequest{Query: "case number 149", Mode: verb.SearchSemantic})
	if err != nil || len(out.Hits) == 0 || out.Hits[0].Artifact.ID != "h-149" {
		t.Errorf("by meaning the hub finds %+v, %v", ids(out), err)
	}
}

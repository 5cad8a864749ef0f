package hub_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/embed"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/embedtest"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/verb"
)

// meaning returns a configuration with a model.
func meaning(t testing.TB, s *embedtest.Server, model string) (c hub.Config) {
	t.Helper()
	var err error
	if c.Embeddings, err = embed.NewClient(embed.Endpoint{URL: s.URL, Model: model, Timeout: 5 * time.Second}); err != nil {
		t.Fatal(err)
	}
	if c.Rerank, err = embed.NewReranker(embed.Endpoint{URL: s.URL, Model: model}); err != nil {
		t.Fatal(err)
	}
	return c
}

// until waits for a condition on the database.
func (f *fixture) until(t *testing.T, what, query string, want int, args ...any) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		n := f.count(t, query, args...)
		if n == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d, want %d", what, n, want)
		}
	}
}

func (f *fixture) search(t *testing.T, ctx context.Context, in verb.SearchRequest) verb.SearchResponse {
	t.Helper()
	out, err := verb.Search.Call(ctx, f.verbs, in)
	if err != nil {
		t.Fatalf("search %+v: %v", in, err)
	}
	return out
}

func ids(out verb.SearchResponse) (ids []string) {
	for _, h := range out.Hits {
		ids = append(ids, h.Artifact.ID)
	}
	return ids
}

const vectorsQuery = "SELECT count(*) FROM artifact_vector"

func meantOnes(t *testing.T, f *fixture) {
	t.Helper()
	for id, statement := range map[string]string{
		"clearance": "Microglial phagocytosis removes aggregated amyloid from the parenchyma",
		"synapse":   "Complement tags synapses for elimination by microglia",
		"yeast":     "Budding yeast divides asymmetrically under nutrient stress",
		"tangles":   "Hyperphosphorylated tau assembles into neurofibrillary tangles",
	} {
		f.mustCreate(t, hypothesis(id, statement))
	}
}

// newMeaningHub returns a hub with a model.
func newMeaningHub(t *testing.T, s *embedtest.Server, model string) *fixture {
	t.Helper()
	c := meaning(t, s, model)
	c.DB = pgtest.New(t, initHub)
	return newHubWith(t, c)
}

// meantAndServed writes some and waits for their vectors.
func meantAndServed(t *testing.T, f *fixture) {
	t.Helper()
	meantOnes(t, f)
	f.until(t, "vectors", vectorsQuery, 4)
	f.until(t, "vectors that serve", "SELECT count(*) FROM vector_model WHERE serves", 1)
}

func TestSemanticSearch(t *testing.T) {
	s := embedtest.New(t)
	f := newMeaningHub(t, s, "grams")
	meantAndServed(t, f)
	ctx := contributor(t.Context())

	near := f.search(t, ctx, verb.SearchRequest{Query: "phagocytic microglia aggregates", Mode: verb.SearchSemantic})
	if got := ids(near); len(got) == 0 || got[0] != "clearance" || near.ModeUsed != verb.SearchSemantic || len(near.Degraded) != 0 {
		t.Errorf("by meaning the hub finds %v, %+v", got, near)
	}
	for i, h := range near.Hits {
		if h.Score <= 0 || h.Score > 1 || i > 0 && h.Score > near.Hits[i-1].Score || h.Artifact.Content != nil {
			t.Errorf("hit %d is %+v", i, h)
		}
	}
	if got := f.search(t, ctx, verb.SearchRequest{Query: "phagocytic microglia aggregates", Mode: verb.SearchLexical}); len(got.Hits) != 0 || got.ModeUsed != verb.SearchLexical {
		t.Errorf("by words the hub finds %v", ids(got))
	}
	auto := f.search(t, ctx, verb.SearchRequest{Query: "microglia", Highlight: true, IncludeContent: true, Facets: []string{"type", "state"}})
	if auto.ModeUsed != verb.SearchHybrid || auto.Hits[0].Artifact.ID != "synapse" || len(auto.Hits[0].Highlights) == 0 || auto.Hits[0].Artifact.Content == nil {
		t.Errorf("auto = %+v", auto)
	}
	if n := auto.Facets["type"]; len(n) != 1 || n[0].Count != len(auto.Hits) {
		t.Errorf("of %d hits the facets are %+v", len(auto.Hits), auto.Facets)
	}
	t.Run("what is excluded is not near either", func(t *testing.T) {
		for _, mode := range []string{verb.SearchSemantic, verb.SearchHybrid} {
			got := f.search(t, ctx, verb.SearchRequest{Query: "microglia -synapses", Mode: mode})
			if slices.Contains(ids(got), "synapse") || len(got.Hits) == 0 {
				t.Errorf("%s finds %v", mode, ids(got))
			}
		}
	})
	t.Run("filters and types count", func(t *testing.T) {
		filter := content(map[string]any{"field": "/title", "op": "eq", "value": "About tangles"})
		filter = []byte(strings.Replace(string(filter), "/title", "title", 1))
		got := f.search(t, ctx, verb.SearchRequest{Query: "microglia removes tau tangles", Mode: verb.SearchHybrid, Filter: filter, Types: []string{"hypothesis"}})
		if len(got.Hits) != 1 || got.Hits[0].Artifact.ID != "tangles" {
			t.Errorf("with a filter the hub finds %v", ids(got))
		}
		if got := f.search(t, ctx, verb.SearchRequest{Query: "microglia", Mode: verb.SearchSemantic, Types: []string{"gene"}}); len(got.Hits) != 0 {
			t.Errorf("of another type the hub finds %v", ids(got))
		}
	})
	t.Run("pages are of one order", func(t *testing.T) {
		in := verb.SearchRequest{Query: "microglia tau yeast amyloid synapses", Mode: verb.SearchSemantic}
		whole := f.search(t, ctx, in)
		var paged []string
		in.Limit = 1
		for {
			out := f.search(t, ctx, in)
			paged = append(paged, ids(out)...)
			if in.Cursor = out.NextCursor; in.Cursor == "" {
				break
			}
		}
		if len(paged) < 3 || !slices.Equal(paged, ids(whole)) {
			t.Errorf("pages are %v, the whole %v", paged, ids(whole))
		}
	})
	t.Run("a model orders the first", func(t *testing.T) {
		in := verb.SearchRequest{Query: "microglia OR yeast OR tau", Mode: verb.SearchLexical, Rerank: true}
		got := f.search(t, ctx, in)
		if got.Reranked != len(got.Hits) || got.Reranked < 3 || got.ModeUsed != verb.SearchLexical {
			t.Errorf("reranked = %+v", got)
		}
		in.Query = "yeast OR tau OR microglia"
		if other := f.search(t, ctx, in); slices.Equal(ids(other), ids(f.search(t, ctx, verb.SearchRequest{Query: in.Query, Mode: verb.SearchLexical}))) && slices.Equal(ids(other), ids(got)) {
			t.Log("the model's order is that of the words")
		}
		for i := range got.Hits[1:] {
			if got.Hits[i].Score <= got.Hits[i+1].Score {
				t.Errorf("scores are not of places: %+v", got.Hits)
			}
		}
		s.Fail(func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "down", http.StatusInternalServerError)
			return true
		})
		defer s.Fail(nil)
		got = f.search(t, ctx, in)
		if got.Reranked != 0 || len(got.Degraded) != 1 || got.Degraded[0].Reason != "rerank_unavailable" || len(got.Hits) < 3 {
			t.Errorf("without an answer = %+v", got)
		}
	})
	t.Run("an endpoint that is away", func(t *testing.T) {
		s.Fail(func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "down", http.StatusInternalServerError)
			return true
		})
		defer s.Fail(nil)
		got := f.search(t, ctx, verb.SearchRequest{Query: "amyloid microglia phagocytosis"})
		if got.ModeUsed != verb.SearchLexical || len(got.Hits) != 0 && got.Hits[0].Artifact.ID != "clearance" || len(got.Degraded) != 1 || got.Degraded[0].Reason != artifact.ReasonModelUnavailable {
			t.Errorf("auto = %+v", got)
		}
		for _, mode := range []string{verb.SearchSemantic, verb.SearchHybrid} {
			if _, err := verb.Search.Call(ctx, f.verbs, verb.SearchRequest{Query: "something else", Mode: mode}); code(err) != "unavailable/model_unavailable" || !artifact.AsError(err).Retryable {
				t.Errorf("%s = %v", mode, err)
			}
		}
	})
	f.checkDense(t)
}

func TestSemanticNotConfigured(t *testing.T) {
	f := newHub(t)
	meantOnes(t, f)
	ctx := contributor(t.Context())
	for _, in := range []verb.SearchRequest{{Query: "tau", Mode: verb.SearchSemantic}, {Query: "tau", Mode: verb.SearchHybrid}, {Query: "tau", Rerank: true}} {
		if _, err := verb.Search.Call(ctx, f.verbs, in); code(err) != "unavailable/not_configured" {
			t.Errorf("search %+v = %v", in, err)
		}
	}
	if got := f.search(t, ctx, verb.SearchRequest{Query: "tau"}); got.ModeUsed != verb.SearchLexical || len(got.Degraded) != 0 {
		t.Errorf("auto = %+v", got)
	}
	if n := f.count(t, vectorsQuery); n != 0 {
		t.Errorf("there are %d vectors", n)
	}
}

// TestSemanticNotConfiguredAnyMore checks that a hub whose endpoint was taken away
// says so to those who ask for meaning, and to nobody else.
func TestSemanticNotConfiguredAnyMore(t *testing.T) {
	first := newMeaningHub(t, embedtest.New(t), "grams")
	meantAndServed(t, first)
	first.stop()
	f := newHubOn(t, first.db)
	ctx := contributor(t.Context())
	for _, mode := range []string{verb.SearchSemantic, verb.SearchHybrid} {
		if _, err := verb.Search.Call(ctx, f.verbs, verb.SearchRequest{Query: "tau", Mode: mode}); code(err) != "unavailable/not_configured" {
			t.Errorf("%s = %v", mode, err)
		}
	}
	if got := f.search(t, ctx, verb.SearchRequest{Query: "tau"}); got.ModeUsed != verb.SearchLexical || len(got.Degraded) != 0 || len(got.Hits) == 0 {
		t.Errorf("auto = %+v", got)
	}
}

// TestVectorsFollow checks that vectors are of what is there and of nothing else.
func TestVectorsFollow(t *testing.T) {
	s := embedtest.New(t)
	f := newMeaningHub(t, s, "grams")
	f.scope(t, "lab-a")
	f.grant(t, "lab-a", "ada", verb.Contributor)
	f.grant(t, "lab-a", "root", verb.Admin)
	meantOnes(t, f)
	f.until(t, "vectors", vectorsQuery, 4)
	admin, ada := f.admin(t.Context()), f.member(t.Context(), "ada", verb.Contributor)
	of := func(id string) string { return "SELECT count(*) FROM artifact_vector WHERE id = '" + id + "'" }
	head := func(id string) artifact.Artifact {
		t.Helper()
		out, err := verb.Get.Call(admin, f.verbs, verb.GetRequest{Ref: artifact.Ref{Type: "hypothesis", ID: id}})
		if err != nil {
			t.Fatal(err)
		}
		return out.Artifact
	}

	t.Run("a text that stays is not asked for again", func(t *testing.T) {
		s.Texts()
		in := verb.UpdateRequest{Ref: "hypothesis:yeast", BaseContentHash: head("yeast").ContentHash, MergePatch: content(map[string]any{"confidence": 0.5})}
		if _, err := verb.Update.Call(contributor(t.Context()), f.verbs, in); err != nil {
			t.Fatal(err)
		}
		f.until(t, "the revision of the vector", "SELECT revision FROM artifact_vector WHERE id = 'yeast'", 2)
		if texts := s.Texts(); len(texts) != 0 {
			t.Errorf("it was asked about %q", texts)
		}
		in = verb.UpdateRequest{Ref: "hypothesis:yeast", BaseContentHash: head("yeast").ContentHash, MergePatch: content(map[string]any{"statement": "Fission yeast divides evenly"})}
		if _, err := verb.Update.Call(contributor(t.Context()), f.verbs, in); err != nil {
			t.Fatal(err)
		}
		f.until(t, "the revision of the vector", "SELECT revision FROM artifact_vector WHERE id = 'yeast'", 3)
		if texts := s.Texts(); len(texts) != 1 || !strings.Contains(texts[0], "Fission") {
			t.Errorf("it was asked about %q", texts)
		}
	})
	t.Run("what is redacted means nothing any more", func(t *testing.T) {
		if _, err := verb.Redact.Call(admin, f.verbs, verb.RedactRequest{Ref: "hypothesis:tangles", Reason: "a test", Revisions: 1}); err != nil {
			t.Fatal(err)
		}
		if n := f.count(t, of("tangles")); n != 0 {
			t.Errorf("it has %d vectors", n)
		}
		if n := f.count(t, "SELECT count(*) FROM feed.change WHERE kind = 'vector' AND ref = 'hypothesis:tangles' AND data IS NOT NULL"); n != 0 {
			t.Errorf("the log has %d of its vectors", n)
		}
		rows, _ := follow(t, f.serve(t), f.token(t, "vic", verb.Viewer), "cursor=0", plain)
		rows.until(f.head(t))
		for _, raw := range rows.rows {
			if strings.Contains(raw, `"kind":"vector"`) && strings.Contains(raw, "tangles") && strings.Contains(raw, `"data"`) {
				t.Errorf("the feed has %.200s", raw)
			}
		}
	})
	t.Run("what is retired is near nothing", func(t *testing.T) {
		in := verb.SupersedeRequest{Ref: "hypothesis:synapse", Reason: "a test"}
		if _, err := verb.Supersede.Call(as(t.Context(), "rev", verb.Contributor, verb.Reviewer), f.verbs, in); err != nil {
			t.Fatal(err)
		}
		if n := f.count(t, of("synapse")); n != 0 {
			t.Errorf("it has %d vectors", n)
		}
	})
	t.Run("what is moved means what it did to those alone who see it", func(t *testing.T) {
		if _, err := verb.Move.Call(admin, f.verbs, verb.MoveRequest{Ref: "hypothesis:clearance", Scope: "lab-a", BaseContentHash: head("clearance").ContentHash, Reason: "a test"}); err != nil {
			t.Fatal(err)
		}
		if n := f.count(t, "SELECT count(*) FROM feed.change WHERE kind = 'vector' AND ref = 'hypothesis:clearance' AND scope = 'commons' AND data IS NOT NULL"); n != 0 {
			t.Errorf("the log of commons has %d of its vectors", n)
		}
		f.until(t, "vectors in its scope", of("clearance")+" AND scope = 'lab-a'", 1)
		in := verb.SearchRequest{Query: "amyloid phagocytosis by microglia", Mode: verb.SearchSemantic, Facets: []string{"scope"}}
		if got := f.search(t, ada, in); len(got.Hits) == 0 || got.Hits[0].Artifact.ID != "clearance" {
			t.Errorf("a member finds %v", ids(got))
		}
		outside := f.search(t, contributor(t.Context()), in)
		if slices.Contains(ids(outside), "clearance") || len(outside.Facets["scope"]) > 1 {
			t.Errorf("another finds %v, %+v", ids(outside), outside.Facets)
		}
	})
	f.checkDense(t)
	f.checkDigest(t)
	if report, err := hub.Verify(t.Context(), f.db, nil); err != nil || len(report.Faults) > 0 {
		t.Errorf("the database is not sound: %+v, %v", report.Faults, err)
	}
}

// TestMessagesAreToldToNoModel checks that neither endpoint is sent what is for its
// participants alone.
func TestMessagesAreToldToNoModel(t *testing.T) {
	s := embedtest.New(t)
	f := newMeaningHub(t, s, "grams")
	told := make(chan string, 100)
	s.Fail(func(_ int, _ http.ResponseWriter, req *http.Request) bool {
		told <- req.URL.Path + embedtest.Body(req)
		return false
	})
	ada := contributor(t.Context())
	if _, err := verb.Create.Call(ada, f.verbs, verb.CreateRequest{
		Type: "message", Title: "An unspeakable zebrafish", Content: content(map[string]any{"recipient": "agent:ada", "body": "unspeakable"}),
	}); err != nil {
		t.Fatal(err)
	}
	f.mustCreate(t, hypothesis("h", "a zebrafish that sleeps"))
	f.until(t, "vectors that serve", "SELECT count(*) FROM vector_model WHERE serves", 1)
	got := f.search(t, ada, verb.SearchRequest{Query: "zebrafish", Types: []string{"message", "hypothesis"}, Rerank: true})
	if len(got.Hits) != 2 || got.Reranked != 0 || len(got.Degraded) != 1 || got.Degraded[0].Reason != "rerank_unavailable" {
		t.Errorf("with a message among the hits = %+v", got)
	}
	if got := f.search(t, ada, verb.SearchRequest{Query: "zebrafish", Rerank: true}); got.Reranked != 1 {
		t.Errorf("without one = %+v", got)
	}
	for len(told) > 0 {
		if text := <-told; strings.Contains(text, "unspeakable") {
			t.Errorf("a model is told %s", text)
		}
	}
}

// TestSemanticScopes checks that an answer is the same whatever there is that the
// caller may not see.
func TestSemanticScopes(t *testing.T) {
	s := embedtest.New(t)
	f := newMeaningHub(t, s, "grams")
	f.scope(t, "lab-a")
	f.grant(t, "lab-a", "ada", verb.Contributor)
	meantAndServed(t, f)
	bob, ada := f.member(t.Context(), "bob", verb.Viewer), f.member(t.Context(), "ada", verb.Contributor)
	requests := []verb.SearchRequest{
		{Query: "microglia amyloid", Mode: verb.SearchSemantic, Facets: []string{"type", "scope"}},
		{Query: "microglia", Mode: verb.SearchHybrid, Facets: []string{"type", "scope"}},
		{Query: "microglia", Rerank: true},
		{Query: "microglia amyloid", Scope: "lab-a", Mode: verb.SearchSemantic},
	}
	answers := func(ctx context.Context) (out []string) {
		for _, in := range requests {
			got := f.search(t, ctx, in)
			got.AsOf = 0
			out = append(out, string(content(got)))
		}
		return out
	}
	before := answers(bob)
	for i := range 30 {
		in := hypothesis(fmt.Sprint("h", i), "Microglia and amyloid, case "+strconv.Itoa(i))
		in.Scope = "lab-a"
		if _, err := verb.Create.Call(ada, f.verbs, in); err != nil {
			t.Fatal(err)
		}
	}
	f.until(t, "vectors", vectorsQuery, 34)
	for i, after := range answers(bob) {
		if after != before[i] {
			t.Errorf("%+v:\n%s\nonce there is more elsewhere:\n%s", requests[i], before[i], after)
		}
	}
	if got := f.search(t, ada, requests[0]); len(got.Hits) < 30 {
		t.Errorf("a member finds %v", ids(got))
	}
}

// TestVectorsGoOn checks that a hub that was stopped amid goes on where it was, that
// an endpoint that is busy is waited for, and that one text that is refused holds up
// no other.
func TestVectorsGoOn(t *testing.T) {
	s := embedtest.New(t)
	db := pgtest.New(t, initHub)
	before := newHubOn(t, db)
	const n = 150
	for i := range n {
		before.mustCreate(t, hypothesis(fmt.Sprintf("h-%03d", i), fmt.Sprint("case number ", i)))
	}
	before.mustCreate(t, hypothesis("h-refused", "the text that is refused"))
	before.stop()
	hang := make(chan struct{})
	reached := make(chan struct{})
	s.Fail(func(n int, w http.ResponseWriter, req *http.Request) bool {
		switch n {
		case 1:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "slow down", http.StatusTooManyRequests)
			return true
		case 3: // amid
			close(reached)
			select {
			case <-hang:
			case <-req.Context().Done():
			}
			return true
		}
		return false
	})
	c := meaning(t, s, "grams")
	c.DB = db
	first := newHubWith(t, c)
	<-reached
	if got := first.search(t, contributor(t.Context()), verb.SearchRequest{Query: "case"}); got.ModeUsed != verb.SearchLexical || len(got.Degraded) != 1 || got.Degraded[0].Reason != artifact.ReasonEmbeddingsBuilding {
		t.Errorf("meanwhile auto = %+v", got.Degraded)
	}
	if _, err := verb.Search.Call(contributor(t.Context()), first.verbs, verb.SearchRequest{Query: "case", Mode: verb.SearchSemantic}); code(err) != "unavailable/embeddings_building" {
		t.Errorf("meanwhile semantic = %v", err)
	}
	first.stop()
	close(hang)
	done := first.count(t, vectorsQuery)
	if done == 0 || done >= n {
		t.Fatalf("%d vectors were made, which is not amid", done)
	}
	s.Texts()
	s.Fail(func(_ int, w http.ResponseWriter, req *http.Request) bool {
		if !strings.Contains(embedtest.Body(req), "the text that is refused") {
			return false
		}
		http.Error(w, `{"error":"not this one"}`, http.StatusBadRequest)
		return true
	})
	c = meaning(t, s, "grams")
	c.DB = db
	second := newHubWith(t, c)
	second.until(t, "vectors that serve", "SELECT count(*) FROM vector_model WHERE serves", 1)
	if got := second.count(t, vectorsQuery); got != n {
		t.Errorf("there are %d vectors, want %d", got, n)
	}
	again := make(map[string]int)
	for _, text := range s.Texts() {
		again[text]++
	}
	if len(again) != n-done {
		t.Errorf("it was asked about %d texts, and %d were left", len(again), n-done)
	}
}

// TestModelChanges checks that searches are by the old model until all is made by the
// new one.
func TestModelChanges(t *testing.T) {
	s := embedtest.New(t)
	first := newMeaningHub(t, s, "old")
	meantAndServed(t, first)
	first.stop()

	hold := make(chan struct{})
	reached := make(chan struct{}, 16)
	s.Fail(func(_ int, _ http.ResponseWriter, req *http.Request) bool {
		if strings.Contains(embedtest.Body(req), `"model":"new"`) {
			reached <- struct{}{}
			<-hold
		}
		return false
	})
	c2 := meaning(t, s, "new")
	c2.DB = first.db
	f := newHubWith(t, c2)
	<-reached
	s.Models()
	in := verb.SearchRequest{Query: "phagocytic microglia", Mode: verb.SearchSemantic}
	if got := f.search(t, contributor(t.Context()), in); ids(got)[0] != "clearance" {
		t.Errorf("by the old model the hub finds %v", ids(got))
	}
	if models := s.Models(); !slices.Equal(models, []string{"old"}) {
		t.Errorf("the search was by %v", models)
	}
	close(hold)
	f.until(t, "the model that serves", "SELECT count(*) FROM vector_model WHERE serves AND model = 'new'", 1)
	if n := f.count(t, vectorsQuery+" WHERE model <> 'new'"); n != 0 {
		t.Errorf("%d vectors by the old model are left", n)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		s.Models()
		in.Query += " amyloid"
		if got := f.search(t, contributor(t.Context()), in); ids(got)[0] != "clearance" {
			t.Errorf("by the new model the hub finds %v", ids(got))
		}
		if slices.Equal(s.Models(), []string{"new"}) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("searches are not by the new model")
		}
	}

	t.Run("a change that is taken back", func(t *testing.T) {
		f.stop()
		if _, err := first.db.Exec(t.Context(), `INSERT INTO vector_model (model, dims, serves) VALUES ('third', 3, false)`); err != nil {
			t.Fatal(err)
		}
		if _, err := first.db.Exec(t.Context(), `
			INSERT INTO artifact_vector (type, id, model, scope, revision, rule, text_hash, vector)
			SELECT type, id, 'third', scope, revision, rule, text_hash, '\x010203' FROM artifact_vector WHERE id = 'yeast'`); err != nil {
			t.Fatal(err)
		}
		c3 := meaning(t, s, "new")
		c3.DB = first.db
		f = newHubWith(t, c3)
		f.until(t, "models", "SELECT count(*) FROM vector_model", 1)
		f.until(t, "vectors by others", vectorsQuery+" WHERE model <> 'new'", 0)
	})
	t.Run("a model of other dimensions under the same name", func(t *testing.T) {
		s.Fail(func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			fmt.Fprint(w, `{"data":[{"index":0,"embedding":[1,2,3]}]}`)
			return true
		})
		if _, err := verb.Search.Call(contributor(t.Context()), f.verbs, verb.SearchRequest{Query: "other", Mode: verb.SearchSemantic}); code(err) != "unavailable/model_unavailable" {
			t.Errorf("semantic = %v", err)
		}
		f.mustCreate(t, hypothesis("late", "a late one"))
		if got := f.search(t, contributor(t.Context()), verb.SearchRequest{Query: "late"}); len(got.Hits) != 1 || got.ModeUsed != verb.SearchLexical {
			t.Errorf("auto = %+v", got)
		}
		if n := f.count(t, vectorsQuery+" WHERE octet_length(vector) <> $1", embedtest.Dims); n != 0 {
			t.Errorf("%d vectors are of other dimensions", n)
		}
	})
}

// TestManyVectors checks that the hub compares no more vectors than it can, of what
// the caller sees.
func TestManyVectors(t *testing.T) {
	s := embedtest.New(t)
	f := newMeaningHub(t, s, "grams")
	f.scope(t, "lab-a")
	f.grant(t, "lab-a", "ada", verb.Viewer)
	meantAndServed(t, f)
	const many = 20_000
	for _, query := range []string{`
		INSERT INTO artifact SELECT (jsonb_populate_record(a, jsonb_build_object('id', 'lab-a/x' || n, 'scope', 'lab-a'))).*
		FROM artifact a, generate_series(1, $1::integer) n WHERE a.type = 'hypothesis' AND a.id = 'yeast'`, `
		INSERT INTO artifact_vector (type, id, model, scope, revision, rule, text_hash, vector)
		SELECT v.type, 'lab-a/x' || n, v.model, 'lab-a', v.revision, v.rule, v.text_hash, v.vector
		FROM artifact_vector v, generate_series(1, $1::integer) n WHERE v.id = 'yeast'`} {
		if _, err := f.db.Exec(t.Context(), query, many); err != nil {
			t.Fatal(err)
		}
	}
	near := verb.SearchRequest{Query: "phagocytic microglia", Mode: verb.SearchSemantic}
	if _, err := verb.Search.Call(f.member(t.Context(), "ada", verb.Viewer), f.verbs, near); code(err) != "unavailable/model_unavailable" {
		t.Errorf("of too many = %v", err)
	}
	if got := f.search(t, f.member(t.Context(), "ada", verb.Viewer), verb.SearchRequest{Query: "tau"}); got.ModeUsed != verb.SearchLexical || len(got.Degraded) != 1 || len(got.Hits) != 1 {
		t.Errorf("auto of too many = %+v", got)
	}
	if got := f.search(t, f.member(t.Context(), "bob", verb.Viewer), near); ids(got)[0] != "clearance" || len(got.Degraded) != 0 {
		t.Errorf("who does not see them finds %+v", got)
	}
}

// TestVectorExtension has a stand-in take the place of pgvector, which has the type
// and the operator that the hub uses: what is there is copied for it, and what comes
// is written for it too.
func TestVectorExtension(t *testing.T) {
	s := embedtest.New(t)
	first := newMeaningHub(t, s, "grams")
	meantAndServed(t, first)
	near := verb.SearchRequest{Query: "phagocytic microglia", Mode: verb.SearchSemantic}
	want := ids(first.search(t, contributor(t.Context()), near))
	first.stop()
	for _, query := range []string{
		`CREATE DOMAIN vector AS real[]`,
		`CREATE SEQUENCE compared`,
		`CREATE FUNCTION cosine_distance(a real[], b real[]) RETURNS float8 LANGUAGE sql AS $$
			SELECT 1 - sum(x::float8 * y) / sqrt(sum(x::float8 * x) * sum(y::float8 * y)) + 0 * nextval('compared') FROM unnest(a, b) AS p (x, y) $$`,
		`CREATE OPERATOR <=> (LEFTARG = real[], RIGHTARG = real[], FUNCTION = cosine_distance)`,
	} {
		if _, err := first.db.Exec(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	c := meaning(t, s, "grams")
	c.DB = first.db
	f := newHubWith(t, c)
	f.until(t, "vectors of the extension", vectorsQuery+" WHERE to_jsonb(artifact_vector) ->> 'embedding' IS NOT NULL", 4)
	f.mustCreate(t, hypothesis("late", "a phagocytic microglia that came later"))
	f.until(t, "vectors of the extension", vectorsQuery+" WHERE to_jsonb(artifact_vector) ->> 'embedding' IS NOT NULL", 5)
	got := ids(f.search(t, contributor(t.Context()), near))
	if len(got) == 0 || got[0] != "late" || !slices.Equal(got[1:], want) {
		t.Errorf("the database finds %v, the hub found %v", got, want)
	}
	if n := f.count(t, "SELECT last_value FROM compared"); n < 5 {
		t.Errorf("the database compared %d vectors", n)
	}
}

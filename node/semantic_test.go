package node_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/embed"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/embedtest"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/rank"
	"github.com/scidex-ai/substrate/verb"
)

// models returns clients of a model.
func models(t testing.TB, s *embedtest.Server, model string) (*embed.Client, *embed.Reranker) {
	t.Helper()
	e, err := embed.NewClient(embed.Endpoint{URL: s.URL, Model: model})
	if err != nil {
		t.Fatal(err)
	}
	r, err := embed.NewReranker(embed.Endpoint{URL: s.URL, Model: model})
	if err != nil {
		t.Fatal(err)
	}
	return e, r
}

// newMeaningTwin makes a twin whose two sides search by meaning.
func newMeaningTwin(t *testing.T, s *embedtest.Server, scopes ...string) *twin {
	t.Helper()
	var c hub.Config
	c.Embeddings, c.Rerank = models(t, s, "grams")
	w := newTwinOf(t, c, scopes...)
	e, r := models(t, s, "grams")
	w.store.UseModels(&rank.Models{Embed: e, Rerank: r})
	return w
}

// meant waits until the store has some vectors and knows by which model searches are.
func (w *twin) meant(t *testing.T, want int) {
	t.Helper()
	eventually(t, 30*time.Second, fmt.Sprint(want, " vectors"), func() bool {
		w.catchUp(t)
		return w.inFile(t, "SELECT count(*) FROM vector") == want && w.inFile(t, "SELECT count(*) FROM vector_model") == 1
	})
}

// inFile counts what the store's file holds.
func (w *twin) inFile(t *testing.T, query string) (n int) {
	t.Helper()
	return inFile(t, w.path, query)
}

func inFile(t *testing.T, path, query string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// same searches by meaning at both sides, and wants the same hits in the same order.
func (w *twin) same(t *testing.T, agent string, in verb.SearchRequest) verb.SearchResponse {
	t.Helper()
	w.catchUp(t)
	a := mustCall(t, w.atHub(t.Context(), agent, verb.Viewer), w.verbs, verb.Search, in)
	b := mustCall(t, w.atNode(t.Context(), agent, verb.Viewer), w.reads, verb.Search, in)
	if x, y := answerOf(t, a), answerOf(t, b); x != y {
		t.Errorf("search %+v: the hub answers\n%s\nand the node\n%s", in, x, y)
	}
	return b
}

func answerOf(t *testing.T, out verb.SearchResponse) string {
	t.Helper()
	out.AsOf = 0
	raw, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

var statements = map[string]string{
	"clearance": "Microglial phagocytosis removes aggregated amyloid from the parenchyma",
	"synapse":   "Complement tags synapses for elimination by microglia",
	"yeast":     "Budding yeast divides asymmetrically under nutrient stress",
	"tangles":   "Hyperphosphorylated tau assembles into neurofibrillary tangles",
}

// TestSemanticFollowsWrites checks that hub and node find the same by meaning after
// each write, and that the file keeps nothing of what is gone.
func TestSemanticFollowsWrites(t *testing.T) {
	s := embedtest.New(t)
	w := newMeaningTwin(t, s, "commons", "lab-a", "lab-b")
	root := w.atHub(t.Context(), "root", verb.Admin, verb.Contributor)
	for _, lab := range []string{"lab-a", "lab-b"} {
		mustCall(t, root, w.verbs, verb.ScopesCreate, verb.ScopesCreateRequest{ID: lab, Title: lab})
		mustCall(t, root, w.verbs, verb.ScopesGrant, verb.ScopesGrantRequest{Scope: lab, Agent: "root", Roles: []string{verb.Contributor, verb.Admin}})
	}
	mustCall(t, root, w.verbs, verb.ScopesGrant, verb.ScopesGrantRequest{Scope: "lab-a", Agent: "ada", Roles: []string{verb.Viewer}})
	write := func(id, scope, statement string) verb.WriteResult {
		return mustCall(t, root, w.verbs, verb.Create, verb.CreateRequest{
			Type: "hypothesis", ID: id, Scope: scope, Title: "About " + id, Content: json.RawMessage(fmt.Sprintf(`{"statement":%q}`, statement)),
		})
	}
	made := make(map[string]verb.WriteResult)
	for id, statement := range statements {
		made[id] = write(id, "", statement)
	}
	w.meant(t, 4)
	near := verb.SearchRequest{Query: "phagocytic microglia aggregates", Mode: verb.SearchSemantic, Highlight: true, IncludeContent: true, Facets: []string{"type", "state", "scope"}}
	if got := w.same(t, "ada", near); len(got.Hits) < 2 || got.Hits[0].Artifact.ID != "clearance" || got.ModeUsed != verb.SearchSemantic {
		t.Errorf("by meaning both find %+v", got)
	}
	filter := json.RawMessage(`{"field":"/content/statement","op":"contains","value":"tau"}`)
	for _, in := range []verb.SearchRequest{
		{Query: "microglia -synapses", Mode: verb.SearchSemantic},
		{Query: "microglia OR tau -synapses", Mode: verb.SearchSemantic},
		{Query: "microglia removes tangles", Mode: verb.SearchSemantic, Filter: filter},
		{Query: "microglia", Mode: verb.SearchSemantic, Types: []string{"hypothesis"}, Scope: "commons", Limit: 1},
		{Query: "microglia", Mode: verb.SearchSemantic, Types: []string{"gene"}},
		{Query: "microglia amyloid removal", Mode: verb.SearchSemantic, Rerank: true},
	} {
		w.same(t, "ada", in)
	}
	for _, in := range []verb.SearchRequest{{Query: "microglia"}, {Query: "microglia", Rerank: true}, {Query: "microglia OR yeast", Mode: verb.SearchHybrid, Facets: []string{"type"}}} {
		w.searches(t, "ada", in)
	}

	t.Run("what others hold changes no answer", func(t *testing.T) {
		requests := []verb.SearchRequest{near, {Query: "microglia", Facets: []string{"scope"}}, {Query: "microglia", Rerank: true}, {Query: "microglia", Scope: "lab-b", Mode: verb.SearchSemantic}}
		var before []string
		for _, in := range requests {
			before = append(before, answerOf(t, mustCall(t, w.atNode(t.Context(), "ada", verb.Viewer), w.reads, verb.Search, in)))
		}
		for i := range 20 {
			write(fmt.Sprint("hidden-", i), "lab-b", fmt.Sprint("phagocytic microglia, aggregates, case ", i))
		}
		w.meant(t, 24)
		for i, in := range requests {
			if after := answerOf(t, mustCall(t, w.atNode(t.Context(), "ada", verb.Viewer), w.reads, verb.Search, in)); after != before[i] {
				t.Errorf("%+v:\n%s\nonce there is more elsewhere:\n%s", in, before[i], after)
			}
		}
		if got := w.same(t, "root", near); len(got.Hits) < 20 {
			t.Errorf("a member of lab-b finds %d", len(got.Hits))
		}
	})
	t.Run("what is moved away, retired or redacted", func(t *testing.T) {
		vector := func(id string) []byte {
			v, err := embed.Quantize(embedtest.Vector("grams", "About "+id+"\n"+statements[id]))
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		inBytes := func(v []byte) bool {
			for _, suffix := range []string{"", "-wal"} {
				if raw, err := os.ReadFile(w.path + suffix); err == nil && bytes.Contains(raw, v) {
					return true
				}
			}
			return false
		}
		if !inBytes(vector("tangles")) || !inBytes(vector("clearance")) {
			t.Fatal("the file does not hold a vector in one piece, so this tests nothing")
		}
		mustCall(t, root, w.verbs, verb.Redact, verb.RedactRequest{Ref: "hypothesis:tangles", Reason: "test", Revisions: 1})
		w.catchUp(t)
		if n := w.inFile(t, "SELECT count(*) FROM vector WHERE id = 'tangles'"); n != 0 || inBytes(vector("tangles")) {
			t.Errorf("the redacted one has %d vectors", n)
		}
		mustCall(t, root, w.verbs, verb.Supersede, verb.SupersedeRequest{Ref: "hypothesis:synapse", ReplacementRef: "hypothesis:clearance", Reason: "merged"})
		w.catchUp(t)
		if n := w.inFile(t, "SELECT count(*) FROM vector WHERE id = 'synapse'"); n != 0 {
			t.Errorf("the retired one has %d vectors", n)
		}
		mustCall(t, root, w.verbs, verb.Move, verb.MoveRequest{Ref: "hypothesis:clearance", BaseContentHash: made["clearance"].ContentHash, Scope: "lab-b", Reason: "test"})
		if got := w.same(t, "ada", near); slices.ContainsFunc(got.Hits, func(h verb.SearchHit) bool { return h.Artifact.ID == "clearance" }) {
			t.Errorf("who lost it finds %+v", got.Hits)
		}
		w.meant(t, 22)
		if n := w.inFile(t, "SELECT count(*) FROM vector WHERE id = 'clearance' AND scope = 'lab-b'"); n != 1 {
			t.Errorf("the moved one has %d vectors", n)
		}
		if got := w.same(t, "root", near); !slices.ContainsFunc(got.Hits, func(h verb.SearchHit) bool { return h.Artifact.ID == "clearance" }) {
			t.Errorf("who gained it finds %+v", got.Hits)
		}
	})
	t.Run("what cannot be asked about", func(t *testing.T) {
		w.store.UseModels(new(rank.Models))
		at := w.atNode(t.Context(), "ada", verb.Viewer)
		if out := mustCall(t, at, w.reads, verb.Search, verb.SearchRequest{Query: "microglia"}); out.ModeUsed != verb.SearchLexical || len(out.Degraded) != 1 || out.Degraded[0].Reason != artifact.ReasonNotConfigured {
			t.Errorf("auto of a node without an endpoint = %+v", out)
		}
		if _, err := verb.Search.Call(at, w.reads, near); why(err) != artifact.ReasonNotConfigured {
			t.Errorf("semantic of a node without an endpoint = %v", err)
		}
		e, _ := models(t, s, "grams")
		w.store.UseModels(&rank.Models{Embed: e})
		s.Fail(func(_ int, rw http.ResponseWriter, _ *http.Request) bool {
			http.Error(rw, "down", http.StatusBadGateway)
			return true
		})
		if out := mustCall(t, at, w.reads, verb.Search, verb.SearchRequest{Query: "microglia at rest"}); out.ModeUsed != verb.SearchLexical || len(out.Degraded) != 1 || out.Degraded[0].Reason != artifact.ReasonModelUnavailable {
			t.Errorf("auto with an endpoint that is away = %+v", out)
		}
		if _, err := verb.Search.Call(at, w.reads, verb.SearchRequest{Query: "microglia at rest", Mode: verb.SearchHybrid}); why(err) != artifact.ReasonModelUnavailable {
			t.Errorf("hybrid with an endpoint that is away = %v", err)
		}
	})
}

// TestVectorsOfAReplica checks that a first copy brings vectors, that a new model
// takes the place of the old one, and that a scope that is lost takes its own along.
func TestVectorsOfAReplica(t *testing.T) {
	s := embedtest.New(t)
	w := newWorld(t, initHub)
	w.stop()
	w.config.Embeddings, _ = models(t, s, "old")
	w.start()
	w.lab("lab-a")
	ada := w.as("ada", verb.Contributor)
	for id, statement := range statements {
		for _, scope := range []string{"", "lab-a"} {
			do(w, ada, verb.Create, verb.CreateRequest{Type: "hypothesis", ID: id, Scope: scope, Title: "About " + id, Content: json.RawMessage(fmt.Sprintf(`{"statement":%q}`, statement))})
		}
	}
	served := func(model string) func() bool {
		return func() bool {
			var n int
			err := w.db.QueryRow(t.Context(), `SELECT count(*) FROM artifact_vector v JOIN vector_model m ON m.model = v.model WHERE m.serves AND m.model = $1`, model).Scan(&n)
			return err == nil && n == 8
		}
	}
	eventually(t, 30*time.Second, "vectors that serve", served("old"))
	dir := t.TempDir()
	path := filepath.Join(dir, node.ReplicaFile)
	e, err := embed.NewClient(embed.Endpoint{URL: s.URL}) // the hub's model counts
	if err != nil {
		t.Fatal(err)
	}
	r := w.nodeWith(node.Config{Dir: dir, HubURL: w.url, Token: w.token("ada", verb.Contributor), Embeddings: e})
	w.caughtUp(r)
	if n := inFile(t, path, "SELECT count(*) FROM vector WHERE model = 'old'"); n != 8 {
		t.Errorf("the first copy brings %d vectors", n)
	}
	near := func(query string) (ids []string) {
		t.Helper()
		c := &verb.Client{URL: r.url, Token: w.token("ada", verb.Contributor)}
		out, err := verb.Search.Call(t.Context(), c, verb.SearchRequest{Query: query, Mode: verb.SearchSemantic, Scope: "commons"})
		if err != nil {
			t.Fatal(err)
		}
		for _, hit := range out.Hits {
			ids = append(ids, hit.Artifact.ID)
		}
		return ids
	}
	if got := near("phagocytic microglia"); len(got) == 0 || got[0] != "clearance" {
		t.Errorf("by the old model the node finds %v", got)
	}
	w.stop()
	w.config.Embeddings, _ = models(t, s, "new")
	w.start()
	eventually(t, 30*time.Second, "vectors by the new model", served("new"))
	w.caughtUp(r)
	if n := inFile(t, path, "SELECT count(*) FROM vector WHERE model = 'new'"); n != 8 || inFile(t, path, "SELECT count(*) FROM vector") != 8 {
		t.Errorf("there are %d vectors by the new model", n)
	}
	s.Models()
	if got := near("phagocytic microglia"); len(got) == 0 || got[0] != "clearance" || !slices.Equal(s.Models(), []string{"new"}) {
		t.Errorf("by the new model the node finds %v", got)
	}
	do(w, w.as("root", verb.Admin), verb.ScopesRevoke, verb.ScopesRevokeRequest{Scope: "lab-a", Agent: "ada"})
	eventually(t, 30*time.Second, "the scope is left", func() bool {
		return inFile(t, path, "SELECT count(*) FROM vector WHERE scope = 'lab-a'") == 0
	})
	if n := inFile(t, path, "SELECT count(*) FROM vector"); n != 4 {
		t.Errorf("%d vectors are left", n)
	}
}

// TestSemanticSearchOfRealData checks that papers are found by words that they do not
// hold, and by both stores alike.
func TestSemanticSearchOfRealData(t *testing.T) {
	dir := os.Getenv("SCIDEX_TEST_DATA")
	raw, err := os.ReadFile(filepath.Join(dir, "paper-01.jsonl"))
	if dir == "" || err != nil {
		t.Skip("no real data: set SCIDEX_TEST_DATA")
	}
	s := embedtest.New(t)
	w := newMeaningTwin(t, s, "commons")
	root := w.atHub(t.Context(), "root", verb.Admin, verb.Contributor)
	var items []verb.BatchItem
	for line := range strings.Lines(string(raw)) {
		var in verb.CreateRequest
		var of struct {
			Type, ID, Title string
			Content         json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &of); err != nil {
			t.Fatal(err)
		}
		in.Type, in.ID, in.Title, in.Content = of.Type, of.ID, of.Title, of.Content
		if items = append(items, verb.BatchItem{Create: &in}); len(items) == 600 {
			break
		}
	}
	mustCall(t, root, w.verbs, verb.Batch, verb.BatchRequest{Items: items, Import: true})
	w.meant(t, len(items))
	for query, want := range realMeanings {
		in := verb.SearchRequest{Query: query, Mode: verb.SearchSemantic, Limit: 10}
		got := w.same(t, "ada", in)
		in.Mode = verb.SearchLexical
		byWords := w.same(t, "ada", in)
		place := slices.IndexFunc(got.Hits, func(h verb.SearchHit) bool { return h.Artifact.ID == want })
		if os.Getenv("SHOW") != "" {
			for _, h := range got.Hits[:3] {
				t.Logf("%s: %s %v %s", query, h.Artifact.ID, h.Score, h.Artifact.Title)
			}
		}
		if place < 0 || place > 2 {
			t.Errorf("%q finds %s as number %d", query, want, place+1)
		}
		if slices.ContainsFunc(byWords.Hits, func(h verb.SearchHit) bool { return h.Artifact.ID == want }) {
			t.Errorf("%q finds %s by words already", query, want)
		}
	}
}

var realMeanings = map[string]string{
	"ascidians phylogenies by mitochondrial genomes":     "doi-4bad75af48710ced0364",
	"privacy-differential deeper learners":               "doi-0015bba6dcebbd80f37e",
	"frequency dependence of selective parental mutants": "doi-007fa1c1c6e6b7b0411e",
	"transferring knowledge of privately trained nets":   "doi-006ca4fb8ca26b919a09",
	"overlapping frontostriatal projections converge":    "doi-00871f787916f3acf716",
}

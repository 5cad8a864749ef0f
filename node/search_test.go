package node_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// searches runs a search at the hub and at the store, and returns what both find.
func (w *twin) searches(t *testing.T, agent string, in verb.SearchRequest) []string {
	t.Helper()
	refs := func(out verb.SearchResponse) (refs []string) {
		for _, hit := range out.Hits {
			refs = append(refs, hit.Artifact.Ref.Current().String())
		}
		slices.Sort(refs)
		return refs
	}
	a := refs(mustCall(t, w.atHub(t.Context(), agent, verb.Viewer), w.verbs, verb.Search, in))
	w.catchUp(t)
	b := refs(mustCall(t, w.atNode(t.Context(), agent, verb.Viewer), w.reads, verb.Search, in))
	if !slices.Equal(a, b) {
		t.Errorf("search %+v: the hub finds %v, the node %v", in, a, b)
	}
	return a
}

func (w *twin) wantFound(t *testing.T, in verb.SearchRequest, want ...string) {
	t.Helper()
	if got := w.searches(t, "ada", in); !slices.Equal(got, want) {
		t.Errorf("search %+v finds %v, want %v", in, got, want)
	}
}

// TestSearchFollowsWrites checks that each write is found at the hub by the next
// search, and at a node once it is applied.
func TestSearchFollowsWrites(t *testing.T) {
	w := newTwin(t, "commons", "lab-a", "lab-b")
	root := w.atHub(t.Context(), "root", verb.Admin, verb.Contributor)
	for _, lab := range []string{"lab-a", "lab-b"} {
		mustCall(t, root, w.verbs, verb.ScopesCreate, verb.ScopesCreateRequest{ID: lab, Title: lab})
		mustCall(t, root, w.verbs, verb.ScopesGrant, verb.ScopesGrantRequest{Scope: lab, Agent: "root", Roles: []string{verb.Contributor, verb.Admin}})
	}
	mustCall(t, root, w.verbs, verb.ScopesGrant, verb.ScopesGrantRequest{Scope: "lab-a", Agent: "ada", Roles: []string{verb.Viewer}})
	words := func(s string) verb.SearchRequest { return verb.SearchRequest{Query: s} }
	make := func(id, scope, statement string) verb.WriteResult {
		return mustCall(t, root, w.verbs, verb.Create, verb.CreateRequest{
			Type: "hypothesis", ID: id, Scope: scope, Title: "About " + id, Content: json.RawMessage(fmt.Sprintf(`{"statement":%q}`, statement)),
		})
	}
	one := make("one", "", "zebrafish sleep without melatonin")
	w.wantFound(t, words("zebrafish"), "hypothesis:one")
	two := mustCall(t, root, w.verbs, verb.Update, verb.UpdateRequest{Ref: "hypothesis:one", BaseContentHash: one.ContentHash, MergePatch: json.RawMessage(`{"statement":"axolotl regrow limbs"}`)})
	w.wantFound(t, words("zebrafish"))
	w.wantFound(t, words("axolotls OR zebrafish"), "hypothesis:one")
	mustCall(t, root, w.verbs, verb.Signal, verb.SignalRequest{Ref: "hypothesis:one", Kind: "vote", Value: "1"})
	w.wantFound(t, words("axolotl"), "hypothesis:one")

	t.Run("by a name exactly first", func(t *testing.T) {
		make("other", "", "About one axolotl hypothesis:one About one")
		for _, query := range []string{"hypothesis:one", "About one"} {
			for name, out := range map[string]verb.SearchResponse{
				"hub": mustCall(t, w.atHub(t.Context(), "ada", verb.Viewer), w.verbs, verb.Search, words(query)),
				"node": func() verb.SearchResponse {
					w.catchUp(t)
					return mustCall(t, w.atNode(t.Context(), "ada", verb.Viewer), w.reads, verb.Search, words(query))
				}(),
			} {
				if len(out.Hits) != 2 || out.Hits[0].Artifact.ID != "one" {
					t.Errorf("%s: %q finds %+v", name, query, out.Hits)
				}
			}
		}
	})
	t.Run("in a scope that the caller sees", func(t *testing.T) {
		make("hidden", "lab-b", "axolotl of lab b")
		make("known", "lab-a", "axolotl of lab a")
		w.wantFound(t, words("axolotl lab"), "hypothesis:lab-a/known")
		w.wantFound(t, verb.SearchRequest{Query: "axolotl", Scope: "lab-a"}, "hypothesis:lab-a/known")
		w.wantFound(t, verb.SearchRequest{Query: "axolotl", Scope: "lab-b"})
		w.wantFound(t, words("hypothesis:lab-b/hidden"))
		w.wantFound(t, verb.SearchRequest{Query: "known", Types: []string{"hypothesis"}}, "hypothesis:lab-a/known")
	})
	t.Run("with a filter, and structured", func(t *testing.T) {
		votes := json.RawMessage(`{"signal":{"kind":"vote","agg":"count","op":"gte","value":1}}`)
		w.wantFound(t, verb.SearchRequest{Query: "axolotl", Filter: votes, Facets: []string{"type"}}, "hypothesis:one")
		w.wantFound(t, verb.SearchRequest{Mode: "structured", Filter: votes, Facets: []string{"scope"}}, "hypothesis:one")
		w.wantFound(t, verb.SearchRequest{Query: "axolotl", Filter: json.RawMessage(`{"field":"/content/statement","op":"starts_with","value":"About"}`)}, "hypothesis:other")
		w.wantFound(t, verb.SearchRequest{Query: "axolotl", Types: []string{"paper"}, Filter: votes})
	})
	t.Run("not when it is replaced", func(t *testing.T) {
		mustCall(t, root, w.verbs, verb.Supersede, verb.SupersedeRequest{Ref: "hypothesis:other", ReplacementRef: "hypothesis:one", Reason: "merged"})
		w.wantFound(t, words("axolotl regrow"), "hypothesis:one")
		w.wantFound(t, words("axolotl hypothesis"))
	})
	t.Run("not when it is redacted, nor do its words stay in the file", func(t *testing.T) {
		made := make("secret", "", "quagga quaggaquagga unspeakable")
		w.wantFound(t, words("quaggaquagga"), "hypothesis:secret")
		mustCall(t, root, w.verbs, verb.Redact, verb.RedactRequest{Ref: made.Ref.Current().String(), Reason: "test", Revisions: 1})
		w.wantFound(t, words("quaggaquagga"))
		w.wantFound(t, words("hypothesis:secret"))
		for _, suffix := range []string{"", "-wal"} {
			raw, err := os.ReadFile(w.path + suffix)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			for _, word := range []string{"quagga", "unspeak"} {
				if strings.Contains(string(raw), word) {
					t.Errorf("the file%s holds %q", suffix, word)
				}
			}
		}
	})
	t.Run("not by those who lose it", func(t *testing.T) {
		mustCall(t, root, w.verbs, verb.Move, verb.MoveRequest{Ref: "hypothesis:one", BaseContentHash: two.ContentHash, Scope: "lab-b", Reason: "test"})
		w.wantFound(t, words("axolotl regrow"))
		if got := w.searches(t, "root", words("axolotl regrow")); !slices.Equal(got, []string{"hypothesis:one"}) {
			t.Errorf("a member of lab-b finds %v", got)
		}
	})
}

// TestSearchRefuses checks that both stores refuse the same, with the same words.
func TestSearchRefuses(t *testing.T) {
	w := newTwin(t, "commons")
	w.catchUp(t)
	for name, in := range map[string]verb.SearchRequest{
		"no words":              {},
		"words too long":        {Query: strings.Repeat("x ", 5000)},
		"an open quote":         {Query: `"tau`},
		"nothing that must be":  {Query: "-tau"},
		"a mode that is none":   {Query: "tau", Mode: "lexicl"},
		"an unknown type":       {Query: "tau", Types: []string{"hypothesi"}},
		"an unknown facet":      {Query: "tau", Facets: []string{"typ"}},
		"a limit below zero":    {Query: "tau", Limit: -1},
		"a cursor of another":   {Query: "tau", Cursor: (&verb.SearchRequest{Query: "amyloid"}).After(10)},
		"a cursor too deep":     {Query: "tau", Cursor: (&verb.SearchRequest{Query: "tau"}).After(verb.MaxSearchDepth)},
		"meaning":               {Query: "tau", Mode: verb.SearchSemantic},
		"a model":               {Query: "tau", Rerank: true},
		"structured with words": {Query: "tau", Mode: verb.SearchStructured},
		"structured of nothing": {Mode: verb.SearchStructured},
		"a filter that is none": {Query: "tau", Filter: json.RawMessage(`{"feild":"state"}`)},
	} {
		_, a := verb.Search.Call(w.atHub(t.Context(), "ada", verb.Viewer), w.verbs, in)
		_, b := verb.Search.Call(w.atNode(t.Context(), "ada", verb.Viewer), w.reads, in)
		if a == nil || b == nil || why(a) != why(b) || artifact.AsError(a).Code == artifact.CodeInternal || len(artifact.AsError(a).Problems) == 0 {
			t.Errorf("%s: the hub says %v, the node %v", name, a, b)
		}
	}
}

// TestSearchTakesNoSyntax sends what means something to PostgreSQL and to FTS5.
func TestSearchTakesNoSyntax(t *testing.T) {
	w := newTwin(t, "commons")
	root := w.atHub(t.Context(), "root", verb.Contributor)
	mustCall(t, root, w.verbs, verb.Create, verb.CreateRequest{Type: "hypothesis", ID: "h", Title: "near tau not col", Content: json.RawMessage(`{"statement":"a b c d"}`)})
	for _, query := range []string{
		`tau & !col`, `tau | col`, `tau:*A`, `'tau' <-> 'not'`, `tau <2> col`, `!tau`, `tau \`, `''tau''`, `NEAR(tau col)`, `tau NOT col`, `title:tau`, `{title}:tau`, `^tau`, `tau + not`,
		`- tau`, `tau AND col`, "tau\x01", `tau) OR (col`, `tau; DROP TABLE artifact`, `*tau`, `tau**`, `"tau" "col"`, `tau"not"col`, `=tau`, `tau _ not`, `$1 ?1 tau`,
	} {
		w.searches(t, "ada", verb.SearchRequest{Query: query, Highlight: true})
	}
	w.wantFound(t, verb.SearchRequest{Query: "title:tau"}) // two words, one of which is nowhere
	w.wantFound(t, verb.SearchRequest{Query: "tau NOT col"}, "hypothesis:h")
	w.wantFound(t, verb.SearchRequest{Query: `"tau col"`})
}

// TestSearchIsIndexedAnew checks that what a type says anew is to be found is found
// once it was indexed in the background, and that searches say so until then.
func TestSearchIsIndexedAnew(t *testing.T) {
	w := newTwin(t, "commons")
	root := w.atHub(t.Context(), "root", verb.Admin, verb.Contributor)
	for i := range 120 {
		mustCall(t, root, w.verbs, verb.Create, verb.CreateRequest{
			Type: "hypothesis", ID: fmt.Sprint("h-", i), Title: "T", Content: json.RawMessage(`{"statement":"a claim of some length","disease":"kuru"}`),
		})
	}
	w.wantFound(t, verb.SearchRequest{Query: "kuru"})
	schema := mustCall(t, root, w.verbs, verb.Get, verb.GetRequest{Ref: artifact.Ref{Type: "schema", ID: "hypothesis"}})
	mustCall(t, root, w.verbs, verb.Update, verb.UpdateRequest{
		Ref: "schema:hypothesis", BaseContentHash: schema.Artifact.ContentHash, MergePatch: json.RawMessage(`{"search":{"body":["/statement","/disease"]}}`),
	})
	w.catchUp(t)
	in := verb.SearchRequest{Query: "kuru", Limit: 200}
	node := w.atNode(t.Context(), "ada", verb.Viewer)
	if out := mustCall(t, node, w.reads, verb.Search, in); len(out.Degraded) != 1 || out.Degraded[0].Reason != "index_building" || !slices.Equal(out.Degraded[0].Types, []string{"hypothesis"}) {
		t.Errorf("the node says %+v", out.Degraded)
	}
	if out := mustCall(t, node, w.reads, verb.Search, verb.SearchRequest{Query: "kuru", Types: []string{"paper"}}); len(out.Degraded) != 0 {
		t.Errorf("of another type the node says %+v", out.Degraded)
	}
	w.reopen(t) // as after a crash, half way
	if err := w.store.IndexSome(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.reopen(t)
	for range 10 {
		if err := w.store.IndexSome(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		out := mustCall(t, w.atHub(t.Context(), "ada", verb.Viewer), w.verbs, verb.Search, in)
		if len(out.Degraded) == 0 && len(out.Hits) == 120 {
			break
		}
		if len(out.Degraded) == 0 {
			t.Fatalf("the hub finds %d and says nothing", len(out.Hits))
		}
		if time.Now().After(deadline) {
			t.Fatalf("the hub still says %+v", out.Degraded)
		}
	}
	out := mustCall(t, w.atNode(t.Context(), "ada", verb.Viewer), w.reads, verb.Search, in)
	if len(out.Degraded) != 0 || len(out.Hits) != 120 {
		t.Errorf("the node finds %d and says %+v", len(out.Hits), out.Degraded)
	}
}

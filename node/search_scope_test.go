package node_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/embed"
	"github.com/scidex-ai/substrate/internal/embedtest"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/verb"
)

// TestSearchAfterBootstrap searches a node the moment that it has a replica, and once
// a scope is lost looks in the file for what was searched by.
func TestSearchAfterBootstrap(t *testing.T) {
	s := embedtest.New(t)
	w := newWorld(t, initHub)
	w.stop()
	w.config.Embeddings, _ = models(t, s, "grams")
	w.start()
	w.lab("lab-a")
	ada := w.as("ada", verb.Contributor)
	const each = 40
	for i := range each {
		do(w, ada, verb.Create, verb.CreateRequest{Type: "hypothesis", ID: fmt.Sprint("h", i), Title: "Open", Content: json.RawMessage(`{"statement":"glycolysis in astrocytes","disease":"kuru"}`)})
		do(w, ada, verb.Create, verb.CreateRequest{
			Type: "hypothesis", ID: fmt.Sprint("s", i), Scope: "lab-a", Title: "Quixotic", Content: json.RawMessage(fmt.Sprintf(`{"statement":"zyzzyva number%d of glycolysis","disease":"xanthopsia"}`, i)),
		})
	}
	eventually(t, 30*time.Second, "vectors that serve", func() bool {
		var n int
		err := w.db.QueryRow(t.Context(), `SELECT count(*) FROM artifact_vector v JOIN vector_model m ON m.model = v.model WHERE m.serves`).Scan(&n)
		return err == nil && n == 2*each
	})
	head, err := w.hub.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, node.ReplicaFile)
	e, err := embed.NewClient(embed.Endpoint{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	r := w.nodeWith(node.Config{Dir: dir, Token: w.token("ada", verb.Contributor), Embeddings: e})
	if err := r.WaitApplied(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	c := &verb.Client{URL: r.url, Token: r.token}
	search := func(in verb.SearchRequest) verb.SearchResponse {
		t.Helper()
		in.Limit = 200
		out, err := verb.Search.Call(t.Context(), c, in)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := search(verb.SearchRequest{Query: "glycolysis", Mode: verb.SearchLexical, Facets: []string{"scope"}})
	if first.AsOf < head || len(first.Hits) != 2*each || len(first.Degraded) > 0 || len(first.Facets["scope"]) != 2 {
		t.Errorf("the first search, at %d of %d, finds %d, %+v, %+v", first.AsOf, head, len(first.Hits), first.Degraded, first.Facets)
	}
	if out := search(verb.SearchRequest{Query: "zyzzyva", Mode: verb.SearchHybrid}); len(out.Hits) == 0 || out.Hits[0].Artifact.Scope != "lab-a" {
		t.Errorf("by meaning it finds %+v", out.Hits)
	}
	kuru := verb.SearchRequest{Mode: verb.SearchStructured, Types: []string{"hypothesis"}, Filter: json.RawMessage(`{"field":"/content/disease","op":"eq","value":"kuru"}`)}
	eventually(t, 30*time.Second, "facets", func() bool { return len(search(kuru).Warnings) == 0 })
	if out := search(kuru); len(out.Hits) != each {
		t.Errorf("by its facet the node finds %d", len(out.Hits))
	}

	parts := map[string][]byte{"a word": []byte("zyzzyv"), "a number's word": []byte("number3"), "a title": []byte("Quixotic"), "a title's word": []byte("quixot"), "a facet": []byte("xanthopsia"), "an id": []byte("lab-a/s")}
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var vector []byte
	if err := db.QueryRowContext(t.Context(), "SELECT vector FROM vector WHERE scope = 'lab-a' AND id = 'lab-a/s7'").Scan(&vector); err != nil || len(vector) < 16 {
		t.Fatal(len(vector), err)
	}
	parts["a vector"] = vector
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	holds := func(part []byte) bool {
		for _, suffix := range []string{"", "-wal"} {
			raw, err := os.ReadFile(path + suffix)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if bytes.Contains(raw, part) {
				return true
			}
		}
		return false
	}
	for name, part := range parts {
		if name != "a number's word" && !holds(part) { // the index keeps beginnings once
			t.Errorf("the file never held %s", name)
		}
	}
	do(w, w.as("root", verb.Admin), verb.ScopesRevoke, verb.ScopesRevokeRequest{Scope: "lab-a", Agent: "ada"})
	eventually(t, 30*time.Second, "the scope is lost", func() bool { return why(r.get(t, "hypothesis:lab-a/s7")) == string(artifact.CodeNotFound) })
	for name, part := range parts {
		eventually(t, 20*time.Second, name+" leaves the file", func() bool { return !holds(part) })
	}
	if out := search(verb.SearchRequest{Query: "glycolysis", Mode: verb.SearchLexical, Facets: []string{"scope"}}); len(out.Hits) != each || len(out.Facets["scope"]) != 1 {
		t.Errorf("then it finds %d, %+v", len(out.Hits), out.Facets)
	}
	if out := search(verb.SearchRequest{Query: "zyzzyva", Mode: verb.SearchLexical}); len(out.Hits) != 0 {
		t.Errorf("what was lost is found: %+v", out.Hits)
	}
}

package hub_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/verb"
)

// TestSearchOfAnEarlierDatabase checks that what was there before there was an index
// is indexed in the background, and that searches say so until then.
func TestSearchOfAnEarlierDatabase(t *testing.T) {
	f := newHub(t)
	for i := range 70 {
		f.mustCreate(t, hypothesis(fmt.Sprint("h-", i), "kuru spreads"))
	}
	if _, err := f.db.Exec(t.Context(), "DELETE FROM search_document WHERE type = 'hypothesis'"); err != nil {
		t.Fatal(err)
	}
	later := newHubOn(t, f.db)
	call := func(types ...string) verb.SearchResponse {
		out, err := verb.Search.Call(contributor(t.Context()), later.verbs, verb.SearchRequest{Query: "kuru", Limit: 200, Types: types})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := call("paper"); len(out.Degraded) != 0 {
		t.Errorf("of another type the hub says %+v", out.Degraded)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		out := call()
		if len(out.Degraded) == 0 {
			if len(out.Hits) != 70 {
				t.Errorf("the hub finds %d and says nothing", len(out.Hits))
			}
			return
		}
		if d := out.Degraded[0]; d.Reason != "index_building" || len(d.Types) != 1 || d.Types[0] != "hypothesis" {
			t.Fatalf("the hub says %+v", d)
		}
		if time.Now().After(deadline) {
			t.Fatal("the index is never whole")
		}
	}
}

// TestSearchUsesTheIndex checks that PostgreSQL can answer a search by the index.
func TestSearchUsesTheIndex(t *testing.T) {
	f := newHub(t)
	f.mustCreate(t, hypothesis("h-1", "kuru spreads"))
	tx, err := f.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), "SET LOCAL enable_seqscan = off"); err != nil {
		t.Fatal(err)
	}
	rows, err := tx.Query(t.Context(), `EXPLAIN SELECT FROM search_document d JOIN artifact a ON a.type = d.type AND a.id = d.id WHERE d.words @@ $1::text::tsquery`, "'kuru'")
	if err != nil {
		t.Fatal(err)
	}
	var plan strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(line + "\n")
	}
	if !strings.Contains(plan.String(), "search_document_words") {
		t.Errorf("the plan is\n%s", plan.String())
	}
}

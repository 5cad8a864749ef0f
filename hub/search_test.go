package hub_test

import (
	"testing"

	"github.com/scidex-ai/substrate/verb"
)

func TestSearch(t *testing.T) {
	f := newHub(t)
	f.mustCreate(t, hypothesis("h-1", "TNF-α drives APOE4 toxicity"))
	out, err := verb.Search.Call(contributor(t.Context()), f.verbs, verb.SearchRequest{Query: "APOE 4 tnf alpha", Highlight: true, Facets: []string{"type"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", out)
	if len(out.Hits) != 1 {
		t.Fatal("not found")
	}
}

package hub

import (
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/rank"
	"github.com/scidex-ai/substrate/verb"
)

// TestFilterPlans reads what PostgreSQL does for a declared filter of each kind in lists
// and in searches of each kind.
func TestFilterPlans(t *testing.T) {
	h := filledHub(t)
	caller := &verb.Caller{Actor: artifact.Actor{ID: "vic"}, Permissions: []string{verb.Viewer}}
	indexed := func(string) bool { return true }
	for _, c := range []struct{ name, filter, uses string }{
		{"eq", `{"field":"/content/symbol","op":"eq","value":"gene7"}`, "facet_text"},
		{"eq of a number", `{"field":"/content/symbol","op":"eq","value":7}`, "facet_num"},
		{"eq of a truth value", `{"field":"/content/symbol","op":"eq","value":true}`, "facet_text"},
		{"eq of null", `{"field":"/content/symbol","op":"eq","value":null}`, "facet_other"},
		{"ne", `{"field":"/content/symbol","op":"ne","value":"gene7"}`, "facet_text"},
		{"in", `{"field":"/content/symbol","op":"in","value":["gene7",8]}`, "facet_text"},
		{"nin", `{"field":"/content/symbol","op":"nin","value":["gene7"]}`, "facet_text"},
		{"lt", `{"field":"/content/symbol","op":"lt","value":"gene1"}`, "facet_text"},
		{"lte", `{"field":"/content/symbol","op":"lte","value":3}`, "facet_num"},
		{"gt", `{"field":"/content/symbol","op":"gt","value":"gene9998"}`, "facet_text"},
		{"gte", `{"field":"/content/symbol","op":"gte","value":30}`, "facet_num"},
		{"contains", `{"field":"/content/symbol","op":"contains","value":"999"}`, "facet_"},
		{"starts_with", `{"field":"/content/symbol","op":"starts_with","value":"gene77"}`, "facet_text"},
		{"exists", `{"field":"/content/symbol","op":"exists"}`, "facet_"},
		{"exists not", `{"field":"/content/symbol","op":"exists","value":false}`, "facet_"},
		{"not", `{"not":{"field":"/content/symbol","op":"eq","value":"gene7"}}`, "facet_text"},
		{"and", `{"and":[{"field":"/content/symbol","op":"eq","value":"gene7"},{"field":"/content/name","op":"eq","value":"c1"}]}`, "facet_text"},
		{"or", `{"or":[{"field":"/content/symbol","op":"eq","value":"gene7"},{"field":"/content/symbol","op":"eq","value":"gene8"}]}`, "facet_text"},
		{"ref", `{"field":"ref","op":"eq","value":"gene:gene7"}`, "artifact_pkey"},
		{"refs", `{"field":"ref","op":"in","value":["gene:gene7","gene:gene8"]}`, "artifact_pkey"},
		{"links out", `{"link":{"predicate":"about"}}`, "link_"},
		{"links in", `{"link":{"direction":"in","min":2,"max":5}}`, "link_to"},
		{"links to one", `{"link":{"predicate":"about","to":"paper:paper7"}}`, "link_"},
		{"a sum of signals", `{"signal":{"kind":"vote","agg":"sum","op":"gte","value":1}}`, "signal_aggregate_pkey"},
		{"a least signal", `{"signal":{"kind":"vote","agg":"min","op":"gte","value":1}}`, "signal_latest"},
	} {
		check := func(t *testing.T, text string, args []any) {
			t.Helper()
			if plan := h.planOf(t, text, args); !strings.Contains(plan, c.uses) {
				t.Errorf("it does not use %s:\n%s\n%s", c.uses, plan, text)
			}
		}
		typ := "gene"
		if strings.Contains(c.filter, "signal") {
			typ = "hypothesis" // genes have none
		}
		t.Run("list/"+c.name, func(t *testing.T) {
			in := &verb.ListRequest{Type: typ, Filter: []byte(c.filter), Limit: 20}
			l, err := in.Listing(h.schemas.get, h.schemas.types)
			if err != nil {
				t.Fatal(err)
			}
			r := &lister{hub: h, caller: caller, in: in, listing: l, indexed: indexed}
			text, args, _, err := r.page(0, 1, 20, true)
			if err != nil {
				t.Fatal(err)
			}
			check(t, text, args)
		})
		for name, in := range map[string]*verb.SearchRequest{
			"structured": {Mode: verb.SearchStructured}, "lexical": {Query: "tau", Mode: verb.SearchLexical},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				in.Types, in.Filter = []string{typ}, []byte(c.filter)
				p, err := in.Plan(h.schemas.get, h.schemas.types)
				if err != nil {
					t.Fatal(err)
				}
				r := h.searcher(caller, p)
				r.indexed = indexed
				text, args := r.page()
				check(t, text, args)
				text, args = r.query(countWordsQuery, countStructuredQuery)
				check(t, text, args)
				if p.Words != nil {
					text, args = (&ranker{r}).near(&rank.Plan{SearchPlan: p, Model: "m", Vector: []byte{1}}, false, 9)
					check(t, text, args)
				}
			})
		}
	}
}

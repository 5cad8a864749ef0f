package node

import (
	"context"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/rank"
	"github.com/scidex-ai/substrate/verb"
)

// declaredFilters are filters that an index answers, or tells of each artifact in the
// order that is asked for. Uses is the index by which a list is found.
var declaredFilters = []struct{ name, filter, uses string }{
	{"eq", `{"field":"/content/symbol","op":"eq","value":"G7"}`, "facet_text"},
	{"eq of a number", `{"field":"/content/symbol","op":"eq","value":7}`, "facet_num"},
	{"eq of a truth value", `{"field":"/content/symbol","op":"eq","value":true}`, "facet_text"},
	{"eq of null", `{"field":"/content/symbol","op":"eq","value":null}`, "facet_other"},
	{"ne", `{"field":"/content/symbol","op":"ne","value":"G7"}`, "artifact_by_type_age"},
	{"in", `{"field":"/content/symbol","op":"in","value":["G7",8]}`, "facet_num"},
	{"nin", `{"field":"/content/symbol","op":"nin","value":["G7"]}`, "artifact_by_type_age"},
	{"lt", `{"field":"/content/symbol","op":"lt","value":"G1"}`, "facet_text"},
	{"lte", `{"field":"/content/symbol","op":"lte","value":3}`, "facet_num"},
	{"gt", `{"field":"/content/symbol","op":"gt","value":"G99"}`, "facet_text"},
	{"gte", `{"field":"/content/symbol","op":"gte","value":30}`, "facet_num"},
	{"contains", `{"field":"/content/symbol","op":"contains","value":"99"}`, "facet_text"},
	{"starts_with", `{"field":"/content/symbol","op":"starts_with","value":"G77"}`, "facet_text"},
	{"exists", `{"field":"/content/symbol","op":"exists"}`, "artifact_by_type_age"},
	{"exists not", `{"field":"/content/symbol","op":"exists","value":false}`, "artifact_by_type_age"},
	{"not", `{"not":{"field":"/content/symbol","op":"eq","value":"G7"}}`, "artifact_by_type_age"},
	{"and", `{"and":[{"field":"/content/symbol","op":"eq","value":"G7"},{"field":"/content/chromosome","op":"eq","value":"c1"}]}`, "facet_text"},
	{"or", `{"or":[{"field":"/content/symbol","op":"eq","value":"G7"},{"field":"/content/symbol","op":"eq","value":"G8"}]}`, "facet_text"},
	{"ref", `{"field":"ref","op":"eq","value":"gene:G7"}`, "artifact_1"},
	{"refs", `{"field":"ref","op":"in","value":["gene:G7","gene:G8"]}`, "artifact_1"},
	{"links out", `{"link":{"predicate":"about"}}`, "link_from"},
	{"links in", `{"link":{"direction":"in","min":2,"max":5}}`, "link_to"},
	{"links to one", `{"link":{"predicate":"about","to":"gene:G7"}}`, "link_to"},
	{"a sum of signals", `{"signal":{"kind":"vote","agg":"sum","op":"gte","value":1}}`, "SEARCH g USING PRIMARY KEY (type=? AND artifact=? AND kind=? AND dimension=?)"},
	{"a least signal", `{"signal":{"kind":"vote","agg":"min","op":"gte","value":1}}`, "signal_latest"},
}

// ofType returns the step of a plan that looks at more of a table than one type's, ""
// when none does.
func ofType(plan string) string {
	if step := walks(plan); step != "" {
		return step
	}
	for step := range strings.Lines(plan) {
		for _, table := range []string{"a", "r", "f", "k", "l", "x", "y", "g"} {
			if strings.HasPrefix(step, "SCAN "+table+" ") && !strings.Contains(step, "VIRTUAL TABLE") {
				return step
			}
		}
	}
	return ""
}

// TestFilterPlans reads what SQLite does for a declared filter of each kind in lists and
// in searches of each kind.
func TestFilterPlans(t *testing.T) {
	s, c, ctx := filled(t)
	symbol := facets{indexed: func(path string) bool { return path == "/symbol" || path == "/chromosome" }}
	schema := &artifact.Schema{Type: "gene", Signals: map[string]artifact.SignalRule{"vote": {Aggregation: artifact.AggregateReplace}}}
	s.declared.Store(&declaredTypes{"gene": {schema: schema}})
	known := s.typeNamed
	types := func() []string { return []string{"gene"} }
	for _, c1 := range declaredFilters {
		check := func(t *testing.T, text string, args []any, uses string) {
			t.Helper()
			plan := planOf(ctx, t, s, text, args)
			if step := ofType(plan); step != "" {
				t.Errorf("it looks at a table whole: %s\n%s\n%s", step, plan, text)
			}
			if !strings.Contains(plan, uses) {
				t.Errorf("it does not use %s:\n%s\n%s", uses, plan, text)
			}
		}
		t.Run("list/"+c1.name, func(t *testing.T) {
			in := &verb.ListRequest{Type: "gene", Filter: []byte(c1.filter), Limit: 20}
			l, err := in.Listing(known, types)
			if err != nil {
				t.Fatal(err)
			}
			p := &page{store: s, in: in, listing: l, form: formOf(l.Type), scopes: in.Scopes(c), facets: symbol}
			text, args, _, err := p.query(0, 1, true)
			if err != nil {
				t.Fatal(err)
			}
			check(t, text, args, c1.uses)
		})
		uses := c1.uses
		if strings.HasPrefix(uses, "artifact_by") { // hits are in the order of refs, or of their words
			uses = "artifact"
		}
		for name, in := range map[string]*verb.SearchRequest{
			"structured": {Mode: verb.SearchStructured}, "lexical": {Query: "tau", Mode: verb.SearchLexical},
		} {
			t.Run(name+"/"+c1.name, func(t *testing.T) {
				in.Types, in.Filter = []string{"gene"}, []byte(c1.filter)
				p, err := in.Plan(known, types)
				if err != nil {
					t.Fatal(err)
				}
				f := finder{store: s, caller: c, plan: p, facets: symbol}
				forms := []string{filteredHits, filteredFacets}
				if name == "lexical" {
					forms = append(forms, strings.ReplaceAll(wordedHits, "{limit}", "9"))
				}
				for _, form := range forms {
					text, args := f.filtered(form)
					check(t, text, args, uses)
					found, _, _ := strings.Cut(planOf(ctx, t, s, text, args), "SCAN h") // then the page is sorted once more
					if name == "structured" && uses == "artifact" && strings.Contains(found, "TEMP B-TREE FOR ORDER BY") {
						t.Errorf("it sorts all:\n%s", text)
					}
				}
				if name == "lexical" {
					text, args := (&ranker{f}).near(&rank.Plan{SearchPlan: p, Model: "m", Vector: []byte{1}}, 9)
					plan := planOf(ctx, t, s, text, args)
					if !strings.Contains(plan, uses) || strings.Contains(plan, "SCAN a ") || strings.Contains(plan, "SCAN f ") {
						t.Errorf("by meaning it does not use %s:\n%s\n%s", uses, plan, text)
					}
				}
			})
		}
	}
}

// checkWalk checks that the first part of a page sorts all unless it walks.
func (p *page) checkWalk(ctx context.Context, t *testing.T) {
	t.Helper()
	text, args, _, err := p.query(0, p.statement().Segments(p.listing.Sort, p.listing.Filter), true)
	if err != nil {
		t.Fatal(err)
	}
	plan := planOf(ctx, t, p.store, text, args)
	if step := ofType(plan); step != "" || strings.Contains(plan, "facet_text (type=? AND path=? AND text>?)") && p.walks {
		t.Errorf("it looks at all facets for each: %s\n%s", step, plan)
	}
	found, _, _ := strings.Cut(plan, "SCAN q")
	if sorts := strings.Contains(found, "TEMP B-TREE FOR ORDER BY"); sorts == p.walks {
		t.Errorf("walking is %v, and it sorts all: %v\n%s", p.walks, sorts, plan)
	}
}

// TestCommonValues checks that a list of what a quarter of a type has is read in its
// order, that one of a rare value is found by it, and that both answer the same.
func TestCommonValues(t *testing.T) {
	s, c, ctx := filled(t)
	for _, c1 := range []struct {
		name, filter string
		limit        int
		walks        bool
	}{
		{"a common value", `{"field":"/content/chromosome","op":"eq","value":"c1"}`, 20, true},
		{"common values", `{"field":"/content/chromosome","op":"in","value":["c1","c2"]}`, 20, true},
		{"one of a common one's", `{"and":[{"field":"/content/chromosome","op":"gt","value":"c1"},{"field":"/content/symbol","op":"eq","value":"G7"}]}`, 20, false},
		{"a rare value", `{"field":"/content/symbol","op":"eq","value":"G7"}`, 20, false},
		{"a value that is nowhere", `{"field":"/content/chromosome","op":"eq","value":"c9"}`, 20, false},
		{"refs", `{"and":[{"field":"ref","op":"eq","value":"gene:G7"},{"field":"/content/chromosome","op":"eq","value":"c3"}]}`, 20, false},
	} {
		for _, sort := range []string{``, `["title"]`, `["-updated_at"]`, `["/content/symbol"]`, `["-quality_score","title"]`} {
			t.Run(c1.name+" "+sort, func(t *testing.T) {
				in := &verb.ListRequest{Type: "gene", Filter: []byte(c1.filter), Sort: []byte(sort), Limit: c1.limit}
				l, err := in.Listing(func(string) *artifact.Schema { return new(artifact.Schema) }, func() []string { return nil })
				if err != nil {
					t.Fatal(err)
				}
				read := func(walks bool) (refs []string) {
					for {
						tx, err := s.readers.BeginTx(ctx, nil)
						if err != nil {
							t.Fatal(err)
						}
						defer tx.Rollback()
						p := &page{store: s, tx: tx, in: in, listing: l, form: formOf(l.Type), scopes: in.Scopes(c), facets: facets{indexed: func(string) bool { return true }}}
						chosen, err := p.walk(ctx)
						if err != nil || chosen != (c1.walks && !strings.Contains(sort, "quality_score\",")) {
							t.Fatalf("it chose to walk: %v, %v; want %v", chosen, err, c1.walks)
						}
						p.walks = walks && chosen
						if err := p.parts(ctx); err != nil {
							t.Fatal(err)
						}
						if l.After == nil && c1.walks {
							p.checkWalk(ctx, t)
						}
						p.end()
						for i := range p.out.Artifacts {
							refs = append(refs, p.out.Artifacts[i].Ref.Current().String())
						}
						if p.out.NextCursor == "" || len(refs) >= 3*c1.limit {
							return refs
						}
						last := p.places[l.Limit-1]
						l.After = &last
					}
				}
				walked := read(true)
				l.After = nil
				if found := read(false); strings.Join(walked, " ") != strings.Join(found, " ") {
					t.Errorf("walking it lists\n%v, and by the values\n%v", walked, found)
				}
			})
		}
	}
}

package node_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// probeType declares half of the pointers that tests ask for. Each content holds at
// /u what it holds at the top, so that every question can be asked of what no
// index knows too.
func probeType(facets ...string) json.RawMessage {
	return object(map[string]any{
		"type": "probe", "id_strategy": map[string]any{"format": "p-{uuid}"}, "mutability": "mutable_with_history",
		"content_schema": map[string]any{"type": "object"}, "links": map[string]any{"supports": map[string]any{"to_types": []string{"probe"}}, "about": map[string]any{"to_types": []string{"probe", "gene"}}},
		"signals":   map[string]any{"vote": map[string]any{"values": []int{-1, 0, 1}, "aggregation": "replace"}, "rank": map[string]any{"dimensions": []string{"novelty", "impact"}, "value_range": []int{0, 1}, "aggregation": "replace"}},
		"lifecycle": map[string]any{"states": []string{"open", "shut"}, "transitions": [][]string{{"*", "open"}, {"*", "shut"}}},
		"search":    map[string]any{"facets": facets},
	})
}

var probeFacets = []string{"/a", "/list", "/n", "/deep/er", "/q\"uo te", "/s~1t", "/0"}

// probeValues differ in ways in which stores might not tell them apart.
var probeValues = []any{
	"", "a", "A", "ab", "β-amyloid", "ￂ", "𝛽", "true", "10", `it's "so"`, `\`, "a%", "\u0001", strings.Repeat("x", 250), strings.Repeat("x", 251), strings.Repeat("ß", 300), strings.Repeat("ß", 300) + "b",
	0, -1, 0.3, 1e21, 9007199254740991, 5e-324, 10, 9, true, false, nil,
	map[string]any{"x": 1},
	[]any{},
}

func probe(r *rand.Rand) map[string]any {
	value := func() any { return probeValues[r.IntN(len(probeValues))] }
	list := make([]any, r.IntN(4))
	if r.IntN(10) == 0 {
		list = make([]any, 80)
	}
	for i := range list {
		list[i] = value()
		if len(list) == 80 {
			list[i] = fmt.Sprint("v", i)
		}
	}
	c := map[string]any{}
	for name, v := range map[string]any{
		"a": value(), "list": list, "n": r.IntN(5), "deep": map[string]any{"er": value()}, `q"uo te`: value(), "s/t": value(), "0": value(),
	} {
		if r.IntN(4) > 0 {
			c[name] = v
		}
	}
	c["u"] = maps.Clone(c)
	return c
}

// lists are labs whose hub and node are asked the same.
type lists struct {
	*labs
	refs []string
}

func (l *lists) make(t *testing.T, n int) {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 8))
	for _, at := range [][2]string{{"", "ada"}, {"lab-a", "ada"}, {"lab-b", "bob"}} {
		scope, agent := at[0], at[1]
		c := l.as(t, agent)
		var items []verb.BatchItem
		for i := range n {
			items = append(items, verb.BatchItem{Create: &verb.CreateRequest{
				Type: "probe", ID: fmt.Sprintf("%s%02d", agent, i), Title: []string{"A", "a", "Ä", "b"}[i%4], Content: object(probe(r)), Scope: scope,
			}})
		}
		out := must(t, verb.Batch, c, verb.BatchRequest{Items: items, Atomic: true})
		if !out.Committed {
			t.Fatalf("%+v", out)
		}
		var made []string
		for _, item := range out.Items {
			made = append(made, item.Write.Ref.Current().String())
		}
		for i, ref := range made {
			if i%3 > 0 {
				must(t, verb.Link, c, verb.LinkRequest{From: ref, LinkSpec: verb.LinkSpec{Predicate: "supports", To: made[(i*7+1)%n]}})
			}
			if i%4 == 0 && len(l.refs) > 0 && scope != "" {
				must(t, verb.Link, c, verb.LinkRequest{From: ref, LinkSpec: verb.LinkSpec{Predicate: "about", To: l.refs[i]}})
			}
			if i%3 == 0 {
				must(t, verb.Signal, c, verb.SignalRequest{Ref: ref, Kind: "vote", Value: "1"})
				must(t, verb.Signal, c, verb.SignalRequest{Ref: ref, Kind: "rank", Dimension: "novelty", Value: json.Number(fmt.Sprintf("0.%d", i))})
			}
			if i%6 == 0 && scope == "" {
				must(t, verb.Signal, l.as(t, "bob"), verb.SignalRequest{Ref: ref, Kind: "vote", Value: "-1"})
			}
		}
		if scope == "" {
			l.refs = made
		}
	}
}

// questions are lists that tell stores apart which do not do the same.
func questions() (all []verb.ListRequest) {
	ask := func(filter any, sort string) {
		in := verb.ListRequest{Type: "probe", Limit: 200, Count: true}
		if filter != nil {
			in.Filter = encoded(filter)
		}
		if sort != "" {
			in.Sort = json.RawMessage(sort)
		}
		all = append(all, in)
	}
	for _, path := range []string{"/a", "/list", "/n", "/deep/er", `/q"uo te`, "/s~1t", "/0", "/list/0", "/none", "/deep"} {
		for _, at := range []string{"/content" + path, "/content/u" + path} {
			few := path != "/a"
			ask(map[string]any{"field": at, "op": "exists"}, "")
			ask(map[string]any{"field": at, "op": "exists", "value": false}, `["title"]`)
			ask(nil, `["`+strings.ReplaceAll(at, `"`, `\"`)+`"]`)
			ask(nil, `["-`+strings.ReplaceAll(at, `"`, `\"`)+`","-title"]`)
			for _, v := range probeValues {
				switch v.(type) {
				case map[string]any, []any:
					continue
				}
				for _, op := range []string{"eq", "ne", "lte", "gt", "contains", "starts_with"} {
					_, isText := v.(string)
					_, isBool := v.(bool)
					if op != "eq" && op != "ne" && (v == nil || isBool) || !isText && (op == "contains" || op == "starts_with") {
						continue
					}
					if !few {
						ask(map[string]any{"field": at, "op": op, "value": v}, "")
					}
				}
			}
			ask(map[string]any{"field": at, "op": "in", "value": []any{"a", 1, true, nil, strings.Repeat("ß", 300)}}, "")
			ask(map[string]any{"not": map[string]any{"field": at, "op": "nin", "value": []any{"a", 0.3, false}}}, "")
		}
	}
	for _, c := range []map[string]any{
		{"predicate": "supports", "direction": "in"},
		{"direction": "in", "min": 2},
		{"direction": "out", "max": 0},
		{"direction": "in", "predicate": "about"},
		{"direction": "in", "predicate": "about", "min": 1, "max": 1},
		{"to": "probe:ada01"},
		{"types": []string{"gene"}},
	} {
		ask(map[string]any{"link": c}, "")
	}
	for _, c := range []string{
		`{"kind":"vote","agg":"sum","op":"gte","value":1}`, `{"kind":"vote","agg":"count","op":"eq","value":0}`, `{"kind":"vote","agg":"mean","op":"ne","value":0}`,
		`{"kind":"vote","agg":"min","op":"lt","value":0}`, `{"kind":"vote","agg":"max","op":"eq","value":1}`, `{"kind":"vote","agg":"min","op":"exists","value":false}`, `{"kind":"rank","dimension":"novelty","agg":"max","op":"gte","value":0.3}`,
		`{"kind":"rank","dimension":"novelty","agg":"mean","op":"gt","value":0.3}`, `{"kind":"rank","dimension":"novelty","agg":"mean","op":"exists","value":false}`,
	} {
		ask(map[string]any{"signal": json.RawMessage(c)}, `[{"signal":{"kind":"vote","agg":"mean"},"order":"desc"}]`)
		ask(map[string]any{"signal": json.RawMessage(c)}, `[{"signal":{"kind":"rank","dimension":"novelty","agg":"min"}},"title"]`)
	}
	for _, c := range []string{
		`{"field":"state","op":"eq","value":"shut"}`, `{"field":"title","op":"starts_with","value":"A"}`, `{"field":"title","op":"gt","value":"a"}`, `{"field":"scope","op":"ne","value":"commons"}`,
		`{"field":"ref","op":"in","value":["probe:ada01","probe:bob01","probe:lab-a/ada01"]}`, `{"field":"id","op":"contains","value":"ob"}`, `{"field":"quality_score","op":"exists"}`,
		`{"field":"quality_score","op":"lt","value":0.5}`, `{"field":"revision","op":"in","value":[1,3]}`, `{"field":"is_latest","op":"eq","value":true}`, `{"field":"superseded_by","op":"exists","value":false}`,
		`{"field":"created_by","op":"eq","value":"ada"}`, `{"field":"created_at","op":"gt","value":"2020-01-01T00:00:00Z"}`, `{"field":"updated_at","op":"lt","value":"2020-01-01T00:00:00Z"}`,
		`{"and":[{"field":"/content/a","op":"eq","value":"a"},{"or":[{"field":"state","op":"eq","value":"shut"},{"not":{"field":"/content/n","op":"gt","value":2}}]}]}`,
	} {
		ask(json.RawMessage(c), `["-quality_score"]`)
		ask(json.RawMessage(c), `["updated_at"]`)
	}
	return append(all, verb.ListRequest{Filter: json.RawMessage(`{"field":"/content/a","op":"eq","value":"a"}`)}, verb.ListRequest{Scope: "lab-a"}, verb.ListRequest{Scope: "nowhere"},
		verb.ListRequest{Filter: json.RawMessage(`{"field":"type","op":"eq","value":"probe"}`), Sort: json.RawMessage(`["/content/n"]`)}, verb.ListRequest{Type: "gene", Sort: json.RawMessage(`["title"]`)})
}

func encoded(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// same asks both stores the same, page by page, and returns what was found by
// question.
func (l *lists) same(t *testing.T, agent string, in []verb.ListRequest) map[string][]string {
	t.Helper()
	atHub, atNode := l.as(t, agent), l.at(t, l.a, agent)
	found := make(map[string][]string)
	for i, in := range in {
		name := fmt.Sprintf("%s %s %s", in.Type, in.Filter, in.Sort)
		if i%9 == 1 {
			in.Limit = 7
		}
		seen := map[string]bool{}
		for {
			want, got := must(t, verb.List, atHub, in), must(t, verb.List, atNode, in)
			if d := cmp.Diff(told(t, want), told(t, got)); d != "" {
				t.Fatalf("list %s as %s (-hub +node):\n%s", encoded(in), agent, d)
			}
			for _, a := range got.Artifacts {
				if seen[a.Ref.String()] {
					t.Fatalf("list %s as %s has %s twice", encoded(in), agent, a.Ref)
				}
				seen[a.Ref.String()] = true
				found[name] = append(found[name], a.Ref.String())
			}
			if in.Cursor = got.NextCursor; in.Cursor == "" {
				if want.Count != nil && want.Count.Count != len(found[name]) {
					t.Fatalf("list %s counts %d and lists %d", name, want.Count.Count, len(found[name]))
				}
				break
			}
		}
	}
	for name, refs := range l.searched(t, agent, in) {
		slices.Sort(refs)
		if want := slices.Sorted(slices.Values(found[name])); !slices.Equal(refs, want) {
			t.Fatalf("a structured search for %s as %s finds\n%v, and list\n%v", name, agent, refs, want)
		}
	}
	return found
}

// searched asks both stores for what the filters of lists let pass.
func (l *lists) searched(t *testing.T, agent string, in []verb.ListRequest) map[string][]string {
	t.Helper()
	atHub, atNode := l.as(t, agent), l.at(t, l.a, agent)
	found := make(map[string][]string)
	for _, of := range in {
		if of.Type == "" || len(of.Filter) == 0 || len(of.Sort) > 0 {
			continue
		}
		in := verb.SearchRequest{Mode: verb.SearchStructured, Types: []string{of.Type}, Scope: of.Scope, Filter: of.Filter, Limit: 200}
		want, got := must(t, verb.Search, atHub, in), must(t, verb.Search, atNode, in)
		want.Warnings, got.Warnings = nil, nil // as told
		if d := cmp.Diff(encoded(want), encoded(got)); d != "" {
			t.Fatalf("search %s as %s (-hub +node):\n%s", encoded(in), agent, d)
		}
		name := fmt.Sprintf("%s %s %s", of.Type, of.Filter, of.Sort)
		found[name] = nil
		for i := range got.Hits {
			found[name] = append(found[name], got.Hits[i].Artifact.Ref.String())
		}
	}
	return found
}

func told(t *testing.T, out verb.ListResponse) any {
	t.Helper()
	out.Warnings = nil // while the index is made they may differ; settled tells of those
	raw, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// settled waits until neither store warns any more that its facets are being made.
func (l *lists) settled(t *testing.T, path string) {
	t.Helper()
	in := verb.ListRequest{Type: "probe", Limit: 1, Filter: object(map[string]any{"field": "/content" + path, "op": "exists"})}
	for _, c := range []*verb.Client{l.as(t, "ada"), l.at(t, l.a, "ada")} {
		for end := time.Now().Add(30 * time.Second); ; {
			out := must(t, verb.List, c, in)
			if len(out.Warnings) == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("it still warns: %+v", out.Warnings)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// some returns every nth question and its twin.
func some(all []verb.ListRequest, n int) (few []verb.ListRequest) {
	for i := range all {
		name := strings.ReplaceAll(string(all[i].Filter)+string(all[i].Sort), "/content/u/", "/content/")
		if int(artifact.HashBytes([]byte(name))[0])%n == 0 {
			few = append(few, all[i])
		}
	}
	return few
}

// alike checks that what the index finds is what the contents hold.
func alike(t *testing.T, found map[string][]string) {
	t.Helper()
	for name, refs := range found {
		twin, ok := found[strings.ReplaceAll(name, "/content/", "/content/u/")]
		if ok && !strings.Contains(name, "/content/u/") && !slices.Equal(refs, twin) {
			t.Errorf("%s finds\n%v, and in the contents\n%v", name, refs, twin)
		}
	}
}

func TestListsOfBothStores(t *testing.T) {
	l := &lists{labs: newLabs(t)}
	root := l.as(t, "root")
	made := must(t, verb.Create, root, verb.CreateRequest{Type: "schema", Title: "Probe", Content: probeType(probeFacets...)})
	l.make(t, 24)
	l.caughtUp(t)
	ask := questions()
	l.settled(t, "/a")
	found := l.same(t, "ada", ask)
	alike(t, found)
	if len(found) < 100 {
		t.Errorf("only %d questions found anything", len(found))
	}
	// Who is in no lab learns nothing of what is there.
	for name, refs := range l.same(t, "vic", some(ask, 4)) {
		for _, ref := range refs {
			if strings.Contains(ref, "lab-") {
				t.Errorf("vic is told of %s by %s", ref, name)
			}
		}
	}

	// Writes of all kinds keep the facets up.
	ada := l.as(t, "ada")
	change := func(ref string, content map[string]any) {
		t.Helper()
		parsed, err := artifact.ParseRef(ref)
		if err != nil {
			t.Fatal(err)
		}
		is := must(t, verb.Get, ada, verb.GetRequest{Ref: parsed})
		must(t, verb.Update, ada, verb.UpdateRequest{Ref: ref, BaseContentHash: is.Artifact.ContentHash, Content: object(content)})
	}
	r := rand.New(rand.NewPCG(9, 9))
	for i := range 6 {
		change(l.refs[i], probe(r))
	}
	must(t, verb.Supersede, ada, verb.SupersedeRequest{Ref: l.refs[7], ReplacementRef: l.refs[8], Reason: "so"})
	must(t, verb.Supersede, ada, verb.SupersedeRequest{Ref: l.refs[9], Reason: "so", Replacement: &verb.NewArtifact{Type: "probe", Title: "new", Content: object(probe(r))}})
	for ref, scope := range map[string]string{"probe:lab-a/ada03": artifact.Commons, l.refs[10]: "lab-a"} {
		parsed, _ := artifact.ParseRef(ref)
		is := must(t, verb.Get, ada, verb.GetRequest{Ref: parsed})
		must(t, verb.Move, root, verb.MoveRequest{Ref: ref, BaseContentHash: is.Artifact.ContentHash, Scope: scope, Reason: "so"})
	}
	must(t, verb.Redact, root, verb.RedactRequest{Ref: l.refs[11], Reason: "so", Revisions: 1})
	l.caughtUp(t)
	compare := func() {
		t.Helper()
		alike(t, l.same(t, "ada", some(ask, 5)))
	}
	compare()

	// Another declaration is right at once, and indexed soon.
	must(t, verb.Update, root, verb.UpdateRequest{Ref: "schema:probe", BaseContentHash: made.ContentHash, Content: probeType("/a", "/none", "/u/list")})
	l.caughtUp(t)
	compare()
	l.settled(t, "/none")
	compare()
	out := must(t, verb.List, ada, verb.ListRequest{Type: "probe", Filter: json.RawMessage(`{"field":"/content/list","op":"eq","value":"a"}`)})
	if len(out.Warnings) != 1 || out.Warnings[0].Constraint != "undeclared_facet" || !strings.Contains(out.Warnings[0].Message, "not indexed: /content/list") {
		t.Errorf("a pointer that is not declared any more: %+v", out.Warnings)
	}

	for _, in := range []verb.SearchRequest{
		{Mode: verb.SearchStructured, Types: []string{"probe"}, Filter: json.RawMessage(`{"or":[{"field":"/content/list","op":"eq","value":"a"},{"field":"/content/a","op":"eq","value":"a"}]}`)},
		{Query: "A", Types: []string{"probe"}, Filter: json.RawMessage(`{"field":"/content/list","op":"eq","value":"a"}`)},
	} {
		want, got := must(t, verb.Search, ada, in), must(t, verb.Search, l.at(t, l.a, "ada"), in)
		if d := cmp.Diff(want.Warnings, got.Warnings); d != "" || len(got.Warnings) != 1 || got.Warnings[0].Constraint != "undeclared_facet" || got.Warnings[0].Path != "/filter" {
			t.Errorf("a search by a pointer that is not declared warns %+v, and the hub otherwise:\n%s", got.Warnings, d)
		}
	}

	// A node that copies the hub makes them too.
	l.a = l.enrol(t, "lab-a")
	l.caughtUp(t)
	l.settled(t, "/none")
	compare()
}

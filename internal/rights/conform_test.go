package rights_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/internal/load"
	"github.com/scidex-ai/substrate/sample"
	"github.com/scidex-ai/substrate/verb"
)

// A readCase is a read that hub and node must answer alike. Its pages are read to
// the end.
type readCase struct {
	verb    string
	request request
	// who asks; "" for one who is a member of no lab.
	who string
	// status that is wanted; 0 for any that both answer.
	status int
	// unordered names the member that holds the page where scores decide the order,
	// which each store makes its own.
	unordered string
}

// TestReadsConform asks every read verb, of real data and of what is odd, at the hub
// and at a node that follows it, and compares the answers field by field. With
// SCIDEX_TEST_DATA the data is of that folder, else it is the sample.
func TestReadsConform(t *testing.T) {
	w := newWorld(t, "lab-a")
	w.grant(t, "lab-a", "ada", verb.Contributor)
	w.enrol(t, atNode, "A", "lab-a")
	w.loadData(t)
	odd := w.makeOdd(t)
	w.settle(t)
	tokens := map[string]string{"": w.token(t, "out", nil, verb.Viewer), "ada": w.token(t, "ada", nil, verb.Viewer), "nobody": ""}
	cases := slices.Concat(w.artifactCases(t), w.oddCases(t, odd), schemaCases(), listCases(), w.searchCases(t), filterCases(), edgeCases(odd), pollCases(odd), mailboxCases())
	asked, answered := map[string]int{}, 0
	for i, c := range cases {
		t.Run(fmt.Sprint(c.verb, "/", i), func(t *testing.T) {
			asked[c.verb]++
			if w.conform(t, tokens[c.who], c) {
				answered++
			}
		})
	}
	for _, v := range verbs() {
		if v.Effect == verb.Read && !strings.Contains(v.Name, "/") && asked[v.Name] < 4 {
			t.Errorf("%s: %d cases", v.Name, asked[v.Name])
		}
	}
	t.Logf("%d cases, of which %d are answered: %v", len(cases), answered, asked)
	if len(cases) < 300 || answered < len(cases)/2 {
		t.Errorf("%d cases, of which %d are answered; want 300, and half of them", len(cases), answered)
	}
}

// maxPages ends what would go on for ever.
const maxPages = 400

// conform asks hub and node for each page and compares them. It reports whether they
// are answers and no errors.
func (w *world) conform(t *testing.T, token string, c readCase) (answered bool) {
	t.Helper()
	var pages [2][]any
	for i, door := range []string{atHub, atNode} {
		r := c.request
		for range maxPages {
			a := w.ask(t, door, token, c.verb, r)
			if c.status != 0 && a.status != c.status {
				t.Fatalf("%s: %s %s = %d %.500s, want %d", door, c.verb, text(r), a.status, a.body, c.status)
			}
			page := decoded(t, a.body)
			next, _ := page["next_cursor"].(string)
			delete(page, "as_of")
			delete(page, "next_cursor")
			pages[i] = append(pages[i], a.status, page)
			if next == "" {
				break
			}
			r = r.with(request{"cursor": next})
		}
		if len(pages[i]) == 2*maxPages {
			t.Fatalf("%s: %s %s goes on after %d pages", door, c.verb, text(c.request), maxPages)
		}
	}
	answered = pages[0][0] == 200
	if c.unordered != "" {
		for i := range pages {
			pages[i] = matches(pages[i], c.unordered)
		}
	}
	if diff := cmp.Diff(pages[0], pages[1]); diff != "" {
		t.Errorf("%s %s differs (-hub +node):\n%.3000s", c.verb, text(c.request), diff)
	}
	return answered
}

// decoded keeps numbers as they are written.
func decoded(t *testing.T, body string) (page map[string]any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&page); err != nil {
		t.Fatalf("%v: %.200s", err, body)
	}
	return page
}

// matches gathers what the pages hold, without scores and in one order.
func matches(pages []any, member string) []any {
	var hits []string
	var rest []any
	for _, p := range pages {
		page, ok := p.(map[string]any)
		if !ok {
			continue
		}
		if list, ok := page[member].([]any); ok {
			for _, h := range list {
				if hit, ok := h.(map[string]any); ok {
					delete(hit, "score")
				}
				hits = append(hits, text(h))
			}
		}
		delete(page, member)
		rest = append(rest, page)
	}
	slices.Sort(hits)
	return []any{hits, rest[0]}
}

// perFile is how many lines of each file of real data are loaded.
const perFile = 150

// loadData loads a part of the real data, or the sample.
func (w *world) loadData(t *testing.T) {
	t.Helper()
	var inputs []load.Input
	add := func(name string, raw []byte) {
		inputs = append(inputs, load.Input{Name: name, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }})
	}
	files, err := filepath.Glob(filepath.Join(os.Getenv("SCIDEX_TEST_DATA"), "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("SCIDEX_TEST_DATA") == "" || len(files) == 0 {
		add("sample", sample.JSONL)
	} else {
		for _, name := range files {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			lines := slices.Collect(bytes.Lines(raw))
			add(filepath.Base(name), bytes.Join(lines[:min(len(lines), perFile)], nil))
		}
	}
	sum, err := load.Run(t.Context(), load.Config{Invoker: w.root, Inputs: inputs, Import: true, Reject: func(load.Rejected) {}})
	if err != nil || sum.Artifacts.Created < 50 {
		t.Fatalf("load = %+v, %v", sum, err)
	}
}

// odds are refs of what is not as most things are.
type odds struct {
	refs  []string // to read in every way
	links []string
	seqs  []artifact.Seq // places in the log
}

// makeOdd writes what is superseded, redacted, moved, taken back, upgraded, of other
// scripts and twice the same.
func (w *world) makeOdd(t *testing.T) (o odds) {
	t.Helper()
	ada := w.client(t, atHub, "ada", nil, verb.Viewer, verb.Contributor)
	here := func() {
		t.Helper()
		head, err := w.hub.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		o.seqs = append(o.seqs, head)
	}
	make := func(id, scope, title string, more map[string]any) artifact.Ref {
		t.Helper()
		c := map[string]any{"statement": "The statement of " + id, "mechanism": "One line.\nAnother line of " + id + ".\n"}
		maps.Copy(c, more)
		ref := must(t, ada, verb.Create, verb.CreateRequest{Type: "hypothesis", ID: id, Scope: scope, Title: title, Content: object(c)}).Ref
		o.refs = append(o.refs, ref.Current().String(), ref.String())
		return ref
	}
	move := func(ref artifact.Ref, to string, history bool) {
		t.Helper()
		must(t, w.root, verb.Move, verb.MoveRequest{Ref: ref.Current().String(), Scope: to, BaseContentHash: ref.Hash, Reason: "r", WithHistory: history})
	}
	here()
	const a, b, c = "hypothesis:chain-a", "hypothesis:chain-b", "hypothesis:chain-c"
	for _, id := range []string{"chain-a", "chain-b", "chain-c"} {
		make(id, "", "Link of a chain "+id, nil)
	}
	must(t, ada, verb.Supersede, verb.SupersedeRequest{Ref: a, ReplacementRef: b, Reason: "r"})
	here()
	must(t, ada, verb.Supersede, verb.SupersedeRequest{Ref: b, ReplacementRef: c, Reason: "r"})
	redacted := make("redacted", "", "Names a patient", nil)
	w.update(t, ada, redacted.Current().String(), verb.UpdateRequest{Title: "Names a patient still"})
	must(t, w.root, verb.Redact, verb.RedactRequest{Ref: redacted.Current().String(), Reason: "r", Revisions: 2})
	here()
	for i, history := range []bool{true, false} {
		id := fmt.Sprint("published-", i)
		ref := make(id, "lab-a", "Published", nil)
		move(w.update(t, ada, ref.Current().String(), verb.UpdateRequest{Title: "Published soon", Note: "why"}), artifact.Commons, history)
	}
	here()
	gone := make("withdrawn", "", "Withdrawn", nil)
	must(t, ada, verb.Signal, verb.SignalRequest{Ref: gone.Current().String(), Kind: "vote", Value: "1"})
	move(gone, "lab-a", false)
	make("private", "lab-a", "Private β-amyloid", nil)
	make("script", "", "β-Amyloid und Größe: 淀粉样蛋白 — “Aβ42”", map[string]any{"disease": "maladie d’Alzheimer", "mechanism": "Ἀμύλον\n🧠 <b>&amp;</b>\u2028\n"})
	twice := make("twice", "", "Twice", nil)
	w.update(t, ada, twice.Current().String(), verb.UpdateRequest{Title: "Once", State: "investigating"})
	w.update(t, ada, twice.Current().String(), verb.UpdateRequest{MergePatch: object(map[string]any{"disease": "d"}), Note: "a disease"})
	here()
	equal := make("equal", "", "Equal", nil)
	w.update(t, ada, equal.Current().String(), verb.UpdateRequest{Title: "Unequal"})
	w.update(t, ada, equal.Current().String(), verb.UpdateRequest{Title: "Equal"})
	must(t, w.root, verb.Create, verb.CreateRequest{Type: "schema", ID: "assay", Title: "An assay", Content: object(map[string]any{
		"type": "assay", "id_strategy": map[string]any{"format": "as-{uuid}"}, "lock_mode": "content_hash", "mutability": "mutable_with_history",
		"content_schema": map[string]any{"type": "object", "required": []string{"reagent"}, "properties": map[string]any{"reagent": map[string]any{"type": "string"}}},
	})})
	assay := must(t, ada, verb.Create, verb.CreateRequest{Type: "assay", ID: "one", Title: "An assay", Content: object(map[string]any{"reagent": "x"})}).Ref
	o.refs = append(o.refs, assay.Current().String(), "schema:assay", "schema:hypothesis")
	w.update(t, w.root, "schema:assay", verb.UpdateRequest{MergePatch: json.RawMessage(`{
		"content_schema": {"required": ["reagents"], "properties": {"reagent": null, "reagents": {"type": "array"}}},
		"compatibility": "breaking", "migrator": "patch", "migrate": [{"op": "move", "from": "/reagent", "path": "/reagents"}, {"op": "wrap", "path": "/reagents"}]}`)})
	for _, ends := range [][2]string{{a, c}, {c, "hypothesis:twice"}, {"hypothesis:twice", twice.String()}, {"hypothesis:lab-a/private", c}, {"hypothesis:script", c}} {
		if ends[0] != "hypothesis:twice" {
			o.links = append(o.links, w.link(t, w.root, ends[0], "supports", ends[1]))
		}
	}
	o.links = append(o.links, w.link(t, ada, "hypothesis:script", "supports", twice.String()), w.link(t, ada, "hypothesis:script", "supports", c))
	must(t, w.root, verb.Unlink, verb.UnlinkRequest{Ref: o.links[0], Reason: "no longer"})
	for i, agent := range []string{"ada", "root"} {
		by := w.client(t, atHub, agent, nil, verb.Viewer, verb.Contributor)
		for _, value := range []string{"0.25", "0.75"} {
			must(t, by, verb.Signal, verb.SignalRequest{Ref: "hypothesis:script", Kind: "rank", Dimension: "novelty", Value: json.Number(value)})
		}
		o.links = append(o.links, must(t, by, verb.Signal, verb.SignalRequest{Ref: "hypothesis:script", Kind: "fund", Value: json.Number(strconv.Itoa(i + 2)), Reason: "r"}).Ref)
		must(t, by, verb.Comment, verb.CommentRequest{Ref: "hypothesis:script", Body: "Übrigens: *so*"})
	}
	must(t, ada, verb.Comment, verb.CommentRequest{Ref: o.links[1], Body: "on a link"})
	must(t, ada, verb.Comment, verb.CommentRequest{Ref: "hypothesis:script", Body: "among us", Scope: "lab-a"})
	here()
	o.refs = append(o.refs, "hypothesis:none", "nothing:x", "hypothesis:chain-a@sha256:"+strings.Repeat("0", 64))
	return o
}

// readsOf asks for a thing in every way.
func readsOf(ref, who string) []readCase {
	at := request{"ref": ref}
	with := func(more request) request { return at.with(more) }
	return []readCase{
		{verb: "get", request: at, who: who},
		{verb: "get", request: with(request{"include_links": true, "include_signals": true, "include_content": false}), who: who},
		{verb: "history", request: with(request{"limit": 2, "include_content": true}), who: who},
		{verb: "links", request: with(request{"limit": 2, "include_targets": true}), who: who},
		{verb: "links", request: with(request{"direction": "in", "types": []string{"comment", "evidence"}}), who: who},
		{verb: "links", request: with(request{"direction": "out", "predicates": []string{"supports", "about"}, "limit": 1}), who: who},
		{verb: "signals", request: with(request{"at": "2030-01-31T00:00:00Z"}), who: who},
	}
}

// artifactCases are of artifacts as they were loaded: some of each type, those with
// most links among them.
func (w *world) artifactCases(t *testing.T) (cases []readCase) {
	t.Helper()
	rows, err := w.db.Query(t.Context(), `
		SELECT type || ':' || id FROM (
			SELECT a.type, a.id, row_number() OVER (PARTITION BY a.type ORDER BY (SELECT count(*) FROM link l WHERE l.to_type = a.type AND l.to_id = a.id) DESC, a.id) AS n
			FROM artifact a WHERE a.created_by = 'root' AND a.type NOT IN ('schema', 'assay')) a
		WHERE n <= 3 ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	last := "schema:gene"
	for rows.Next() {
		var ref string
		if err := rows.Scan(&ref); err != nil {
			t.Fatal(err)
		}
		for _, c := range readsOf(ref, "") {
			c.status = 200
			cases = append(cases, c)
		}
		cases = append(cases, readCase{verb: "diff", request: request{"ref_a": last, "ref_b": ref}, status: 200})
		last = ref
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return cases
}

func (w *world) oddCases(t *testing.T, o odds) (cases []readCase) {
	t.Helper()
	for _, ref := range append(slices.Clone(o.refs), o.links...) {
		for _, who := range []string{"", "ada"} {
			cases = append(cases, readsOf(ref, who)...)
			cases = append(cases, readCase{verb: "diff", request: request{"ref_a": "hypothesis:script", "ref_b": ref}, who: who})
			if strings.Contains(ref, "@") {
				continue
			}
			cases = append(cases, readCase{verb: "get", request: request{"ref": ref, "follow": true}, who: who})
			for _, seq := range o.seqs {
				cases = append(cases, readCase{verb: "get", request: request{"ref": ref, "as_of_seq": seq}, who: who})
			}
		}
	}
	for _, seq := range []artifact.Seq{-1, 1 << 40} {
		cases = append(cases, readCase{verb: "get", request: request{"ref": "hypothesis:script", "as_of_seq": seq}, status: 422})
	}
	// Two agents made one of these links each, alike but for that.
	cases = append(cases, readCase{verb: "links", request: request{"ref": "hypothesis:chain-c", "direction": "in", "limit": 1}, status: 200})
	for _, r := range readsOf("hypothesis:script", "nobody") {
		r.status = 200
		cases = append(cases, r)
	}
	return cases
}

func schemaCases() (cases []readCase) {
	for _, r := range []request{
		{},
		{"type": "hypothesis"},
		{"type": "assay"},
		{"type": "assay", "version": 1},
		{"type": "assay", "version": 3},
		{"version": 1},
		{"version": 2},
		{"type": "assay", "all_versions": true},
		{"type": "gene", "all_versions": true},
		{"all_versions": true},
		{"type": "none"},
		{"type": "gene", "version": -1},
	} {
		cases = append(cases, readCase{verb: "schema", request: r})
	}
	return cases
}

// mailboxCases ask for what a node has from the hub alone.
func mailboxCases() (cases []readCase) {
	for _, who := range []string{"", "ada"} {
		for _, r := range []request{{}, {"limit": 1}, {"limit": -1}, {"limit": 201}, {"box": "inbox"}} {
			cases = append(cases, readCase{verb: "mailbox", request: r, who: who})
		}
	}
	return cases
}

func listCases() (cases []readCase) {
	for _, who := range []string{"", "ada"} {
		for _, r := range []request{
			{},
			{"limit": 7},
			{"type": "hypothesis", "limit": 9, "include_content": true},
			{"type": "assay"},
			{"type": "comment", "limit": 200},
			{"type": "schema", "limit": 3},
			{"type": "hypothesi"},
			{"limit": 201},
			{"limit": -1},
			{"cursor": "x"},
			{"limit": 20, "include_links": true, "include_signals": true},
			{"type": "hypothesis", "include_links": true, "link_limit": 1, "include_content": true},
			{"type": "hypothesis", "limit": 200, "link_predicates": []string{"supports", "comments_on"}, "link_limit": 25, "sort": []string{"title"}, "include_signals": true},
			{"type": "kg_edge", "limit": 100, "include_links": true, "include_signals": true},
			{"type": "signal", "limit": 100, "include_links": true},
			{"link_limit": 26, "limit": -3},
			{"link_limit": -1},
		} {
			cases = append(cases, readCase{verb: "list", request: r, who: who})
		}
	}
	return cases
}

// filters try every operator on what it may be asked of.
var filters = []string{
	`{"field":"state","op":"eq","value":"proposed"}`, `{"field":"state","op":"ne","value":"proposed"}`, `{"field":"state","op":"exists","value":false}`,
	`{"field":"type","op":"in","value":["gene","assay","comment"]}`, `{"field":"type","op":"nin","value":["gene","paper","evidence","schema"]}`,
	`{"field":"title","op":"contains","value":"β"}`, `{"field":"title","op":"starts_with","value":"Publ"}`, `{"field":"title","op":"gte","value":"T"}`,
	`{"field":"title","op":"lt","value":"B"}`, `{"field":"title","op":"contains","value":"%"}`, `{"field":"title","op":"starts_with","value":"_"}`,
	`{"field":"revision","op":"gt","value":1}`, `{"field":"revision","op":"lte","value":1}`, `{"field":"schema_version","op":"eq","value":2}`,
	`{"field":"created_at","op":"gt","value":"2026-01-01T00:00:00Z"}`, `{"field":"updated_at","op":"lt","value":"2026-01-01T00:00:00Z"}`,
	`{"field":"created_by","op":"eq","value":"ada"}`, `{"field":"scope","op":"eq","value":"lab-a"}`, `{"field":"scope","op":"ne","value":"commons"}`,
	`{"field":"quality_score","op":"exists","value":true}`, `{"field":"quality_score","op":"gte","value":0.5}`, `{"field":"is_latest","op":"eq","value":false}`,
	`{"field":"superseded_by","op":"exists","value":true}`, `{"field":"ref","op":"in","value":["hypothesis:chain-c","hypothesis:lab-a/private","gene:none"]}`, `{"field":"id","op":"starts_with","value":"lab-a/"}`,
	`{"field":"/content/target_gene","op":"exists","value":true}`, `{"field":"/content/disease","op":"eq","value":"d"}`, `{"field":"/content/disease","op":"contains","value":"’"}`,
	`{"field":"/content/year","op":"gte","value":"2000"}`, `{"field":"/content/year","op":"in","value":["1999","2004","2010"]}`, `{"field":"/content/reagent","op":"eq","value":"x"}`,
	`{"field":"/content/provenance/source","op":"ne","value":"s8"}`, `{"field":"/content/authors/0","op":"exists","value":true}`, `{"field":"/content/mechanism","op":"contains","value":"\n"}`,
	`{"field":"/content/statement","op":"starts_with","value":"The statement"}`, `{"field":"/content/value","op":"lt","value":0}`,
	`{"link":{"predicate":"supports","direction":"in","min":2}}`, `{"link":{"predicate":"supports","direction":"out"}}`, `{"link":{"predicate":"comments_on","direction":"in"}}`, `{"link":{"predicate":"about","direction":"out","min":1}}`,
	`{"signal":{"kind":"rank","dimension":"novelty","agg":"mean","op":"gte","value":0.7}}`, `{"signal":{"kind":"vote","agg":"sum","op":"lt","value":0}}`, `{"signal":{"kind":"fund","agg":"count","op":"eq","value":2}}`,
	`{"and":[{"field":"type","op":"eq","value":"hypothesis"},{"not":{"field":"title","op":"contains","value":"chain"}}]}`,
	`{"or":[{"field":"state","op":"eq","value":"investigating"},{"link":{"predicate":"supports","direction":"in","min":1}}]}`, `{"not":{"or":[{"field":"type","op":"ne","value":"comment"},{"field":"scope","op":"eq","value":"lab-a"}]}}`,
	`{"and":[]}`, `{"field":"stat","op":"eq","value":"x"}`, `{"field":"state","op":"equals","value":"x"}`, `{"field":"revision","op":"eq","value":"one"}`, `{"nothing":1}`, `[]`, `{"field":"/content/~2","op":"eq","value":1}`,
	strings.Repeat(`{"not":`, 40) + `{"field":"state","op":"eq","value":"x"}` + strings.Repeat(`}`, 40),
}

// sorts are orders of a list.
var sorts = []string{
	`["title"]`, `["-title"]`, `["created_at"]`, `["-updated_at","title"]`, `["quality_score"]`, `["-quality_score","-title"]`, `["/content/year"]`, `["-/content/statement"]`,
	`[{"signal":{"kind":"rank","dimension":"novelty","agg":"mean"},"order":"desc"}]`, `[{"signal":{"kind":"vote","agg":"count"}}]`, `["titel"]`, `[{"by":"title","order":"up"}]`, `["title","title"]`,
}

// filterCases ask list and search by each filter, and list by each sort.
func filterCases() (cases []readCase) {
	for i, f := range filters {
		who := []string{"", "ada"}[i%2]
		cases = append(
			cases,
			readCase{verb: "search", request: request{"mode": "structured", "filter": json.RawMessage(f), "limit": 60}, who: who},
			readCase{verb: "list", request: request{"filter": json.RawMessage(f), "limit": 40, "count": true}, who: who},
		)
	}
	for i, s := range sorts {
		cases = append(cases, readCase{verb: "list", request: request{"sort": json.RawMessage(s), "limit": 50, "type": "hypothesis"}, who: []string{"", "ada"}[i%2]})
	}
	return cases
}

// edgeCases list links and signals.
func edgeCases(o odds) (cases []readCase) {
	type of struct{ typ, filter, sort string }
	var asked []of
	refused := regexp.MustCompile(`^{"field":"(state|titel)"|^{"signal"|nothing|/content/created_by|predicate/x|^\["(title|quality_score)"|^\[{"signal"`)
	for _, filter := range []string{
		`{"field":"created_by","op":"eq","value":"ada"}`, `{"field":"scope","op":"eq","value":"lab-a"}`, `{"field":"id","op":"gte","value":"0194"}`, `{"field":"created_at","op":"gt","value":"2026-01-01T00:00:00Z"}`,
		`{"field":"updated_by","op":"ne","value":"root"}`, `{"not":{"field":"type","op":"in","value":["kg_edge","gene"]}}`, `{"field":"ref","op":"in","value":["` + strings.Join(o.links, `","`) + `"]}`,
		`{"link":{"predicate":"comments_on","direction":"in"}}`, `{"link":{"direction":"in","max":0}}`, `{"field":"state","op":"eq","value":"x"}`, `{"field":"titel","op":"eq","value":"x"}`,
		`{"signal":{"kind":"vote","agg":"sum","op":"lt","value":0}}`, `{"field":"/content/nothing","op":"eq","value":1}`, `{"field":"/content/created_by","op":"exists"}`,
	} {
		asked = append(asked, of{"kg_edge", filter, ""}, of{"signal", filter, ""})
	}
	for _, filter := range []string{
		`{"field":"/content/predicate","op":"in","value":["supports","cites",1]}`, `{"field":"/content/from","op":"eq","value":"hypothesis:script"}`, `{"field":"/content/from","op":"ne","value":"hypothesis:script"}`,
		`{"field":"/content/from","op":"in","value":["hypothesis:script","hypothesis:lab-a/private","no ref","paper:"]}`, `{"field":"/content/from","op":"eq","value":"x"}`, `{"field":"/content/from","op":"starts_with","value":"comment:"}`,
		`{"field":"/content/to","op":"eq","value":"hypothesis:chain-c"}`, `{"field":"/content/to","op":"contains","value":"@sha256"}`, `{"field":"/content/to","op":"in","value":["hypothesis:twice","hypothesis:chain-c"]}`, `{"field":"/content/to","op":"nin","value":[]}`,
		`{"field":"/content/evidence","op":"eq","value":null}`, `{"field":"/content/evidence/quote","op":"exists"}`, `{"field":"/content/evidence_refs","op":"exists","value":false}`, `{"field":"/content/evidence_refs/0","op":"exists"}`,
		`{"field":"/content/evidence_refs","op":"starts_with","value":"paper:"}`, `{"field":"/content/predicate/x","op":"exists"}`, `{"field":"/content/predicate","op":"exists"}`, `{"field":"/content/predicate","op":"eq","value":true}`,
		`{"and":[{"field":"type","op":"eq","value":"kg_edge"},{"field":"/content/predicate","op":"eq","value":"supports"}]}`,
	} {
		asked = append(asked, of{"kg_edge", filter, ""})
	}
	asked = append(asked, of{"", `{"and":[{"field":"type","op":"eq","value":"kg_edge"},{"field":"/content/predicate","op":"eq","value":"supports"}]}`, `["/content/to"]`})
	for _, filter := range []string{
		`{"field":"/content/kind","op":"eq","value":"rank"}`, `{"field":"/content/ref","op":"eq","value":"hypothesis:script"}`, `{"field":"/content/ref","op":"in","value":["hypothesis:script","hypothesis:lab-a/withdrawn"]}`,
		`{"field":"/content/value","op":"lt","value":0.5}`, `{"field":"/content/value","op":"in","value":[1,2,0.75,"1"]}`, `{"field":"/content/value","op":"eq","value":"1"}`, `{"field":"/content/value","op":"contains","value":"1"}`,
		`{"field":"/content/voter","op":"starts_with","value":"a"}`, `{"field":"/content/voter_kind","op":"ne","value":"human"}`, `{"field":"/content/weight","op":"gte","value":1}`, `{"field":"/content/reason","op":"ne","value":""}`,
		`{"field":"/content/dimension","op":"eq","value":"novelty"}`, `{"field":"/content/metadata","op":"eq","value":null}`, `{"field":"/content/metadata/opponent","op":"exists"}`,
	} {
		asked = append(asked, of{"signal", filter, ""})
	}
	for _, sort := range []string{`["created_at"]`, `["-updated_at"]`, `["title"]`, `[{"signal":{"kind":"vote","agg":"sum"}}]`, `["quality_score"]`} {
		asked = append(asked, of{"kg_edge", "", sort}, of{"signal", "", sort})
	}
	for _, sort := range []string{`["/content/predicate","-/content/to"]`, `["-/content/from"]`, `["/content/evidence_refs"]`, `["-/content/evidence/quote"]`, `["/content/nothing"]`} {
		asked = append(asked, of{"kg_edge", `{"field":"/content/predicate","op":"in","value":["supports","comments_on"]}`, sort})
	}
	for _, sort := range []string{`["/content/value"]`, `["-/content/value","/content/ref"]`, `["/content/kind","/content/dimension","-created_at"]`, `["/content/metadata/opponent"]`} {
		asked = append(asked, of{"signal", "", sort})
	}
	for i, a := range asked {
		r := request{"limit": 30, "include_content": i%3 == 0, "count": i%2 == 0}
		for name, raw := range map[string]string{"filter": a.filter, "sort": a.sort} {
			if raw != "" {
				r[name] = json.RawMessage(raw)
			}
		}
		if a.typ != "" {
			r["type"] = a.typ
		}
		status := 200
		if refused.MatchString(a.filter) || refused.MatchString(a.sort) {
			status = 422
		}
		cases = append(cases, readCase{verb: "list", request: r, who: []string{"", "ada", "ada"}[i%3], status: status})
	}
	for _, typ := range []string{"kg_edge", "signal"} {
		for _, who := range []string{"", "ada", "nobody"} {
			cases = append(cases, readCase{verb: "list", request: request{"type": typ, "limit": 40}, who: who, status: 200})
		}
		cases = append(
			cases,
			readCase{verb: "list", request: request{"type": typ, "scope": "lab-a", "include_content": true}, who: "ada", status: 200},
			readCase{verb: "list", request: request{"type": typ, "scope": "lab-a"}, status: 200},
			readCase{verb: "search", request: request{"query": "x", "types": []string{typ}}},
		)
	}
	return cases
}

// pollCases read single pages of the log: what an event is and whose.
func pollCases(o odds) (cases []readCase) {
	for _, who := range []string{"", "ada"} {
		for _, r := range []request{
			{"since": 0, "limit": 1000},
			{"since": o.seqs[0], "limit": 7},
			{"since": o.seqs[0], "types": []string{"hypothesis.*"}, "limit": 1000},
			{"since": o.seqs[2], "types": []string{"kg_edge.retracted", "hypothesis.removed", "hypothesis.moved"}},
			{"since": 0, "filter": map[string]any{"==": []any{map[string]any{"var": "ref.type"}, "comment"}}},
			{"since": -1},
			{"limit": 0},
			{"types": []string{"*.*"}},
			{"filter": map[string]any{"nothing": 1}},
		} {
			cases = append(cases, readCase{verb: "poll", request: r, who: who})
		}
	}
	return cases
}

// searchCases look for words of titles, and for what a search may be made of.
func (w *world) searchCases(t *testing.T) (cases []readCase) {
	t.Helper()
	rows, err := w.db.Query(t.Context(), `SELECT title FROM artifact WHERE created_by = 'root' AND type <> 'schema' ORDER BY md5(type || id) LIMIT 25`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var queries []string
	for rows.Next() {
		var title string
		if err := rows.Scan(&title); err != nil {
			t.Fatal(err)
		}
		words := strings.Fields(title)
		queries = append(queries, words[0], strings.Join(words[:min(2, len(words))], " "))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	queries = append(
		queries, "amyloid", "β-amyloid", "Aβ42", "beta amyloid", "APOE4", `"another line"`, `"line another"`, "chain -b", "published OR withdrawn", "amyl*", "größe", "GROSSE",
		"淀粉样蛋白", "private", "patient", "a", "", "-amyloid", `"`, `" OR 1=1 --`, "NEAR(a b)", "title:amyloid", "*", "(", "OR or OR", strings.Repeat("x ", 3000),
	)
	for i, q := range queries {
		r := request{"query": q, "limit": 7, "highlight": true, "facets": []string{"type", "state", "scope"}}
		if i%3 == 0 {
			r["types"] = []string{"hypothesis", "paper"}
		}
		cases = append(cases, readCase{verb: "search", request: r, who: []string{"", "ada"}[i%2], unordered: "hits"})
	}
	return cases
}

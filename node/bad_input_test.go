package node_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// post calls a verb by HTTP with a body as it is. What differs from request to request
// is taken out of the answer.
func post(t *testing.T, c *verb.Client, name, body string) (status int, answer map[string]any, raw string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.URL+verb.PathPrefix+name, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.Token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || json.Unmarshal(text, &answer) != nil {
		t.Fatalf("%s answers %.200s, %v", name, text, err)
	}
	if id := res.Header.Get("X-Request-Id"); id != "" {
		text = bytes.ReplaceAll(text, []byte(id), []byte("ID"))
	}
	return res.StatusCode, answer, scores.ReplaceAllString(string(text), `"score":0`)
}

var nots = regexp.MustCompile(`(/not){2,}`)

// scores of two stores differ.
var scores = regexp.MustCompile(`"score":[-+.e0-9]+`)

// brief tells an error in a line: status, code and reason, and of each problem where
// it is, what it violates, and what is suggested.
func brief(t *testing.T, status int, raw string) string {
	t.Helper()
	var body struct {
		Error   string `json:"error"`
		Details struct {
			Reason string `json:"reason"`
		} `json:"details"`
		Problems []artifact.Problem `json:"problems"`
	}
	if err := json.Unmarshal([]byte(raw), &body); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%d %s/%s", status, body.Error, body.Details.Reason)
	for _, p := range body.Problems {
		fmt.Fprintf(&out, "; %s %s", p.Path, p.Constraint)
		if p.Suggestion != nil && string(p.Suggestion) != "null" {
			out.WriteString(" " + string(p.Suggestion))
		}
	}
	return nots.ReplaceAllStringFunc(out.String(), func(all string) string { return fmt.Sprint("/not x ", len(all)/len("/not")) })
}

// internals are words that only the inside of a store knows.
var internals = regexp.MustCompile(`(?i)\b(select|sqlite|pgx|sqlstate|fts5|tsquery|ts_rank|jsonb|goroutine|panic|syntax error|unterminated|json_each|search_index|artifact_revision|\.go:\d+)\b`)

// nested returns a filter that is so deep.
func nested(deep int) string {
	return strings.Repeat(`{"not":`, deep-1) + `{"field":"state","op":"eq","value":"x"}` + strings.Repeat("}", deep-1)
}

// many returns a list of so many numbers.
func many(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("1,", n), ",") + "]" }

func TestBadInput(t *testing.T) {
	l := newLabs(t)
	for i := range 3 {
		must(t, verb.Create, l.as(t, "ada"), statement("", fmt.Sprint("h", i), "tau near not col"))
	}
	l.caughtUp(t)
	atHub, atNode := l.as(t, "ada"), l.at(t, l.a, "ada")
	cursor := func(name, body string) string {
		_, answer, raw := post(t, atHub, name, body)
		next, ok := answer["next_cursor"].(string)
		if !ok {
			t.Fatalf("%s of %s has no next page: %s", name, body, raw)
		}
		return next
	}
	listed := cursor("list", `{"type":"hypothesis","limit":1}`)
	sorted := cursor("list", `{"type":"hypothesis","limit":1,"sort":["title"]}`)
	found := cursor("search", `{"query":"tau","limit":1}`)
	for _, c := range []struct{ name, verb, body, want string }{
		{"unknown field of get", "get", `{"reff":"hypothesis:h0"}`, `422 validation_failed/validation_failed; /ref required; /reff unknown_field "ref"`},
		{"unknown field of list", "list", `{"fliter":{},"type":"hypothesis"}`, `422 validation_failed/validation_failed; /fliter unknown_field "filter"`},
		{"unknown field of search", "search", `{"query":"tau","lmit":3}`, `422 validation_failed/validation_failed; /lmit unknown_field "limit"`},
		{"unknown field of history", "history", `{"ref":"hypothesis:h0","curser":"x"}`, `422 validation_failed/validation_failed; /curser unknown_field "cursor"`},
		{"unknown field of diff", "diff", `{"from":"hypothesis:h0","too":"hypothesis:h1"}`, `422 validation_failed/validation_failed; /from unknown_field; /ref_a required; /ref_b required; /too unknown_field`},
		{"unknown field of schema", "schema", `{"typ":"hypothesis"}`, `422 validation_failed/validation_failed; /typ unknown_field "type"`},
		{"unknown field of links", "links", `{"ref":"hypothesis:h0","directoin":"in"}`, `422 validation_failed/validation_failed; /directoin unknown_field "direction"`},
		{"unknown field of signals", "signals", `{"ref":"hypothesis:h0","knid":"vote"}`, `422 validation_failed/validation_failed; /knid unknown_field`},
		{"several faults at once", "list", `{"limit":-1,"type":"hypothesi","sort":["tilte"],"filter":{"field":"sate","op":"equ","value":1}}`, `422 validation_failed/validation_failed; /filter/field unknown_field "state"; /filter/op enum "eq"; /sort/0 enum "title"; /limit range; /type registered_type "hypothesis"`},
		{"no object", "list", `[]`, `422 validation_failed/validation_failed;  type`},
		{"no JSON", "list", `{"type":`, `400 validation_failed/invalid_json; /type json`},
		{"two values", "list", `{} {}`, `400 validation_failed/invalid_json;  json`},
		{"a name twice", "list", `{"type":"gene","type":"paper"}`, `422 validation_failed/validation_failed; /type duplicate_key`},
		{"null", "list", `{"type":null}`, `422 validation_failed/validation_failed; /type type`},
		{"text for a number", "list", `{"limit":"5"}`, `422 validation_failed/validation_failed; /limit type`},
		{"a number with a fraction", "list", `{"limit":1.5}`, `422 validation_failed/validation_failed; /limit type`},
		{"limit of minus one", "list", `{"limit":-1}`, `422 validation_failed/validation_failed; /limit range`},
		{"limit too great", "search", `{"query":"tau","limit":201}`, `422 validation_failed/validation_failed; /limit range`},
		{"limit of minus one, search", "search", `{"query":"tau","limit":-1}`, `422 validation_failed/validation_failed; /limit range`},
		{"limit of minus one, history", "history", `{"ref":"hypothesis:h0","limit":-1}`, `422 validation_failed/validation_failed; /limit range`},
		{"limit of minus one, links", "links", `{"ref":"hypothesis:h0","limit":-5}`, `422 validation_failed/validation_failed; /limit range`},
		{"limit beyond all numbers", "list", `{"limit":99999999999999999999}`, `422 validation_failed/validation_failed; /limit exact_integer`},
		{"unknown type", "list", `{"type":"hypotesis"}`, `422 validation_failed/validation_failed; /type registered_type "hypothesis"`},
		{"unknown op", "list", `{"filter":{"field":"state","op":"eqq","value":"x"}}`, `422 validation_failed/validation_failed; /filter/op enum "eq"`},
		{"unknown op of a content", "search", `{"query":"tau","filter":{"field":"/content/disease","op":"startswith","value":"x"}}`, `422 validation_failed/validation_failed; /filter/op enum "starts_with"`},
		{"unknown field of a filter", "list", `{"filter":{"field":"titel","op":"eq","value":"x"}}`, `422 validation_failed/validation_failed; /filter/field unknown_field "title"`},
		{"content without its prefix", "list", `{"filter":{"field":"/disease","op":"eq","value":"x"}}`, `422 validation_failed/validation_failed; /filter/field unknown_field "/content/disease"`},
		{"unknown member of a condition", "list", `{"filter":{"field":"title","op":"eq","valeu":"x"}}`, `422 validation_failed/validation_failed; /filter/valeu unknown_field "value"; /filter/value required`},
		{"unknown form", "search", `{"mode":"structured","filter":{"an":[]}}`, `422 validation_failed/validation_failed; /filter/an unknown_field "and"`},
		{"two forms", "list", `{"filter":{"and":[],"or":[]}}`, `422 validation_failed/validation_failed; /filter one_form`},
		{"an op that a field has not", "list", `{"filter":{"field":"created_at","op":"contains","value":"2"}}`, `422 validation_failed/validation_failed; /filter/op op`},
		{"a time that is none", "list", `{"filter":{"field":"created_at","op":"gt","value":"yesterday"}}`, `422 validation_failed/validation_failed; /filter/value type`},
		{"unknown signal", "list", `{"type":"hypothesis","filter":{"signal":{"kind":"vot","agg":"sum","op":"gt","value":1}}}`, `422 validation_failed/validation_failed; /filter/signal/kind signal_kind "vote"`},
		{"unknown signal in a search", "search", `{"query":"tau","types":["hypothesis"],"filter":{"signal":{"kind":"vot","agg":"sum","op":"gt","value":1}}}`, `422 validation_failed/validation_failed; /filter/signal/kind signal_kind "vote"`},
		{"unknown sum", "list", `{"filter":{"signal":{"kind":"vote","agg":"avg","op":"gt","value":1}}}`, `422 validation_failed/validation_failed; /filter/signal/agg enum`},
		{"unknown direction", "list", `{"filter":{"link":{"direction":"inn"}}}`, `422 validation_failed/validation_failed; /filter/link/direction enum "in"`},
		{"fewer than none", "list", `{"filter":{"link":{"min":-1}}}`, `422 validation_failed/validation_failed; /filter/link/min range`},
		{"32 deep", "list", `{"filter":` + nested(32) + `}`, `200 /`},
		{"33 deep", "list", `{"filter":` + nested(33) + `}`, `422 validation_failed/validation_failed; /filter/not x 32 max_depth`},
		{"33 deep in a search", "search", `{"mode":"structured","filter":` + nested(33) + `}`, `422 validation_failed/validation_failed; /filter/not x 32 max_depth`},
		{"1,000 deep", "list", `{"filter":` + nested(1000) + `}`, `422 validation_failed/validation_failed; /filter/not x 71 max_depth`},
		{"100,000 deep", "list", `{"filter":` + nested(100000) + `}`, `422 validation_failed/validation_failed; /filter/not x 71 max_depth`},
		{"10,000 values", "list", `{"filter":{"field":"/content/confidence","op":"in","value":` + many(10000) + `}}`, `422 validation_failed/validation_failed; /filter/value max_items`},
		{"10,000 values in a search", "search", `{"mode":"structured","filter":{"field":"revision","op":"nin","value":` + many(10000) + `}}`, `422 validation_failed/validation_failed; /filter/value max_items`},
		{"10,000 conditions", "list", `{"filter":{"or":[` + strings.TrimSuffix(strings.Repeat(`{"field":"state","op":"eq","value":"x"},`, 5000), ",") + `]}}`, `422 validation_failed/validation_failed; /filter max_nodes`},
		{"a sort that is none", "list", `{"sort":["-titel"]}`, `422 validation_failed/validation_failed; /sort/0 enum "title"`},
		{"five keys", "list", `{"sort":["title","title","title","title","title"]}`, `422 validation_failed/validation_failed; /sort max_items`},
		{"a cursor of another type", "list", `{"type":"gene","cursor":"` + listed + `"}`, `400 validation_failed/invalid_cursor; /cursor cursor`},
		{"a cursor of another filter", "list", `{"type":"hypothesis","filter":{"field":"state","op":"eq","value":"proposed"},"cursor":"` + listed + `"}`, `400 validation_failed/invalid_cursor; /cursor cursor`},
		{"a cursor of another order", "list", `{"type":"hypothesis","sort":["-title"],"cursor":"` + sorted + `"}`, `400 validation_failed/invalid_cursor; /cursor cursor`},
		{"a cursor of list for search", "search", `{"query":"tau","cursor":"` + listed + `"}`, `400 validation_failed/invalid_cursor; /cursor cursor`},
		{"a cursor of other words", "search", `{"query":"amyloid","cursor":"` + found + `"}`, `400 validation_failed/invalid_cursor; /cursor cursor`},
		{"a cursor that is none", "history", `{"ref":"hypothesis:h0","cursor":"!!"}`, `400 validation_failed/invalid_cursor; /cursor cursor`},
		{"a cursor of list for links", "links", `{"ref":"hypothesis:h0","cursor":"` + listed + `"}`, `400 validation_failed/invalid_cursor; /cursor cursor`},
		{"words of 10 KB", "search", `{"query":"` + strings.Repeat("tau ", 2560) + `"}`, `422 validation_failed/validation_failed; /query max_length`},
		{"one word of 10 KB", "search", `{"query":"` + strings.Repeat("x", 10240) + `"}`, `422 validation_failed/validation_failed; /query max_length`},
		{"an open quote", "search", `{"query":"\"tau col"}`, `422 validation_failed/validation_failed; /query quotes`},
		{"three quotes", "search", `{"query":"\"tau\" \"col"}`, `422 validation_failed/validation_failed; /query quotes`},
		{"no words", "search", `{"query":"  "}`, `422 validation_failed/validation_failed; /query required`},
		{"only what must not be", "search", `{"query":"-tau"}`, `422 validation_failed/validation_failed; /query positive`},
		{"OR at the end", "search", `{"query":"tau OR"}`, `200 /`},
		{"an unknown mode", "search", `{"query":"tau","mode":"fuzzy"}`, `422 validation_failed/validation_failed; /mode enum`},
		{"an unknown facet", "search", `{"query":"tau","facets":["stat"]}`, `422 validation_failed/validation_failed; /facets/0 enum "state"`},
		{"a ref that is none", "get", `{"ref":"hypothesis"}`, `422 validation_failed/validation_failed; /ref ref`},
		{"a ref of SQL", "get", `{"ref":"hypothesis:x';DROP"}`, `404 not_found/not_found`},
		{"SQL in a value", "list", `{"filter":{"field":"title","op":"contains","value":"' OR 1=1 --"}}`, `200 /`},
		{"SQL in a pointer", "list", `{"type":"hypothesis","filter":{"field":"/content/x') OR ('1'='1","op":"exists"}}`, `200 /`},
		{"SQL in a sort", "list", `{"type":"hypothesis","sort":["/content/x'; DROP TABLE artifact; --"]}`, `200 /`},
		{"a path of JSON in a pointer", "list", `{"type":"hypothesis","filter":{"field":"/content/$[*].\\\"x","op":"eq","value":"?"}}`, `200 /`},
		{"U+0000", "search", `{"query":"tau\u0000"}`, `422 validation_failed/validation_failed; /query no_nul`},
		{"half a character", "search", `{"query":"tau\ud800"}`, `422 validation_failed/validation_failed; /query utf8`},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, _, raw := post(t, atHub, c.verb, c.body)
			again, _, other := post(t, atNode, c.verb, c.body)
			if status != again || raw != other {
				t.Errorf("the hub answers %d, the node %d:\n%s", status, again, cmp.Diff(raw, other))
			}
			if got := brief(t, status, raw); got != c.want {
				t.Errorf("it answers\n%s, want\n%s", got, c.want)
			}
			if status != http.StatusOK && (internals.MatchString(raw) || len(raw) > 10_000) {
				t.Errorf("it tells of its inside, or too much: %.2000s", raw)
			}
		})
	}
}

// TestInjectedSyntax sends by HTTP what means something to FTS5, to tsquery or to SQL:
// it is words like others, and both stores find the same.
func TestInjectedSyntax(t *testing.T) {
	l := newLabs(t)
	must(t, verb.Create, l.as(t, "ada"), statement("", "h", "tau near not col"))
	l.caughtUp(t)
	atHub, atNode := l.as(t, "ada"), l.at(t, l.a, "ada")
	found := 0
	for _, query := range []string{
		`tau & !col`, `tau | col`, `tau:*A`, `'tau' <-> 'not'`, `tau <2> col`, `!tau`, `tau \`, `''tau''`, `NEAR(tau col)`, `NEAR(tau, 2)`, `tau NOT col`, `title:tau`, `{title}:tau`, `{title} : (tau)`, `^tau`,
		`tau + not`, `tau AND col`, `tau) OR (col`, `tau; DROP TABLE artifact`, `*tau`, `tau**`, `=tau`, `$1 ?1 tau`, `tau' OR '1'='1`, `- {first} : col tau`, `"tau" * "col" *`, `tau*:B & col`, `%s tau`, `(((((tau`,
	} {
		in, err := json.Marshal(map[string]any{"query": query, "mode": "lexical", "highlight": true})
		if err != nil {
			t.Fatal(err)
		}
		status, answer, raw := post(t, atHub, "search", string(in))
		again, _, other := post(t, atNode, "search", string(in))
		if status != again || raw != other {
			t.Errorf("%s: the hub answers %d, the node %d:\n%s", query, status, again, cmp.Diff(raw, other))
		}
		if status != http.StatusOK && (status != http.StatusUnprocessableEntity || internals.MatchString(raw)) {
			t.Errorf("%s: %d %s", query, status, raw)
		}
		if hits, _ := answer["hits"].([]any); len(hits) == 1 {
			found++
		}
	}
	if found < 8 {
		t.Errorf("only %d of them find what holds their words", found)
	}
	must(t, verb.Get, l.as(t, "ada"), verb.GetRequest{Ref: artifact.Ref{Type: "hypothesis", ID: "h"}})
}

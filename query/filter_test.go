package query

import (
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
)

func nested(depth int) string {
	return strings.Repeat(`{"and":[`, depth-1) + `{"field":"state","op":"eq","value":"proposed"}` + strings.Repeat(`]}`, depth-1)
}

func list(n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(`"x",`, n), ",") + "]"
}

func TestParse(t *testing.T) {
	for _, filter := range []string{
		``, `null`, nested(MaxDepth),
		`{"field":"state","op":"in","value":` + list(MaxValues) + `}`,
		`{"field":"/content/a~1b/0","op":"nin","value":["x",1,true,null]}`,
		`{"not":{"or":[{"field":"created_at","op":"lt","value":"2026-01-31T10:00:00.25+02:00"},{"field":"ref","op":"eq","value":"gene:HGNC:1"}]}}`,
		`{"link":{"predicate":"supports","direction":"in","min":2,"max":3,"to":"paper:PMID:1","types":["paper"]}}`,
		`{"signal":{"kind":"rank","dimension":"novelty","agg":"mean","op":"gte","value":0.7}}`,
		`{"field":"quality_score","op":"exists"}`,
	} {
		if _, problems := Parse([]byte(filter), "/filter"); problems != nil {
			t.Errorf("Parse(%.80s) = %v, want no problem", filter, problems)
		}
	}
	for _, c := range []struct{ name, filter, path, constraint, suggestion string }{
		{"no object", `[]`, "/filter", "type", ``},
		{"an unknown form", `{"nott":{}}`, "/filter/nott", "unknown_field", `"not"`},
		{"nothing", `{}`, "/filter", "required", ``},
		{"two forms", `{"and":[],"or":[]}`, "/filter", "one_form", ``},
		{"an unknown field", `{"field":"stat","op":"eq","value":"x"}`, "/filter/field", "unknown_field", `"state"`},
		{"a content path without content", `{"field":"/year","op":"eq","value":"x"}`, "/filter/field", "unknown_field", `"/content/year"`},
		{"an unknown op", `{"field":"state","op":"equal","value":"x"}`, "/filter/op", "enum", ``},
		{"a near op", `{"and":[{"field":"state","op":"gtee","value":"x"}]}`, "/filter/and/0/op", "enum", `"gte"`},
		{"an unknown member", `{"field":"state","op":"eq","valu":"x"}`, "/filter/valu", "unknown_field", `"value"`},
		{"no value", `{"field":"state","op":"eq"}`, "/filter/value", "required", ``},
		{"a number for a text", `{"field":"state","op":"eq","value":1}`, "/filter/value", "type", ``},
		{"a text for a number", `{"field":"revision","op":"gt","value":"1"}`, "/filter/value", "type", ``},
		{"a text for a truth value", `{"field":"is_latest","op":"eq","value":"true"}`, "/filter/value", "type", ``},
		{"no time", `{"field":"created_at","op":"gt","value":"yesterday"}`, "/filter/value", "type", ``},
		{"a time between milliseconds", `{"field":"created_at","op":"gt","value":"2026-01-31T00:00:00.0001Z"}`, "/filter/value", "type", `"2026-01-31T00:00:00Z"`},
		{"no ref", `{"field":"ref","op":"eq","value":"x"}`, "/filter/value", "type", ``},
		{"a pinned ref", `{"field":"ref","op":"eq","value":"a:b@sha256:` + strings.Repeat("1", 64) + `"}`, "/filter/value", "type", `"a:b"`},
		{"an order of truth values", `{"field":"is_latest","op":"lt","value":true}`, "/filter/op", "op", ``},
		{"an order of nulls in a content", `{"field":"/content/x","op":"lt","value":null}`, "/filter/op", "op", ``},
		{"a part of a number", `{"field":"/content/x","op":"contains","value":1}`, "/filter/op", "op", ``},
		{"existence of what always is", `{"field":"title","op":"exists","value":false}`, "/filter/op", "op", ``},
		{"a doubtful place", `{"field":"/content/x/01","op":"eq","value":1}`, "/filter/field", "json_pointer", ``},
		{"a bad pointer", `{"field":"/content/x~2","op":"eq","value":1}`, "/filter/field", "json_pointer", ``},
		{"an object as value", `{"field":"/content/x","op":"in","value":[{}]}`, "/filter/value/0", "type", ``},
		{"33 deep", nested(33), "/filter" + strings.Repeat("/and/0", 32), "max_depth", ``},
		{"10,000 values", `{"field":"state","op":"in","value":` + list(10_000) + `}`, "/filter/value", "max_items", ``},
		{"many conditions", `{"or":[` + strings.TrimSuffix(strings.Repeat(nested(1)+",", MaxNodes), ",") + `]}`, "/filter", "max_nodes", ``},
		{"a sum that is none", `{"signal":{"kind":"vote","agg":"median","op":"eq","value":1}}`, "/filter/signal/agg", "enum", `"mean"`},
		{"an unknown sum", `{"signal":{"kind":"vote","agg":"sums","op":"eq","value":1}}`, "/filter/signal/agg", "enum", `"sum"`},
		{"an unknown direction", `{"link":{"direction":"outt"}}`, "/filter/link/direction", "enum", `"out"`},
		{"max below min", `{"link":{"min":2,"max":1}}`, "/filter/link/max", "range", ``},
		{"a negative min", `{"link":{"min":-1}}`, "/filter/link/min", "range", ``},
		{"a key twice", `{"and":[],"and":[]}`, "/filter/and", "duplicate_key", ``},
		{"200 deep", strings.Repeat(`{"not":`, 600) + `{}` + strings.Repeat(`}`, 600), "", "max_depth", ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, problems := Parse([]byte(c.filter), "/filter")
			for _, p := range problems {
				if (p.Path == c.path || c.path == "") && p.Constraint == c.constraint {
					if got := string(p.Suggestion); got != c.suggestion {
						t.Errorf("Parse(%.80s) suggests %s, want %s", c.filter, got, c.suggestion)
					}
					if f != nil {
						t.Error("a filter came with the problems")
					}
					return
				}
			}
			t.Errorf("Parse(%.80s) = %+v, want a problem at %s of %s", c.filter, problems, c.path, c.constraint)
		})
	}
	t.Run("tells all faults", func(t *testing.T) {
		_, problems := Parse([]byte(`{"or":[{"field":"stat","op":"x","value":1},{"not":{"field":"title","op":"eq","value":1}},{"signal":{}}]}`), "/filter")
		if len(problems) < 6 {
			t.Errorf("Parse tells %d problems: %+v", len(problems), problems)
		}
	})
}

func TestParseSort(t *testing.T) {
	for _, sort := range []string{``, `[]`, `["-created_at"]`, `[{"by":"created_at","order":"desc"}]`} {
		if s, problems := ParseSort([]byte(sort), "/sort"); s != nil || problems != nil {
			t.Errorf("ParseSort(%s) = %v, %v, want the usual order", sort, s, problems)
		}
	}
	for _, c := range []struct{ sort, path, constraint, suggestion string }{
		{`"title"`, "/sort", "type", ``},
		{`["titel"]`, "/sort/0", "enum", `"title"`},
		{`["-updated_a"]`, "/sort/0", "enum", `"updated_at"`},
		{`[{"by":"title","order":"down"}]`, "/sort/0/order", "enum", ``},
		{`[{"by":"title","signal":{"kind":"vote","agg":"sum"}}]`, "/sort/0", "one_form", ``},
		{`[{"signal":{"kind":"vote","agg":"maxi"}}]`, "/sort/0/signal/agg", "enum", ``},
		{`["title","title","title","title","title"]`, "/sort", "max_items", ``},
		{`["/content/"]`, "", "", ``},
		{`["/content"]`, "/sort/0", "enum", ``},
	} {
		_, problems := ParseSort([]byte(c.sort), "/sort")
		if c.constraint == "" {
			if problems != nil {
				t.Errorf("ParseSort(%s) = %+v", c.sort, problems)
			}
			continue
		}
		if len(problems) != 1 || problems[0].Path != c.path || problems[0].Constraint != c.constraint || string(problems[0].Suggestion) != c.suggestion && c.suggestion != "" {
			t.Errorf("ParseSort(%s) = %+v, want %s at %s", c.sort, problems, c.constraint, c.path)
		}
	}
}

// FuzzParse checks that whatever is taken has the same meaning once it is written
// out again, and makes a statement in either dialect.
func FuzzParse(f *testing.F) {
	f.Add(`{"and":[{"field":"/content/a/0","op":"starts_with","value":"é"},{"not":{"link":{"max":2}}}]}`)
	f.Add(`{"signal":{"kind":"vote","agg":"mean","op":"nin","value":[1,2]}}`)
	f.Add(nested(3))
	f.Fuzz(func(t *testing.T, raw string) {
		filter, problems := Parse([]byte(raw), "/filter")
		if (filter == nil) != (problems != nil) && !absent([]byte(raw)) {
			t.Fatalf("Parse(%q) = %v, %v", raw, filter, problems)
		}
		for _, p := range problems {
			if p.Message == "" || p.Constraint == "" || !strings.HasPrefix(p.Path, "/filter") {
				t.Fatalf("Parse(%q) tells %+v", raw, p)
			}
		}
		if filter == nil {
			return
		}
		again, problems := Parse(filter.Canonical(), "/filter")
		if problems != nil || string(again.Canonical()) != string(filter.Canonical()) {
			t.Fatalf("Parse(%s) of what it took = %v", filter.Canonical(), problems)
		}
		for _, d := range []Dialect{Postgres, SQLite} {
			for _, indexed := range []bool{false, true} {
				s := New(d, []string{artifact.Commons})
				s.Type, s.Indexed = "gene", func(string) bool { return indexed }
				if sql := s.Where(filter); strings.Count(sql, "(") != strings.Count(sql, ")") {
					t.Fatalf("Where(%s) = %s", filter.Canonical(), sql)
				}
			}
		}
	})
}

func TestType(t *testing.T) {
	for filter, want := range map[string]string{
		`{"field":"type","op":"eq","value":"gene"}`:                                                     "gene",
		`{"and":[{"field":"title","op":"eq","value":"x"},{"field":"type","op":"in","value":["gene"]}]}`: "gene",
		`{"field":"ref","op":"eq","value":"gene:x"}`:                                                    "gene",
		`{"or":[{"field":"type","op":"eq","value":"gene"}]}`:                                            "",
		`{"not":{"field":"type","op":"eq","value":"gene"}}`:                                             "",
		`{"field":"type","op":"ne","value":"gene"}`:                                                     "",
		`{"field":"type","op":"in","value":["gene","paper"]}`:                                           "",
	} {
		f, problems := Parse([]byte(filter), "")
		if problems != nil || f.Type() != want {
			t.Errorf("Type of %s = %q, %v, want %q", filter, f.Type(), problems, want)
		}
	}
}

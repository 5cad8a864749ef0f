package artifact_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
)

func TestUndeclared(t *testing.T) {
	const free = `{"type":"object","properties":{"statement":{"type":"string"},"notes":{},"a\"b":{}}}`
	for name, c := range map[string]struct{ schema, content, before, want string }{
		"declared":               {free, `{"a\"b":1,"notes":{"statemint":1},"statement":"x"}`, "", ""},
		"a slip":                 {free, `{"statemint":"x"}`, "", "/content/statemint statement"},
		"a slip beside the word": {free, `{"statement":"y","statemint":"x"}`, "", ""},
		"on purpose":             {free, `{"colour":["{\"statemint\":1}"]}`, "", ""},
		"new in a patch":         {free, `{"content":{"statement":"x"},"notes":1}`, `{"notes":1}`, "/content/content "},
		"new, and a slip":        {free, `{"note":"x","statement":"y"}`, `{"statement":"y"}`, "/content/note notes"},
		"there before":           {free, `{"content":2}`, `{"content":1}`, ""},
		"a name to be escaped":   {free, `{"a/b~\u0001":1}`, `{}`, "/content/a~1b~0\x01 "},
		"fields of a kind":       {`{"type":"object","properties":{"statement":{}},"patternProperties":{"^x":{}}}`, `{"statemint":1}`, `{}`, ""},
		"none declared":          {`{"type":"object"}`, `{"statemint":1}`, `{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, problems := artifact.CheckSchema([]byte(`{"type":"assay","schema_version":1,"id_strategy":{"format":"as-{uuid}"},"mutability":"mutable_with_history","content_schema":`+c.schema+`}`), "")
			if problems != nil {
				t.Fatal(problems)
			}
			var before []byte
			if c.before != "" {
				before = []byte(c.before)
			}
			var got []string
			for _, p := range s.Undeclared([]byte(c.content), before, "/content") {
				var suggestion string
				if p.Suggestion != nil {
					if err := json.Unmarshal(p.Suggestion, &suggestion); err != nil {
						t.Fatal(err)
					}
				}
				got = append(got, p.Path+" "+suggestion)
			}
			if told := strings.Join(got, ", "); told != c.want {
				t.Errorf("warnings = %q, want %q", told, c.want)
			}
		})
	}
}

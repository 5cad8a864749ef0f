package hub_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// TestNullIsNoValue puts null in the place of each member of each request, and of
// what is nested in it: the answer is one and the same everywhere.
func TestNullIsNoValue(t *testing.T) {
	f := newHub(t)
	url, token := f.serve(t), f.token(t, "root", "admin", "contributor", "reviewer", "viewer")
	members := 0
	check := func(name, at string, body any) {
		t.Helper()
		members++
		a := request(t, http.MethodPost, url+"/api/scidex/"+name, token, content(body))
		for _, p := range a.err.Problems {
			if p.Path == at && p.Constraint == "type" && string(p.Value) == "null" && p.Message == "null is no value here: what is not given is left out" {
				return
			}
		}
		t.Errorf("%s with null at %s = %d %.400s", name, at, a.status, a.body)
	}
	// walk calls check with null in each place of s, within what wrap makes.
	var walk func(name string, s *jsonschema.Schema, at string, wrap func(any) any)
	walk = func(name string, s *jsonschema.Schema, at string, wrap func(any) any) {
		for member, of := range s.Properties {
			path := at + "/" + member
			in := func(v any) any { return wrap(map[string]any{member: v}) }
			check(name, path, in(nil))
			walk(name, of, path, in)
			if of.Items != nil && of.Items.Description != "" || of.Items == nil {
				continue // a batch's items are walked by their verbs
			}
			element := func(v any) any { return in([]any{v}) }
			check(name, path+"/0", element(nil))
			walk(name, of.Items, path+"/0", element)
		}
	}
	ops := []string{"create", "update", "supersede", "comment", "signal", "link", "unlink", "cite"}
	for _, v := range f.Verbs().Verbs() {
		walk(v.Name, v.In, "", func(body any) any { return body })
		if slices.Contains(ops, v.Name) {
			walk("batch", v.In, "/items/0", func(item any) any {
				members := item.(map[string]any)
				members["op"] = v.Name
				return map[string]any{"items": []any{members}}
			})
		}
	}
	if members < 250 {
		t.Errorf("only %d places were tried", members)
	}
}

// TestFormAndMatter: what is wrong with a request's form hides nothing of what is
// wrong besides.
func TestFormAndMatter(t *testing.T) {
	f := newHub(t)
	url, token := f.serve(t), f.token(t, "ada", "contributor")
	const hash = `"sha256:0000000000000000000000000000000000000000000000000000000000000001"`
	made := f.mustCreate(t, hypothesis("h", "x"))
	for name, c := range map[string]struct{ verb, body, want string }{
		"a create": {
			"create", `{"type":"hypothesis","titel":"T","id":"a b","content":{"mechanism":"TBD"},"links":[{"predicate":"suports","to":"gene:NONE"}]}`,
			`422 validation_failed | /content/mechanism minLength | /content/statement required | /id id_strategy | /links/0/predicate predicate "supports" | /links/0/to link_targets_exist | /titel unknown_field "title" | /title required`,
		},
		"an update": {
			"update", `{"ref":"hypothesis:h","base_content_hash":` + string(content(made.ContentHash)) + `,"merge_patch":{"mechanism":"TBD"},"notes":"n"}`,
			`422 validation_failed | /content/mechanism minLength | /notes unknown_field "note"`,
		},
		"a base of zeros": {
			"update", `{"ref":"hypothesis:h","base_content_hash":"sha256:0000000000000000000000000000000000000000000000000000000000000000","merge_patch":{}}`,
			`422 validation_failed | /base_content_hash content_hash`,
		},
		"an unknown base": {
			"update", `{"ref":"hypothesis:h","base_content_hash":` + hash + `,"merge_patch":{}}`,
			`422 validation_failed/unknown_base | /base_content_hash known_version`,
		},
		"a comment": {"comment", `{"ref":"hypothesis:h","body":"","knd":"k"}`, `422 validation_failed | /body length | /knd unknown_field "kind"`},
		"a link":    {"link", `{"from":"hypothesis:h","predicate":"x","to":"gene:G","evidence":5,"wait":1}`, `422 validation_failed | /evidence type | /predicate predicate | /wait unknown_field`},
		"items without op": {
			"batch", `{"items":[{"verb":"create","type":"gene","titel":"x"},{"op":"nope","refs":"x"}]}`,
			`422 validation_failed | /items/0/op required | /items/0/titel unknown_field "title" | /items/0/verb unknown_field "op" | /items/1/op enum | /items/1/refs unknown_field "ref"`,
		},
		"items of odd ops": {
			"batch", `{"items":[{"op":"creat"},{"op":5},{"op":"create","type":"gene","title":"T","content":{},"scop":"s"},5]}`,
			`422 validation_failed | /items/0/op enum "create" | /items/1/op type | /items/2/scop unknown_field "scope" | /items/3 type`,
		},
		"a batch and its items": {"batch", `{"itms":[],"items":[{"op":"comment","ref":"x:y","bodi":"b"}]}`, `422 validation_failed | /items/0/bodi unknown_field "body" | /items/0/body required | /itms unknown_field "items"`},
	} {
		a := request(t, http.MethodPost, url+"/api/scidex/"+c.verb, token, []byte(c.body))
		if got := describe(a.status, &a.err); got != c.want {
			t.Errorf("%s = %s\nwant %s\n%.600s", name, got, c.want, a.body)
		}
	}
	if n := f.count(t, `SELECT count(*) FROM artifact WHERE type <> 'schema'`); n != 1 {
		t.Errorf("there are %d artifacts: what was refused was written", n)
	}
	var e struct{ Problems []json.RawMessage }
	a := request(t, http.MethodPost, url+"/api/scidex/create", f.token(t, "vera", "viewer"), []byte(`{"type":"hypothesis","x":1}`))
	if json.Unmarshal(a.body, &e) != nil || a.status != http.StatusUnprocessableEntity || len(e.Problems) != 3 {
		t.Errorf("who may not write is told more than the form: %d %s", a.status, a.body)
	}
}

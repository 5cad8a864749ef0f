package artifact_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

func TestApplyPatch(t *testing.T) {
	tests := []struct {
		name, doc, patch, want string
	}{
		// RFC 6902, appendix A.
		{"A.1 adds a member", `{"foo":"bar"}`, `[{"op":"add","path":"/baz","value":"qux"}]`, `{"baz":"qux","foo":"bar"}`},
		{"A.2 adds an element", `{"foo":["bar","baz"]}`, `[{"op":"add","path":"/foo/1","value":"qux"}]`, `{"foo":["bar","qux","baz"]}`},
		{"A.3 removes a member", `{"baz":"qux","foo":"bar"}`, `[{"op":"remove","path":"/baz"}]`, `{"foo":"bar"}`},
		{"A.4 removes an element", `{"foo":["bar","qux","baz"]}`, `[{"op":"remove","path":"/foo/1"}]`, `{"foo":["bar","baz"]}`},
		{"A.5 replaces a value", `{"baz":"qux","foo":"bar"}`, `[{"op":"replace","path":"/baz","value":"boo"}]`, `{"baz":"boo","foo":"bar"}`},
		{
			"A.6 moves a value", `{"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}}`,
			`[{"op":"move","from":"/foo/waldo","path":"/qux/thud"}]`, `{"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}}`,
		},
		{"A.7 moves an element", `{"foo":["all","grass","cows","eat"]}`, `[{"op":"move","from":"/foo/1","path":"/foo/3"}]`, `{"foo":["all","cows","eat","grass"]}`},
		{
			"A.8 tests values", `{"baz":"qux","foo":["a",2,"c"]}`,
			`[{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2}]`, `{"baz":"qux","foo":["a",2,"c"]}`,
		},
		{"A.10 adds an object", `{"foo":"bar"}`, `[{"op":"add","path":"/child","value":{"grandchild":{}}}]`, `{"child":{"grandchild":{}},"foo":"bar"}`},
		{"A.11 ignores members it does not know", `{"foo":"bar"}`, `[{"op":"add","path":"/baz","value":"qux","xyz":123}]`, `{"baz":"qux","foo":"bar"}`},
		{"A.14 unescapes ~", `{"/":9,"~1":10}`, `[{"op":"test","path":"/~01","value":10}]`, `{"/":9,"~1":10}`},
		{"A.16 adds an array at the end", `{"foo":["bar"]}`, `[{"op":"add","path":"/foo/-","value":["abc","def"]}]`, `{"foo":["bar",["abc","def"]]}`},

		{"adds over a member", `{"a":1}`, `[{"op":"add","path":"/a","value":2}]`, `{"a":2}`},
		{"adds at the length of an array", `{"a":[1]}`, `[{"op":"add","path":"/a/1","value":2}]`, `{"a":[1,2]}`},
		{"replaces the whole", `{"a":1}`, `[{"op":"replace","path":"","value":{"b":2}}]`, `{"b":2}`},
		{"adds null", `{}`, `[{"op":"add","path":"/a","value":null}]`, `{"a":null}`},
		{"tests a whole", `{"a":[1,{}]}`, `[{"op":"test","path":"","value":{"a":[1.0,{}]}}]`, `{"a":[1,{}]}`},
		{"tests an object in any order", `{"a":{"x":1,"y":2}}`, `[{"op":"test","path":"/a","value":{"y":2,"x":1}}]`, `{"a":{"x":1,"y":2}}`},
		{"tests what it wrote", `{"a":{}}`, `[{"op":"add","path":"/a/x","value":[1]},{"op":"add","path":"/a/x/-","value":2},{"op":"test","path":"/a","value":{"x":[1,2]}}]`, `{"a":{"x":[1,2]}}`},
		{"copies a value", `{"a":{"x":1}}`, `[{"op":"copy","from":"/a","path":"/b"},{"op":"replace","path":"/b/x","value":2}]`, `{"a":{"x":1},"b":{"x":2}}`},
		{"copies a changed value", `{"a":{"x":1}}`, `[{"op":"add","path":"/a/y","value":2},{"op":"copy","from":"/a","path":"/b"},{"op":"remove","path":"/b/x"}]`, `{"a":{"x":1,"y":2},"b":{"y":2}}`},
		{"copies to the end", `{"a":[1]}`, `[{"op":"copy","from":"/a/0","path":"/a/-"}]`, `{"a":[1,1]}`},
		{"moves to where it is", `{"a":1}`, `[{"op":"move","from":"/a","path":"/a"}]`, `{"a":1}`},
		{"moves the whole to where it is", `{"a":1}`, `[{"op":"move","from":"","path":""}]`, `{"a":1}`},
		{"moves a value out of its parent", `{"a":{"b":1}}`, `[{"op":"move","from":"/a/b","path":"/a"}]`, `{"a":1}`},
		{"tells members alike from ancestors", `{"a":1}`, `[{"op":"copy","from":"/a","path":"/ab"}]`, `{"a":1,"ab":1}`},
		{"takes - as a member", `{"a":{"-":1,"01":2}}`, `[{"op":"remove","path":"/a/-"},{"op":"test","path":"/a/01","value":2}]`, `{"a":{"01":2}}`},
		{"takes the empty member", `{"":{"":1}}`, `[{"op":"replace","path":"//","value":2}]`, `{"":{"":2}}`},
		{"orders members by UTF-16", `{}`, `[{"op":"add","path":"/\ufb33","value":1},{"op":"add","path":"/😀","value":2}]`, `{"😀":2,"` + "\ufb33" + `":1}`},
		{"does nothing", `{"a":1.50}`, `[]`, `{"a":1.5}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, problems := artifact.ApplyPatch([]byte(tt.doc), []byte(tt.patch), "/patch")
			if problems != nil || string(got) != tt.want {
				t.Errorf("ApplyPatch(%s, %s) = %s, %v, want %s", tt.doc, tt.patch, got, problems, tt.want)
			}
		})
	}
}

func TestApplyPatchRefuses(t *testing.T) {
	op := func(s string) string { return "[{" + s + "}]" }
	tests := []struct {
		name, doc, patch, at, constraint string
	}{
		// RFC 6902, appendix A.
		{"A.9 a test that fails", `{"baz":"qux"}`, op(`"op":"test","path":"/baz","value":"bar"`), "/patch/0", "patch_test"},
		{"A.12 an absent parent", `{"foo":"bar"}`, op(`"op":"add","path":"/baz/bat","value":"qux"`), "/patch/0", "json_patch"},
		{"A.13 two members of one name", `{"foo":"bar"}`, op(`"op":"add","path":"/baz","value":"qux","op":"remove"`), "/patch/0/op", "duplicate_key"},
		{"A.15 a number for a string", `{"/":9,"~1":10}`, op(`"op":"test","path":"/~01","value":"10"`), "/patch/0", "patch_test"},

		{"a leading zero", `{"a":[1,2]}`, op(`"op":"replace","path":"/a/01","value":2`), "/patch/0", "json_patch"},
		{"a leading zero in an insertion", `{"a":[1,2]}`, op(`"op":"add","path":"/a/00","value":2`), "/patch/0", "json_patch"},
		{"a leading zero on the way", `{"a":[{"b":1}]}`, op(`"op":"remove","path":"/a/00/b"`), "/patch/0", "json_patch"},
		{"a signed index", `{"a":[1,2]}`, op(`"op":"remove","path":"/a/+1"`), "/patch/0", "json_patch"},
		{"a negative index", `{"a":[1,2]}`, op(`"op":"remove","path":"/a/-1"`), "/patch/0", "json_patch"},
		{"an index that is a word", `{"a":[1,2]}`, op(`"op":"add","path":"/a/x","value":1`), "/patch/0", "json_patch"},
		{"an index past the end", `{"a":[1]}`, op(`"op":"add","path":"/a/2","value":1`), "/patch/0", "json_patch"},
		{"a replacement past the end", `{"a":[1]}`, op(`"op":"replace","path":"/a/1","value":1`), "/patch/0", "json_patch"},
		{"an index beyond any integer", `{"a":[1]}`, op(`"op":"remove","path":"/a/99999999999999999999"`), "/patch/0", "json_patch"},
		{"a test of what is absent", `{"a":1}`, op(`"op":"test","path":"/b","value":null`), "/patch/0", "patch_test"},
		{"a test of what is absent in an array", `{"a":[]}`, op(`"op":"test","path":"/a/0","value":null`), "/patch/0", "patch_test"},
		{"a test of an object with more members", `{"a":{"x":1,"y":2}}`, op(`"op":"test","path":"/a","value":{"x":1}`), "/patch/0", "patch_test"},
		{"a test of a changed object with more members", `{"a":{"x":1}}`, `[{"op":"add","path":"/a/y","value":2},{"op":"test","path":"/a","value":{"x":1}}]`, "/patch/1", "patch_test"},
		{"a test of a changed array with more elements", `{"a":[1]}`, `[{"op":"add","path":"/a/1","value":2},{"op":"test","path":"/a","value":[1]}]`, "/patch/1", "patch_test"},
		{"a test of a changed array with fewer elements", `{"a":[1,2]}`, `[{"op":"remove","path":"/a/1"},{"op":"test","path":"/a","value":[1,2]}]`, "/patch/1", "patch_test"},
		{"a test of -", `{"a":[1]}`, op(`"op":"test","path":"/a/-","value":1`), "/patch/0", "patch_test"},
		{"a removal of -", `{"a":[1]}`, op(`"op":"remove","path":"/a/-"`), "/patch/0", "json_patch"},
		{"a replacement of -", `{"a":[1]}`, op(`"op":"replace","path":"/a/-","value":1`), "/patch/0", "json_patch"},
		{"a copy from -", `{"a":[1]}`, op(`"op":"copy","from":"/a/-","path":"/b"`), "/patch/0", "json_patch"},
		{"a way through -", `{"a":[{}]}`, op(`"op":"add","path":"/a/-/b","value":1`), "/patch/0", "json_patch"},
		{"a move into its own child", `{"a":{"b":{}}}`, op(`"op":"move","from":"/a","path":"/a/b/c"`), "/patch/0/path", "json_patch"},
		{"a copy into its own child", `{"a":{}}`, op(`"op":"copy","from":"/a","path":"/a/b"`), "/patch/0/path", "json_patch"},
		{"a move of the whole", `{"a":{}}`, op(`"op":"move","from":"","path":"/a"`), "/patch/0/path", "json_patch"},
		{"a move of what is absent", `{"a":1}`, op(`"op":"move","from":"/b","path":"/b"`), "/patch/0", "json_patch"},
		{"a removal of the whole", `{"a":1}`, op(`"op":"remove","path":""`), "/patch/0", "json_patch"},
		{"a removal of what is absent", `{"a":1}`, op(`"op":"remove","path":"/b"`), "/patch/0", "json_patch"},
		{"a replacement of what is absent", `{"a":1}`, op(`"op":"replace","path":"/b","value":1`), "/patch/0", "json_patch"},
		{"a way through a text", `{"a":"b"}`, op(`"op":"add","path":"/a/0","value":1`), "/patch/0", "json_patch"},
		{"a pointer without its slash", `{"a":1}`, op(`"op":"remove","path":"a"`), "/patch/0/path", "json_patch"},
		{"a bare ~", `{"a~":1}`, op(`"op":"remove","path":"/a~"`), "/patch/0/path", "json_patch"},
		{"an unknown escape", `{"a~2":1}`, op(`"op":"remove","path":"/a~2"`), "/patch/0/path", "json_patch"},
		{"no path", `{}`, op(`"op":"remove"`), "/patch/0/path", "json_patch"},
		{"a path that is null", `{}`, op(`"op":"add","path":null,"value":1`), "/patch/0/path", "json_patch"},
		{"no value", `{}`, op(`"op":"add","path":"/a"`), "/patch/0/value", "json_patch"},
		{"no from", `{}`, op(`"op":"copy","path":"/a"`), "/patch/0/from", "json_patch"},
		{"an unknown operation", `{}`, op(`"op":"spam","path":"/a"`), "/patch/0/op", "json_patch"},
		{"an operation in capitals", `{}`, op(`"op":"ADD","path":"/a","value":1`), "/patch/0/op", "json_patch"},
		{"no operation", `{}`, op(`"path":"/a"`), "/patch/0/op", "json_patch"},
		{"an operation that is no object", `{}`, `[1]`, "/patch/0", "json_patch"},
		{"a patch that is no array", `{}`, `{"op":"add","path":"/a","value":1}`, "/patch", "json_patch"},
		{"broken JSON", `{}`, `[`, "/patch/0", "json"},
		{"a second operation that does not apply", `{}`, `[{"op":"add","path":"/a","value":1},{"op":"remove","path":"/b"}]`, "/patch/1", "json_patch"},
		{"too many operations", `{}`, "[" + strings.Repeat(`{"op":"add","path":"/a","value":1},`, 1000) + `{"op":"add","path":"/a","value":1}]`, "/patch", "max_items"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, problems := artifact.ApplyPatch([]byte(tt.doc), []byte(tt.patch), "/patch")
			if got != nil || len(problems) != 1 || problems[0].Path != tt.at || problems[0].Constraint != tt.constraint {
				t.Errorf("ApplyPatch(%s, %.200s) = %s, %+v, want a problem %s at %s", tt.doc, tt.patch, got, problems, tt.constraint, tt.at)
			}
		})
	}
}

func TestApplyPatchNamesEveryMalformedOperation(t *testing.T) {
	_, problems := artifact.ApplyPatch([]byte(`{}`), []byte(`[{"op":"add","path":"a"},{"op":"x"},{"op":"add","path":"/a","value":1},7]`), "/patch")
	var at []string
	for _, p := range problems {
		at = append(at, p.Path)
	}
	if want := "[/patch/0/value /patch/0/path /patch/1/op /patch/3]"; fmt.Sprint(at) != want {
		t.Errorf("problems at %v, want %s", at, want)
	}
}

// TestApplyPatchIsBounded gives it patches that would double a document again and
// again, and long arrays to insert into.
func TestApplyPatchIsBounded(t *testing.T) {
	doubling := "[" + strings.TrimSuffix(strings.Repeat(`{"op":"copy","from":"/a","path":"/a/-"},{"op":"copy","from":"/a","path":"/b"},{"op":"move","from":"/b","path":"/a/0"},`, 300), ",") + "]"
	doubling = strings.ReplaceAll(doubling, `{"op":"copy","from":"/a","path":"/a/-"},`, "")
	half := `{"a":["` + strings.Repeat("x", artifact.MaxContentBytes/3) + `"]}`
	large := `{"a":"` + strings.Repeat("x", artifact.MaxContentBytes-100) + `"}`
	tests := []struct {
		name, doc, patch string
		refused          bool
	}{
		{"doubles", `{"a":["0123456789"]}`, doubling, true},
		{"copies a large text", large, `[{"op":"copy","from":"/a","path":"/b"},{"op":"copy","from":"/a","path":"/c"}]`, true},
		{"copies again and again", half, "[" + strings.TrimSuffix(strings.Repeat(`{"op":"copy","from":"/a","path":"/b"},`, 4), ",") + "]", true},
		{"copies a changed value again and again", half, `[{"op":"add","path":"/a/0","value":1}` + strings.Repeat(`,{"op":"copy","from":"/a","path":"/b"}`, 4) + "]", true},
		{"copies little", half, `[{"op":"copy","from":"/a","path":"/b"},{"op":"remove","path":"/a"},{"op":"copy","from":"/b","path":"/a"}]`, false},
		{"adds beyond the limit", large, `[{"op":"add","path":"/b","value":"` + strings.Repeat("y", 10_000) + `"}]`, true},
		{"inserts at the front", `{"a":[` + strings.Repeat("0,", 500_000) + `0]}`, "[" + strings.TrimSuffix(strings.Repeat(`{"op":"add","path":"/a/0","value":1},`, 1000), ",") + "]", false},
		{"tests a large value", large, "[" + strings.TrimSuffix(strings.Repeat(`{"op":"test","path":"","value":{"a":"x"}},`, 1000), ",") + "]", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			got, problems := artifact.ApplyPatch([]byte(tt.doc), []byte(tt.patch), "")
			if took := time.Since(start); took > time.Minute {
				t.Errorf("ApplyPatch took %v", took)
			}
			if tt.refused != (problems != nil) || len(got) > artifact.MaxContentBytes+8<<10 {
				t.Errorf("ApplyPatch = %d bytes, %v, refused: want %v", len(got), problems, tt.refused)
			}
		})
	}
}

func TestVersionPatch(t *testing.T) {
	v := artifact.Version{Content: []byte(`{"a":1}`), Title: "T"}
	got, problems := v.Patch([]byte(`[{"op":"test","path":"/state","value":null},{"op":"replace","path":"/state","value":"open"},{"op":"replace","path":"/title","value":"\"U\""},{"op":"add","path":"/content/b","value":2}]`), "/patch")
	if want := (artifact.Version{Content: []byte(`{"a":1,"b":2}`), State: "open", Title: `"U"`}); problems != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Patch = %+v, %v, want %+v", got, problems, want)
	}
	for _, patch := range []string{
		`[{"op":"remove","path":"/content"}]`, `[{"op":"replace","path":"/content","value":[]}]`, `[{"op":"replace","path":"","value":7}]`,
		`[{"op":"replace","path":"/title","value":null}]`, `[{"op":"replace","path":"/state","value":1}]`, `[{"op":"add","path":"/type","value":"x"}]`,
	} {
		if _, problems := v.Patch([]byte(patch), "/patch"); len(problems) != 1 {
			t.Errorf("Patch(%s): problems = %v, want one", patch, problems)
		}
	}
}

// TestPatchBesideTheContent is of patches written as if they were of the content alone.
func TestPatchBesideTheContent(t *testing.T) {
	v := artifact.Version{Content: []byte(`{"a":1}`), Title: "T"}
	for _, patch := range []string{`[{"op":"replace","path":"/a","value":2}]`, `[{"op":"add","path":"/a","value":2}]`} {
		_, problems := v.Patch([]byte(patch), "/patch")
		if len(problems) != 1 || problems[0].Path != "/patch/0/path" || string(problems[0].Suggestion) != `"/content/a"` {
			t.Errorf("Patch(%s): problems = %+v, want /content/a suggested", patch, problems)
		}
	}
}

func FuzzApplyPatch(f *testing.F) {
	f.Add(`{"a":[1,{"b":2}]}`, `[{"op":"move","from":"/a/1/b","path":"/a/0"},{"op":"copy","from":"/a","path":"/c"}]`)
	f.Add(`{"":[]}`, `[{"op":"add","path":"//-","value":{}},{"op":"test","path":"//0","value":{}},{"op":"remove","path":"//0"}]`)
	f.Fuzz(func(t *testing.T, doc, patch string) {
		got, problems := artifact.ApplyPatch([]byte(doc), []byte(patch), "")
		if problems != nil {
			return
		}
		if !json.Valid(got) || string(mustCanonical(t, got)) != string(got) {
			t.Errorf("ApplyPatch(%s, %s) = %s, which is not canonical", doc, patch, got)
		}
		again, problems := artifact.ApplyPatch(got, []byte("[]"), "")
		if problems != nil || string(again) != string(got) {
			t.Errorf("ApplyPatch(%s, []) = %s, %v", got, again, problems)
		}
	})
}

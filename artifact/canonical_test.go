package artifact_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/scidex-ai/substrate/artifact"
)

func TestCanonical(t *testing.T) {
	tests := []struct {
		name, in, want string
	}{
		{"sorts keys and drops space", `{ "b" : 1, "a" : [ true , null ] }`, `{"a":[true,null],"b":1}`},
		{"writes numbers as ECMAScript does", `{"a":1.0,"b":1e2,"c":-0,"d":6.022e23,"e":0.000001}`, `{"a":1,"b":100,"c":0,"d":6.022e+23,"e":0.000001}`},
		{"unescapes what needs no escape", `{"a":"\u00e9\/\u20ac\ud83d\ude00"}`, `{"a":"é/€😀"}`},
		{"keeps the greatest exact integer", `{"a":9007199254740991}`, `{"a":9007199254740991}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, problems := artifact.Canonical([]byte(tt.in), "/content")
			if problems != nil || string(got) != tt.want {
				t.Errorf("Canonical(%s) = %s, %v, want %s", tt.in, got, problems, tt.want)
			}
		})
	}
}

func TestCanonicalRefuses(t *testing.T) {
	tests := []struct {
		name, in, path, constraint string
	}{
		{"broken JSON", `{"a":`, "/content/a", "json"},
		{"trailing text", `{} {}`, "/content", "json"},
		{"an array", `[1]`, "/content", "type"},
		{"a duplicate key", `{"a":{"b":1,"b":2}}`, "/content/a/b", "duplicate_key"},
		{"a duplicate key in another spelling", `{"b":1,"\u0062":2}`, "/content/b", "duplicate_key"},
		{"NUL", `{"a":["x\u0000"]}`, "/content/a/0", "no_nul"},
		{"a lone surrogate", `{"a":"\ud800x"}`, "/content/a", "utf8"},
		{"a lone surrogate before another escape", `{"a":"\ud800\u0041"}`, "/content/a", "utf8"},
		{"invalid UTF-8", "{\"a\":\"\xff\"}", "/content/a", "utf8"},
		{"1e400", `{"a":1e400}`, "/content/a", "ieee_double"},
		{"2^53", `{"a":9007199254740992}`, "/content/a", "exact_integer"},
		{"2^53 with a point", `{"a":9007199254740992.0}`, "/content/a", "exact_integer"},
		{"a long integer", `{"a":1000000000000000000000000}`, "/content/a", "exact_integer"},
		{"depth 65", strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), "/content" + strings.Repeat("/a", 64), "max_depth"},
		{"1 MiB and 1 byte", `{"a":"` + strings.Repeat("x", artifact.MaxContentBytes-7) + `"}`, "/content", "max_bytes"},
		{"a leading zero", `{"a":01}`, "/content", "json"},
		{"a raw newline in a string", "{\"a\":\"\n\"}", "/content/a", "json"},
		{"nothing", ``, "/content", "json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, problems := artifact.Canonical([]byte(tt.in), "/content")
			if got != nil || len(problems) == 0 {
				t.Fatalf("Canonical = %.60s, %v, want a problem", got, problems)
			}
			if p := problems[0]; p.Path != tt.path || p.Constraint != tt.constraint {
				t.Errorf("problem = %s %s (%s), want %s %s", p.Path, p.Constraint, p.Message, tt.path, tt.constraint)
			}
		})
	}
	t.Run("every fault at once", func(t *testing.T) {
		_, problems := artifact.Canonical([]byte(`{"a":1e400,"b":"\u0000","a":9007199254740993}`), "")
		if len(problems) != 4 {
			t.Errorf("%d problems, want 4: %v", len(problems), problems)
		}
	})
	t.Run("exactly 1 MiB passes", func(t *testing.T) {
		if _, problems := artifact.Canonical([]byte(`{"a":"`+strings.Repeat("x", artifact.MaxContentBytes-8)+`"}`), ""); problems != nil {
			t.Errorf("problems = %v", problems)
		}
	})
}

// TestContentHash holds the recipe of verbs to the letter: RFC 8785 over the
// four mutable fields.
func TestContentHash(t *testing.T) {
	content, _ := artifact.Canonical([]byte(`{"b":"x","a":1}`), "")
	for _, title := range []string{"plain", "quote \" slash \\ tab \t bell \a line \u2028 €😀", ""} {
		for _, state := range []string{"", "proposed"} {
			doc := map[string]any{"type": "hypothesis", "title": title, "state": nil, "content": json.RawMessage(content)}
			if state != "" {
				doc["state"] = state
			}
			raw, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			canonical, err := jcs.Transform(raw)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := artifact.ContentHash("hypothesis", title, state, content), artifact.HashBytes(canonical); got != want {
				t.Errorf("ContentHash(%q, %q) = %s, want %s", title, state, got, want)
			}
		}
	}
}

// FuzzCanonical checks that the canonical form is its own canonical form, means
// what the input meant, and is never made from what encoding/json refuses.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `{"a":[1,2.5e-7,"\u00e9",{"b":null}]}`, `{"a":1e21}`, `{"":"\ud83d\ude00"}`, `{"a":"\u2028"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		canonical, problems := artifact.Canonical(in, "")
		if problems != nil {
			return
		}
		again, problems := artifact.Canonical(canonical, "")
		if problems != nil || !bytes.Equal(again, canonical) {
			t.Fatalf("canonical form %q of %q is not stable: %q, %v", canonical, in, again, problems)
		}
		var a, b any
		if err := json.Unmarshal(in, &a); err != nil {
			t.Fatalf("accepted %q, which is no JSON: %v", in, err)
		}
		if err := json.Unmarshal(canonical, &b); err != nil || !reflect.DeepEqual(a, b) {
			t.Fatalf("%q and its canonical form %q differ: %v", in, canonical, err)
		}
	})
}

package artifact_test

import (
	"encoding/json"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
)

func upgradesOf(t *testing.T, documents ...[]byte) *artifact.Upgrades {
	t.Helper()
	u := new(artifact.Upgrades)
	for _, d := range documents {
		if _, err := artifact.ParseSchema(d); err != nil {
			t.Fatal(err)
		}
		if err := u.Add(d); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

// TestUpgrade follows assays from the form in which a lab began: a concentration
// in micromolar, one reagent, and words for the outcome that were its own.
func TestUpgrade(t *testing.T) {
	second := breaking(object{"migrate": []any{
		object{"op": "move", "from": "/conc_um", "path": "/concentration/value"},
		object{"op": "default", "path": "/concentration/unit", "value": "uM"},
		object{"op": "move", "from": "/reagent", "path": "/reagents"},
		object{"op": "wrap", "path": "/reagents"},
	}})
	third := breaking(object{"schema_version": 3})
	fourth := breaking(object{"schema_version": 4, "migrate": []any{
		object{"op": "map", "path": "/outcome", "values": object{"pos": "positive", "neg": "negative"}},
		object{"op": "copy", "from": "/outcome", "path": "/call"},
		object{"op": "remove", "path": "/scratch"},
		object{"op": "replace", "path": "/units", "value": "SI"},
		object{"op": "state", "values": object{"": "open"}},
	}, "lifecycle": object{"states": []string{"open"}, "transitions": []any{}}})
	u := upgradesOf(t, fourth, second, third) // in any order
	for name, c := range map[string]struct {
		version                 int
		content, want, state    string
		changed, alreadyCurrent bool
	}{
		"from the first form": {
			1, `{"conc_um":5,"outcome":"pos","reagent":"Aβ42","scratch":[1],"units":"cgs"}`,
			`{"call":"positive","concentration":{"unit":"uM","value":5},"outcome":"positive","reagents":["Aβ42"],"units":"SI"}`, "open", true, false,
		},
		"from a form between": {2, `{"concentration":{"unit":"nM","value":5},"outcome":"neg"}`, `{"call":"negative","concentration":{"unit":"nM","value":5},"outcome":"negative"}`, "open", true, false},
		"what is not there":   {1, `{}`, `{"concentration":{"unit":"uM"}}`, "open", true, false},
		"nothing is written over": {
			1, `{"conc_um":5,"concentration":{"value":7},"reagents":["x"],"reagent":"y"}`,
			`{"conc_um":5,"concentration":{"unit":"uM","value":7},"reagent":"y","reagents":["x"]}`, "open", true, false,
		},
		"what stands in the way":      {1, `{"conc_um":5,"concentration":"high"}`, `{"conc_um":5,"concentration":"high"}`, "open", true, false},
		"the current form stays":      {4, `{"conc_um":5}`, `{"conc_um":5}`, "", false, true},
		"a word that is no text":      {3, `{"outcome":7}`, `{"call":7,"outcome":7}`, "open", true, false},
		"a word that stands for none": {3, `{"outcome":"mixed"}`, `{"call":"mixed","outcome":"mixed"}`, "open", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			v, changed, err := u.Upgrade("assay", c.version, artifact.Version{Content: []byte(c.content), Title: "T"})
			if err != nil || string(v.Content) != c.want || v.State != c.state || changed != c.changed || v.Title != "T" {
				t.Errorf("Upgrade = %s %q %v, %v, want %s %q %v", v.Content, v.State, changed, err, c.want, c.state, c.changed)
			}
			a := artifact.Artifact{Type: "assay", SchemaVersion: c.version, Content: json.RawMessage(c.content)}
			u.Beside(&a)
			want := c.want
			if c.alreadyCurrent || want == c.content {
				want = ""
			}
			if string(a.Content) != c.content || string(a.UpgradedContent) != want {
				t.Errorf("beside %s stands %s, want %s", a.Content, a.UpgradedContent, want)
			}
		})
	}
	if _, changed, err := u.Upgrade("other", 1, artifact.Version{Content: []byte(`{}`)}); changed || err != nil {
		t.Errorf("another type = %v, %v", changed, err)
	}
	t.Run("a migrator that is not known here", func(t *testing.T) {
		newer := new(artifact.Upgrades)
		if err := newer.Add([]byte(`{"type":"assay","schema_version":2,"compatibility":"breaking","migrator":"of tomorrow"}`)); err != nil {
			t.Fatal(err)
		}
		a := artifact.Artifact{Type: "assay", SchemaVersion: 1, Content: json.RawMessage(`{"a":1}`)}
		newer.Beside(&a)
		if _, _, err := newer.Upgrade("assay", 1, artifact.Version{Content: a.Content}); err == nil || a.UpgradedContent != nil {
			t.Errorf("Upgrade = %v, beside stands %s", err, a.UpgradedContent)
		}
	})
	t.Run("what was redacted has no other form", func(t *testing.T) {
		a := artifact.Artifact{Type: "assay", SchemaVersion: 1, Content: json.RawMessage(`{}`), Redaction: json.RawMessage(`{}`)}
		if u.Beside(&a); a.UpgradedContent != nil {
			t.Errorf("beside a redacted version stands %s", a.UpgradedContent)
		}
	})
}

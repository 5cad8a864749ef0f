package rights_test

import (
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/verb"
)

// TestSchemaVersions reads types and their versions, at hub and node alike.
func TestSchemaVersions(t *testing.T) {
	w := newPair(t)
	out := w.token(t, "out", nil, verb.Viewer)
	before := alikeAs[verb.SchemaResponse](t, w, out, "schema", request{"type": "gene"}).Schemas[0]
	w.update(t, w.root, "schema:gene", verb.UpdateRequest{MergePatch: object(map[string]any{"title": "A gene, by symbol"})})
	got := alikeAs[verb.SchemaResponse](t, w, out, "schema", request{"type": "gene", "all_versions": true}).Schemas
	if len(got) != before.Version+1 || got[0].Version != before.Version+1 || !got[0].IsCurrent || got[1].IsCurrent || got[0].Document != nil {
		t.Errorf("versions = %s", text(got))
	}
	old := alikeAs[verb.SchemaResponse](t, w, out, "schema", request{"type": "gene", "version": before.Version}).Schemas
	if len(old) != 1 || old[0].IsCurrent || string(old[0].Document) != string(before.Document) {
		t.Errorf("the version before = %s", text(old))
	}
	if all := alikeAs[verb.SchemaResponse](t, w, out, "schema", request{}).Schemas; len(all) < 10 {
		t.Errorf("%d types", len(all))
	}
	for name, c := range map[string]struct {
		r      request
		status int
		tells  string
	}{
		"a type that is none":           {request{"type": "gen"}, 404, "schema:gen"},
		"a version that is none":        {request{"type": "gene", "version": 99}, 404, "schema:gene"},
		"a version beyond all":          {request{"type": "gene", "version": 1 << 40}, 404, "schema:gene"},
		"all versions of all":           {request{"all_versions": true}, 422, "/type"},
		"all versions, and one of them": {request{"type": "gene", "all_versions": true, "version": 1}, 422, "/version"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			if a := w.alike(t, out, "schema", c.r); a.status != c.status || !strings.Contains(a.body, c.tells) {
				t.Errorf("schema %s = %d %s, want %d with %s", text(c.r), a.status, a.body, c.status, c.tells)
			}
		})
	}
}

package hub_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/verb"
)

// TestOddTypes: what a type's document says and cannot mean is refused; what is meant
// for types or fields that are not there yet is told.
func TestOddTypes(t *testing.T) {
	f := newHub(t)
	root := as(t.Context(), "root", verb.Admin)
	create := func(document json.RawMessage) (verb.WriteResult, error) {
		return verb.Create.Call(root, f.verbs, verb.CreateRequest{Type: "schema", Title: "Assay", Content: document, WriteOptions: verb.WriteOptions{DryRun: true}})
	}
	closed := object{"type": "object", "properties": object{"reagent": object{"type": "string"}}, "additionalProperties": false}
	for name, c := range map[string]struct {
		change object
		want   map[string]string
	}{
		"values of no signal":           {object{"signals": object{"v": object{"values": []any{0, 1e300, 1e-40}, "aggregation": "sum"}}}, map[string]string{"/content/signals/v/values/1": "decimal", "/content/signals/v/values/2": "decimal"}},
		"a range of no signal":          {object{"signals": object{"v": object{"value_range": []any{0, 1e31}, "aggregation": "sum"}}}, map[string]string{"/content/signals/v/value_range/1": "decimal"}},
		"an enum of nothing":            {object{"content_schema": object{"type": "object", "properties": object{"enum": object{"type": "array", "items": object{"enum": []any{}}}}}}, map[string]string{"/content/content_schema/properties/enum/items/enum": "min_items"}},
		"texts that no content has":     {object{"content_schema": closed, "merge": object{"text_fields": []string{"reagent", "body"}}}, map[string]string{"/content/merge/text_fields/1": "declared"}},
		"an enum in an alternative":     {object{"content_schema": object{"type": "object", "anyOf": []any{object{"properties": object{"a": object{"enum": []any{}}}}}}}, map[string]string{"/content/content_schema/anyOf/0/properties/a/enum": "min_items"}},
		"a default that looks like one": {object{"content_schema": object{"type": "object", "properties": object{"a": object{"default": object{"enum": []any{}}}}}}, nil},
	} {
		_, err := create(assay(c.change))
		if (err == nil) != (c.want == nil) || err != nil && !maps.Equal(problemsOf(err), c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	warned := assay(object{
		"links": object{"tests": object{"to_types": []string{"hypothesis", "assay", "hypotheses", "reagent"}}},
		"merge": object{"text_fields": []string{"reagent", "reagents"}},
	})
	want := strings.Join([]string{`/content/links/tests/to_types/2 registered_type "hypothesis"`, `/content/links/tests/to_types/3 registered_type`, `/content/merge/text_fields/1 declared "reagent"`}, ", ")
	out, err := create(warned)
	if got := told(out.Warnings); err != nil || got != want {
		t.Errorf("a new type: warnings = %s, %v, want %s", got, err, want)
	}
	f.makeType(t, assay(object{}))
	out, err = f.changeType(t, verb.UpdateRequest{Content: warned})
	if got := told(out.Warnings); err != nil || got != want {
		t.Errorf("a changed type: warnings = %s, %v, want %s", got, err, want)
	}
	_, err = f.changeType(t, verb.UpdateRequest{Content: assay(object{"signals": object{"vote": object{"values": []any{1e300}, "aggregation": "replace"}}})})
	if problemsOf(err)["/content/signals/vote/values/0"] != "decimal" {
		t.Errorf("a change to values of no signal: %v", err)
	}
}

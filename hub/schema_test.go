package hub_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/verb"
)

type object = map[string]any

// assay returns the document of a type that no program knows, with other members.
func assay(change object) json.RawMessage {
	document := object{
		"type": "assay", "id_strategy": object{"format": "as-{uuid}"}, "mutability": "mutable_with_history",
		"content_schema": object{"type": "object", "required": []string{"reagent"}, "properties": object{"reagent": object{"type": "string"}, "n": object{"type": "integer"}}},
		"links":          object{"tests": object{"to_types": []string{"hypothesis"}}, "cites": object{"to_types": []string{"paper"}}},
		"signals":        object{"vote": object{"values": []int{-1, 0, 1}, "aggregation": "replace"}, "score": object{"value_range": []int{0, 10}, "aggregation": "sum"}},
		"lifecycle":      object{"states": []string{"draft", "done"}, "transitions": []any{[]string{"draft", "done"}}},
	}
	maps.Copy(document, change)
	maps.DeleteFunc(document, func(_ string, v any) bool { return v == nil })
	return content(document)
}

func (f *fixture) makeType(t *testing.T, document json.RawMessage) verb.WriteResult {
	t.Helper()
	out, err := verb.Create.Call(as(t.Context(), "root", verb.Admin), f.verbs, verb.CreateRequest{Type: "schema", Title: "Assay", Content: document})
	if err != nil {
		t.Fatalf("create schema: %v", err)
	}
	return out
}

// changeType updates the type assay as it is now.
func (f *fixture) changeType(t *testing.T, in verb.UpdateRequest) (verb.WriteResult, error) {
	t.Helper()
	in.Ref = "schema:assay"
	if in.BaseContentHash.IsZero() {
		in.BaseContentHash = f.mustGet(t, as(t.Context(), "root", verb.Admin, verb.Viewer), artifact.Ref{Type: "schema", ID: "assay"}).ContentHash
	}
	return verb.Update.Call(as(t.Context(), "root", verb.Admin), f.verbs, in)
}

func (f *fixture) registered(t *testing.T, typ string) verb.SchemaDocument {
	t.Helper()
	out, err := verb.Schema.Call(contributor(t.Context()), f.verbs, verb.SchemaRequest{Type: typ})
	if err != nil {
		t.Fatal(err)
	}
	return out.Schemas[0]
}

func problemsOf(err error) map[string]string {
	all := map[string]string{}
	for _, p := range artifact.AsError(err).Problems {
		all[p.Path] = p.Constraint
	}
	return all
}

// TestTypesAreArtifacts makes and changes a type by the ordinary verbs.
func TestTypesAreArtifacts(t *testing.T) {
	f := newHub(t)
	admin := as(t.Context(), "root", verb.Admin)
	t.Run("every type is one", func(t *testing.T) {
		const other = `
			SELECT count(*) FROM schema_registry s WHERE is_current AND NOT EXISTS (
				SELECT FROM artifact a JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
				WHERE a.type = 'schema' AND a.id = s.artifact_type AND a.scope = 'commons' AND r.content = s.document)`
		if n := f.count(t, other); n != 0 {
			t.Errorf("%d types are no artifacts of the same document", n)
		}
		if n := len(artifact.ShippedSchemas()); f.count(t, "SELECT count(*) FROM artifact WHERE type = 'schema'") != n {
			t.Errorf("there are not as many types as shipped, %d", n)
		}
	})
	made := f.makeType(t, assay(nil))
	t.Run("a new one counts from 1 and is named by its document", func(t *testing.T) {
		if made.Ref.ID != "assay" || made.Revision != 1 || f.registered(t, "assay").Version != 1 {
			t.Errorf("create = %+v, registered %+v", made, f.registered(t, "assay"))
		}
		got := f.mustGet(t, contributor(t.Context()), made.Ref)
		if string(got.Content) != string(f.registered(t, "assay").Document) || got.SchemaVersion != f.registered(t, "schema").Version {
			t.Errorf("artifact = %+v", got)
		}
		if n := f.count(t, "SELECT count(*) FROM event WHERE type = 'schema.created' AND ref = $1", made.Ref.String()); n != 1 {
			t.Errorf("%d events tell of it", n)
		}
	})
	t.Run("a change by patch, merge patch and whole content counts on", func(t *testing.T) {
		for i, in := range []verb.UpdateRequest{
			{Patch: json.RawMessage(`[{"op":"add","path":"/content/title","value":"Assay"}]`)},
			{MergePatch: json.RawMessage(`{"description":"What was measured."}`)},
			{Content: assay(object{"title": "Assay again"})},
			{Content: assay(object{"title": "Assay at last", "schema_version": 5})},
		} {
			out, err := f.changeType(t, in)
			if d := f.registered(t, "assay"); err != nil || out.Revision != i+2 || d.Version != i+2 || !strings.Contains(string(d.Document), fmt.Sprintf(`"schema_version":%d`, i+2)) {
				t.Fatalf("change %d = %+v, %v, registered %+v", i, out, err, d)
			}
		}
		if n := f.count(t, "SELECT count(*) FROM schema_registry WHERE artifact_type = 'assay' AND is_current"); n != 1 {
			t.Errorf("%d versions are current", n)
		}
		if n := f.count(t, "SELECT count(*) FROM feed.change WHERE kind = 'schema' AND ref = 'schema:assay'"); n != 5 {
			t.Errorf("the feed tells of %d versions", n)
		}
	})
	t.Run("the same document again is none", func(t *testing.T) {
		out, err := f.changeType(t, verb.UpdateRequest{Content: assay(object{"title": "Assay at last"})})
		if err != nil || out.Idempotency != verb.IdempotencyDeduplicated || out.Seq != 0 {
			t.Errorf("update = %+v, %v", out, err)
		}
	})
	t.Run("another title is no other type", func(t *testing.T) {
		out, err := f.changeType(t, verb.UpdateRequest{Title: "Assays"})
		if d := f.registered(t, "assay"); err != nil || out.Revision != 6 || d.Version != 5 {
			t.Errorf("update = %+v, %v, registered version %d", out, err, d.Version)
		}
	})
	t.Run("two changes of one version merge", func(t *testing.T) {
		base := f.mustGet(t, contributor(t.Context()), artifact.Ref{Type: "schema", ID: "assay"}).ContentHash
		if _, err := f.changeType(t, verb.UpdateRequest{BaseContentHash: base, MergePatch: json.RawMessage(`{"title":"Ours"}`)}); err != nil {
			t.Fatal(err)
		}
		_, err := f.changeType(t, verb.UpdateRequest{BaseContentHash: base, MergePatch: json.RawMessage(`{"description":"Theirs"}`)})
		if e := artifact.AsError(err); e.Reason != artifact.ReasonStaleBase || !e.Conflict.Merge.Clean {
			t.Fatalf("error = %+v", err)
		}
		out, err := f.changeType(t, verb.UpdateRequest{BaseContentHash: base, MergePatch: json.RawMessage(`{"description":"Theirs"}`), AutoMerge: true})
		if d := f.registered(t, "assay"); err != nil || !out.Merged || d.Version != 7 || !strings.Contains(string(d.Document), "Ours") || !strings.Contains(string(d.Document), "Theirs") {
			t.Errorf("update = %+v, %v, registered %s", out, err, d.Document)
		}
	})
	t.Run("who may", func(t *testing.T) { // a reviewer proposes: see TestProposedTypes
		for _, p := range []string{verb.Viewer, verb.Contributor} {
			_, err := verb.Create.Call(as(t.Context(), "eve", p), f.verbs, verb.CreateRequest{Type: "schema", Title: "x", Content: assay(object{"type": "other"})})
			if e := artifact.AsError(err); e.Code != artifact.CodePermissionDenied {
				t.Errorf("create by a %s: %v", p, err)
			}
			_, err = verb.Update.Call(as(t.Context(), "eve", p), f.verbs, verb.UpdateRequest{Ref: "schema:assay", BaseContentHash: made.ContentHash, Title: "x"})
			if e := artifact.AsError(err); e.Code != artifact.CodePermissionDenied {
				t.Errorf("update by a %s: %v", p, err)
			}
		}
		if _, err := verb.Create.Call(admin, f.verbs, hypothesis("h", "x")); !artifact.IsCode(err, artifact.CodePermissionDenied) {
			t.Errorf("an admin writes content: %v", err)
		}
	})
	for name, c := range map[string]struct {
		in   verb.CreateRequest
		want map[string]string
	}{
		"another id":          {verb.CreateRequest{ID: "essay", Content: assay(nil)}, map[string]string{"/content/type": "type_name"}},
		"a later version":     {verb.CreateRequest{Content: assay(object{"type": "other", "schema_version": 2})}, map[string]string{"/content/schema_version": "schema_version"}},
		"a private scope":     {verb.CreateRequest{Scope: "lab-a", ID: "other", Content: assay(object{"type": "other"})}, map[string]string{"/scope": "scope", "/content/type": "type_name"}},
		"the name of a link":  {verb.CreateRequest{Content: assay(object{"type": "kg_edge"})}, map[string]string{"/id": "reserved"}},
		"all faults together": {verb.CreateRequest{ID: "other", State: "open", Content: assay(object{"type": "other", "mutability": "no", "links": object{"x": object{"to_types": []string{"NO"}}}})}, map[string]string{"/state": "lifecycle", "/content/mutability": "enum", "/content/links/x/to_types/0": "pattern"}},
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			c.in.Type, c.in.Title = "schema", "x"
			if _, err := verb.Create.Call(admin, f.verbs, c.in); !maps.Equal(problemsOf(err), c.want) {
				t.Errorf("error = %v, want %v", problemsOf(err), c.want)
			}
		})
	}
	for name, c := range map[string]struct {
		in   verb.UpdateRequest
		want map[string]string
	}{
		"a version that was":        {verb.UpdateRequest{Content: assay(object{"schema_version": 6})}, map[string]string{"/content/schema_version": "schema_version"}},
		"a version that is skipped": {verb.UpdateRequest{Content: assay(object{"schema_version": 9})}, map[string]string{"/content/schema_version": "schema_version"}},
		"the document of another":   {verb.UpdateRequest{Content: assay(object{"type": "other"})}, map[string]string{"/content/type": "type_name"}},
		"a patch that breaks it":    {verb.UpdateRequest{MergePatch: json.RawMessage(`{"content_schema":{"pattern":"(?=x)"},"lifecycle":{"initial":"gone"}}`)}, map[string]string{"/content/content_schema/pattern": "re2", "/content/lifecycle/initial": "state"}},
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			if _, err := f.changeType(t, c.in); !maps.Equal(problemsOf(err), c.want) {
				t.Errorf("error = %v, want %v", err, c.want)
			}
		})
	}
	t.Run("the type schema stays", func(t *testing.T) {
		base := f.mustGet(t, contributor(t.Context()), artifact.Ref{Type: "schema", ID: "schema"}).ContentHash
		_, err := verb.Update.Call(admin, f.verbs, verb.UpdateRequest{Ref: "schema:schema", BaseContentHash: base, MergePatch: json.RawMessage(`{"title":"x"}`)})
		if e := artifact.AsError(err); e.Reason != artifact.ReasonBuiltIn {
			t.Errorf("error = %v", err)
		}
	})
	t.Run("types stay in commons and whole", func(t *testing.T) {
		_, err := verb.ScopesCreate.Call(admin, f.verbs, verb.ScopesCreateRequest{ID: "lab-a", Title: "A"})
		if err != nil {
			t.Fatal(err)
		}
		all := as(t.Context(), "root", verb.Admin, verb.Viewer)
		base := f.mustGet(t, all, artifact.Ref{Type: "schema", ID: "assay"}).ContentHash
		_, err = verb.Move.Call(all, f.verbs, verb.MoveRequest{Ref: "schema:assay", Scope: "commons", BaseContentHash: base, Reason: "x"})
		if e := artifact.AsError(err); e.Reason != artifact.ReasonBuiltIn {
			t.Errorf("move = %v", err)
		}
		_, err = verb.Redact.Call(all, f.verbs, verb.RedactRequest{Ref: "schema:assay", Reason: "x"})
		if e := artifact.AsError(err); e.Reason != artifact.ReasonBuiltIn {
			t.Errorf("redact = %v", err)
		}
	})
	f.checkDigest(t)
}

// TestCompatibility changes a type in each way that does not go with what is
// stored of it.
func TestCompatibility(t *testing.T) {
	f := newHub(t)
	f.makeType(t, assay(nil))
	f.mustCreate(t, hypothesis("h", "x"))
	for i := range 12 {
		f.mustCreate(t, verb.CreateRequest{
			Type: "assay", ID: fmt.Sprint("a", i), Title: "T", Content: content(object{"reagent": "x", "n": i}), Links: []verb.LinkSpec{{Predicate: "tests", To: "hypothesis:h"}},
		})
	}
	f.mustCreate(t, hypothesis("h2", "x"))
	for _, in := range []verb.SignalRequest{{Ref: "assay:a0", Kind: "vote", Value: "1"}, {Ref: "assay:a0", Kind: "score", Value: "7"}} {
		if _, err := verb.Signal.Call(contributor(t.Context()), f.verbs, in); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := verb.Link.Call(contributor(t.Context()), f.verbs, verb.LinkRequest{From: "assay:a0", LinkSpec: verb.LinkSpec{Predicate: "tests", To: "hypothesis:h2"}}); err != nil {
		t.Fatal(err)
	}
	stricter := object{"type": "object", "required": []string{"reagent", "dose"}, "properties": object{"n": object{"type": "integer", "maximum": 5}}}
	links := func(rule any) object {
		return object{"tests": rule, "cites": object{"to_types": []string{"paper"}}}
	}
	signals := func(vote, score object) object { return object{"vote": vote, "score": score} }
	vote, score := object{"values": []int{-1, 0, 1}, "aggregation": "replace"}, object{"value_range": []int{0, 10}, "aggregation": "sum"}
	for name, c := range map[string]struct {
		change  object
		path    string
		mends   bool // a breaking version that migrates nothing may do so
		invalid int
	}{
		"contents":                 {object{"content_schema": stricter}, "/content/content_schema", false, 12},
		"some contents":            {object{"content_schema": object{"type": "object", "properties": object{"n": object{"maximum": 5}}}}, "/content/content_schema", false, 6},
		"ids":                      {object{"id_strategy": object{"format": "as-{uuid}", "pattern": "as-.*"}}, "/content/content_schema", true, 12},
		"a state in use":           {object{"lifecycle": object{"states": []string{"new", "done"}, "transitions": []any{}}}, "/content/lifecycle/states", false, 0},
		"no lifecycle":             {object{"lifecycle": nil}, "/content/lifecycle/states", false, 0},
		"a predicate in use":       {object{"links": object{"cites": object{"to_types": []string{"paper"}}}}, "/content/links/tests", true, 0},
		"a target in use":          {object{"links": links(object{"to_types": []string{"paper"}})}, "/content/links/tests", true, 0},
		"one link instead of two":  {object{"links": links(object{"to_types": []string{"hypothesis"}, "cardinality": "one"})}, "/content/links/tests/cardinality", true, 0},
		"a kind of signal":         {object{"signals": object{"vote": vote}}, "/content/signals/score", true, 0},
		"a range of signals":       {object{"signals": signals(vote, object{"value_range": []int{0, 5}, "aggregation": "sum"})}, "/content/signals/score", true, 0},
		"values of signals":        {object{"signals": signals(object{"values": []int{0}, "aggregation": "replace"}, score)}, "/content/signals/vote/values", true, 0},
		"how signals are added up": {object{"signals": signals(vote, object{"value_range": []int{0, 10}, "aggregation": "replace"})}, "/content/signals/score/aggregation", false, 0},
		"mutability":               {object{"mutability": "immutable"}, "/content/mutability", true, 0},
		"who sees it":              {object{"visibility": "participants"}, "/content/visibility", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.changeType(t, verb.UpdateRequest{Content: assay(c.change)})
			e := artifact.AsError(err)
			if e.Reason != artifact.ReasonIncompatible || len(e.Problems) != 1 || e.Problems[0].Path != c.path || e.Details["invalid"] != c.invalid {
				t.Errorf("error = %v %+v %v, want %s and %d invalid", err, e.Problems, e.Details["invalid"], c.path, c.invalid)
			}
			change := maps.Clone(c.change)
			change["compatibility"], change["migrator"] = "breaking", "patch"
			in := verb.UpdateRequest{Content: assay(change)}
			in.DryRun = true
			if _, err := f.changeType(t, in); (err == nil) != c.mends {
				t.Errorf("as a breaking version: %v", err)
			}
		})
	}
	t.Run("tells the first that would be invalid, with their faults", func(t *testing.T) {
		_, err := f.changeType(t, verb.UpdateRequest{Content: assay(object{"content_schema": stricter})})
		raw, _ := json.Marshal(artifact.AsError(err).Details)
		var told struct {
			Invalid  int
			Examples []struct {
				Ref      string
				Problems []artifact.Problem
			}
		}
		if err := json.Unmarshal(raw, &told); err != nil {
			t.Fatal(err)
		}
		if len(told.Examples) != 10 || told.Examples[0].Ref != "assay:a0" || told.Examples[0].Problems[0].Path != "/content/dose" {
			t.Errorf("details = %s", raw)
		}
	})
	t.Run("does not name what the caller may not see", func(t *testing.T) {
		ctx := as(t.Context(), "root", verb.Admin)
		if _, err := verb.ScopesCreate.Call(ctx, f.verbs, verb.ScopesCreateRequest{ID: "lab-a", Title: "A"}); err != nil {
			t.Fatal(err)
		}
		if _, err := verb.ScopesGrant.Call(ctx, f.verbs, verb.ScopesGrantRequest{Scope: "lab-a", Agent: "ada", Roles: []string{verb.Contributor}}); err != nil {
			t.Fatal(err)
		}
		token, url := f.token(t, "ada", verb.Contributor), f.serve(t)
		client := &verb.Client{URL: url, Token: token}
		if _, err := verb.Create.Call(t.Context(), client, verb.CreateRequest{Type: "assay", ID: "aa-secret", Scope: "lab-a", Title: "T", Content: content(object{"reagent": "x", "n": 6})}); err != nil {
			t.Fatal(err)
		}
		_, err := f.changeType(t, verb.UpdateRequest{Content: assay(object{"content_schema": object{"type": "object", "properties": object{"n": object{"maximum": 10}}}})})
		if e := artifact.AsError(err); e.Details["invalid"] != 1 || e.Details["hidden"] != nil {
			t.Errorf("error = %+v", e.Details)
		}
		_, err = f.changeType(t, verb.UpdateRequest{Content: assay(object{"content_schema": object{"type": "object", "properties": object{"n": object{"not": object{"const": 6}}}}})})
		e := artifact.AsError(err)
		raw, _ := json.Marshal(e)
		if e.Details["invalid"] != 2 || e.Details["hidden"] != 1 || strings.Contains(string(raw), "secret") {
			t.Errorf("error = %s", raw)
		}
	})
	t.Run("what nothing stored is against goes", func(t *testing.T) {
		out, err := f.changeType(t, verb.UpdateRequest{Content: assay(object{
			"content_schema": object{"type": "object", "description": "No more than this.", "properties": object{"reagent": object{"type": "string"}, "n": object{"maximum": 11}}},
			"links":          links(object{"to_types": []string{"hypothesis", "paper"}}),
		})})
		if err != nil || out.Revision != 2 {
			t.Errorf("update = %+v, %v", out, err)
		}
	})
}

// TestMigration breaks with the form of what is stored.
func TestMigration(t *testing.T) {
	f := newHub(t)
	f.makeType(t, assay(nil))
	ctx := contributor(t.Context())
	old := f.mustCreate(t, verb.CreateRequest{Type: "assay", ID: "a", Title: "T", Content: json.RawMessage(`{"n":5,"reagent":"x"}`)})
	other := f.mustCreate(t, verb.CreateRequest{Type: "assay", ID: "b", Title: "T", Content: json.RawMessage(`{"reagent":"y"}`)})
	next := object{
		"content_schema": object{"type": "object", "required": []string{"reagents", "sample"}, "additionalProperties": false, "properties": object{
			"reagents": object{"type": "array"}, "sample": object{"type": "object"}, "note": object{"type": "string"},
		}},
		"lifecycle":     object{"states": []string{"new", "done"}, "transitions": []any{[]string{"new", "done"}}},
		"compatibility": "breaking", "migrator": "patch",
		"migrate": []any{
			object{"op": "move", "from": "/n", "path": "/sample/size"},
			object{"op": "default", "path": "/sample", "value": object{}},
			object{"op": "move", "from": "/reagent", "path": "/reagents"},
			object{"op": "wrap", "path": "/reagents"},
			object{"op": "state", "values": object{"draft": "new"}},
		},
	}
	t.Run("refuses a migrator that leaves something invalid", func(t *testing.T) {
		lesser := maps.Clone(next)
		lesser["migrate"] = next["migrate"].([]any)[2:]
		_, err := f.changeType(t, verb.UpdateRequest{Content: assay(lesser)})
		if e := artifact.AsError(err); e.Reason != artifact.ReasonIncompatible || e.Problems[0].Path != "/content/migrate" || e.Details["invalid"] != 2 {
			t.Errorf("error = %+v", err)
		}
	})
	if _, err := f.changeType(t, verb.UpdateRequest{Content: assay(next)}); err != nil {
		t.Fatal(err)
	}
	t.Run("refuses the steps of the version before", func(t *testing.T) {
		described := maps.Clone(next)
		described["description"] = "Another."
		_, err := f.changeType(t, verb.UpdateRequest{Content: assay(described)})
		if e := artifact.AsError(err); e.Reason != artifact.ReasonIncompatible || e.Problems[0].Path != "/content/migrate" {
			t.Errorf("error = %+v", err)
		}
	})
	const form = `{"reagents":["x"],"sample":{"size":5}}`
	t.Run("reads give both forms", func(t *testing.T) {
		got := f.mustGet(t, ctx, old.Ref.Current())
		if string(got.Content) != `{"n":5,"reagent":"x"}` || string(got.UpgradedContent) != form || got.SchemaVersion != 1 || got.ContentHash != old.ContentHash {
			t.Errorf("get = %+v, content %s, upgraded %s", got, got.Content, got.UpgradedContent)
		}
		list, err := verb.List.Call(ctx, f.verbs, verb.ListRequest{Type: "assay", IncludeContent: true})
		if err != nil || len(list.Artifacts) != 2 || list.Artifacts[0].UpgradedContent == nil {
			t.Errorf("list = %+v, %v", list.Artifacts, err)
		}
		if list, err = verb.List.Call(ctx, f.verbs, verb.ListRequest{Type: "assay"}); err != nil || list.Artifacts[0].UpgradedContent != nil {
			t.Errorf("list without contents = %+v, %v", list.Artifacts, err)
		}
	})
	t.Run("another hub gives both forms too", func(t *testing.T) {
		second := newHubOn(t, f.db)
		if got := second.mustGet(t, ctx, old.Ref.Current()); string(got.UpgradedContent) != form {
			t.Errorf("upgraded content = %s", got.UpgradedContent)
		}
	})
	t.Run("an update patches the new form and writes it", func(t *testing.T) {
		out, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: "assay:a", BaseContentHash: old.ContentHash, Patch: json.RawMessage(`[{"op":"add","path":"/content/reagents/-","value":"z"}]`)})
		if err != nil {
			t.Fatal(err)
		}
		got := f.mustGet(t, ctx, out.Ref)
		if string(got.Content) != `{"reagents":["x","z"],"sample":{"size":5}}` || got.UpgradedContent != nil || got.SchemaVersion != 2 || got.State != "new" {
			t.Errorf("get = %+v %s", got, got.Content)
		}
		if first := f.mustGet(t, ctx, old.Ref); string(first.Content) != `{"n":5,"reagent":"x"}` || string(first.UpgradedContent) != form {
			t.Errorf("the first version = %s, upgraded %s", first.Content, first.UpgradedContent)
		}
		merged, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: "assay:a", BaseContentHash: old.ContentHash, MergePatch: json.RawMessage(`{"note":"from the old base"}`), AutoMerge: true})
		if err != nil || string(f.mustGet(t, ctx, merged.Ref).Content) != `{"note":"from the old base","reagents":["x","z"],"sample":{"size":5}}` {
			t.Errorf("merge = %+v, %v", merged, err)
		}
	})
	t.Run("a move of the state alone does so too", func(t *testing.T) {
		out, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: "assay:b", BaseContentHash: other.ContentHash, State: "done"})
		if err != nil {
			t.Fatal(err)
		}
		if got := f.mustGet(t, ctx, out.Ref); string(got.Content) != `{"reagents":["y"],"sample":{}}` || got.State != "done" || got.SchemaVersion != 2 {
			t.Errorf("get = %+v %s", got, got.Content)
		}
	})
	f.checkDigest(t)
}

// TestMutability tries what each mode and policy excludes.
func TestMutability(t *testing.T) {
	f := newHub(t)
	ctx := contributor(t.Context())
	for mode, c := range map[string]struct {
		update, supersede bool
		allowed           []string
	}{
		"immutable":            {false, false, []string{"comment", "link", "signal"}},
		"append_only":          {false, false, []string{"create", "comment", "link", "signal"}},
		"superseded_only":      {false, true, []string{"supersede", "comment", "link", "signal"}},
		"mutable_with_history": {true, true, nil},
	} {
		t.Run(mode, func(t *testing.T) {
			f.makeType(t, assay(object{"type": mode, "mutability": mode}))
			made := f.mustCreate(t, verb.CreateRequest{Type: mode, ID: "a", Title: "T", Content: content(object{"reagent": "x"})})
			check := func(what string, err error, may bool) {
				t.Helper()
				if may && err == nil {
					return
				}
				e := artifact.AsError(err)
				if may || e.Code != artifact.CodeMutability || e.Reason != artifact.ReasonNotUpdated || !slices.Equal(e.Details["allowed_verbs"].([]string), c.allowed) {
					t.Errorf("%s = %v %v", what, err, e.Details)
				}
			}
			_, err := verb.Comment.Call(ctx, f.verbs, verb.CommentRequest{Ref: mode + ":a", Body: "x"})
			check("comment", err, true)
			_, err = verb.Signal.Call(ctx, f.verbs, verb.SignalRequest{Ref: mode + ":a", Kind: "vote", Value: "1"})
			check("signal", err, true)
			_, err = verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: mode + ":a", BaseContentHash: made.ContentHash, Title: "New"})
			check("update", err, c.update)
			_, err = verb.Supersede.Call(ctx, f.verbs, verb.SupersedeRequest{Ref: mode + ":a", Reason: "x"})
			check("supersede", err, c.supersede)
		})
	}
	for typ, want := range map[string]string{"memory": "memories/remember", "source": "sources/add"} {
		t.Run(typ, func(t *testing.T) {
			in := verb.CreateRequest{Type: typ, ID: "a", Title: "T", Content: json.RawMessage(`{}`)}
			_, create := verb.Create.Call(ctx, f.verbs, in)
			_, update := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: typ + ":a", BaseContentHash: artifact.HashBytes(nil), Title: "x"})
			_, supersede := verb.Supersede.Call(ctx, f.verbs, verb.SupersedeRequest{Ref: typ + ":a", Reason: "x"})
			batch, err := verb.Batch.Call(ctx, f.verbs, verb.BatchRequest{Items: []verb.BatchItem{{Create: &in}}})
			if err != nil {
				t.Fatal(err)
			}
			for what, err := range map[string]error{"create": create, "update": update, "supersede": supersede, "batch": batch.Items[0].Error} {
				e := artifact.AsError(err)
				if use, _ := e.Details["use"].([]string); e.Reason != artifact.ReasonWritePolicy || !slices.Contains(use, want) {
					t.Errorf("%s = %v %v, want the use of %s", what, err, e.Details, want)
				}
			}
		})
	}
}

// TestTypesOfOtherHubs checks that what one hub makes of a type counts at once at
// another on the same database.
func TestTypesOfOtherHubs(t *testing.T) {
	f := newHub(t)
	h, err := hub.Open(t.Context(), hub.Config{DB: f.db}) // its pump does not run: nothing tells it
	if err != nil {
		t.Fatal(err)
	}
	second := h.Verbs()
	ctx := contributor(t.Context())
	in := verb.CreateRequest{Type: "assay", ID: "a", Title: "T", Content: content(object{"reagent": "x"})}
	if _, err := verb.Create.Call(ctx, second, in); !artifact.IsCode(err, artifact.CodeValidationFailed) {
		t.Errorf("create of no type: %v", err)
	}
	f.makeType(t, assay(nil))
	if list, err := verb.List.Call(ctx, second, verb.ListRequest{Type: "assay"}); err != nil || len(list.Artifacts) != 0 {
		t.Errorf("list = %+v, %v", list, err)
	}
	made, err := verb.Create.Call(ctx, second, in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.changeType(t, verb.UpdateRequest{MergePatch: json.RawMessage(`{"links":{"follows":{"to_types":["assay"]}},"content_schema":{"properties":{"n":{"maximum":3}}},"signals":{"like":{"aggregation":"sum"}}}`)}); err != nil {
		t.Fatal(err)
	}
	in.ID, in.Content = "b", content(object{"reagent": "x", "n": 4})
	if _, err := verb.Create.Call(ctx, second, in); problemsOf(err)["/content/n"] != "maximum" {
		t.Errorf("create by the old rules: %v", err)
	}
	in.Content = content(object{"reagent": "x", "n": 3})
	if _, err := verb.Create.Call(ctx, second, in); err != nil {
		t.Error(err)
	}
	third, err := hub.Open(t.Context(), hub.Config{DB: f.db})
	if err != nil {
		t.Fatal(err)
	}
	stale := third.Verbs()
	if _, err := f.changeType(t, verb.UpdateRequest{MergePatch: json.RawMessage(`{"links":{"precedes":{}},"signals":{"dislike":{"aggregation":"sum"}}}`)}); err != nil {
		t.Fatal(err)
	}
	if _, err := verb.Link.Call(ctx, stale, verb.LinkRequest{From: "assay:b", LinkSpec: verb.LinkSpec{Predicate: "precedes", To: made.Ref.Current().String()}}); err != nil {
		t.Errorf("a link by a new predicate: %v", err)
	}
	if _, err := verb.Signal.Call(ctx, stale, verb.SignalRequest{Ref: "assay:b", Kind: "dislike", Value: "1"}); err != nil {
		t.Errorf("a signal of a new kind: %v", err)
	}
}

// TestChangeOfTypeAmongWrites tightens a type while others write to it through two
// hubs: whatever is stored is valid under the version it carries, and under the
// last one too, since no change is breaking.
func TestChangeOfTypeAmongWrites(t *testing.T) {
	f := newHub(t)
	second := newHubOn(t, f.db)
	f.makeType(t, assay(nil))
	g := new(errgroup.Group)
	for w := range 4 {
		g.Go(func() error {
			by := f
			if w%2 > 0 {
				by = second
			}
			for n := range 40 {
				in := verb.CreateRequest{Type: "assay", Title: "T", Content: content(object{"reagent": "x", "n": 1000 - 25*n})}
				if n%2 > 0 {
					in.ID = fmt.Sprintf("a-%d-%d", w, n)
				}
				_, err := verb.Create.Call(as(t.Context(), fmt.Sprint("w", w), verb.Contributor), by.verbs, in)
				if err != nil && !artifact.IsCode(err, artifact.CodeValidationFailed) {
					return err
				}
			}
			return nil
		})
	}
	changes := 0
	g.Go(func() error {
		for limit := 1000; limit > 0; limit -= 20 {
			_, err := f.changeType(t, verb.UpdateRequest{Content: assay(object{"content_schema": object{"type": "object", "properties": object{"n": object{"type": "integer", "maximum": limit}}}})})
			var e *artifact.Error
			if errors.As(err, &e) && e.Reason == artifact.ReasonIncompatible {
				continue
			} else if err != nil {
				return err
			}
			changes++
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	rows, err := f.db.Query(t.Context(), `
		SELECT r.content, s.document, l.document FROM artifact_revision r
		JOIN schema_registry s ON s.artifact_type = r.type AND s.schema_version = r.schema_version
		JOIN schema_registry l ON l.artifact_type = r.type AND l.is_current WHERE r.type = 'assay'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var stored, under, last string
		if err := rows.Scan(&stored, &under, &last); err != nil {
			t.Fatal(err)
		}
		n++
		for _, document := range []string{under, last} {
			s, err := artifact.ParseSchema([]byte(document))
			if err != nil {
				t.Fatal(err)
			}
			if problems := s.Validate([]byte(stored), ""); problems != nil {
				t.Errorf("%s is invalid under version %d: %v", stored, s.SchemaVersion, problems)
			}
		}
	}
	if rows.Err() != nil || n == 0 || changes == 0 {
		t.Errorf("%d artifacts and %d changes, %v", n, changes, rows.Err())
	}
	t.Logf("%d artifacts, %d changes", n, changes)
	f.checkDigest(t)
}

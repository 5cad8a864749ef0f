package node_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestTypeAtRunTime makes a type that no program knows, and uses each verb on it
// at the hub and on what a node has of it.
func TestTypeAtRunTime(t *testing.T) {
	l := newLabs(t)
	admin, ada := l.as(t, "root"), l.as(t, "ada")
	made := must(t, verb.Create, admin, verb.CreateRequest{Type: "schema", Title: "Assay", Content: json.RawMessage(`{
		"type": "assay", "id_strategy": {"format": "as-{uuid}"}, "mutability": "mutable_with_history",
		"content_schema": {"type": "object", "required": ["reagent"], "properties": {"reagent": {"type": "string"}, "protocol": {"type": "string"}}},
		"links": {"follows": {"to_types": ["assay"]}, "cites": {"to_types": ["paper"]}},
		"signals": {"vote": {"values": [-1, 0, 1], "aggregation": "replace"}},
		"lifecycle": {"states": ["draft", "done"], "transitions": [["draft", "done"]]},
		"merge": {"text_fields": ["protocol"]}, "validators": ["resolve_pmid_citations"]}`)})
	settle := func() {
		t.Helper()
		head, err := l.hub.Head(t.Context())
		if err == nil {
			err = l.a.WaitApplied(t.Context(), head)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	settle()
	atNode := l.at(t, l.a, "ada")
	if got := must(t, verb.Schema, atNode, verb.SchemaRequest{Type: "assay"}); len(got.Schemas) != 1 || got.Schemas[0].Version != 1 {
		t.Errorf("schema at the node = %+v", got)
	}
	if got := must(t, verb.Get, atNode, verb.GetRequest{Ref: made.Ref}); !strings.Contains(string(got.Artifact.Content), `"schema_version":1`) {
		t.Errorf("schema:assay at the node = %s", got.Artifact.Content)
	}
	if got := must(t, verb.List, atNode, verb.ListRequest{Type: "assay"}); len(got.Artifacts) != 0 {
		t.Errorf("list at the node = %+v", got)
	}

	// Writes go through the node.
	text := "1. Thaw.\n2. Mix.\n3. Read.\n"
	create := func(id, scope string) verb.WriteResult {
		return must(t, verb.Create, atNode, verb.CreateRequest{Type: "assay", ID: id, Scope: scope, Title: "T", Content: object(map[string]any{"reagent": "x", "protocol": text})})
	}
	a, b, c := create("a", ""), create("b", ""), create("c", "")
	if _, err := verb.Create.Call(t.Context(), atNode, verb.CreateRequest{Type: "assay", Title: "T", Content: json.RawMessage(`{"protocol":"[PMID:7]"}`)}); !artifact.IsCode(err, artifact.CodeValidationFailed) {
		t.Errorf("an invalid assay: %v", err)
	}
	must(t, verb.Create, ada, verb.CreateRequest{Type: "paper", ID: "PMID:31452104", Title: "P", Content: json.RawMessage(`{"pmid":"31452104"}`)})
	update := func(in verb.UpdateRequest) verb.WriteResult {
		in.Ref = "assay:a"
		return must(t, verb.Update, atNode, in)
	}
	out := update(verb.UpdateRequest{BaseContentHash: a.ContentHash, Content: object(map[string]any{"reagent": "y", "protocol": text})})
	out = update(verb.UpdateRequest{BaseContentHash: out.ContentHash, Patch: json.RawMessage(`[{"op":"replace","path":"/content/reagent","value":"z"}]`)})
	update(verb.UpdateRequest{BaseContentHash: out.ContentHash, MergePatch: object(map[string]any{"protocol": "0. Wash.\n" + text})})
	merged := update(verb.UpdateRequest{BaseContentHash: a.ContentHash, MergePatch: object(map[string]any{"protocol": text + "4. Report.\n"}), AutoMerge: true})
	if out = update(verb.UpdateRequest{BaseContentHash: merged.ContentHash, State: "done"}); !merged.Merged || out.Revision != 6 {
		t.Errorf("updates = %+v, merged %+v", out, merged)
	}
	made2 := must(t, verb.Link, atNode, verb.LinkRequest{From: "assay:a", LinkSpec: verb.LinkSpec{Predicate: "follows", To: "assay:b"}})
	must(t, verb.Link, atNode, verb.LinkRequest{From: "assay:b", LinkSpec: verb.LinkSpec{Predicate: "follows", To: "assay:c"}})
	must(t, verb.Unlink, atNode, verb.UnlinkRequest{Ref: made2.Ref, Reason: "to try it"})
	must(t, verb.Cite, atNode, verb.CiteRequest{Ref: "assay:a", PMID: "31452104"})
	must(t, verb.Signal, atNode, verb.SignalRequest{Ref: "assay:a", Kind: "vote", Value: "1"})
	must(t, verb.Comment, atNode, verb.CommentRequest{Ref: "assay:a", Body: "Good."})
	must(t, verb.Supersede, atNode, verb.SupersedeRequest{Ref: "assay:b", ReplacementRef: "assay:a", Reason: "better"})
	batch := must(t, verb.Batch, atNode, verb.BatchRequest{Atomic: true, Items: []verb.BatchItem{
		{RefAlias: "new", Create: &verb.CreateRequest{Type: "assay", ID: "d", Title: "T", Content: json.RawMessage(`{"reagent":"x"}`)}},
		{Link: &verb.LinkRequest{From: "@new", LinkSpec: verb.LinkSpec{Predicate: "follows", To: "assay:a"}}},
		{Signal: &verb.SignalRequest{Ref: "@new", Kind: "vote", Value: "1"}},
	}})
	if !batch.Committed {
		t.Errorf("batch = %+v", batch)
	}
	must(t, verb.Move, admin, verb.MoveRequest{Ref: "assay:c", Scope: "lab-a", BaseContentHash: c.ContentHash, Reason: "to try it"})
	must(t, verb.Redact, admin, verb.RedactRequest{Ref: "assay:b", Reason: "to try it", Revisions: 1})
	for _, on := range []string{"schema:assay", made.Ref.Current().String()} {
		must(t, verb.Comment, ada, verb.CommentRequest{Ref: on, Body: "Needs a unit."})
	}
	must(t, verb.Signal, ada, verb.SignalRequest{Ref: "schema:assay", Kind: "vote", Value: "1"})
	settle()

	got := must(t, verb.Get, atNode, verb.GetRequest{Ref: out.Ref.Current()}).Artifact
	if string(got.Content) != string(object(map[string]any{"reagent": "z", "protocol": "0. Wash.\n" + text + "4. Report.\n"})) || got.State != "done" {
		t.Errorf("assay:a at the node = %+v %s", got, got.Content)
	}
	if list := must(t, verb.List, atNode, verb.ListRequest{Type: "assay"}); len(list.Artifacts) != 3 { // a, d, and c in the lab
		t.Errorf("assays at the node = %+v", list.Artifacts)
	}
	if got := must(t, verb.Get, atNode, verb.GetRequest{Ref: b.Ref.Current()}).Artifact; got.SupersededBy != "assay:a" || got.Redaction == nil {
		t.Errorf("assay:b at the node = %+v", got)
	}
	_, answer := l.query(t, l.tokens[verb.Viewer], `query { artifact(ref: "assay:a") { ref title lifecycleState content } }`, nil)
	if len(answer.Errors) > 0 {
		t.Errorf("GraphQL = %+v", answer.Errors)
	}

	// A breaking change is upgraded at the node too.
	base := must(t, verb.Get, admin, verb.GetRequest{Ref: made.Ref.Current()}).Artifact
	must(t, verb.Update, admin, verb.UpdateRequest{Ref: "schema:assay", BaseContentHash: base.ContentHash, MergePatch: json.RawMessage(`{
		"content_schema": {"required": ["reagents"], "properties": {"reagent": null, "reagents": {"type": "array"}}},
		"compatibility": "breaking", "migrator": "patch",
		"migrate": [{"op": "move", "from": "/reagent", "path": "/reagents"}, {"op": "wrap", "path": "/reagents"}]}`)})
	settle()
	d := must(t, verb.Get, atNode, verb.GetRequest{Ref: artifact.Ref{Type: "assay", ID: "d"}}).Artifact
	if string(d.Content) != `{"reagent":"x"}` || string(d.UpgradedContent) != `{"reagents":["x"]}` || d.SchemaVersion != 1 {
		t.Errorf("assay:d at the node = %s, upgraded %s", d.Content, d.UpgradedContent)
	}
	must(t, verb.Update, atNode, verb.UpdateRequest{Ref: "assay:d", BaseContentHash: d.ContentHash, MergePatch: json.RawMessage(`{}`)})
	settle()
	d = must(t, verb.Get, atNode, verb.GetRequest{Ref: artifact.Ref{Type: "assay", ID: "d"}}).Artifact
	if string(d.Content) != `{"reagents":["x"]}` || d.UpgradedContent != nil || d.SchemaVersion != 2 {
		t.Errorf("assay:d once it was updated = %s, upgraded %s", d.Content, d.UpgradedContent)
	}
	l.verify(t, l.a)
	l.verifyHub(t)
}

func object(v map[string]any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

package hub_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// A confirmation is what every answer to a write holds, whatever was written.
type confirmation struct {
	Ref            string                `json:"ref"`
	ContentHash    artifact.Hash         `json:"content_hash"`
	Revision       int                   `json:"revision"`
	RequestID      string                `json:"request_id"`
	Idempotency    string                `json:"idempotency"`
	ProvenanceRefs []string              `json:"provenance_refs"`
	Warnings       []artifact.Problem    `json:"warnings"`
	Provenance     *replicate.Provenance `json:"provenance"`
	Seq            artifact.Seq          `json:"seq"`
	Token          string                `json:"consistency_token"`
}

// TestWriteConfirmation calls each verb that writes artifacts, links or signals,
// over HTTP, and holds its answer to what 7.2.1 asks of it: an agent can check its
// own work by that alone. The ref can be read at once, and a retry with the same
// key gets the same answer.
func TestWriteConfirmation(t *testing.T) {
	f := newHub(t)
	url, ada, root := f.serve(t), f.token(t, "ada", verb.Contributor), f.token(t, "root", verb.Admin)
	f.scope(t, "lab-a")
	f.grant(t, "lab-a", "root", verb.Admin)
	f.mustCreate(t, verb.CreateRequest{Type: "gene", ID: "APOE", Title: "APOE", Content: content(map[string]any{"symbol": "APOE"})})
	f.mustCreate(t, paper("PMID:1", "", map[string]any{}))
	bases := map[string]verb.WriteResult{}
	for _, id := range []string{"changed", "old", "new", "moved", "gone"} {
		bases[id] = f.mustCreate(t, hypothesis(id, "x"))
	}
	mine := func(in verb.LinkRequest) string {
		out, err := verb.Link.Call(contributor(t.Context()), f.verbs, in)
		if err != nil {
			t.Fatal(err)
		}
		return out.Ref
	}
	taken := mine(verb.LinkRequest{From: "hypothesis:new", LinkSpec: verb.LinkSpec{Predicate: "supports", To: "hypothesis:old"}})
	link := map[string]any{"from": "hypothesis:changed", "predicate": "about", "to": "gene:APOE", "evidence_refs": []string{"paper:PMID:1"}}
	vote := map[string]any{"ref": "hypothesis:new", "kind": "vote", "value": 1, "metadata": map[string]any{"a": 1}}
	for _, c := range []struct {
		name, verb, token string
		in                map[string]any
		unread            bool // what it confirms is gone
		again             string
	}{
		{name: "create", verb: "create", in: map[string]any{"type": "hypothesis", "title": "T", "content": map[string]any{"statement": "As PMID: 12345 says."}, "links": []any{map[string]any{"predicate": "about", "to": "gene:APOE"}}}},
		{name: "update", verb: "update", in: map[string]any{"ref": "hypothesis:changed", "base_content_hash": bases["changed"].ContentHash, "merge_patch": map[string]any{"statement": "y"}}},
		{name: "supersede", verb: "supersede", in: map[string]any{"ref": "hypothesis:old", "replacement_ref": "hypothesis:new", "reason": "r"}, again: verb.IdempotencyDeduplicated},
		{name: "comment", verb: "comment", in: map[string]any{"ref": "hypothesis:new", "body": "b"}},
		{name: "signal", verb: "signal", in: vote, again: verb.IdempotencyDeduplicated},
		{name: "link", verb: "link", in: link, again: verb.IdempotencyDeduplicated},
		{name: "cite", verb: "cite", in: map[string]any{"ref": "hypothesis:new", "paper_pmid": "1", "span": "s"}, again: verb.IdempotencyDeduplicated},
		{name: "unlink", verb: "unlink", in: map[string]any{"ref": taken, "reason": "r"}, unread: true},
		{name: "move", verb: "move", token: root, in: map[string]any{"ref": "hypothesis:moved", "scope": "lab-a", "base_content_hash": bases["moved"].ContentHash, "reason": "r"}},
		{name: "redact", verb: "redact", token: root, in: map[string]any{"ref": "hypothesis:gone", "revisions": 1, "reason": "r"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.token == "" {
				c.token = ada
			}
			call := func(key string) (confirmation, []byte, string) {
				in := map[string]any{"idempotency_key": key}
				maps.Copy(in, c.in)
				if key == "" {
					delete(in, "idempotency_key")
				}
				id := uuid.NewString()
				a := request(t, http.MethodPost, url+"/api/scidex/"+c.verb, c.token, content(in), "X-Request-Id", id)
				if a.status != http.StatusOK {
					t.Fatalf("%d %s", a.status, a.body)
				}
				var out confirmation
				if err := json.Unmarshal(a.body, &out); err != nil {
					t.Fatal(err)
				}
				return out, a.body, id
			}
			key := uuid.NewString()
			out, raw, id := call(key)
			if out.RequestID != id || out.Idempotency != verb.IdempotencyFresh || out.Seq == 0 || out.Token == "" {
				t.Errorf("answer = %s", raw)
			}
			f.checkConfirmation(t, out, c.verb)
			if name := map[bool]string{true: "root", false: "ada"}[c.token == root]; out.Provenance != nil && (out.Provenance.ActorID != name || out.Provenance.RequestID != id) {
				t.Errorf("provenance = %+v, want %s's", out.Provenance, name)
			}
			f.checkReadable(t, url, c.token, out, c.unread)
			replayed, _, _ := call(key)
			if replayed.Idempotency != verb.IdempotencyReplayed {
				t.Errorf("a retry is %s", replayed.Idempotency)
			}
			if replayed.Idempotency = out.Idempotency; !reflect.DeepEqual(replayed, out) {
				t.Errorf("a retry answers %+v, want %+v", replayed, out)
			}
			if c.again == "" {
				return
			}
			again, raw, _ := call("")
			if again.Idempotency != c.again || again.Ref != out.Ref || again.ContentHash != out.ContentHash || again.Revision != out.Revision || again.Seq != 0 {
				t.Errorf("what is so already is answered by %s\nfirst %+v", raw, out)
			}
			f.checkConfirmation(t, again, c.verb)
		})
	}
	t.Run("items of a batch", func(t *testing.T) {
		a := request(t, http.MethodPost, url+"/api/scidex/batch", ada, content(map[string]any{"idempotency_key": uuid.NewString(), "items": []any{
			map[string]any{"op": "create", "ref_alias": "h", "type": "hypothesis", "title": "T", "content": map[string]any{"statement": "s"}},
			map[string]any{"op": "update", "ref": "@h", "merge_patch": map[string]any{"statement": "t"}},
			map[string]any{"op": "link", "from": "@h", "predicate": "about", "to": "gene:APOE", "ref_alias": "l"},
			map[string]any{"op": "cite", "ref": "@h", "paper_pmid": "1"},
			map[string]any{"op": "signal", "ref": "@h", "kind": "vote", "value": 1},
			map[string]any{"op": "comment", "ref": "@h", "body": "b"},
			map[string]any{"op": "supersede", "ref": "hypothesis:new", "replacement_ref": "@h", "reason": "r"},
			link, vote,
		}[:7]}))
		var out struct {
			confirmation
			Items []map[string]confirmation `json:"items"`
		}
		if err := json.Unmarshal(a.body, &out); err != nil || a.status != http.StatusOK {
			t.Fatalf("%d %s: %v", a.status, a.body, err)
		}
		if out.RequestID == "" || out.Idempotency != verb.IdempotencyFresh || out.Seq == 0 || out.Token == "" || out.Provenance == nil || out.Provenance.ActorID != "ada" || len(out.Items) != 7 {
			t.Fatalf("answer = %s", a.body)
		}
		for i, item := range out.Items {
			for kind, got := range item {
				if kind == "error" || got.Seq != out.Seq || got.RequestID != out.RequestID || got.Token != out.Token {
					t.Errorf("item %d = %s %+v in %s", i, kind, got, a.body)
				}
				got.Provenance = out.Provenance // it is told once
				f.checkConfirmation(t, got, "batch")
				f.checkReadable(t, url, ada, got, false)
			}
		}
	})
}

// checkConfirmation holds the members that say something to that.
func (f *fixture) checkConfirmation(t *testing.T, out confirmation, name string) {
	t.Helper()
	switch {
	case out.Ref == "" || out.ContentHash.IsZero() || out.Revision < 1:
		t.Errorf("it does not say which version: %+v", out)
	case out.ProvenanceRefs == nil || out.Warnings == nil:
		t.Errorf("provenance_refs and warnings are not there: %+v", out)
	case out.Provenance == nil || out.Provenance.ActorID == "" || out.Provenance.ActorKind == "" || out.Provenance.Verb != name:
		t.Errorf("it does not say who wrote: %+v", out.Provenance)
	}
}

// checkReadable reads what a confirmation names, by its ref and by its version.
func (f *fixture) checkReadable(t *testing.T, url, token string, out confirmation, gone bool) {
	t.Helper()
	ref, _, _ := strings.Cut(out.Ref, "@")
	for _, name := range []string{ref, ref + "@" + out.ContentHash.String()} {
		a := request(t, http.MethodPost, url+"/api/scidex/get", token, content(map[string]any{"ref": name}))
		if gone {
			if a.status != http.StatusNotFound {
				t.Errorf("get %s = %d, want 404", name, a.status)
			}
			continue
		}
		var got verb.GetResponse
		if err := json.Unmarshal(a.body, &got); err != nil || a.status != http.StatusOK {
			t.Errorf("get %s = %d %s", name, a.status, a.body)
			continue
		}
		if pinned := strings.Contains(name, "@"); pinned && got.Artifact.ContentHash != out.ContentHash || got.Artifact.Revision < out.Revision {
			t.Errorf("get %s = revision %d %s, want %d %s", name, got.Artifact.Revision, got.Artifact.ContentHash, out.Revision, out.ContentHash)
		}
	}
}

// TestWarningsAreAccepted checks that what validators only tell is in the answer of
// a write that went through, and of its item.
func TestWarningsAreAccepted(t *testing.T) {
	f := newHub(t)
	ctx := contributor(t.Context())
	told := func(found []artifact.Problem) bool {
		return slices.ContainsFunc(found, func(p artifact.Problem) bool { return p.Constraint == artifact.GuardInlinePMID })
	}
	made := f.mustCreate(t, hypothesis("h", "As PMID: 12345 says."))
	if !told(made.Warnings) {
		t.Errorf("create: warnings = %v", made.Warnings)
	}
	changed, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: "hypothesis:h", BaseContentHash: made.ContentHash, MergePatch: json.RawMessage(`{"description":"See PMID: 99."}`)})
	if err != nil || !told(changed.Warnings) {
		t.Errorf("update: warnings = %v, %v", changed.Warnings, err)
	}
	in := hypothesis("i", "As PMID: 12345 says.")
	out, err := verb.Batch.Call(ctx, f.verbs, verb.BatchRequest{Items: []verb.BatchItem{{Create: &in}, {Comment: &verb.CommentRequest{Ref: "hypothesis:h", Body: "See PMID: 7."}}}})
	if err != nil || !told(out.Items[0].Write.Warnings) || !told(out.Items[1].Write.Warnings) {
		t.Errorf("batch = %+v, %v", out, err)
	}
}

// TestSignalsOfOtherMetadata checks that a signal which differs in nothing but its
// metadata is another one.
func TestSignalsOfOtherMetadata(t *testing.T) {
	f := newHub(t)
	ctx := contributor(t.Context())
	f.mustCreate(t, hypothesis("h", "x"))
	var refs []string
	for _, metadata := range []string{`{"a":1}`, `{"a":1}`, `{"a":2}`} {
		out, err := verb.Signal.Call(ctx, f.verbs, verb.SignalRequest{Ref: "hypothesis:h", Kind: "vote", Value: "1", Metadata: json.RawMessage(metadata)})
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, out.Ref)
	}
	if refs[0] != refs[1] || refs[1] == refs[2] {
		t.Errorf("signals = %v", refs)
	}
}

package hub_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/verb"
)

// TestRedactedBase: who changes what a redaction left is told that nothing is left.
func TestRedactedBase(t *testing.T) {
	f := newHub(t)
	ada, root := contributor(t.Context()), as(t.Context(), "root", verb.Admin, verb.Viewer)
	made := f.mustCreate(t, hypothesis("h", "a secret"))
	if _, err := verb.Redact.Call(root, f.verbs, verb.RedactRequest{Ref: "hypothesis:h", Reason: "r", Revisions: 1}); err != nil {
		t.Fatal(err)
	}
	update := func(in verb.UpdateRequest) error {
		in.Ref, in.BaseContentHash = "hypothesis:h", made.ContentHash
		_, err := verb.Update.Call(ada, f.verbs, in)
		return err
	}
	for name, in := range map[string]verb.UpdateRequest{
		"a merge_patch": {MergePatch: json.RawMessage(`{"disease":"AD"}`)},
		"a patch":       {Patch: json.RawMessage(`[{"op":"add","path":"/content/disease","value":"AD"}]`)},
		"a title":       {Title: "Another"},
	} {
		if got := problemsOf(update(in)); got["/base_content_hash"] != "redacted" || got["/content/statement"] != "required" {
			t.Errorf("%s of what was redacted: %v", name, got)
		}
	}
	if err := update(verb.UpdateRequest{Title: "Another", Content: json.RawMessage(`{"statement":"y"}`)}); err != nil {
		t.Fatalf("the whole content: %v", err)
	}
	err := update(verb.UpdateRequest{Title: "A third", Content: json.RawMessage(`{"statement":"z"}`), AutoMerge: true})
	var e *artifact.Error
	if !errors.As(err, &e) || e.Conflict == nil || e.Conflict.Merge.Clean || told(e.Conflict.Merge.Problems) != "/base_content_hash redacted" || e.Conflict.Merge.Content != nil {
		t.Errorf("a merge with what was redacted = %v", err)
	}
}

// TestMoveConflict: a move that lost tells by whom, and what there is now.
func TestMoveConflict(t *testing.T) {
	f := twoLabs(t)
	made := f.mustCreate(t, hypothesis("h", "x"))
	if _, err := verb.Update.Call(contributor(t.Context()), f.verbs, verb.UpdateRequest{Ref: "hypothesis:h", BaseContentHash: made.ContentHash, MergePatch: json.RawMessage(`{"statement":"y"}`)}); err != nil {
		t.Fatal(err)
	}
	f.grant(t, "lab-a", "root", verb.Admin)
	root := f.member(t.Context(), "root", verb.Admin, verb.Viewer)
	_, err := verb.Move.Call(root, f.verbs, verb.MoveRequest{Ref: "hypothesis:h", Scope: "lab-a", BaseContentHash: made.ContentHash, Reason: "r"})
	var e *artifact.Error
	if !errors.As(err, &e) || e.Conflict == nil {
		t.Fatalf("a stale move = %v", err)
	}
	if now := e.Conflict.Current; now.ChangedBy != (artifact.Actor{ID: "ada", Kind: "human"}) || string(now.Content) != `{"statement":"y"}` {
		t.Errorf("current = %+v", now)
	}
}

// TestNodesThatAreNot: an invitation names the scope that is not there, a revocation
// the node; and the journal tells of an invitation what was invited.
func TestNodesThatAreNot(t *testing.T) {
	f := twoLabs(t)
	root := as(t.Context(), "root", verb.Admin, verb.Viewer)
	_, err := verb.NodesInvite.Call(root, f.verbs, verb.NodesInviteRequest{Lab: "L", Scopes: []string{"lab-a", "lab-x"}})
	if e := artifact.AsError(err); told(e.Problems) != "/scopes/1 scope" || !strings.Contains(e.Problems[0].Message, "lab-x") {
		t.Errorf("an invitation to a scope that is not there = %v", err)
	}
	_, err = verb.NodesRevoke.Call(root, f.verbs, verb.NodesRevokeRequest{ID: "n-1"})
	if e := artifact.AsError(err); e.Code != artifact.CodeNotFound || told(e.Problems) != "/id node" || !strings.Contains(e.Problems[0].Message, "n-1") {
		t.Errorf("the revocation of a node that is not there = %v", err)
	}
	var refs []string
	for _, lab := range []string{"L", "M"} {
		if _, err := verb.NodesInvite.Call(root, f.verbs, verb.NodesInviteRequest{Lab: lab, Scopes: []string{"lab-a"}}); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := hub.Journal(t.Context(), f.db, hub.JournalFilter{Actor: "root", Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Verb != verb.NodesInvite.Name || len(e.Refs) != 1 || !strings.HasPrefix(e.Refs[0], "node_invite:") || slices.Contains(refs, e.Refs[0]) {
			t.Errorf("the journal of an invitation = %+v", e)
		}
		refs = append(refs, e.Refs...)
	}
	if found, err := hub.Journal(t.Context(), f.db, hub.JournalFilter{Ref: refs[0]}); err != nil || len(found) != 1 {
		t.Errorf("the journal of %s = %+v, %v", refs[0], found, err)
	}
}

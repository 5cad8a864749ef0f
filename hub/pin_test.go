package hub_test

import (
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestPinnedTargets: a write to an artifact by the ref of a version is one to that
// version, or none.
func TestPinnedTargets(t *testing.T) {
	f := newHub(t)
	first := f.mustCreate(t, hypothesis("h", "x"))
	other := f.mustCreate(t, hypothesis("o", "x"))
	f.mustCreate(t, verb.CreateRequest{Type: "paper", ID: "PMID:7", Title: "T", Content: content(map[string]any{"pmid": "7"})})
	c := as(t.Context(), "ada", verb.Contributor, verb.Admin)
	second, err := verb.Update.Call(c, f.verbs, verb.UpdateRequest{Ref: "hypothesis:h", BaseContentHash: first.ContentHash, Title: "Two"})
	if err != nil {
		t.Fatal(err)
	}
	otherNow, err := verb.Update.Call(c, f.verbs, verb.UpdateRequest{Ref: other.Ref.String(), BaseContentHash: other.ContentHash, Title: "Two"})
	if err != nil {
		t.Fatalf("an update by the ref of its base: %v", err)
	}
	link := linkOf(c, t, f, "hypothesis:h", "supports", "hypothesis:o")
	never := first.Ref
	never.Hash = artifact.HashBytes([]byte("never"))
	stale, now := first.Ref.String(), second.Ref.String()
	writes := map[string]func(ref string, base artifact.Hash) error{
		"signal": func(ref string, _ artifact.Hash) error {
			_, err := verb.Signal.Call(c, f.verbs, verb.SignalRequest{Ref: ref, Kind: "vote", Value: "1"})
			return err
		},
		"link": func(ref string, _ artifact.Hash) error {
			_, err := verb.Link.Call(c, f.verbs, verb.LinkRequest{From: ref, LinkSpec: verb.LinkSpec{Predicate: "supports", To: "hypothesis:o"}})
			return err
		},
		"cite": func(ref string, _ artifact.Hash) error {
			_, err := verb.Cite.Call(c, f.verbs, verb.CiteRequest{Ref: ref, PMID: "7"})
			return err
		},
		"redact": func(ref string, _ artifact.Hash) error {
			_, err := verb.Redact.Call(c, f.verbs, verb.RedactRequest{Ref: ref, Reason: "r", WriteOptions: verb.WriteOptions{DryRun: true}})
			return err
		},
		"supersede": func(ref string, _ artifact.Hash) error {
			_, err := verb.Supersede.Call(c, f.verbs, verb.SupersedeRequest{Ref: ref, Reason: "r", WriteOptions: verb.WriteOptions{DryRun: true}})
			return err
		},
		"update in a batch": func(ref string, _ artifact.Hash) error {
			out, err := verb.Batch.Call(c, f.verbs, verb.BatchRequest{Atomic: true, Items: []verb.BatchItem{{Update: &verb.UpdateRequest{Ref: ref, Title: "Two"}}}})
			if err == nil && out.Items[0].Error != nil {
				err = out.Items[0].Error
			}
			return err
		},
	}
	for name, write := range writes {
		if err := write(now, artifact.Hash{}); err != nil {
			t.Errorf("%s of the current version: %v", name, err)
		}
		err := artifact.AsError(write(stale, artifact.Hash{}))
		if name == "update in a batch" { // the same change was made since
			continue
		}
		if code(err) != "version_conflict/stale_base" || err.Conflict == nil || err.Conflict.Current.Ref != second.Ref || err.Conflict.YourBase != first.ContentHash.String() {
			t.Errorf("%s of an earlier version = %v", name, err)
		}
		if err := write(never.String(), artifact.Hash{}); code(err) != "version_conflict/stale_base" {
			t.Errorf("%s of no version = %v", name, err)
		}
	}
	both := map[string]func(ref string, base artifact.Hash) error{
		"update": func(ref string, base artifact.Hash) error {
			_, err := verb.Update.Call(c, f.verbs, verb.UpdateRequest{Ref: ref, BaseContentHash: base, Title: "Three", WriteOptions: verb.WriteOptions{DryRun: true}})
			return err
		},
		"supersede": func(ref string, base artifact.Hash) error {
			_, err := verb.Supersede.Call(c, f.verbs, verb.SupersedeRequest{Ref: ref, BaseContentHash: &base, Reason: "r", WriteOptions: verb.WriteOptions{DryRun: true}})
			return err
		},
		"move": func(ref string, base artifact.Hash) error {
			_, err := verb.Move.Call(c, f.verbs, verb.MoveRequest{Ref: ref, BaseContentHash: base, Scope: artifact.Commons, Reason: "r"})
			return err
		},
	}
	for name, write := range both {
		if err := write(now, second.ContentHash); err != nil {
			t.Errorf("%s by one version: %v", name, err)
		}
		err := artifact.AsError(write(stale, second.ContentHash))
		if code(err) != "validation_failed" || len(err.Problems) != 1 || err.Problems[0].Path != "/ref" || err.Problems[0].Constraint != "base_content_hash" {
			t.Errorf("%s by two versions = %v", name, err)
		}
	}
	for _, name := range []string{"supersede", "move"} {
		err := artifact.AsError(both[name]("hypothesis:h", first.ContentHash))
		if code(err) != "version_conflict/stale_base" || err.Conflict == nil || err.Conflict.Current.Ref != second.Ref || err.Conflict.YourBase != first.ContentHash.String() {
			t.Errorf("%s based on an earlier version = %v", name, err)
		}
	}
	replace := func(by artifact.Ref) error {
		_, err := verb.Supersede.Call(c, f.verbs, verb.SupersedeRequest{Ref: "hypothesis:h", ReplacementRef: by.String(), Reason: "r", WriteOptions: verb.WriteOptions{DryRun: true}})
		return err
	}
	if err := replace(otherNow.Ref); err != nil {
		t.Errorf("replaced by a current version: %v", err)
	}
	if err := replace(other.Ref); code(err) != "validation_failed" {
		t.Errorf("replaced by an earlier version = %v", err)
	}
	ref, err := artifact.ParseRef(link)
	if err != nil {
		t.Fatal(err)
	}
	got, err := verb.Get.Call(c, f.verbs, verb.GetRequest{Ref: ref})
	if err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]string{link + "@" + never.Hash.String(): "not_found", got.Artifact.Ref.String(): ""} {
		if _, err := verb.Unlink.Call(c, f.verbs, verb.UnlinkRequest{Ref: ref, Reason: "r"}); code(err) != want {
			t.Errorf("unlink %s = %v", ref, err)
		}
	}
}

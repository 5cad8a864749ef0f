package hub_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestEnvelope reads an artifact of each of several types, a link and a signal over
// HTTP: what is outside of content is the same for all of them.
func TestEnvelope(t *testing.T) {
	f := newHub(t)
	url, token := f.serve(t), f.token(t, "ada", verb.Contributor)
	ctx := contributor(t.Context())
	f.mustCreate(t, verb.CreateRequest{Type: "gene", ID: "APOE", Title: "APOE", Content: content(map[string]any{"symbol": "APOE"})})
	f.mustCreate(t, hypothesis("h", "x"))
	comment, err := verb.Comment.Call(ctx, f.verbs, verb.CommentRequest{Ref: "hypothesis:h", Body: "b"})
	if err != nil {
		t.Fatal(err)
	}
	link, err := verb.Link.Call(ctx, f.verbs, verb.LinkRequest{From: "hypothesis:h", LinkSpec: verb.LinkSpec{Predicate: "about", To: "gene:APOE"}})
	if err != nil {
		t.Fatal(err)
	}
	signal, err := verb.Signal.Call(ctx, f.verbs, verb.SignalRequest{Ref: "hypothesis:h", Kind: "vote", Value: "1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"gene:APOE", "hypothesis:h", comment.Ref.String(), link.Ref, signal.Ref, "schema:hypothesis"} {
		a := request(t, http.MethodPost, url+"/api/scidex/get", token, content(map[string]any{"ref": ref}))
		var got struct{ Artifact map[string]json.RawMessage }
		if err := json.Unmarshal(a.body, &got); err != nil || a.status != http.StatusOK {
			t.Fatalf("get %s = %d %s", ref, a.status, a.body)
		}
		for _, member := range []string{
			"ref", "type", "id", "scope", "title", "revision", "content_hash", "schema_version", "created_at", "created_by", "updated_at", "updated_by",
			"is_latest", "quality_score", "content",
		} {
			if _, ok := got.Artifact[member]; !ok {
				t.Errorf("get %s: no %s in %s", ref, member, a.body)
			}
		}
		var pinned artifact.Ref
		if err := json.Unmarshal(got.Artifact["ref"], &pinned); err != nil || !pinned.IsPinned() || !strings.HasPrefix(ref, pinned.Current().String()) {
			t.Errorf("get %s: ref %s", ref, got.Artifact["ref"])
		}
		a = request(t, http.MethodPost, url+"/api/scidex/get", token, content(map[string]any{"ref": ref, "include_content": false}))
		if strings.Contains(string(a.body), `"content":`) {
			t.Errorf("get %s without content = %s", ref, a.body)
		}
	}
}

// TestContentHashRecipe recomputes hashes from what get answers: they are of the
// canonical content, state, title and type, and of nothing else. A ref without a
// hash means the current version, one with it the version that has it.
func TestContentHashRecipe(t *testing.T) {
	f := newHub(t)
	ctx := contributor(t.Context())
	made := f.mustCreate(t, hypothesis("h", "x"))
	f.mustCreate(t, verb.CreateRequest{Type: "gene", ID: "APOE", Title: "APOE", Content: content(map[string]any{"symbol": "APOE"})})
	check := func() artifact.Artifact {
		t.Helper()
		got, err := verb.Get.Call(ctx, f.verbs, verb.GetRequest{Ref: made.Ref.Current()})
		if err != nil {
			t.Fatal(err)
		}
		a := got.Artifact
		recipe := `{"content":` + string(a.Content) + `,"state":` + quoted(a.State) + `,"title":` + quoted(a.Title) + `,"type":"hypothesis"}`
		if want := artifact.HashBytes([]byte(recipe)); a.ContentHash != want {
			t.Errorf("content_hash = %s, want %s of %s", a.ContentHash, want, recipe)
		}
		return a
	}
	before := check()
	if _, err := verb.Link.Call(ctx, f.verbs, verb.LinkRequest{From: "hypothesis:h", LinkSpec: verb.LinkSpec{Predicate: "about", To: "gene:APOE"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := verb.Signal.Call(ctx, f.verbs, verb.SignalRequest{Ref: "hypothesis:h", Kind: "rank", Dimension: "novelty", Value: "0.5"}); err != nil {
		t.Fatal(err)
	}
	if after := check(); after.ContentHash != before.ContentHash || after.Revision != 1 {
		t.Errorf("a link and a signal made revision %d, %s", after.Revision, after.ContentHash)
	}
	if _, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: "hypothesis:h", BaseContentHash: before.ContentHash, State: "investigating"}); err != nil {
		t.Fatal(err)
	}
	if after := check(); after.ContentHash == before.ContentHash || after.Revision != 2 {
		t.Errorf("another state made revision %d, %s", after.Revision, after.ContentHash)
	}
	// The earlier version is there as it was.
	if got, err := verb.Get.Call(ctx, f.verbs, verb.GetRequest{Ref: made.Ref}); err != nil || got.Artifact.Revision != 1 || got.Artifact.State != "proposed" || string(got.Artifact.Content) != string(before.Content) {
		t.Errorf("the earlier version = %+v, %v", got.Artifact, err)
	}
}

// TestLinksMergeByUnion has several agents link from one artifact while it is
// updated on an older base: all links are there, and the update is not disturbed.
func TestLinksMergeByUnion(t *testing.T) {
	f := newHub(t)
	made := f.mustCreate(t, hypothesis("h", "x"))
	for _, id := range []string{"APOE", "TREM2"} {
		f.mustCreate(t, verb.CreateRequest{Type: "gene", ID: id, Title: id, Content: content(map[string]any{"symbol": id})})
		if _, err := verb.Link.Call(as(t.Context(), "by-"+id, verb.Contributor), f.verbs, verb.LinkRequest{From: "hypothesis:h", LinkSpec: verb.LinkSpec{Predicate: "about", To: "gene:" + id}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := verb.Update.Call(contributor(t.Context()), f.verbs, verb.UpdateRequest{Ref: "hypothesis:h", BaseContentHash: made.ContentHash, Title: "New"}); err != nil {
		t.Errorf("an update from before the links: %v", err)
	}
	if n := f.count(t, "SELECT count(*) FROM link WHERE from_id = 'h'"); n != 2 {
		t.Errorf("%d links, want 2", n)
	}
}

// TestKeyExpires uses a key again after its 24 hours: the request runs anew.
func TestKeyExpires(t *testing.T) {
	f := newHub(t)
	in := hypothesis("", "x")
	in.IdempotencyKey = uuid.NewString()
	first := f.mustCreate(t, in)
	at := func(age time.Duration) verb.WriteResult {
		t.Helper()
		execute(t, f.db, "UPDATE idempotency SET created_at = $1", time.Now().Add(-age))
		return f.mustCreate(t, in)
	}
	if again := at(24*time.Hour - time.Minute); again.Ref != first.Ref || again.Idempotency != verb.IdempotencyReplayed {
		t.Errorf("before 24 hours: %+v", again)
	}
	if again := at(24*time.Hour + time.Minute); again.Ref == first.Ref || again.Idempotency != verb.IdempotencyFresh {
		t.Errorf("after 24 hours: %+v", again)
	}
}

// TestSignalsAreKept checks that a later signal takes the place of the earlier one
// in the aggregate alone: both rows stay, as every row of a signal does.
func TestSignalsAreKept(t *testing.T) {
	f := newHub(t)
	ctx := contributor(t.Context())
	f.mustCreate(t, hypothesis("h", "x"))
	var last verb.SignalResult
	for _, value := range []json.Number{"1", "-1", "1"} {
		var err error
		if last, err = verb.Signal.Call(ctx, f.verbs, verb.SignalRequest{Ref: "hypothesis:h", Kind: "vote", Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.count(t, "SELECT count(*) FROM signal"); n != 3 || last.Aggregate.Count != 1 || last.Aggregate.Sum != "1" {
		t.Errorf("%d rows, aggregate %+v", n, last.Aggregate)
	}
	for _, sql := range []string{"UPDATE signal SET value = 0", "DELETE FROM signal"} {
		if _, err := f.db.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s went through", sql)
		}
	}
}

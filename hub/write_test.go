package hub_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

func TestCreate(t *testing.T) {
	f := newHub(t)
	t.Run("can be read at once, byte for byte", func(t *testing.T) {
		in := hypothesis("h-1", "x")
		in.Content = json.RawMessage(`{ "statement": "Aβ <&> \u2028 é", "n": 1.50 }`)
		out := f.mustCreate(t, in)
		got, err := verb.Get.Call(contributor(t.Context()), f.verbs, verb.GetRequest{Ref: out.Ref})
		if err != nil {
			t.Fatal(err)
		}
		if want := "{\"n\":1.5,\"statement\":\"Aβ <&> \u2028 é\"}"; string(got.Artifact.Content) != want {
			t.Errorf("content = %s, want %s", got.Artifact.Content, want)
		}
		if a := got.Artifact; a.Revision != 1 || a.State != "proposed" || a.CreatedBy != "ada" || !a.IsLatest || a.ContentHash != out.ContentHash || got.AsOf < out.Seq {
			t.Errorf("artifact = %+v as of %d, write %+v", a, got.AsOf, out)
		}
	})
	t.Run("of an existing id conflicts and tells the current version", func(t *testing.T) {
		_, err := verb.Create.Call(contributor(t.Context()), f.verbs, hypothesis("h-1", "other"))
		e := artifact.AsError(err)
		if e.Code != artifact.CodeVersionConflict || e.Reason != artifact.ReasonExists || e.Conflict.Current.Ref.ID != "h-1" || e.Conflict.Current.Content == nil {
			t.Errorf("error = %+v", e)
		}
	})
	t.Run("makes ids by the type's strategy", func(t *testing.T) {
		if out := f.mustCreate(t, hypothesis("", "x")); !strings.HasPrefix(out.Ref.ID, "h-") || len(out.Ref.ID) != 38 {
			t.Errorf("id = %s", out.Ref.ID)
		}
	})
	t.Run("with links writes all or nothing", func(t *testing.T) {
		f.mustCreate(t, verb.CreateRequest{Type: "gene", ID: "APOE", Title: "APOE", Content: content(map[string]any{"symbol": "APOE"})})
		in := hypothesis("h-linked", "x")
		in.Links = []verb.LinkSpec{{Predicate: "about", To: "gene:APOE"}, {Predicate: "about", To: "gene:NONE"}}
		before := f.count(t, "SELECT count(*) FROM feed.change")
		_, err := verb.Create.Call(contributor(t.Context()), f.verbs, in)
		if !artifact.IsCode(err, artifact.CodeLinkTargetMissing) {
			t.Errorf("error = %v, want link_target_missing", err)
		}
		if n := f.count(t, "SELECT count(*) FROM feed.change"); n != before {
			t.Errorf("a refused create left %d rows in the log", n-before)
		}
		in.Links = in.Links[:1]
		out := f.mustCreate(t, in)
		if len(out.Links) != 1 || f.count(t, "SELECT count(*) FROM link WHERE from_id = 'h-linked'") != 1 {
			t.Errorf("links = %v", out.Links)
		}
	})
	t.Run("dry run writes nothing", func(t *testing.T) {
		in := hypothesis("h-dry", "x")
		in.DryRun = true
		if out := f.mustCreate(t, in); out.Seq != 0 || out.ContentHash.IsZero() {
			t.Errorf("answer = %+v", out)
		}
		if n := f.count(t, "SELECT count(*) FROM artifact WHERE id = 'h-dry'"); n != 0 {
			t.Error("a dry run wrote")
		}
	})
	t.Run("begins where the lifecycle begins", func(t *testing.T) {
		in := hypothesis("h-early", "x")
		in.State = "resolved"
		if _, err := verb.Create.Call(contributor(t.Context()), f.verbs, in); !artifact.IsCode(err, artifact.CodeLifecycleViolation) {
			t.Errorf("create in state resolved: %v, want lifecycle_violation", err)
		}
	})
	t.Run("names every fault", func(t *testing.T) {
		_, err := verb.Create.Call(contributor(t.Context()), f.verbs, verb.CreateRequest{
			Type: "hypothesis", ID: "has space", Title: "", State: "propsed", Content: json.RawMessage(`{"mechanism":"TBD","n":1e400}`),
			Links: []verb.LinkSpec{{Predicate: "about", To: "APOE"}},
		})
		got := map[string]string{}
		for _, p := range artifact.AsError(err).Problems {
			got[p.Path] = p.Constraint
		}
		for path, constraint := range map[string]string{
			"/id": "id_strategy", "/title": "required", "/state": "enum", "/content/n": "ieee_double", "/links/0/to": "ref",
		} {
			if got[path] != constraint {
				t.Errorf("problems = %v, want %s %s", got, path, constraint)
			}
		}
	})
	t.Run("needs a contributor", func(t *testing.T) {
		for _, p := range []string{verb.Viewer, verb.Reviewer, verb.Admin} {
			_, err := verb.Create.Call(as(t.Context(), "eve", p), f.verbs, hypothesis("h-eve", "x"))
			if !artifact.IsCode(err, artifact.CodePermissionDenied) {
				t.Errorf("create as %s: %v", p, err)
			}
		}
	})
	t.Run("of an unknown type suggests one", func(t *testing.T) {
		_, err := verb.Create.Call(contributor(t.Context()), f.verbs, verb.CreateRequest{Type: "hypotesis", Title: "t", Content: json.RawMessage(`{}`)})
		e := artifact.AsError(err)
		if len(e.Problems) != 1 || string(e.Problems[0].Suggestion) != `"hypothesis"` {
			t.Errorf("error = %+v", e)
		}
	})
}

func TestUpdate(t *testing.T) {
	f := newHub(t)
	ctx := contributor(t.Context())
	first := f.mustCreate(t, hypothesis("h-1", "first"))
	second, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: "hypothesis:h-1", BaseContentHash: first.ContentHash, Content: content(map[string]any{"statement": "second"})})
	if err != nil || second.Revision != 2 {
		t.Fatalf("update = %+v, %v", second, err)
	}
	t.Run("refuses a stale base with the current version", func(t *testing.T) {
		_, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: "hypothesis:h-1", BaseContentHash: first.ContentHash, Content: content(map[string]any{"statement": "third"})})
		e := artifact.AsError(err)
		if e.Code != artifact.CodeVersionConflict || e.Reason != artifact.ReasonStaleBase || e.Conflict.YourBase != first.ContentHash.String() ||
			e.Conflict.Current.Ref != second.Ref || string(e.Conflict.Current.Content) != `{"statement":"second"}` {
			t.Errorf("error = %+v", e)
		}
	})
	t.Run("refuses a base that never was", func(t *testing.T) {
		_, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: "hypothesis:h-1", BaseContentHash: artifact.HashBytes([]byte("x")), MergePatch: json.RawMessage(`{}`)})
		if artifact.AsError(err).Reason != artifact.ReasonUnknownBase {
			t.Errorf("error = %v", err)
		}
	})
	t.Run("of equal content writes nothing", func(t *testing.T) {
		out, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: "hypothesis:h-1", BaseContentHash: second.ContentHash, Content: json.RawMessage(` {"statement": "second"}`)})
		if err != nil || out.Idempotency != verb.IdempotencyDeduplicated || out.Revision != 2 || out.Seq != 0 {
			t.Errorf("update = %+v, %v", out, err)
		}
	})
	t.Run("takes patches", func(t *testing.T) {
		out, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{
			Ref: "hypothesis:h-1", BaseContentHash: second.ContentHash,
			Patch: json.RawMessage(`[{"op":"add","path":"/content/target_gene","value":"APOE"},{"op":"replace","path":"/title","value":"Patched"}]`),
		})
		if err != nil {
			t.Fatal(err)
		}
		out, err = verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: "hypothesis:h-1", BaseContentHash: out.ContentHash, State: "investigating", MergePatch: json.RawMessage(`{"target_gene":null,"disease":"AD"}`)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := verb.Get.Call(ctx, f.verbs, verb.GetRequest{Ref: out.Ref})
		if err != nil || string(got.Artifact.Content) != `{"disease":"AD","statement":"second"}` || got.Artifact.Title != "Patched" || got.Artifact.State != "investigating" {
			t.Errorf("artifact = %+v %s, %v", got.Artifact, got.Artifact.Content, err)
		}
		old, err := verb.Get.Call(ctx, f.verbs, verb.GetRequest{Ref: first.Ref})
		if err != nil || string(old.Artifact.Content) != `{"statement":"first"}` || old.Artifact.IsLatest {
			t.Errorf("first version = %+v, %v", old.Artifact, err)
		}
	})
	t.Run("of the state alone is a reviewer's too", func(t *testing.T) {
		h := f.mustCreate(t, hypothesis("h-moved", "x"))
		move := func(ctx context.Context, base artifact.Hash, in verb.UpdateRequest) (verb.WriteResult, error) {
			in.Ref, in.BaseContentHash = "hypothesis:h-moved", base
			return verb.Update.Call(ctx, f.verbs, in)
		}
		reviewer := as(t.Context(), "rev", verb.Reviewer)
		out, err := move(ctx, h.ContentHash, verb.UpdateRequest{State: "investigating"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := move(ctx, out.ContentHash, verb.UpdateRequest{State: "resolved"}); !artifact.IsCode(err, artifact.CodePermissionDenied) {
			t.Errorf("a contributor resolves: %v", err)
		}
		if _, err := move(reviewer, out.ContentHash, verb.UpdateRequest{State: "resolved", Title: "Mine now"}); !artifact.IsCode(err, artifact.CodePermissionDenied) {
			t.Errorf("a reviewer renames: %v", err)
		}
		out, err = move(reviewer, out.ContentHash, verb.UpdateRequest{State: "resolved"})
		if err != nil || out.Revision != 3 {
			t.Errorf("a reviewer resolves: %+v, %v", out, err)
		}
		if n := f.count(t, "SELECT count(*) FROM event WHERE type = 'hypothesis.lifecycle' AND ref LIKE 'hypothesis:h-moved@%'"); n != 2 {
			t.Errorf("%d lifecycle events, want 2", n)
		}
	})
	t.Run("refuses indices that RFC 6901 does not have", func(t *testing.T) {
		in := hypothesis("h-array", "x")
		in.Content = json.RawMessage(`{"statement":"x","therapies":["a","b"]}`)
		h := f.mustCreate(t, in)
		_, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: "hypothesis:h-array", BaseContentHash: h.ContentHash, Patch: json.RawMessage(`[{"op":"remove","path":"/content/therapies/-1"}]`)})
		if !artifact.IsCode(err, artifact.CodeValidationFailed) {
			t.Errorf("remove of index -1: %v", err)
		}
	})
	t.Run("of an append-only type is refused", func(t *testing.T) {
		c := f.mustCreate(t, verb.CreateRequest{Type: "comment", ID: "c-1", Title: "c", Content: content(map[string]any{"markdown": "x"})})
		_, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: "comment:c-1", BaseContentHash: c.ContentHash, MergePatch: json.RawMessage(`{}`)})
		if !artifact.IsCode(err, artifact.CodeMutability) {
			t.Errorf("error = %v", err)
		}
	})
	t.Run("lets one of many writers win each version", func(t *testing.T) {
		base := f.mustCreate(t, hypothesis("h-race", "0"))
		var mu sync.Mutex
		won := map[string]int{}
		g := new(errgroup.Group)
		for w := range 8 {
			g.Go(func() error {
				ctx := as(t.Context(), fmt.Sprintf("w%d", w), verb.Contributor)
				hash := base.ContentHash
				for n := 0; n < 10; {
					out, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{
						Ref: "hypothesis:h-race", BaseContentHash: hash, Content: content(map[string]any{"statement": fmt.Sprint(w, " ", n)}),
					})
					if e := artifact.AsError(err); err != nil && e.Code == artifact.CodeVersionConflict {
						hash = e.Conflict.Current.Ref.Hash
						continue
					} else if err != nil {
						return err
					}
					mu.Lock()
					won[strconv.Itoa(out.Revision)]++
					mu.Unlock()
					hash, n = out.ContentHash, n+1
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if len(won) != 80 {
			t.Errorf("%d distinct revisions were acknowledged, want 80: an acknowledged write was overwritten", len(won))
		}
		if n := f.count(t, "SELECT revision FROM artifact WHERE id = 'h-race'"); n != 81 {
			t.Errorf("revision = %d, want 81", n)
		}
	})
}

func TestIdempotency(t *testing.T) {
	f := newHub(t)
	key := uuid.NewString()
	in := hypothesis("", "x")
	in.IdempotencyKey = key
	t.Run("concurrent requests with one key run once", func(t *testing.T) {
		var mu sync.Mutex
		refs, outcomes := map[string]int{}, map[string]int{}
		g := new(errgroup.Group)
		for range 8 {
			g.Go(func() error {
				out, err := verb.Create.Call(contributor(t.Context()), f.verbs, verb.CreateRequest{
					Type: in.Type, ID: "h-once", Title: in.Title, Content: in.Content, WriteOptions: verb.WriteOptions{IdempotencyKey: key},
				})
				mu.Lock()
				defer mu.Unlock()
				refs[out.Ref.String()+" "+out.ConsistencyToken]++
				outcomes[out.Idempotency]++
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if len(refs) != 1 || outcomes[verb.IdempotencyFresh] != 1 || outcomes[verb.IdempotencyReplayed] != 7 {
			t.Errorf("answers %v, outcomes %v", refs, outcomes)
		}
	})
	t.Run("another request with the key is refused", func(t *testing.T) {
		_, err := verb.Create.Call(contributor(t.Context()), f.verbs, in)
		if artifact.AsError(err).Reason != artifact.ReasonIdempotencyConflict {
			t.Errorf("error = %v", err)
		}
	})
	t.Run("another agent's key is another key", func(t *testing.T) {
		out, err := verb.Create.Call(as(t.Context(), "bob", verb.Contributor), f.verbs, in)
		if err != nil || out.Idempotency != verb.IdempotencyFresh {
			t.Errorf("create = %+v, %v", out, err)
		}
	})
	t.Run("a failure is not kept", func(t *testing.T) {
		bad := hypothesis("h-later", "x")
		bad.IdempotencyKey, bad.Links = uuid.NewString(), []verb.LinkSpec{{Predicate: "about", To: "gene:LATER"}}
		if _, err := verb.Create.Call(contributor(t.Context()), f.verbs, bad); !artifact.IsCode(err, artifact.CodeLinkTargetMissing) {
			t.Fatalf("error = %v", err)
		}
		f.mustCreate(t, verb.CreateRequest{Type: "gene", ID: "LATER", Title: "LATER", Content: content(map[string]any{"symbol": "LATER"})})
		if _, err := verb.Create.Call(contributor(t.Context()), f.verbs, bad); err != nil {
			t.Errorf("the retry failed: %v", err)
		}
	})
	t.Run("a key is a UUID", func(t *testing.T) {
		bad := hypothesis("h-x", "x")
		bad.IdempotencyKey = "again"
		_, err := verb.Create.Call(contributor(t.Context()), f.verbs, bad)
		if e := artifact.AsError(err); len(e.Problems) != 1 || e.Problems[0].Path != "/idempotency_key" {
			t.Errorf("error = %v", err)
		}
	})
}

func TestBatch(t *testing.T) {
	f := newHub(t)
	gene := func(id string) verb.BatchItem {
		return verb.BatchItem{Create: &verb.CreateRequest{Type: "gene", ID: id, Title: id, Content: content(map[string]any{"symbol": id})}}
	}
	link := func(from, predicate, to string) verb.BatchItem {
		return verb.BatchItem{Link: &verb.LinkRequest{From: from, LinkSpec: verb.LinkSpec{Predicate: predicate, To: to}}}
	}
	hypo := verb.BatchItem{RefAlias: "h", Create: &verb.CreateRequest{Type: "hypothesis", Title: "t", Content: content(map[string]any{"statement": "s"})}}
	vote := verb.BatchItem{Signal: &verb.SignalRequest{Ref: "@h", Kind: "vote", Value: "1"}}

	t.Run("items refer to earlier ones by alias", func(t *testing.T) {
		out, err := verb.Batch.Call(contributor(t.Context()), f.verbs, verb.BatchRequest{Atomic: true, Items: []verb.BatchItem{gene("A"), hypo, link("@h", "about", "gene:A"), vote}})
		if err != nil || !out.Committed || out.Items[1].Write == nil || out.Items[2].Link == nil || out.Items[3].Signal == nil || out.Items[3].Signal.Aggregate.Sum != "1" {
			t.Fatalf("batch = %+v, %v", out, err)
		}
		if n := f.count(t, "SELECT count(DISTINCT commit_seq) FROM feed.change WHERE commit_seq = $1", int64(out.Seq)); n != 1 {
			t.Error("the batch is not one commit")
		}
	})
	t.Run("atomic writes all or none", func(t *testing.T) {
		before := f.count(t, "SELECT count(*) FROM feed.change")
		out, err := verb.Batch.Call(contributor(t.Context()), f.verbs, verb.BatchRequest{Atomic: true, Items: []verb.BatchItem{gene("B"), link("gene:B", "abuot", "gene:A"), gene("C")}})
		if err != nil || out.Committed || !out.Items[0].Skipped || out.Items[1].Error == nil || !out.Items[2].Skipped {
			t.Fatalf("batch = %+v, %v", out, err)
		}
		if p := out.Items[1].Error.Problems; len(p) != 1 || p[0].Path != "/predicate" {
			t.Errorf("problems = %+v", p)
		}
		if n := f.count(t, "SELECT count(*) FROM feed.change"); n != before {
			t.Error("a failed atomic batch wrote")
		}
	})
	t.Run("not atomic leaves out what fails", func(t *testing.T) {
		out, err := verb.Batch.Call(contributor(t.Context()), f.verbs, verb.BatchRequest{Items: []verb.BatchItem{
			gene("D"), gene("A"), {Create: &verb.CreateRequest{Type: "gene", ID: "E", Title: "E", Content: json.RawMessage(`{}`)}}, link("hypothesis:none", "about", "gene:D"),
		}})
		if err != nil || !out.Committed || out.Items[0].Write == nil {
			t.Fatalf("batch = %+v, %v", out, err)
		}
		for i, code := range []artifact.Code{"", artifact.CodeVersionConflict, artifact.CodeValidationFailed, artifact.CodeNotFound} {
			if e := out.Items[i].Error; e != nil && e.Code != code || e == nil && code != "" {
				t.Errorf("item %d = %+v, want %s", i, out.Items[i], code)
			}
		}
	})
	t.Run("an alias stands once", func(t *testing.T) {
		again := hypo
		out, err := verb.Batch.Call(contributor(t.Context()), f.verbs, verb.BatchRequest{Items: []verb.BatchItem{hypo, again}})
		if err != nil || out.Items[0].Write == nil || out.Items[1].Error == nil || out.Items[1].Error.RequestID == "" {
			t.Errorf("batch = %+v, %v", out, err)
		}
	})
	t.Run("a replay gives the same answer", func(t *testing.T) {
		in := verb.BatchRequest{Items: []verb.BatchItem{gene("F"), gene("A")}, IdempotencyKey: uuid.NewString()}
		first, err := verb.Batch.Call(contributor(t.Context()), f.verbs, in)
		if err != nil {
			t.Fatal(err)
		}
		again, err := verb.Batch.Call(contributor(t.Context()), f.verbs, in)
		if err != nil || again.Idempotency != verb.IdempotencyReplayed || again.Seq != first.Seq || again.Items[0].Write.Seq != first.Items[0].Write.Seq || again.Items[1].Error == nil {
			t.Errorf("replay = %+v, %v, first %+v", again, err, first)
		}
	})
	t.Run("an import by an admin names voters", func(t *testing.T) {
		h := f.mustCreate(t, hypothesis("h-v", "s"))
		signal := func(voter string, value json.Number) verb.BatchItem {
			return verb.BatchItem{Signal: &verb.SignalRequest{Ref: h.Ref.Current().String(), Kind: "vote", Value: value, Voter: voter}}
		}
		in := verb.BatchRequest{Import: true, Items: []verb.BatchItem{signal("import:a", "1"), signal("import:b", "-1"), signal("import:a", "-1"), signal("import:a", "-1"), signal("eve", "1")}}
		if _, err := verb.Batch.Call(contributor(t.Context()), f.verbs, in); !artifact.IsCode(err, artifact.CodePermissionDenied) {
			t.Errorf("import as contributor: %v", err)
		}
		out, err := verb.Batch.Call(as(t.Context(), "root", verb.Admin), f.verbs, in)
		if err != nil {
			t.Fatal(err)
		}
		if a := out.Items[2].Signal.Aggregate; a.Count != 2 || a.Voters != 2 || a.Sum != "-2" || a.SumSq != "2" {
			t.Errorf("aggregate = %+v", a)
		}
		if out.Items[3].Signal.Idempotency != verb.IdempotencyDeduplicated || out.Items[4].Error == nil {
			t.Errorf("items = %+v", out.Items[3:])
		}
		in.Import = false
		if out, err = verb.Batch.Call(as(t.Context(), "root", verb.Admin), f.verbs, in); err != nil || !artifact.IsCode(out.Items[0].Error, artifact.CodePermissionDenied) || out.Seq != 0 {
			t.Errorf("an admin writes without an import: %+v, %v", out, err)
		}
	})
}

// TestAggregates compares the sums kept with every signal to a recount.
func TestAggregates(t *testing.T) {
	f := newHub(t)
	h := f.mustCreate(t, hypothesis("h-1", "s"))
	for i, in := range []verb.SignalRequest{
		{Kind: "vote", Value: "1"},
		{Kind: "vote", Value: "-1"},
		{Kind: "fund", Value: "0.1"},
		{Kind: "fund", Value: "0.2"},
		{Kind: "fund", Value: "1e-20"},
		{Kind: "rank", Dimension: "novelty", Value: "0.25"},
		{Kind: "rank", Dimension: "novelty", Value: "0.75"},
		{Kind: "calibration", Value: "0.5"},
	} {
		in.Ref = h.Ref.Current().String()
		for _, who := range []string{"ada", "bob"} {
			if _, err := verb.Signal.Call(as(t.Context(), who, verb.Contributor), f.verbs, in); err != nil {
				t.Fatalf("signal %d: %v", i, err)
			}
		}
	}
	const wrong = `
		WITH latest AS (
			SELECT DISTINCT ON (type, artifact, kind, dimension, voter) * FROM signal WHERE kind IN ('vote', 'rank')
			ORDER BY type, artifact, kind, dimension, voter, id DESC
		), counted AS (
			SELECT kind, dimension, voter, value FROM latest
			UNION ALL SELECT kind, dimension, voter, value FROM signal WHERE kind NOT IN ('vote', 'rank')
		), sums AS (
			SELECT kind, dimension, count(*) AS n, count(DISTINCT voter) AS voters, sum(value) AS sum, sum(value * value) AS sum_sq
			FROM counted GROUP BY kind, dimension
		)
		SELECT count(*) FROM sums s FULL JOIN signal_aggregate g USING (kind, dimension)
		WHERE s.n IS DISTINCT FROM g.n OR s.voters IS DISTINCT FROM g.voters OR s.sum IS DISTINCT FROM g.sum OR s.sum_sq IS DISTINCT FROM g.sum_sq`
	if n := f.count(t, wrong); n != 0 {
		t.Errorf("%d aggregates differ from a recount", n)
	}
	_, err := verb.Signal.Call(contributor(t.Context()), f.verbs, verb.SignalRequest{Ref: "hypothesis:h-1", Kind: "vote", Value: "2"})
	if e := artifact.AsError(err); len(e.Problems) != 1 || e.Problems[0].Path != "/value" {
		t.Errorf("a vote of 2: %v", err)
	}
}

func TestList(t *testing.T) {
	f := newHub(t)
	want := map[string]bool{}
	for i := range 25 {
		id := fmt.Sprintf("h-%02d", i)
		f.mustCreate(t, hypothesis(id, "s"))
		want[id] = true
	}
	f.mustCreate(t, verb.CreateRequest{Type: "gene", ID: "A", Title: "A", Content: content(map[string]any{"symbol": "A"})})
	ctx := as(t.Context(), "vic", verb.Viewer)
	got := map[string]bool{}
	in := verb.ListRequest{Type: "hypothesis", Limit: 10}
	pages := 0
	for {
		page, err := verb.List.Call(ctx, f.verbs, in)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		for _, a := range page.Artifacts {
			if got[a.ID] {
				t.Errorf("%s comes twice", a.ID)
			}
			got[a.ID] = true
		}
		f.mustCreate(t, hypothesis("", "written between pages"))
		if in.Cursor = page.NextCursor; in.Cursor == "" {
			break
		}
	}
	if pages != 3 || len(got) != len(want) {
		t.Errorf("%d pages of %d artifacts, want 3 of %d", pages, len(got), len(want))
	}
	first, err := verb.List.Call(ctx, f.verbs, verb.ListRequest{Limit: 1})
	if err != nil || first.NextCursor == "" {
		t.Fatal(first, err)
	}
	_, err = verb.List.Call(ctx, f.verbs, verb.ListRequest{Type: "gene", Cursor: first.NextCursor})
	if artifact.AsError(err).Reason != artifact.ReasonInvalidCursor {
		t.Errorf("a cursor of another filter: %v", err)
	}
	for _, limit := range []int{-1, 201} {
		if _, err := verb.List.Call(ctx, f.verbs, verb.ListRequest{Limit: limit}); !artifact.IsCode(err, artifact.CodeValidationFailed) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}

// TestOversizedContent checks the limit over the verb, to the byte.
func TestOversizedContent(t *testing.T) {
	f := newHub(t)
	sized := func(n int) json.RawMessage {
		const frame = len(`{"statement":""}`)
		return json.RawMessage(`{"statement":"` + string(bytes.Repeat([]byte("x"), n-frame)) + `"}`)
	}
	in := hypothesis("h-big", "x")
	in.Content = sized(artifact.MaxContentBytes + 1)
	_, err := verb.Create.Call(contributor(t.Context()), f.verbs, in)
	if e := artifact.AsError(err); len(e.Problems) != 1 || e.Problems[0].Path != "/content" || e.Problems[0].Constraint != "max_bytes" {
		t.Errorf("1 MiB + 1: %v", err)
	}
	in.Content = sized(artifact.MaxContentBytes)
	f.mustCreate(t, in)
}

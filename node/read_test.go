package node_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

func registry(s *node.Store) *verb.Registry {
	r := new(verb.Registry)
	s.Verbs(r, nil)
	return r
}

func TestGet(t *testing.T) {
	s, f := newStore(t), newFeed(t, 30)
	r, ctx := registry(s), asAda(t.Context())
	first := f.at
	apply(t, s, f.batch(f.write("paper", "p1", "one")))
	old := *f.heads["paper:p1"]
	f.at = f.at.Add(time.Hour)
	apply(t, s, f.batch(f.write("paper", "p1", "two")))
	now := f.heads["paper:p1"]
	if now.head.Revision != 2 {
		t.Fatal("no second revision")
	}
	ref := artifact.Ref{Type: "paper", ID: "p1"}

	out, err := verb.Get.Call(ctx, r, verb.GetRequest{Ref: ref.At(old.head.ContentHash)})
	want := artifact.Artifact{
		Ref: ref.At(old.head.ContentHash), Type: "paper", ID: "p1", Scope: artifact.Commons, Revision: 1, ContentHash: old.head.ContentHash,
		SchemaVersion: 1, Title: "one", State: "draft", CreatedAt: first, CreatedBy: "ada", UpdatedAt: first, UpdatedBy: "bob", Content: old.content, Provenance: old.stamped,
	}
	if diff := cmp.Diff(want, out.Artifact); err != nil || diff != "" || out.AsOf != f.seq {
		t.Errorf("get of an older version at %d: %v (-want +got)\n%s", out.AsOf, err, diff)
	}
	no := false
	out, err = verb.Get.Call(ctx, r, verb.GetRequest{Ref: ref, IncludeContent: &no})
	if a := out.Artifact; err != nil || a.Content != nil || a.Title != "two" || !a.IsLatest || a.CreatedAt != first || a.UpdatedAt != f.at {
		t.Errorf("get without content = %+v, %v", a, err)
	}
	out, err = verb.Get.Call(ctx, r, verb.GetRequest{Ref: ref.At(now.head.ContentHash)})
	if a := out.Artifact; err != nil || string(a.Content) != string(now.content) || !a.IsLatest || a.Revision != 2 {
		t.Errorf("get of the current version by its hash = %+v, %v", a, err)
	}
	for _, missing := range []artifact.Ref{{Type: "paper", ID: "none"}, {Type: "gene", ID: "p1"}, ref.At(artifact.Hash{1})} {
		_, err = verb.Get.Call(ctx, r, verb.GetRequest{Ref: missing})
		e := *artifact.AsError(err)
		e.Problems = nil // they name what types there are; this store has none
		if diff := cmp.Diff(artifact.NotFound(missing.String()), error(&e)); diff != "" {
			t.Errorf("get %s: (-want +got)\n%s", missing, diff)
		}
	}
	stranger := verb.WithCaller(t.Context(), &verb.Caller{})
	if _, err := verb.Get.Call(stranger, r, verb.GetRequest{Ref: ref}); !artifact.IsCode(err, artifact.CodePermissionDenied) {
		t.Errorf("get by one who may not read = %v, want permission_denied", err)
	}
	if _, err := verb.Get.Call(t.Context(), r, verb.GetRequest{Ref: ref}); artifact.AsError(err).Reason != artifact.ReasonUnauthenticated {
		t.Errorf("get without a caller = %v, want unauthenticated", err)
	}
}

func TestGetMeansTheLaterOfTwoRevisionsWithOneHash(t *testing.T) {
	s, f := newStore(t), newFeed(t, 31)
	apply(t, s, f.batch(f.write("paper", "p1", "one")))
	l := f.heads["paper:p1"]
	// The same content once more, as revision 3.
	back := l.revisions[0]
	hash := l.head.ContentHash
	apply(t, s, f.batch(f.write("paper", "p1", "two")))
	var v replicate.Revision
	if err := json.Unmarshal(back.Data, &v); err != nil {
		t.Fatal(err)
	}
	v.Revision, v.CreatedBy = 3, "eve"
	back.Revision = 3
	back.Data, back.Hash = f.encode(v)
	apply(t, s, f.batch([]replicate.Row{back}))
	got, err := get(t, s, artifact.Ref{Type: "paper", ID: "p1", Hash: hash}.String())
	if err != nil || got.Revision != 3 || got.UpdatedBy != "eve" || got.CreatedBy != "ada" {
		t.Errorf("get = %+v, %v, want revision 3", got, err)
	}
}

// TestVisibility checks that what is in a scope that the caller does not see is
// as if it did not exist.
func TestVisibility(t *testing.T) {
	s, f := newStore(t), newFeed(t, 32)
	r, ctx := registry(s), asAda(t.Context())
	apply(t, s, f.batch(append(f.schemas("paper"), f.write("paper", "open", "open")...)))
	rows := f.write("paper", "secret", "secret")
	for i := range rows { // the hub would have written it so
		var data map[string]any
		if err := json.Unmarshal(rows[i].Data, &data); err != nil {
			t.Fatal(err)
		}
		data["scope"], rows[i].Scope = "lab-a", "lab-a"
		rows[i].Data, rows[i].Hash = f.encode(data)
	}
	apply(t, s, f.batch(rows))
	ref := artifact.Ref{Type: "paper", ID: "secret"}
	for _, ref := range []artifact.Ref{ref, ref.At(f.heads["paper:secret"].head.ContentHash)} {
		if _, err := verb.Get.Call(ctx, r, verb.GetRequest{Ref: ref}); !artifact.IsCode(err, artifact.CodeNotFound) {
			t.Errorf("get %s = %v, want not_found", ref, err)
		}
	}
	for _, typ := range []string{"", "paper"} {
		out, err := verb.List.Call(ctx, r, verb.ListRequest{Type: typ})
		if err != nil || len(out.Artifacts) != 1 || out.Artifacts[0].ID != "open" {
			t.Errorf("list of type %q = %+v, %v, want the open one", typ, out.Artifacts, err)
		}
	}
	page, err := s.Subscribe(0, nil).Next(ctx)
	if err != nil || len(page.Events) != 1 {
		t.Errorf("events = %+v, %v, want one", page.Events, err)
	}
}

func TestList(t *testing.T) {
	s, f := newStore(t), newFeed(t, 33)
	r, ctx := registry(s), asAda(t.Context())
	apply(t, s, f.batch(f.schemas("paper", "hypothesis", "gene")))
	for range 30 {
		apply(t, s, f.commits(5)) // many of one millisecond
	}
	for _, typ := range []string{"", "paper"} {
		for _, limit := range []int{1, 7, 200} {
			t.Run(fmt.Sprintf("pages of %d of type %q", limit, typ), func(t *testing.T) {
				want := make(map[string]bool)
				for ref, l := range f.heads {
					if typ == "" || l.head.Type == typ {
						want[ref] = true
					}
				}
				var last *artifact.Artifact
				for in := (verb.ListRequest{Type: typ, Limit: limit, IncludeContent: limit == 7}); ; {
					out, err := verb.List.Call(ctx, r, in)
					if err != nil || out.AsOf != f.seq || len(out.Artifacts) > limit {
						t.Fatalf("list = %d artifacts at %d, %v", len(out.Artifacts), out.AsOf, err)
					}
					for i, a := range out.Artifacts {
						ref := a.Ref.Current().String()
						if !want[ref] {
							t.Errorf("%s comes twice, or should not", ref)
						}
						delete(want, ref)
						if last != nil && (a.CreatedAt.After(last.CreatedAt) || a.CreatedAt.Equal(last.CreatedAt) && a.Ref.Compare(last.Ref) < 0) {
							t.Errorf("%s stands after %s", a.Ref, last.Ref)
						}
						if in.IncludeContent != (string(a.Content) == string(f.heads[ref].content)) {
							t.Errorf("%s has the content %s", ref, a.Content)
						}
						last = &out.Artifacts[i]
					}
					if in.Cursor = out.NextCursor; in.Cursor == "" {
						break
					}
				}
				if len(want) > 0 {
					t.Errorf("never listed: %v", want)
				}
			})
		}
	}
	t.Run("leaves out what is not latest", func(t *testing.T) {
		f.write("paper", "p-old", "old")
		l := f.heads["paper:p-old"]
		l.head.IsLatest, l.head.SupersededBy = false, "paper:p-new"
		apply(t, s, f.batch(f.write("paper", "p-old", "older")))
		out, err := verb.List.Call(ctx, r, verb.ListRequest{Type: "paper", Limit: 200})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range out.Artifacts {
			if a.ID == "p-old" {
				t.Error("a superseded artifact is listed")
			}
		}
		if a, err := get(t, s, "paper:p-old"); err != nil || a.IsLatest || a.SupersededBy != "paper:p-new" {
			t.Errorf("get of it = %+v, %v", a, err)
		}
	})
}

// TestListWhileApplying checks that a walk over the pages shows each artifact
// that was there all along once.
func TestListWhileApplying(t *testing.T) {
	s, f := newStore(t), newFeed(t, 34)
	r, ctx := registry(s), asAda(t.Context())
	for i := range 200 {
		f.at = f.at.Add(time.Duration(i%3) * time.Millisecond)
		apply(t, s, f.batch(f.write("paper", fmt.Sprintf("old-%03d", i), "old")))
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			f.at = f.at.Add(time.Millisecond)
			if err := s.Apply(ctx, f.batch(append(f.write("paper", fmt.Sprintf("new-%d", i), "new"), f.write("paper", fmt.Sprintf("old-%03d", i%200), "again")...))); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 3 {
		seen := make(map[string]int)
		for in := (verb.ListRequest{Limit: 9}); ; {
			out, err := verb.List.Call(ctx, r, in)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range out.Artifacts {
				seen[a.ID]++
			}
			if in.Cursor = out.NextCursor; in.Cursor == "" {
				break
			}
		}
		for i := range 200 {
			if id := fmt.Sprintf("old-%03d", i); seen[id] != 1 {
				t.Errorf("%s was listed %d times", id, seen[id])
			}
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("%s was listed %d times", id, n)
			}
		}
	}
	close(stop)
	wg.Wait()
}

func TestListRefuses(t *testing.T) {
	s, f := newStore(t), newFeed(t, 35)
	r, ctx := registry(s), asAda(t.Context())
	apply(t, s, f.batch(f.schemas("paper", "gene")))
	apply(t, s, f.commits(20))
	out, err := verb.List.Call(ctx, r, verb.ListRequest{Type: "paper", Limit: 1})
	if err != nil || out.NextCursor == "" {
		t.Fatalf("list = %+v, %v", out, err)
	}
	tests := []struct {
		name                     string
		in                       verb.ListRequest
		reason, path, constraint string
	}{
		{"a limit below 1", verb.ListRequest{Limit: -1}, "", "/limit", "range"},
		{"a limit above 200", verb.ListRequest{Limit: 201}, "", "/limit", "range"},
		{"a type that is not registered", verb.ListRequest{Type: "papr"}, "", "/type", "registered_type"},
		{"a cursor of another type", verb.ListRequest{Type: "gene", Cursor: out.NextCursor}, artifact.ReasonInvalidCursor, "/cursor", "cursor"},
		{"a cursor of no type", verb.ListRequest{Cursor: out.NextCursor}, artifact.ReasonInvalidCursor, "/cursor", "cursor"},
		{"a made-up cursor", verb.ListRequest{Cursor: "e30"}, artifact.ReasonInvalidCursor, "/cursor", "cursor"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := verb.List.Call(ctx, r, tt.in)
			e := artifact.AsError(err)
			if e.Code != artifact.CodeValidationFailed || e.Reason != tt.reason || len(e.Problems) != 1 || e.Problems[0].Path != tt.path || e.Problems[0].Constraint != tt.constraint {
				t.Errorf("list = %+v, want %s at %s", err, tt.constraint, tt.path)
			}
		})
	}
}

func TestSchema(t *testing.T) {
	s, f := newStore(t), newFeed(t, 36)
	r, ctx := registry(s), asAda(t.Context())
	document := func(typ string, version int) replicate.Row {
		data, hash := f.encode(replicate.Schema{CreatedAt: f.at, Document: json.RawMessage(fmt.Sprintf(`{"schema_version":%d,"type":%q}`, version, typ)), SchemaVersion: version, Type: typ})
		return replicate.Row{Scope: artifact.Commons, Kind: replicate.KindSchema, Op: replicate.Put, Ref: "schema:" + typ, Revision: version, Hash: hash, At: f.at, Data: data}
	}
	apply(t, s, f.batch([]replicate.Row{document("paper", 1), document("gene", 1), document("paper", 2)}))
	is := func(typ string, version int, current bool) verb.SchemaDocument {
		return verb.SchemaDocument{Type: typ, Version: version, IsCurrent: current, CreatedAt: f.at, Document: json.RawMessage(fmt.Sprintf(`{"schema_version":%d,"type":%q}`, version, typ))}
	}
	for _, tt := range []struct {
		in   verb.SchemaRequest
		want []verb.SchemaDocument
	}{
		{verb.SchemaRequest{}, []verb.SchemaDocument{is("gene", 1, true), is("paper", 2, true)}},
		{verb.SchemaRequest{Type: "paper"}, []verb.SchemaDocument{is("paper", 2, true)}},
		{verb.SchemaRequest{Version: 1}, []verb.SchemaDocument{is("gene", 1, true), is("paper", 1, false)}},
		{verb.SchemaRequest{Type: "paper", Version: 1}, []verb.SchemaDocument{is("paper", 1, false)}},
	} {
		out, err := verb.Schema.Call(ctx, r, tt.in)
		if diff := cmp.Diff(tt.want, out.Schemas); err != nil || diff != "" {
			t.Errorf("schema %+v: %v (-want +got)\n%s", tt.in, err, diff)
		}
	}
	for _, in := range []verb.SchemaRequest{{Type: "none"}, {Type: "paper", Version: 3}} {
		if _, err := verb.Schema.Call(ctx, r, in); !artifact.IsCode(err, artifact.CodeNotFound) {
			t.Errorf("schema %+v = %v, want not_found", in, err)
		}
	}
}

// BenchmarkGet reads one artifact by its key.
func BenchmarkGet(b *testing.B) {
	s, f := newStore(b), newFeed(b, 37)
	f.body = 1400
	for range 20 {
		var batch replicate.Batch
		for range 500 {
			c := f.batch(f.write("paper", "p-"+f.newID(), "a title"))
			batch = replicate.Batch{Rows: append(batch.Rows, c.Rows...), To: c.To}
		}
		apply(b, s, batch)
	}
	r, ctx := registry(s), asAda(b.Context())
	for i := 0; b.Loop(); i++ {
		ref, err := artifact.ParseRef(f.ids[i%len(f.ids)])
		if err != nil {
			b.Fatal(err)
		}
		if _, err := verb.Get.Call(ctx, r, verb.GetRequest{Ref: ref}); err != nil {
			b.Fatal(err)
		}
	}
}

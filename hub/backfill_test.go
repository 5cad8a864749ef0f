package hub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// lived is a hub with some of all that happens on one: changes, links, signals,
// messages, private scopes, moves both ways and a redaction.
func lived(t *testing.T) *fixture {
	t.Helper()
	f := twoLabs(t)
	ada, bob := f.member(t.Context(), "ada", verb.Contributor, verb.Viewer), f.member(t.Context(), "bob", verb.Contributor)
	for i := range 30 {
		in := hypothesis(fmt.Sprintf("h%02d", i), "x <&> é \u2028 "+strings.Repeat("y", i))
		if i%3 == 1 {
			in.Scope = "lab-a"
		}
		made := callOK(t, verb.Create, ada, f.verbs, in)
		ref := made.Ref.Current().String()
		if i%4 == 0 {
			callOK(t, verb.Update, ada, f.verbs, verb.UpdateRequest{Ref: ref, BaseContentHash: made.ContentHash, Title: "Again"})
		}
		for _, value := range []string{"1", "-1"} {
			callOK(t, verb.Signal, ada, f.verbs, verb.SignalRequest{Ref: ref, Kind: "vote", Value: json.Number(value), Metadata: json.RawMessage(`{"why":"<b>"}`)})
		}
		if i%3 != 1 {
			callOK(t, verb.Signal, bob, f.verbs, verb.SignalRequest{Ref: ref, Kind: "rank", Dimension: "novelty", Value: "0.7"})
			callOK(t, verb.Comment, bob, f.verbs, verb.CommentRequest{Ref: ref, Body: "so"})
		}
	}
	for i := range 5 { // more than a page holds
		callOK(t, verb.Create, ada, f.verbs, hypothesis(fmt.Sprintf("large%d", i), strings.Repeat("z", 400_000)))
	}
	callOK(t, verb.Create, ada, f.verbs, verb.CreateRequest{Type: "gene", ID: "A", Title: "A", Content: content(map[string]any{"symbol": "A"})})
	link := callOK(t, verb.Link, ada, f.verbs, verb.LinkRequest{From: "hypothesis:h00", LinkSpec: verb.LinkSpec{Predicate: "about", To: "gene:A"}})
	callOK(t, verb.Link, ada, f.verbs, verb.LinkRequest{From: "hypothesis:h02", LinkSpec: verb.LinkSpec{Predicate: "about", To: "gene:A"}})
	callOK(t, verb.Unlink, ada, f.verbs, verb.UnlinkRequest{Ref: link.Ref, Reason: "no"})
	callOK(t, verb.Create, ada, f.verbs, verb.CreateRequest{Type: "message", Title: "Hello", Content: content(map[string]any{"recipient": "agent:bob", "body": "the secret"})})
	f.grant(t, "lab-a", "root", verb.Admin)
	root := f.admin(t.Context())
	head := func(ref string) artifact.Hash {
		parsed, err := artifact.ParseRef(ref)
		if err != nil {
			t.Fatal(err)
		}
		return f.mustGet(t, ada, parsed).ContentHash
	}
	callOK(t, verb.Move, root, f.verbs, verb.MoveRequest{Ref: "hypothesis:h03", BaseContentHash: head("hypothesis:h03"), Scope: "lab-a", Reason: "private"})
	callOK(t, verb.Move, root, f.verbs, verb.MoveRequest{Ref: "hypothesis:lab-a/h04", BaseContentHash: head("hypothesis:lab-a/h04"), Scope: artifact.Commons, Reason: "public"})
	callOK(t, verb.Redact, root, f.verbs, verb.RedactRequest{Ref: "hypothesis:h08", Reason: "private data", Revisions: 2})
	callOK(t, verb.TokensRevoke, root, f.verbs, verb.TokensRevokeRequest{Agent: "eve"})
	callOK(t, verb.AgentsUpdate, ada, f.verbs, verb.AgentsUpdateRequest{Handle: new("ada")})
	callOK(t, verb.AgentsUpdate, ada, f.verbs, verb.AgentsUpdateRequest{Handle: new("countess")})
	return f
}

func callOK[In, Out any](t *testing.T, v verb.Verb[In, Out], ctx context.Context, by verb.Invoker, in In) Out { //nolint:revive // t comes first in tests
	t.Helper()
	out, err := v.Call(ctx, by, in)
	if err != nil {
		t.Fatalf("%s %+v: %v", v.Name, in, err)
	}
	return out
}

// lastWords returns what the log says last of each thing in some scopes, and all
// events.
func (f *fixture) lastWords(t *testing.T, scopes []string) map[string]replicate.Row {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reader, hello, err := f.Open(ctx, replicate.Position{}, scopes)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]replicate.Row)
	for at := artifact.Seq(0); at < hello.Head; {
		p, err := reader.Next(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range p.Rows {
			var r replicate.Row
			if err := json.Unmarshal(raw, &r); err != nil {
				t.Fatal(err)
			}
			if r.Event != nil {
				e := r
				e.Kind, e.Op, e.Data, e.Content, e.Ref = replicate.KindEvent, replicate.Emit, nil, nil, ""
				out[wordOf(&e)] = e
			}
			switch r.Op {
			case replicate.Put:
				out[wordOf(&r)] = r
			case replicate.Delete:
				delete(out, wordOf(&r))
			}
		}
		at = p.To
	}
	return out
}

// wordOf names what a row speaks of.
func wordOf(r *replicate.Row) string {
	if r.Kind == replicate.KindEvent {
		return fmt.Sprint("event ", r.Seq)
	}
	version := 0
	if r.Kind == replicate.KindRevision || r.Kind == replicate.KindSchema {
		version = r.Revision
	}
	return fmt.Sprint(r.Kind, " ", r.Scope, " ", r.Ref, " ", version)
}

func TestBackfill(t *testing.T) {
	f := lived(t)
	c := &replicate.Client{URL: f.serve(t), Token: f.token(t, "ada", verb.Viewer)}
	fill := func(t *testing.T, r replicate.FillRequest) (got map[string]replicate.Row, sums map[string]int, pages []replicate.Fill, hello replicate.FillHello) {
		t.Helper()
		got, sums = make(map[string]replicate.Row), make(map[string]int)
		err := c.Backfill(t.Context(), r, func(h replicate.FillHello) error { hello = h; return nil }, func(p replicate.Fill) error {
			pages = append(pages, p)
			if p.Head < hello.Head {
				t.Errorf("a page at %d of a back-fill at %d", p.Head, hello.Head)
			}
			for _, r := range p.Rows {
				if r.Kind == replicate.KindAggregate {
					sums[r.Ref]++
					continue
				}
				if _, again := got[wordOf(&r)]; again {
					t.Errorf("%s comes twice", wordOf(&r))
				}
				got[wordOf(&r)] = r
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return got, sums, pages, hello
	}
	compare := func(t *testing.T, got map[string]replicate.Row, scopes []string) {
		t.Helper()
		want := f.lastWords(t, scopes)
		for _, word := range slices.Sorted(maps.Keys(want)) {
			w, g := want[word], got[word]
			if g.Kind == "" {
				t.Errorf("%s is missing", word)
			} else if string(g.Data) != string(w.Data) || g.Kind != replicate.KindEvent && g.Hash != w.Hash || string(g.Content) != string(w.Content) || g.Revision != w.Revision && w.Kind != replicate.KindEvent ||
				w.Kind == replicate.KindEvent && (!reflect.DeepEqual(g.Event, w.Event) || !g.At.Equal(w.At) || g.Scope != w.Scope) {
				t.Errorf("%s is\n%+v, the log says\n%+v", word, g, w)
			}
		}
		for word := range got {
			if _, ok := want[word]; !ok {
				t.Errorf("%s is not in the log", word)
			}
		}
	}
	both := []string{artifact.Commons, "lab-a"}
	all, sums, pages, hello := fill(t, replicate.FillRequest{})
	t.Run("is what the log says last of each thing", func(t *testing.T) {
		compare(t, all, both)
		if !slices.Equal(hello.Scopes, both) || hello.HubID != f.HubID() || hello.Head != f.head(t) {
			t.Errorf("hello = %+v", hello)
		}
		n := f.count(t, "SELECT count(*) FROM signal_aggregate g JOIN artifact a ON a.type = g.type AND a.id = g.artifact WHERE a.scope = ANY ($1)", both)
		for _, k := range sums {
			n -= k
		}
		if n != 0 {
			t.Errorf("%d sums are missing", n)
		}
		if len(pages) < len(replicate.FillKinds)+1 {
			t.Errorf("%d pages: none was cut by its size", len(pages))
		}
		if hello.Estimate[replicate.KindRevision] == 0 {
			t.Errorf("estimate = %v", hello.Estimate)
		}
	})
	t.Run("of a scope alone", func(t *testing.T) {
		got, _, _, _ := fill(t, replicate.FillRequest{Scopes: []string{"lab-a"}})
		maps.DeleteFunc(got, func(_ string, r replicate.Row) bool { // what is for all comes along
			return r.Kind == replicate.KindSchema || r.Kind == replicate.KindRevocation
		})
		compare(t, got, []string{"lab-a"})
	})
	t.Run("goes on after any page", func(t *testing.T) {
		for _, p := range pages {
			if p.Next == nil {
				continue
			}
			_, _, rest, _ := fill(t, replicate.FillRequest{HubID: hello.HubID, Epoch: hello.Epoch, UpTo: hello.Head, From: *p.Next})
			i := slices.IndexFunc(pages, func(q replicate.Fill) bool { return q.Next == p.Next })
			if !reflect.DeepEqual(rest, pages[i+1:]) {
				t.Errorf("after %+v come %d other pages than before", p.Next, len(rest))
			}
		}
	})
	t.Run("leaves out what a caller may not see, and refuses what it is not", func(t *testing.T) {
		for name, r := range map[string]replicate.FillRequest{
			"not_found":                           {Scopes: []string{"lab-b"}},
			artifact.ReasonCursorForeign:          {HubID: "another"},
			artifact.ReasonCursorDiverged:         {Epoch: 7},
			artifact.ReasonCursorAhead:            {UpTo: hello.Head + 1},
			artifact.ReasonInvalidCursor:          {From: replicate.Place{Kind: "node"}},
			artifact.ReasonInvalidCursor + " key": {From: replicate.Place{Kind: replicate.KindRevision, After: []string{"x"}}},
		} {
			err := c.Backfill(t.Context(), r, func(replicate.FillHello) error { return nil }, func(replicate.Fill) error { return nil })
			e := artifact.AsError(err)
			if !strings.HasPrefix(name, e.Reason) && string(e.Code) != name && !strings.Contains(err.Error(), "key is not one") {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, r := range all {
			if text := string(r.Data) + string(r.Content); strings.Contains(text, "the secret") {
				t.Errorf("a message is in it: %s", text)
			}
		}
	})
	t.Run("of signals from before their sums were kept", func(t *testing.T) {
		raw, err := os.ReadFile("migrations/00008_signal_sums.sql")
		if err != nil {
			t.Fatal(err)
		}
		up, down, _ := strings.Cut(string(raw), "-- +goose Down")
		for _, step := range []string{down, "BEGIN;" + up + "COMMIT"} {
			if _, err := f.db.Exec(t.Context(), step); err != nil {
				t.Fatal(err)
			}
		}
		f.db.Reset() // statements of the table as it was
		again, _, _, _ := fill(t, replicate.FillRequest{})
		compare(t, again, both)
	})
	t.Run("finds what was changed behind the log's back", func(t *testing.T) {
		if _, err := f.db.Exec(t.Context(), "UPDATE artifact SET title = 'forged' WHERE type = 'gene'"); err != nil {
			t.Fatal(err)
		}
		err := c.Backfill(t.Context(), replicate.FillRequest{}, func(replicate.FillHello) error { return nil }, func(replicate.Fill) error { return nil })
		if err == nil {
			t.Error("a forged row was sent")
		}
	})
}

// TestBackfillOfALie checks that a page is refused whose rows are not what their
// hashes say, or that is cut off.
func TestBackfillOfALie(t *testing.T) {
	f := lived(t)
	lie := func(string) string { return "" }
	hub := f.Handler(nil, nil)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req.Header.Del("Accept-Encoding")
		got := httptest.NewRecorder()
		hub.ServeHTTP(got, req)
		_, _ = w.Write([]byte(lie(got.Body.String())))
	}))
	t.Cleanup(srv.Close)
	c := &replicate.Client{URL: srv.URL, Token: f.token(t, "ada", verb.Viewer)}
	for name, lies := range map[string]func(string) string{
		"another title":   func(s string) string { return strings.Replace(s, "Again", "Never", 1) },
		"a row of a kind": func(s string) string { return strings.Replace(s, `"kind":"link","op"`, `"kind":"signal","op"`, 1) },
		"an early end":    func(s string) string { return s[:len(s)-len(s)/4] },
		"no hello":        func(s string) string { return s[strings.Index(s, "\n")+1:] },
		"a reset": func(s string) string {
			return s[:strings.LastIndex(s[:len(s)-1], "\n")+1] + `{"type":"reset","reason":"x"}` + "\n"
		},
	} {
		lie = lies
		if err := c.Backfill(t.Context(), replicate.FillRequest{}, func(replicate.FillHello) error { return nil }, func(replicate.Fill) error { return nil }); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	lie = func(s string) string { return s }
	if err := c.Backfill(t.Context(), replicate.FillRequest{}, func(replicate.FillHello) error { return nil }, func(replicate.Fill) error { return nil }); err != nil {
		t.Errorf("the truth was refused: %v", err)
	}
}

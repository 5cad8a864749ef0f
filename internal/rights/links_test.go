package rights_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// alikeAs asks a read of the hub and of a node, and decodes what both answer.
func alikeAs[Out any](t *testing.T, w *world, token, name string, r any) (out Out) {
	t.Helper()
	a := w.alike(t, token, name, r)
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != 200 {
		t.Fatalf("%s %s = %d %s", name, text(r), a.status, a.body)
	}
	return out
}

func (w *world) link(t *testing.T, c *verb.Client, from, predicate, to string) string {
	t.Helper()
	return must(t, c, verb.Link, verb.LinkRequest{From: from, LinkSpec: verb.LinkSpec{Predicate: predicate, To: to}}).Ref
}

// told writes links as lines.
func told(links []verb.LinkItem) (lines []string) {
	for _, l := range links {
		line := l.Direction + " " + l.From + " " + l.Predicate + " " + l.To
		if l.Target != nil {
			line += " " + l.Target.Title
		}
		lines = append(lines, line)
	}
	return lines
}

// TestLinks lists links both ways, at hub and node alike.
func TestLinks(t *testing.T) {
	w := newPair(t)
	ada, adaToken := w.client(t, atHub, "ada", nil, verb.Viewer, verb.Contributor), w.token(t, "ada", nil, verb.Viewer)
	out := w.token(t, "out", nil, verb.Viewer)
	pinned := must(t, w.root, verb.Get, verb.GetRequest{Ref: artifact.Ref{Type: "paper", ID: "p"}}).Artifact.Ref.String()
	w.link(t, ada, "hypothesis:h", "supports", pinned)
	w.link(t, w.root, "hypothesis:h", "supports", "paper:p")
	w.link(t, ada, "hypothesis:i", "supports", "hypothesis:h")
	w.link(t, ada, "hypothesis:h", "derives_from", "paper:p")
	w.link(t, ada, "hypothesis:j", "contradicts", "hypothesis:h")
	gone := w.link(t, ada, "hypothesis:j", "supports", "hypothesis:h")
	must(t, ada, verb.Unlink, verb.UnlinkRequest{Ref: gone, Reason: "wrong"})
	remark := must(t, ada, verb.Comment, verb.CommentRequest{Ref: "hypothesis:h", Body: "so"}).Ref.Current().String()
	w.link(t, ada, "hypothesis:lab-a/h", "supports", "hypothesis:h")
	t.Run("all, out first, by predicate and the other end", func(t *testing.T) {
		got := alikeAs[verb.LinksResponse](t, w, out, "links", request{"ref": "hypothesis:h", "include_targets": true})
		want := []string{
			"out hypothesis:h derives_from paper:p T", "out hypothesis:h supports paper:p T", "out hypothesis:h supports " + pinned + " T",
			"in " + remark + " comments_on hypothesis:h so", "in hypothesis:j contradicts hypothesis:h T", "in hypothesis:i supports hypothesis:h T",
		}
		lines := told(got.Links)
		slices.Sort(lines[1:3])
		slices.Sort(want[1:3])
		if !slices.Equal(lines, want) {
			t.Errorf("links = %q, want %q", lines, want)
		}
		want = []string{"out derives_from 1", "out supports 2", "in comments_on 1", "in contradicts 1", "in supports 1"}
		var counts []string
		for _, n := range got.Counts {
			counts = append(counts, fmt.Sprint(n.Direction, " ", n.Predicate, " ", n.Count))
		}
		if !slices.Equal(counts, want) {
			t.Errorf("counts = %q, want %q", counts, want)
		}
	})
	t.Run("what is private, for its lab alone", func(t *testing.T) {
		r := request{"ref": "hypothesis:h", "direction": "in", "predicates": []string{"supports"}, "types": []string{"hypothesis"}}
		for token, want := range map[string]int{out: 1, adaToken: 2} {
			got := alikeAs[verb.LinksResponse](t, w, token, "links", r)
			if len(got.Links) != want || got.Counts[0].Count != want || got.Links[0].Target != nil {
				t.Errorf("%d links, counts %v; want %d without targets", len(got.Links), got.Counts, want)
			}
		}
	})
	t.Run("page by page, each link once", func(t *testing.T) {
		whole := alikeAs[verb.LinksResponse](t, w, adaToken, "links", request{"ref": "hypothesis:h", "limit": 200})
		for limit := 1; limit <= len(whole.Links)+1; limit++ {
			var all []verb.LinkItem
			r := request{"ref": "hypothesis:h", "limit": limit}
			for {
				page := alikeAs[verb.LinksResponse](t, w, adaToken, "links", r)
				all = append(all, page.Links...)
				if page.NextCursor == "" {
					break
				}
				if len(page.Links) != limit {
					t.Fatalf("a page of %d", len(page.Links))
				}
				if r["cursor"] != nil && page.Counts != nil {
					t.Error("a later page counts")
				}
				r = r.with(request{"cursor": page.NextCursor})
			}
			if !slices.Equal(told(all), told(whole.Links)) {
				t.Errorf("by %d: %q, want %q", limit, told(all), told(whole.Links))
			}
		}
	})
	t.Run("on a link and a signal", func(t *testing.T) {
		link := w.link(t, ada, "hypothesis:i", "derives_from", "paper:p")
		vote := must(t, ada, verb.Signal, verb.SignalRequest{Ref: "hypothesis:i", Kind: "vote", Value: "1"}).Ref
		for _, ref := range []string{link, vote} {
			must(t, ada, verb.Comment, verb.CommentRequest{Ref: ref, Body: "about " + ref})
			got := alikeAs[verb.LinksResponse](t, w, out, "links", request{"ref": ref, "include_targets": true})
			if len(got.Links) != 1 || got.Links[0].Target == nil || got.Links[0].To != ref {
				t.Errorf("links of %s = %s", ref, text(got.Links))
			}
		}
	})
	t.Run("counts stop at a thousand", func(t *testing.T) {
		for n := range 3 {
			b := verb.BatchRequest{Atomic: true}
			for i := range 500 {
				b.Items = append(
					b.Items,
					verb.BatchItem{Create: &verb.CreateRequest{Type: "evidence", ID: fmt.Sprintf("e%d-%d", n, i), Title: "E", Content: object(map[string]any{"statement": "s"})}},
					verb.BatchItem{Link: &verb.LinkRequest{From: fmt.Sprintf("evidence:e%d-%d", n, i), LinkSpec: verb.LinkSpec{Predicate: "supports", To: "hypothesis:j"}}},
				)
			}
			must(t, ada, verb.Batch, b)
		}
		got := alikeAs[verb.LinksResponse](t, w, out, "links", request{"ref": "hypothesis:j", "direction": "in", "limit": 1})
		if want := (verb.LinkCount{Direction: "in", Predicate: "supports", Count: 1000, More: true}); len(got.Counts) != 1 || got.Counts[0] != want {
			t.Errorf("counts = %v, want %v", got.Counts, want)
		}
	})
	for name, c := range map[string]struct {
		r      request
		status int
		tells  string
	}{
		"a direction that is none":       {request{"ref": "hypothesis:h", "direction": "inn"}, 422, `"suggestion":"in"`},
		"a type that is none":            {request{"ref": "hypothesis:h", "types": []string{"hypothesi"}}, 422, `"suggestion":"hypothesis"`},
		"a page of none":                 {request{"ref": "hypothesis:h", "limit": -1}, 422, `"/limit"`},
		"a cursor of another request":    {request{"ref": "hypothesis:h", "cursor": linkCursor(t, "hypothesis:i", "paper:p")}, 400, `invalid_cursor`},
		"a cursor that is none":          {request{"ref": "hypothesis:h", "cursor": "x"}, 400, `invalid_cursor`},
		"too many predicates":            {request{"ref": "hypothesis:h", "predicates": strings.Split(strings.Repeat("a,", 101), ",")}, 422, `max_items`},
		"what is not there":              {request{"ref": "hypothesis:none"}, 404, `not_found`},
		"a link that was taken back":     {request{"ref": gone}, 404, `not_found`},
		"what the lab alone may know of": {request{"ref": "hypothesis:lab-a/h"}, 404, `not_found`},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			if a := w.alike(t, out, "links", c.r); a.status != c.status || !strings.Contains(a.body, c.tells) {
				t.Errorf("links %s = %d %s, want %d with %s", text(c.r), a.status, a.body, c.status, c.tells)
			}
		})
	}
}

package rights_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/scidex-ai/substrate/verb"
)

// TestListEdges lists links and signals at hub and node alike: those of a lab for its
// members alone, each as get answers it.
func TestListEdges(t *testing.T) {
	w := newPair(t)
	ada, adaToken := w.client(t, atHub, "ada", nil, verb.Viewer, verb.Contributor), w.token(t, "ada", nil, verb.Viewer)
	out := w.token(t, "out", nil, verb.Viewer)
	open := []string{w.link(t, ada, "hypothesis:h", "supports", "paper:p"), w.link(t, ada, "hypothesis:i", "supports", "hypothesis:h")}
	hidden := w.link(t, ada, "hypothesis:lab-a/h", "supports", "hypothesis:h")
	gone := w.link(t, ada, "hypothesis:j", "supports", "hypothesis:h")
	must(t, ada, verb.Unlink, verb.UnlinkRequest{Ref: gone, Reason: "wrong"})
	vote := func(ref, value string) string {
		return must(t, ada, verb.Signal, verb.SignalRequest{Ref: ref, Kind: "fund", Value: json.Number(value)}).Ref
	}
	votes := []string{vote("hypothesis:h", "2.5"), vote("hypothesis:i", "10"), vote("hypothesis:lab-a/h", "3")}
	for _, c := range []struct {
		typ, filter, sort string
		outside, inside   []string
	}{
		{"kg_edge", `{"field":"/content/predicate","op":"eq","value":"supports"}`, `["created_at"]`, open, append(slices.Clone(open), hidden)},
		{"kg_edge", `{"field":"/content/to","op":"eq","value":"hypothesis:h"}`, `["-created_at"]`, open[1:], []string{hidden, open[1]}},
		{"kg_edge", `{"field":"/content/from","op":"in","value":["hypothesis:i","hypothesis:lab-a/h"]}`, `["/content/from"]`, open[1:], []string{open[1], hidden}},
		{"kg_edge", `{"field":"ref","op":"eq","value":"` + hidden + `"}`, ``, nil, []string{hidden}},
		{"signal", `{"field":"/content/kind","op":"eq","value":"fund"}`, `["-/content/value"]`, []string{votes[1], votes[0]}, []string{votes[1], votes[2], votes[0]}},
		{"signal", `{"field":"/content/value","op":"lt","value":5}`, `["/content/value"]`, votes[:1], []string{votes[0], votes[2]}},
		{"signal", `{"field":"/content/ref","op":"eq","value":"hypothesis:lab-a/h"}`, ``, nil, votes[2:]},
	} {
		for token, want := range map[string][]string{out: c.outside, adaToken: c.inside} {
			r := request{"type": c.typ, "filter": json.RawMessage(c.filter), "include_content": true, "count": true}
			if c.sort != "" {
				r["sort"] = json.RawMessage(c.sort)
			}
			page := alikeAs[verb.ListResponse](t, w, token, "list", r)
			var got []string
			for i := range page.Artifacts {
				a := &page.Artifacts[i]
				got = append(got, a.Ref.Current().String())
				if one := alikeAs[verb.GetResponse](t, w, token, "get", request{"ref": a.Ref.Current().String()}); text(one.Artifact) != text(*a) {
					t.Errorf("list has %s, and get %s", text(*a), text(one.Artifact))
				}
			}
			if !slices.Equal(got, want) || page.Count.Count != len(want) {
				t.Errorf("%s %s %s = %q, counted %v; want %q", c.typ, c.filter, c.sort, got, page.Count, want)
			}
		}
	}
}

// TestListWithLinks lists artifacts with their links and signals, which are those that
// get answers of each.
func TestListWithLinks(t *testing.T) {
	w := newPair(t)
	ada, adaToken := w.client(t, atHub, "ada", nil, verb.Viewer, verb.Contributor), w.token(t, "ada", nil, verb.Viewer)
	out := w.token(t, "out", nil, verb.Viewer)
	for _, l := range [][3]string{
		{"hypothesis:h", "supports", "paper:p"}, {"hypothesis:i", "supports", "hypothesis:h"}, {"hypothesis:j", "contradicts", "hypothesis:h"}, {"hypothesis:lab-a/h", "supports", "hypothesis:h"},
	} {
		w.link(t, ada, l[0], l[1], l[2])
	}
	for _, ref := range []string{"hypothesis:h", "hypothesis:lab-a/h"} {
		must(t, ada, verb.Signal, verb.SignalRequest{Ref: ref, Kind: "vote", Value: "1"})
	}
	for token, most := range map[string]int{out: 2, adaToken: 3} {
		page := alikeAs[verb.ListResponse](t, w, token, "list", request{"type": "hypothesis", "include_links": true, "link_limit": 25, "include_signals": true})
		if len(page.Links) != len(page.Artifacts) || len(page.Signals) != len(page.Artifacts) {
			t.Fatalf("%d artifacts with %d links and %d signals", len(page.Artifacts), len(page.Links), len(page.Signals))
		}
		for i := range page.Artifacts {
			ref := page.Artifacts[i].Ref.Current().String()
			one := alikeAs[verb.GetResponse](t, w, token, "get", request{"ref": ref, "include_links": true, "include_signals": true})
			if page.Links[i].Ref != ref || text(page.Links[i].Links) != text(one.Links.Links) || len(page.Links[i].More) > 0 {
				t.Errorf("links of %s = %s, and get has %s", ref, text(page.Links[i]), text(one.Links.Links))
			}
			if page.Signals[i].Ref != ref || len(page.Signals[i].Signals) != len(one.Signals) {
				t.Errorf("signals of %s = %s, and get has %s", ref, text(page.Signals[i]), text(one.Signals))
			}
		}
		page = alikeAs[verb.ListResponse](t, w, token, "list", request{"filter": json.RawMessage(`{"field":"ref","op":"eq","value":"hypothesis:h"}`), "link_limit": 1})
		if len(page.Links) != 1 || len(page.Links[0].Links) != 2 || !slices.Equal(page.Links[0].More, []string{"in"}) || page.Links[0].Links[1].Target == nil {
			t.Errorf("one link each way = %s", text(page.Links))
		}
		page = alikeAs[verb.ListResponse](t, w, token, "list", request{"filter": json.RawMessage(`{"field":"ref","op":"eq","value":"hypothesis:h"}`), "link_predicates": []string{"supports", "contradicts"}})
		if n := len(page.Links[0].Links); n != 1+most {
			t.Errorf("%d links of those predicates, want %d", n, 1+most)
		}
	}
}

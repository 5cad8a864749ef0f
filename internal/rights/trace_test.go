package rights_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// position is where a read was made, which moves on whatever is written.
var position = regexp.MustCompile(`"as_of":[0-9]+`)

// TestPrivateLeavesNoTrace asks every read verb of what everyone may see, before and
// after a lab writes all that can be written about it. Those who are no members, or
// whose token names no lab, or who have none, get the same answers, byte for byte:
// links, counts, facets, sums and cursors too.
func TestPrivateLeavesNoTrace(t *testing.T) {
	w := newPair(t)
	w.grant(t, "lab-a", "narrowed", verb.Contributor)
	ada := w.client(t, atHub, "ada", nil, verb.Viewer, verb.Contributor)
	for i := range 3 {
		w.link(t, w.root, "hypothesis:h", "supports", []string{"paper:p", "hypothesis:i", "hypothesis:j"}[i])
	}
	must(t, w.root, verb.Comment, verb.CommentRequest{Ref: "hypothesis:h", Body: "amyloid in public"})
	must(t, w.root, verb.Signal, verb.SignalRequest{Ref: "hypothesis:h", Kind: "vote", Value: "1"})
	first := must(t, w.root, verb.Get, verb.GetRequest{Ref: parsed(t, "hypothesis:h")}).Artifact.Ref.String()
	w.update(t, w.root, "hypothesis:h", verb.UpdateRequest{Title: "Amyloid"})
	head, err := w.hub.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[string]string{
		"no member": w.token(t, "out", nil, verb.Viewer), "a narrowed token": w.token(t, "narrowed", []string{}, verb.Viewer), "no token": "",
	}
	reads := map[string][]request{
		"get": {
			{"ref": "hypothesis:h", "include_links": true, "include_signals": true},
			{"ref": "hypothesis:h", "follow": true},
			{"ref": "hypothesis:h", "as_of_seq": head},
			{"ref": "paper:p", "include_links": true},
			{"ref": first},
		},
		"history": {{"ref": "hypothesis:h", "include_content": true}, {"ref": "hypothesis:h", "limit": 1}},
		"diff":    {{"ref_a": first, "ref_b": "hypothesis:h"}},
		"links": {
			{"ref": "hypothesis:h", "include_targets": true},
			{"ref": "hypothesis:h", "limit": 1},
			{"ref": "hypothesis:h", "direction": "in", "types": []string{"hypothesis"}},
			{"ref": "paper:p"},
			{"ref": "hypothesis:j", "limit": 1},
		},
		"signals": {{"ref": "hypothesis:h", "at": "2030-01-31T00:00:00Z"}},
		"schema":  {{"type": "hypothesis", "all_versions": true}},
		"list": {
			{},
			{"type": "hypothesis", "limit": 1},
			{"type": "comment", "count": true},
			{"scope": "lab-a", "count": true},
			{"filter": json.RawMessage(`{"link":{"predicate":"supports","direction":"in","max":1}}`), "type": "hypothesis", "count": true},
			{"filter": json.RawMessage(`{"signal":{"kind":"fund","agg":"sum","op":"gt","value":0}}`), "count": true},
			{"filter": json.RawMessage(`{"field":"superseded_by","op":"exists","value":true}`), "count": true},
			{"sort": json.RawMessage(`["-title"]`), "type": "hypothesis", "limit": 1},
			{"sort": json.RawMessage(`[{"signal":{"kind":"fund","agg":"sum"},"order":"desc"}]`), "type": "hypothesis"},
		},
		"search": {
			{"query": "amyloid", "facets": []string{"type", "state", "scope"}, "highlight": true},
			{"query": "amyloid", "limit": 1},
			{"query": "amyl*", "scope": "lab-a"},
			{"mode": "structured", "filter": json.RawMessage(`{"link":{"predicate":"supports","direction":"in","min":1}}`)},
			{"mode": "structured", "filter": json.RawMessage(`{"link":{"predicate":"contradicts","direction":"out"}}`)},
			{"mode": "structured", "filter": json.RawMessage(`{"link":{"direction":"in","max":3}}`), "types": []string{"hypothesis", "paper"}},
			{"mode": "structured", "filter": json.RawMessage(`{"signal":{"kind":"fund","agg":"sum","op":"gt","value":0}}`)},
			{"mode": "structured", "filter": json.RawMessage(`{"field":"title","op":"contains","value":"myloid"}`)},
		},
	}
	answers := func() map[string]string {
		w.settle(t)
		got := map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(reads)) {
			for _, r := range reads[name] {
				for who, token := range tokens {
					for _, door := range []string{atHub, atNode} {
						a := w.ask(t, door, token, name, r)
						got[fmt.Sprint(name, " ", text(r), " by ", who, " at the ", door)] = fmt.Sprint(a.status, " ", position.ReplaceAllString(a.body, ""))
					}
				}
			}
		}
		return got
	}
	before := answers()
	w.writeAbout(t, ada)
	for key, after := range answers() {
		if after != before[key] {
			t.Errorf("%s tells of the lab:\n  before: %s\n  after:  %s", key, before[key], after)
		}
	}
	// A member is told, or nothing was tried.
	member := w.token(t, "ada", nil, verb.Viewer)
	for _, c := range []struct {
		name    string
		request request
	}{{"get", reads["get"][0]}, {"links", reads["links"][0]}, {"links", reads["links"][2]}, {"list", reads["list"][0]}, {"search", reads["search"][0]}} {
		a := w.ask(t, atNode, member, c.name, c.request)
		if key := fmt.Sprint(c.name, " ", text(c.request), " by no member at the node"); a.status != 200 || fmt.Sprint(a.status, " ", position.ReplaceAllString(a.body, "")) == before[key] {
			t.Errorf("%s %s tells a member of nothing: %d %s", c.name, text(c.request), a.status, a.body)
		}
	}
}

// writeAbout writes in lab A about hypothesis:h, which is in commons.
func (w *world) writeAbout(t *testing.T, ada *verb.Client) {
	t.Helper()
	create := func(typ, id, title string) string {
		t.Helper()
		c := contents(typ, "amyloid")
		return must(t, ada, verb.Create, verb.CreateRequest{Type: typ, ID: id, Scope: "lab-a", Title: title, Content: object(c)}).Ref.Current().String()
	}
	mine := create("hypothesis", "mine", "Amyloid, beta-amyloid")
	w.link(t, ada, mine, "supports", "hypothesis:h")
	w.link(t, ada, "hypothesis:h", "contradicts", mine)
	w.link(t, ada, mine, "supports", "paper:p")
	again := must(t, ada, verb.Comment, verb.CommentRequest{Ref: "hypothesis:h", Body: "amyloid among us", Scope: "lab-a"}).Ref.Current().String()
	must(t, ada, verb.Comment, verb.CommentRequest{Ref: "hypothesis:h", Body: "an answer", ThreadParent: again, Scope: "lab-a"})
	must(t, ada, verb.Signal, verb.SignalRequest{Ref: mine, Kind: "vote", Value: "1"})
	must(t, ada, verb.Signal, verb.SignalRequest{Ref: mine, Kind: "fund", Value: "5", Metadata: json.RawMessage(`{"of":"hypothesis:h"}`)})
	w.update(t, ada, mine, verb.UpdateRequest{Title: "Amyloid β"})
	must(t, ada, verb.Supersede, verb.SupersedeRequest{Ref: mine, ReplacementRef: "hypothesis:h", Reason: "r"})
	gone := w.link(t, ada, create("evidence", "e", "Amyloid evidence"), "supports", "hypothesis:h")
	must(t, ada, verb.Unlink, verb.UnlinkRequest{Ref: gone, Reason: "r"})
	// What comes from the lab and goes back was not there for others.
	back := create("hypothesis", "back", "Amyloid, for a while")
	for _, to := range []string{artifact.Commons, "lab-a"} {
		at := must(t, w.root, verb.Get, verb.GetRequest{Ref: parsed(t, back)}).Artifact
		must(t, w.root, verb.Move, verb.MoveRequest{Ref: back, Scope: to, BaseContentHash: at.ContentHash, Reason: "r"})
	}
}

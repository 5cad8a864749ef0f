package rights_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/verb"
)

// alike asks a read of the hub and of a node, and returns what both answer.
func (w *world) alike(t *testing.T, token, name string, r any) answer {
	t.Helper()
	w.settle(t)
	hub, node := w.ask(t, atHub, token, name, r), w.ask(t, atNode, token, name, r)
	if hub.status != node.status || hub.body != node.body {
		t.Errorf("%s %s: the answers differ:\n  hub:  %d %s\n  node: %d %s", name, text(r), hub.status, hub.body, node.status, node.body)
	}
	return hub
}

// got returns the artifact that get answers at hub and node, nil for none.
func (w *world) got(t *testing.T, token string, r request) *artifact.Artifact {
	t.Helper()
	a := w.alike(t, token, "get", r)
	if a.status == 404 {
		return nil
	}
	var out verb.GetResponse
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != 200 {
		t.Fatalf("get %s = %d %s", text(r), a.status, a.body)
	}
	return &out.Artifact
}

// newPair makes a world of a hub and a node that holds a lab, with two hypotheses
// and a paper in commons and the same in the lab, all by root.
func newPair(t *testing.T) *world {
	t.Helper()
	return newPairOn(t, pgtest.New(t, initHub))
}

func newPairOn(t *testing.T, db *pgxpool.Pool) *world {
	t.Helper()
	w := newWorldOn(t, db, "lab-a")
	w.enrol(t, atNode, "A", "lab-a")
	w.grant(t, "lab-a", "ada", verb.Contributor)
	for _, scope := range []string{artifact.Commons, "lab-a"} {
		for id, typ := range map[string]string{"h": "hypothesis", "i": "hypothesis", "j": "hypothesis", "p": "paper"} {
			must(t, w.root, verb.Create, verb.CreateRequest{Type: typ, ID: id, Scope: scope, Title: "T", Content: object(contents(typ, "x"))})
		}
	}
	return w
}

// TestAddressed reads links and signals by their refs, at hub and node alike.
func TestAddressed(t *testing.T) {
	w := newPair(t)
	ada, out := w.client(t, atHub, "ada", nil, verb.Viewer, verb.Contributor), w.token(t, "out", nil, verb.Viewer)
	link := func(from, to string) string {
		return must(t, ada, verb.Link, verb.LinkRequest{From: from, LinkSpec: verb.LinkSpec{
			Predicate: "supports", To: to, EvidenceRefs: []string{"hypothesis:i"}, Evidence: json.RawMessage(`{"span":"<b> & é"}`),
		}}).Ref
	}
	signal := func(ref string) string {
		return must(t, ada, verb.Signal, verb.SignalRequest{Ref: ref, Kind: "fund", Value: "12345.50", Weight: "2", Reason: "r", Metadata: json.RawMessage(`{"b":1,"a":2}`)}).Ref
	}
	for name, c := range map[string]struct{ ref, content, title string }{
		"a link": {link("hypothesis:h", "paper:p"), `{"evidence":{"span":"<b> & é"},"evidence_refs":["hypothesis:i"],"from":"hypothesis:h","predicate":"supports","to":"paper:p"}`, "hypothesis:h supports paper:p"},
		"a signal": {
			signal("hypothesis:h"), `{"dimension":"","kind":"fund","metadata":{"a":2,"b":1},"reason":"r","ref":"hypothesis:h","value":12345.5,"voter":"ada","voter_kind":"human","weight":2}`,
			"fund 12345.5 on hypothesis:h",
		},
	} {
		a := w.got(t, out, request{"ref": c.ref})
		if a == nil || string(a.Content) != c.content || a.Title != c.title || a.CreatedBy != "ada" || a.Revision != 1 || !a.IsLatest || a.Scope != artifact.Commons {
			t.Fatalf("%s = %+v", name, a)
		}
		if want := artifact.ContentHash(a.Type, a.Title, a.State, a.Content); a.ContentHash != want || a.Ref.Current().String() != c.ref {
			t.Errorf("%s has the hash %s, want %s", name, a.ContentHash, want)
		}
		if pinned := w.got(t, out, request{"ref": a.Ref.String(), "include_content": false}); pinned == nil || pinned.Content != nil {
			t.Errorf("%s by its hash = %+v", name, pinned)
		}
		if none := w.got(t, out, request{"ref": c.ref + "@" + another(a.ContentHash).String()}); none != nil {
			t.Errorf("%s by another hash = %+v", name, none)
		}
	}
	for name, ref := range map[string]string{"a lab's link": link("hypothesis:lab-a/h", "paper:p"), "a lab's signal": signal("hypothesis:lab-a/h")} {
		if w.got(t, ada.Token, request{"ref": ref}) == nil {
			t.Errorf("%s is not there for a member", name)
		}
		if w.got(t, out, request{"ref": ref}) != nil {
			t.Errorf("%s is told to others", name)
		}
	}
	taken := link("hypothesis:i", "paper:p")
	must(t, ada, verb.Unlink, verb.UnlinkRequest{Ref: taken, Reason: "wrong"})
	if a := w.got(t, ada.Token, request{"ref": taken}); a != nil {
		t.Errorf("a link that was taken back = %+v", a)
	}
}

// TestFollow resolves what was replaced, at hub and node alike.
func TestFollow(t *testing.T) {
	w := newPair(t)
	ada, out := w.token(t, "ada", nil, verb.Viewer), w.token(t, "out", nil, verb.Viewer)
	supersede := func(ref, by string) {
		must(t, w.root, verb.Supersede, verb.SupersedeRequest{Ref: ref, ReplacementRef: by, Reason: "outdated"})
	}
	end := func(token, ref string) string {
		a := w.got(t, token, request{"ref": ref, "follow": true})
		if a == nil {
			return ""
		}
		return a.Ref.Current().String()
	}
	supersede("hypothesis:lab-a/h", "hypothesis:lab-a/i")
	supersede("hypothesis:lab-a/i", "hypothesis:h")
	supersede("hypothesis:h", "hypothesis:i")
	for _, c := range []struct{ token, from, want string }{
		{out, "hypothesis:h", "hypothesis:i"},
		{out, "hypothesis:i", "hypothesis:i"},
		{ada, "hypothesis:lab-a/h", "hypothesis:i"},
		{out, "hypothesis:lab-a/h", ""},
		{out, "hypothesis:none", ""},
	} {
		if got := end(c.token, c.from); got != c.want {
			t.Errorf("%s leads to %q, want %q", c.from, got, c.want)
		}
	}
	if a := w.got(t, out, request{"ref": "hypothesis:h"}); a == nil || a.SupersededBy != "hypothesis:i" {
		t.Errorf("without follow = %+v", a)
	}
	hash := w.got(t, out, request{"ref": "hypothesis:h"}).Ref.String()
	if a := w.alike(t, out, "get", request{"ref": hash, "follow": true}); a.status != 422 || !strings.Contains(a.body, "/follow") {
		t.Errorf("of a version = %d %s", a.status, a.body)
	}
	// Retired ones lead nowhere further.
	must(t, w.root, verb.Supersede, verb.SupersedeRequest{Ref: "hypothesis:i", Reason: "wrong"})
	if got := end(out, "hypothesis:h"); got != "hypothesis:i" {
		t.Errorf("it leads to %q, want what was retired", got)
	}
	t.Run("a circle ends before it comes round", func(t *testing.T) {
		for _, q := range []string{"UPDATE artifact SET superseded_by = 'hypothesis:h' WHERE type = 'hypothesis' AND id = 'i'"} {
			if _, err := w.db.Exec(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		got := w.ask(t, atHub, out, "get", request{"ref": "hypothesis:h", "follow": true, "include_content": false})
		if !strings.Contains(got.body, `"id":"i"`) {
			t.Errorf("it leads to %s", got.body)
		}
	})
}

// TestProvenance reads on whose behalf a version was written, at hub and node alike.
func TestProvenance(t *testing.T) {
	w := newPair(t)
	c := verb.Claims{
		ActorKind: "ai_local", Permissions: []string{verb.Contributor, verb.Viewer}, SessionID: "s-2", ParentSessionID: "s-1", TaskID: "<task>",
		DelegationChain: []artifact.DelegationStep{{ActorID: "root", SessionID: "s-0"}},
	}
	c.Subject = "agent-7"
	token, err := w.hub.SigningKey().Sign(c, 1e12)
	if err != nil {
		t.Fatal(err)
	}
	out := must(t, &verb.Client{URL: w.hubURL, Token: token}, verb.Create, verb.CreateRequest{Type: "hypothesis", ID: "delegated", Title: "T", Content: object(contents("hypothesis", "x"))})
	a := w.got(t, w.root.Token, request{"ref": "hypothesis:delegated"})
	var p struct {
		ActorID   string                    `json:"actor_id"`
		Chain     []artifact.DelegationStep `json:"delegation_chain"`
		RequestID string                    `json:"request_id"`
		TaskID    string                    `json:"task_id"`
	}
	if err := json.Unmarshal(a.Provenance, &p); err != nil {
		t.Fatal(err)
	}
	if p.ActorID != "agent-7" || len(p.Chain) != 1 || p.Chain[0].ActorID != "root" || p.RequestID != out.RequestID || p.TaskID != "<task>" {
		t.Errorf("provenance = %s", a.Provenance)
	}
}

// TestUnknownType asks for what is of no type, at hub and node alike.
func TestUnknownType(t *testing.T) {
	w := newPair(t)
	out := w.token(t, "out", nil, verb.Viewer)
	for ref, want := range map[string]string{
		"hypothesys:h": `"suggestion":"hypothesis:h"`, "kg_edges:k-1": `"suggestion":"kg_edge:k-1"`, "nothing:x": `"suggestion":null`,
		"hypothesys:h@" + artifact.HashBytes(nil).String(): `"suggestion":"hypothesis:h`,
	} {
		for _, name := range []string{verb.Get.Name, verb.Signals.Name} {
			if a := w.alike(t, out, name, request{"ref": ref}); a.status != 404 || !strings.Contains(a.body, want) || !strings.Contains(a.body, "registered_type") {
				t.Errorf("%s %s = %d %s", name, ref, a.status, a.body)
			}
		}
	}
	for _, ref := range []string{"hypothesis:none", "hypothesis:lab-a/h", "kg_edge:k-none", "signal:s-none"} {
		if a := w.alike(t, out, verb.Get.Name, request{"ref": ref}); a.status != 404 || strings.Contains(a.body, "problems") {
			t.Errorf("get %s = %d %s", ref, a.status, a.body)
		}
	}
}

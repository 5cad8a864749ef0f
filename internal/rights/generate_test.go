package rights_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// A request is the JSON object of one.
type request map[string]any

func (r request) with(more request) request {
	all := maps.Clone(r)
	maps.Copy(all, more)
	return all
}

// A variant is a request in two forms: one names what the caller may not know of,
// the other, alike but for that, what is not there.
type variant struct {
	of         string // the property that names it
	name       string
	real, twin request
	same       []pair // beside those of secret and absent: what stands in one form for what in the other
	hashed     bool   // the names are in the content, and so the hash of what is written is another
}

// A generator makes requests of every verb from their schemas.
type generator struct {
	t    *testing.T
	l    *lab
	open map[string]any // a valid value by property, or by verb and property
}

// always are optional properties that a verb's requests have in every shape.
var always = map[string][]string{
	"schema.all_versions":  {"type"},
	"search":               {"query"},
	"poll.auto_advance":    {"consumer_id"},
	"update":               {"title"},
	"tokens/revoke.issuer": {"token_id"},
	"unlink":               {"ref"},
	"unlink.from":          {"predicate", "to"},
	"unlink.predicate":     {"from", "to"},
	"unlink.to":            {"from", "predicate"},
	"candidates/revise":    {"dry_run"}, // what one of a pair decides, the other would meet
	"candidates/approve":   {"dry_run"},
	"candidates/reject":    {"dry_run"},
}

// instead are the properties in whose place an optional one stands.
var instead = map[string][]string{
	"messages/list.thread": {"box"},
	"unlink.from":          {"ref"}, "unlink.predicate": {"ref"}, "unlink.to": {"ref"},
}

func newGenerator(t *testing.T, l *lab) *generator {
	t.Helper()
	current := func(r artifact.Ref) string { return r.Current().String() }
	nodes := must(t, l.root, verb.NodesList, verb.NodesListRequest{}).Nodes
	text := "some words"
	head, err := l.hub.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	start := artifact.Seq(0)
	event := must(t, l.root, verb.Poll, verb.PollRequest{Types: []string{"hypothesis.created"}, Since: &start, Limit: 1}).Events[0].ID
	return &generator{t, l, map[string]any{
		"additional_signatures": []any{map[string]any{"by": "me"}}, "agent": "out", "agent_kind": "human", "atomic": true,
		"base_content_hash": l.open.hypothesis.Hash.String(), "content": contents("hypothesis", "something"), "dimension": "", "dry_run": true,
		"evidence": map[string]any{"span": text}, "evidence_refs": []any{current(l.open.paper)}, "expires_seconds": 60, "from": current(l.open.hypothesis),
		"handle": "open-handle", "id": "some-id", "idempotency_key": newKey(), "import": true, "include_content": true, "issuer": "https://issuer.example",
		"kind": "human", "lab": text, "limit": 10, "may_delegate": true, "merge_patch": map[string]any{"statement": text}, "metadata": map[string]any{"a": 1},
		"note": text, "patch": []any{map[string]any{"op": "replace", "path": "/title", "value": text}}, "predicate": "derives_from", "reason": text,
		"recipient": "agent:root", "ref": current(l.open.hypothesis), "revisions": 1, "role": "some-role", "roles": []any{"some-role"}, "scope": artifact.Commons,
		"scopes": []any{labB}, "state": "investigating", "title": text, "to": current(l.open.paper), "token_id": newKey(), "type": "hypothesis",
		"value": 1, "version": 1, "weight": 1, "with_history": true, "follow": true, "include_links": true, "link_predicates": []any{"supports"}, "link_limit": 2, "include_signals": true, "as_of_seq": head, "all_versions": true, "ref_a": current(l.open.hypothesis), "ref_b": current(l.open.paper), "direction": "in", "predicates": []any{"supports"}, "types": []any{"hypothesis"}, "include_targets": true, "kinds": []any{"vote"}, "at": "2026-01-31T00:00:00Z", "session": true, "to_create_in_batch": true, "auto_merge": true,
		"body": text, "replacement_ref": current(l.open.moved), "thread_parent": current(l.open.comment),
		"items": []any{map[string]any{"op": "signal", "ref": current(l.open.wiki), "kind": "vote", "value": 1}},

		"box": verb.BoxInbox, "thread": l.open.mail, "ack_status": verb.AckAny, "priority": "high", "include_archived": true, "subject": text,
		"in_reply_to": l.open.mail, "response": text, "messages/ack.ref": l.open.mail, "messages/ack.status": verb.AckRead,
		"messages/list.cursor": (&verb.MessagesListRequest{}).NextCursor(verb.MailPlace{At: time.UnixMilli(1), ID: "m-open"}),

		"scope_id": artifact.Commons, "candidate_id": l.open.candidate, "expected_version": 1, "family": "trial",
		"proposal": map[string]any{"title": text, "content": map[string]any{"text": text}}, "candidates/list.kind": verb.CandidateArtifact,
		"artifacts":              []any{map[string]any{"family": "hypothesis", "artifact_id": "open-h", "revision": 1}},
		"candidates/list.status": verb.CandidatePending,
		"candidates/list.cursor": (&verb.CandidatesListRequest{ScopeID: artifact.Commons}).NextCursorAfter(verb.CandidatePlace{At: time.UnixMilli(1), ID: "c"}),

		"query": "something", "mode": verb.SearchLexical, "highlight": true, "rerank": false, "facets": []any{"type", "scope"},
		"search.filter": map[string]any{"field": "state", "op": "eq", "value": "proposed"},
		"search.cursor": (&verb.SearchRequest{Query: "something"}).After(10),

		"consumer_id": "open-consumer", "auto_advance": true, "include_private": true, "generation": 1, "epoch": 1, "event_id": event, "event_ids": []any{event},
		"poll.types": []any{"hypothesis.*"}, "poll.filter": map[string]any{"==": []any{1, 1}}, "since": 0,
		"agents/get.agent": "root", "comment.kind": "question", "agents/list.cursor": verb.EncodeNameCursor("a", "agents\n\n"),
		"list.cursor":    verb.EncodeCursor(verb.ListCursor{At: l.private.hypothesis.CreatedAt, Type: "hypothesis", ID: "open-h"}, ""),
		"history.cursor": verb.HistoryCursor(l.open.hypothesis, 2), "links.cursor": linkCursor(t, current(l.open.hypothesis), "kg_edge:k-0"),
		"move.base_content_hash": l.open.inLabB.Hash.String(), "move.ref": current(l.open.inLabB), "nodes/revoke.id": nodes[0].ID,
		"redact.ref": current(l.open.inLabB), "scopes/create.id": "lab-new", "scopes/grant.roles": []any{verb.Viewer}, "scopes/grant.scope": labB,
		"scopes/members.cursor": verb.EncodeNameCursor("a", "members "+labB), "scopes/members.scope": labB, "scopes/revoke.scope": labB,
		"filter": map[string]any{"field": "title", "op": "ne", "value": text}, "sort": []any{"title"}, "count": true,
		"paper_pmid": openPMID.real, "span": text, "claim": text,
		"signal.kind": "vote", "signal.voter": "import:someone", "unlink.predicate": "supports", "unlink.ref": l.open.link,
	}}
}

// value returns a valid value of a property, which names nothing private.
func (g *generator) value(name, property string, s *jsonschema.Schema) any {
	if v, ok := g.open[name+"."+property]; ok {
		return v
	}
	if v, ok := g.open[property]; ok {
		return v
	}
	if s.Items != nil && len(s.Items.Properties) > 0 {
		return []any{g.required(name, s.Items)}
	}
	if len(s.Properties) > 0 {
		return g.required(name, s)
	}
	g.t.Errorf("%s: newGenerator does not know the property %q: teach it a valid value, and teach private what it can name", name, property)
	return nil
}

func (g *generator) required(name string, s *jsonschema.Schema) request {
	r := request{}
	for _, property := range append(slices.Clone(s.Required), always[name]...) {
		r[property] = g.value(name, property, s.Properties[property])
	}
	return r
}

// A shape is a request that names nothing private, by the optional property that
// it has beside the required ones; "" for none.
type shape struct {
	added string
	request
}

// shapes returns requests of a verb with the required properties, and one more in
// turn.
func (g *generator) shapes(v verb.Info) []shape {
	base := g.required(v.Name, v.In)
	all := []shape{{"", base}}
	for _, property := range slices.Sorted(maps.Keys(v.In.Properties)) {
		if _, there := base[property]; there {
			continue
		}
		r := base.with(request{property: g.value(v.Name, property, v.In.Properties[property])})
		for _, more := range always[v.Name+"."+property] {
			r[more] = g.value(v.Name, more, v.In.Properties[more])
		}
		for _, less := range instead[v.Name+"."+property] {
			delete(r, less)
		}
		all = append(all, shape{property, r})
	}
	return all
}

// variants returns the requests of a verb that name what is private: everything
// in the plainest shape that has the property, and a few things in the others.
func (g *generator) variants(v verb.Info) (all []variant) {
	for _, s := range g.shapes(v) {
		for _, property := range slices.Sorted(maps.Keys(s.request)) {
			found := g.private(v, property, v.In.Properties[property])
			if s.added != "" && s.added != property {
				found = found[:min(2, len(found))]
			}
			for _, f := range found {
				f.real, f.twin = s.request.with(f.real), s.request.with(f.twin)
				if (s.added == "id" || s.added == "idempotency_key") && s.added != property {
					f.real["dry_run"], f.twin["dry_run"] = true, true // what one of the pair writes, the other would meet
				}
				f.name = f.of + ": " + f.name
				if s.added != "" {
					f.name += ", with " + s.added
				}
				all = append(all, f)
			}
		}
	}
	return all
}

// keptBack marks names of a version that was left behind when its artifact was
// published.
const keptBack = " kept back"

// private returns what a property may name, by what is given for it and perhaps
// for others.
func (g *generator) private(v verb.Info, property string, s *jsonschema.Schema) (all []variant) {
	p := &g.l.private
	set := func(name string, named pair, value func(string) any) {
		all = append(all, variant{
			of: property, name: name, real: request{property: value(named.real)}, twin: request{property: value(named.twin)}, same: unlike(named),
		})
	}
	text := func(s string) any { return s }
	if s.Items != nil { // of strings, each of which may name something
		text = func(s string) any { return []any{s} }
	}
	each := func(kind, prefix string, named []pair) {
		for _, n := range named {
			set(kind, pair{prefix + n.real, prefix + n.twin}, text)
		}
	}
	switch property {
	case "ref":
		for _, r := range p.refs {
			set(r.real, r.pair, text)
			if _, based := v.In.Properties["base_content_hash"]; based {
				last := &all[len(all)-1]
				last.real["base_content_hash"], last.twin["base_content_hash"] = r.hash.String(), r.hash.String()
				if !slices.Contains(v.In.Required, "base_content_hash") {
					set(r.real+" without a base", r.pair, text)
				}
			}
		}
		if v.Name == verb.Get.Name || v.Effect == verb.Write && v.Name != verb.Unlink.Name { // they take a version
			set("a version", pair{g.l.open.moved.Current().String() + "@" + p.past.real, g.l.open.moved.Current().String() + "@" + p.past.twin}, text)
			all[len(all)-1].same, all[len(all)-1].of = unlike(p.past), property+keptBack
		}
	case "base_content_hash":
		for name, base := range map[string]artifact.Hash{"no version's": another(p.refs[0].hash), "an earlier one": p.stale} {
			all = append(all, variant{
				of: property, name: name,
				real: request{"ref": p.refs[0].real, property: base.String()}, twin: request{"ref": p.refs[0].twin, property: base.String()},
			})
		}
		all = append(
			all,
			variant{
				of: property + keptBack, name: "of a version", same: unlike(p.past),
				real: request{"ref": g.l.open.moved.Current().String(), property: p.past.real}, twin: request{"ref": g.l.open.moved.Current().String(), property: p.past.twin},
			},
		)
	case "ref_a", "ref_b", "from", "to", "evidence_refs", "replacement_ref", "thread_parent", "in_reply_to", "thread":
		for _, r := range p.refs {
			set(r.real, r.pair, text)
		}
		set("a version", pair{g.l.open.moved.Current().String() + "@" + p.past.real, g.l.open.moved.Current().String() + "@" + p.past.twin}, text)
		all[len(all)-1].same, all[len(all)-1].of = unlike(p.past), property+keptBack
		if v.Name == verb.Comment.Name {
			for _, aside := range p.asides {
				all = append(all, variant{
					of: property, name: "on " + aside.on, same: unlike(aside.pair),
					real: request{"ref": aside.on, property: aside.real}, twin: request{"ref": aside.on, property: aside.twin},
				})
			}
		}
		if v.Name == verb.Unlink.Name {
			all = append(all, variant{
				of: property, name: "with the other end of a link", real: request{"from": p.ends[0].real, "to": p.ends[1].real}, twin: request{"from": p.ends[0].twin, "to": p.ends[1].twin},
			})
		}
	case "replacement":
		for _, inner := range g.inner(v, s) {
			inner.of = property + "." + inner.of
			delete(inner.real, "dry_run") // the request's own
			delete(inner.twin, "dry_run")
			inner.real, inner.twin = request{property: inner.real}, request{property: inner.twin}
			all = append(all, inner)
		}
	case "scope_id":
		set(labA, paired(labA), text)
	case "candidate_id":
		for _, scope := range []string{labA, artifact.Commons} {
			for _, c := range p.candidates {
				all = append(all, variant{
					of: property, name: "in " + scope, same: unlike(c), real: request{"scope_id": scope, property: c.real}, twin: request{"scope_id": scope, property: c.twin},
				})
			}
		}
	case "artifacts":
		named := func(s string) any {
			r, _ := artifact.ParseRef(s)
			return []any{map[string]any{"family": r.Type, "artifact_id": r.ID, "revision": 1}}
		}
		for _, r := range p.refs {
			set(r.real, r.pair, named)
		}
	case "proposal":
		for _, inner := range g.inner(v, s) {
			inner.of = property + "." + inner.of
			inner.real, inner.twin = request{property: inner.real}, request{property: inner.twin}
			all = append(all, inner)
		}
	case "links":
		for _, inner := range g.inner(v, s.Items) {
			inner.of = property + "." + inner.of
			inner.real, inner.twin = request{property: []any{inner.real}}, request{property: []any{inner.twin}}
			all = append(all, inner)
		}
	case "items":
		return g.items(property)
	case "content":
		return append(g.contents(v, property), g.papers(v, property)...)
	case "merge_patch", "patch":
		return g.papers(v, property)
	case "paper_pmid":
		return g.cited(property)
	case "scope":
		set(labA, paired(labA), text)
		if v.Name == verb.Comment.Name {
			for _, on := range []string{g.l.open.link, g.l.open.vote} {
				all = append(all, variant{of: property, name: labA + " on " + on, real: request{"ref": on, property: labA}, twin: request{"ref": on, property: twin(labA)}})
			}
		}
	case "scopes":
		each("scope", "", []pair{paired(labA)})
	case "consumer_id":
		if v.Name != verb.Poll.Name { // who polls makes one of its own
			each("consumer", "", p.consumers)
		}
	case "agent":
		each("id", "", p.agents)
		each("handle", "@", p.handles)
		for i := range all { // what was revoked is answered as a hash of the name
			all[i].hashed = v.Name == verb.TokensRevoke.Name
		}
	case "recipient":
		all = g.recipients(property, text)
	case "role":
		each("role", "", p.roles)
	case "handle":
		each("handle", "", p.handles)
	case "token_id":
		each("token", "", p.tokens)
		all[0].hashed = true // as an agent's
	case "idempotency_key":
		each("key", "", p.keys)
		for i := range all { // what one of a pair does, the other would meet: both ask for what is done, or is not there
			switch v.Name {
			case verb.Supersede.Name:
				all[i].real["ref"], all[i].twin["ref"] = g.l.open.retired, g.l.open.retired
			case verb.Unlink.Name:
				all[i].real["ref"], all[i].twin["ref"] = "kg_edge:nowhere", "kg_edge:nowhere"
			}
		}
	case "filter":
		field := func(name, op string) func(string) any {
			return func(s string) any { return map[string]any{"field": name, "op": op, "value": s} }
		}
		for _, r := range p.refs {
			set("ref eq "+r.real, r.pair, field("ref", "eq"))
			set("ref ne "+r.real, r.pair, field("ref", "ne"))
			for _, direction := range []string{"in", "out"} {
				set(direction+" "+r.real, r.pair, func(s string) any { return map[string]any{"link": map[string]any{"direction": direction, "to": s}} })
			}
		}
		for _, a := range p.agents {
			set("an agent", a, field("created_by", "eq"))
		}
		set("scope eq "+labA, paired(labA), field("scope", "eq"))
		set("scope gte "+labA, paired(labA), field("scope", "gte"))
	case "voter":
		each("voter", "import:", p.agents)
	case "id":
		all = g.ids(v, property)
	case "query":
		for _, r := range p.refs {
			set(r.real, r.pair, text)
		}
		each("id", "", p.ids)
		each("words", "", []pair{{secret, absent}, {`"` + secret + `"`, `"` + absent + `"`}, {secret + "*", absent + "*"}, {"something OR " + secret, "something OR " + absent}, {"something -" + secret, "something -" + absent}})
	case "cursor":
		all = g.cursors(v, property)
	}
	return all
}

// unlike returns what differs in a pair beside secret and absent.
func unlike(p pair) []pair {
	if twin(p.real) == p.twin {
		return nil
	}
	if was, is := uuids.FindString(p.real), uuids.FindString(p.twin); was != is {
		return []pair{{was, is}}
	}
	return []pair{p}
}

// inner returns objects of a schema whose properties name what is private.
func (g *generator) inner(v verb.Info, s *jsonschema.Schema) (all []variant) {
	base := g.required(v.Name, s)
	for _, property := range slices.Sorted(maps.Keys(s.Properties)) {
		g.value(v.Name, property, s.Properties[property]) // that it is known
		for _, f := range g.private(v, property, s.Properties[property]) {
			f.real, f.twin = base.with(f.real), base.with(f.twin)
			all = append(all, f)
		}
	}
	return all
}

// items returns batches of an item that names nothing private and one that does.
func (g *generator) items(property string) (all []variant) {
	first := g.open["items"].([]any)[0]
	for _, v := range verbs() {
		if !slices.Contains(batched, v.Name) {
			continue
		}
		for _, f := range g.variants(v) {
			if f.real["idempotency_key"] != nil {
				continue // the batch's own
			}
			of := func(item request) request {
				item = item.with(request{"op": v.Name})
				whole := request{property: []any{first, item}}
				if v.Name == verb.Supersede.Name { // what is done once cannot be done again
					item["dry_run"] = true
				}
				if item["dry_run"] != nil { // the batch's own
					whole["dry_run"] = true
					delete(item, "dry_run")
				}
				return whole
			}
			all = append(all, variant{
				of: property + "." + v.Name + "." + f.of, name: f.name, same: f.same, hashed: f.hashed, real: of(f.real), twin: of(f.twin),
			})
		}
	}
	return all
}

// mayDryRun reports whether a verb's requests can be tried without writing.
func mayDryRun(v verb.Info) bool {
	_, ok := v.In.Properties["dry_run"]
	return ok
}

package rights_test

import (
	"slices"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// recipients returns all that a recipient may be.
func (g *generator) recipients(property string, value func(string) any) (all []variant) {
	p := &g.l.private
	for prefix, named := range map[string][]pair{"agent:": p.agents, "@": slices.Concat(p.handles, p.roles), "agents:role:": p.roles, "group:": p.groups} {
		for _, n := range named {
			all = append(all, variant{of: property, name: prefix + n.real, real: request{property: value(prefix + n.real)}, twin: request{property: value(prefix + n.twin)}})
		}
	}
	return all
}

// contents returns contents that name what is private. In a content the formats
// and names below name something; other texts are words.
func (g *generator) contents(v verb.Info, property string) (all []variant) {
	if v.Name != verb.Create.Name && v.Name != verb.Supersede.Name {
		return nil // an update's content is of its artifact's type; but for papers, what it names is not looked at
	}
	for _, s := range tried(g.t) {
		var schema jsonschema.Schema
		if err := schema.UnmarshalJSON(s.ContentSchema); err != nil {
			g.t.Fatal(err)
		}
		base := request(contents(s.Type, "something"))
		for name, p := range schema.Properties {
			var named []variant
			set := func(text pair, value func(string) any) {
				named = append(named, variant{name: text.real, real: request{name: value(text.real)}, twin: request{name: value(text.twin)}, same: unlike(text)})
			}
			switch {
			case p.Format == artifact.FormatRef:
				for _, r := range g.l.private.refs {
					set(r.pair, func(s string) any { return s })
				}
			case name == "recipient":
				named = g.recipients(name, func(s string) any { return s })
			case name == "members":
				for _, a := range g.l.private.agents {
					set(a, func(s string) any { return []any{s} })
				}
			case p.Format != "":
				g.t.Errorf("the content of %s has the property %s of format %s: teach contents what it can name", s.Type, name, p.Format)
			}
			for _, f := range named {
				f.of, f.name, f.hashed = property+"."+name, s.Type+" "+f.name, true
				f.real = request{"type": s.Type, property: base.with(f.real)}
				f.twin = request{"type": s.Type, property: base.with(f.twin)}
				all = append(all, f)
			}
		}
	}
	return all
}

// papers returns contents and changes of papers that are cited as private ones are.
func (g *generator) papers(v verb.Info, property string) (all []variant) {
	p := &g.l.private
	for _, n := range slices.Concat(p.pmids, []pair{p.claimed, openPMID, p.doi}) {
		key := "pmid"
		if n == p.doi {
			key = "doi"
		}
		set := func(name string, value func(string) any, more request) {
			if n != p.claimed { // what one caller makes, the next would meet
				more = more.with(request{"dry_run": true})
			}
			all = append(all, variant{
				of: property + "." + key, name: name + " " + n.real, hashed: true, same: append(unlike(n), openPapers),
				real: more.with(request{property: value(n.real)}), twin: more.with(request{property: value(n.twin)}),
			})
		}
		whole := func(s string) any { return map[string]any{key: s} }
		switch {
		case v.Name == verb.Create.Name || v.Name == verb.Supersede.Name:
			for _, scope := range []string{artifact.Commons, labB} {
				set("a paper in "+scope, whole, request{"type": "paper", "scope": scope})
			}
		case v.Name == verb.Update.Name && n != p.claimed && n != openPMID:
			value := whole
			if property == "patch" {
				value = func(s string) any {
					return []any{map[string]any{"op": "add", "path": "/content/" + key, "value": s}}
				}
			}
			set("of a paper", value, request{"ref": g.l.open.paper.Current().String(), "base_content_hash": g.l.open.paper.Hash.String()})
		}
	}
	return all
}

// cited returns PubMed ids of private papers, cited by what is open and what is not.
func (g *generator) cited(property string) (all []variant) {
	p := &g.l.private
	for _, n := range append(slices.Clone(p.pmids), openPMID) {
		open, inLabB := g.l.open.hypothesis.Current().String(), g.l.open.inLabB.Current().String()
		for name, by := range map[string]pair{"in commons": {open, open}, "in another lab": {inLabB, inLabB}, "in the lab": p.refs[0].pair} {
			all = append(all, variant{
				of: property, name: n.real + " " + name, hashed: true, same: append(unlike(n), openPapers),
				real: request{"ref": by.real, property: n.real}, twin: request{"ref": by.twin, property: n.twin},
			})
		}
	}
	return all
}

// ids returns what the property id of each verb may name.
func (g *generator) ids(v verb.Info, property string) (all []variant) {
	p := &g.l.private
	set := func(name string, named pair, more request) {
		all = append(all, variant{
			of: property, name: name, same: unlike(named),
			real: request{property: named.real}.with(more), twin: request{property: named.twin}.with(more),
		})
	}
	switch v.Name {
	case verb.Create.Name, verb.Supersede.Name:
		set("of an artifact", p.ids[0], nil)
		local := pair{secret + "-hypothesis", absent + "-hypothesis"}
		set("within the lab", local, request{"scope": labA})
		set("within another lab", p.ids[0], request{"scope": labB})
		set("in commons", local, nil)
		for _, n := range p.pmids {
			for _, scope := range []string{artifact.Commons, labB} {
				set("of a paper in "+scope, pair{"PMID:" + n.real, "PMID:" + n.twin}, request{"type": "paper", "scope": scope, "content": contents("paper", "something"), "dry_run": true})
				all[len(all)-1].same = []pair{n}
			}
		}
		set("of a message", p.mail, request{"type": "message", "content": contents("message", "something"), "dry_run": true})
	case verb.CandidatesRevise.Name: // the id stays, whatever there is
		set("of an artifact", p.ids[0], nil)
	case verb.ScopesCreate.Name:
		set("of a scope", paired(labA), nil)
	case verb.AgentsRegister.Name:
		for _, a := range p.agents {
			set("of an agent", a, nil)
		}
	case verb.NodesRevoke.Name:
		for _, n := range p.nodes {
			set("of a node", n, nil)
		}
	default:
		g.t.Errorf("%s: the generator does not know what its id is of: teach ids", v.Name)
	}
	return all
}

// cursors returns cursors that stand on what is private.
func (g *generator) cursors(v verb.Info, property string) (all []variant) {
	set := func(name string, real, twin string, realMore, twinMore request) {
		all = append(all, variant{
			of: property, name: name, same: []pair{{real, twin}},
			real: request{property: real}.with(realMore), twin: request{property: twin}.with(twinMore),
		})
	}
	switch v.Name {
	case verb.List.Name:
		h := g.l.private.hypothesis
		for filter, more := range map[string]request{"": nil, h.Type: {"type": h.Type}} {
			at := verb.ListCursor{At: h.CreatedAt, Type: h.Type, ID: h.ID}
			none := at
			none.ID = twin(h.ID)
			set("of an artifact", verb.EncodeCursor(at, filter), verb.EncodeCursor(none, filter), more, more)
		}
	case verb.History.Name:
		for _, r := range g.l.private.refs {
			set("of "+r.real, verb.HistoryCursor(parsed(g.t, r.real), 2), verb.HistoryCursor(parsed(g.t, r.twin), 2), request{"ref": r.real}, request{"ref": r.twin})
			all[len(all)-1].same = append(all[len(all)-1].same, unlike(r.pair)...)
		}
	case verb.Links.Name:
		on := g.l.open.hypothesis.Current().String()
		for _, r := range g.l.private.refs {
			set("of a link to "+r.real, linkCursor(g.t, on, r.real), linkCursor(g.t, on, r.twin), request{"ref": on}, request{"ref": on})
		}
	case verb.Search.Name: // it stands on a number of hits
	case verb.AgentsList.Name:
		set("of an agent", verb.EncodeNameCursor(ada, "agents\n\n"), verb.EncodeNameCursor(twin(ada), "agents\n\n"), nil, nil)
	case verb.MessagesList.Name:
		for _, in := range []verb.MessagesListRequest{{}} {
			at := func(id string) string {
				return in.NextCursor(verb.MailPlace{At: g.l.private.hypothesis.CreatedAt, ID: id})
			}
			set("of a message", at(g.l.private.mail.real), at(g.l.private.mail.twin), nil, nil)
		}
	case verb.CandidatesList.Name:
		in := verb.CandidatesListRequest{ScopeID: artifact.Commons}
		at := func(id string) string {
			return in.NextCursorAfter(verb.CandidatePlace{At: g.l.private.hypothesis.CreatedAt, ID: id})
		}
		set("of a candidate", at(g.l.private.candidates[0].real), at(g.l.private.candidates[0].twin), nil, nil)
	case verb.ScopesMembers.Name:
		for _, scope := range []string{labA, labB} {
			set("of a member of "+scope, verb.EncodeNameCursor(ada, "members "+scope), verb.EncodeNameCursor(twin(ada), "members "+twin(scope)),
				request{"scope": scope}, request{"scope": twin(scope)})
		}
	default:
		g.t.Errorf("%s: the generator does not know what its cursor stands on: teach cursors", v.Name)
	}
	return all
}

// linkCursor returns a cursor on the links of an artifact, after one to another.
func linkCursor(t *testing.T, on, other string) string {
	t.Helper()
	in := verb.LinksRequest{Ref: parsed(t, on)}
	plan, err := in.Plan(nil)
	if err != nil {
		t.Fatal(err)
	}
	end := parsed(t, other)
	return plan.LinkCursor(verb.LinkPlace{Direction: verb.DirectionOut, Predicate: "derives_from", Type: end.Type, ID: end.ID, Link: "k-0"})
}

func parsed(t *testing.T, text string) artifact.Ref {
	t.Helper()
	ref, err := artifact.ParseRef(text)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}
